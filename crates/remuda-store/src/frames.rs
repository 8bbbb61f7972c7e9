//! Encoded forms of an event, made once and shared by everyone who sends it.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;

/// Encoded forms of an event, by tag.
///
/// Nearly all readers of an event want the same form, so the first tag has a place that is read
/// without a lock; the few others share a list. The store drops the forms of events most readers
/// are past; who still wants one makes it again.
#[derive(Default)]
pub struct Frames {
    forms: ArcSwapOption<Forms>,
}

#[derive(Default)]
struct Forms {
    first: OnceLock<(u64, Bytes)>,
    others: Mutex<Vec<(u64, Bytes)>>,
}

impl Frames {
    /// The form with this tag; `make` runs if nobody made it before.
    pub fn get_or_insert(&self, tag: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        if let Some(forms) = &*self.forms.load() {
            return forms.get_or_insert(tag, make);
        }
        let empty: Option<Arc<Forms>> = None;
        let new = Arc::new(Forms::default());
        let found = self.forms.compare_and_swap(&empty, Some(new.clone()));
        match &*found {
            Some(forms) => forms.get_or_insert(tag, make),
            None => new.get_or_insert(tag, make),
        }
    }

    pub(crate) fn clear(&self) {
        self.forms.store(None);
    }
}

impl Forms {
    fn get_or_insert(&self, tag: u64, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut make = Some(make);
        let (first, bytes) = self
            .first
            .get_or_init(|| (tag, make.take().expect("called at most once, before any other use")()));
        if *first == tag {
            return bytes.clone();
        }
        if let Some((_, bytes)) = self.others.lock().iter().find(|(other, _)| *other == tag) {
            return bytes.clone();
        }
        // Made outside the lock: a slow encoder must not hold up readers of other forms.
        let made = make.take().expect("not used: the first tag is another one")();
        let mut others = self.others.lock();
        if let Some((_, bytes)) = others.iter().find(|(other, _)| *other == tag) {
            return bytes.clone();
        }
        others.push((tag, made.clone()));
        made
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_made_once() {
        let frames = Frames::default();
        for tag in [7, 7, 8, 9, 8] {
            let bytes = frames.get_or_insert(tag, || Bytes::from(tag.to_string()));
            assert_eq!(bytes, tag.to_string());
        }
        for tag in [7, 8, 9] {
            frames.get_or_insert(tag, || panic!("made twice"));
        }
        frames.clear();
        assert_eq!(frames.get_or_insert(7, || Bytes::from_static(b"again")), "again");
    }
}
