//! What webhooks have made of stored objects: asked once for each version of an object, so that a webhook that is
//! away for a while takes no list or watch of what it has converted before with it.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use remuda_store::{Record, Revision};
use serde_json::Value;

/// Bytes of one generation; there are two.
const GENERATION: usize = 8 << 20;
/// What an entry takes beside its text, about.
const ENTRY: usize = 128;

/// Converted objects of one resource in one version. What has not been asked for while a whole generation was filled
/// is forgotten. It ends with the definition it was made by.
#[derive(Default)]
pub(crate) struct Converted(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    objects: HashMap<Arc<str>, (Revision, Bytes)>,
    bytes: usize,
}

impl Converted {
    pub(crate) fn get(&self, record: &Record) -> Option<Value> {
        let text = self.0.lock().get(record)?;
        serde_json::from_slice(&text).ok()
    }

    pub(crate) fn put(&self, record: &Record, object: &Value) {
        let text = Bytes::from(object.to_string());
        self.0.lock().put(record.key.clone(), record.revision, text);
    }
}

impl Generations {
    fn get(&mut self, record: &Record) -> Option<Bytes> {
        let is_current = |(revision, _): &&(Revision, Bytes)| *revision == record.revision;
        if let Some((_, text)) = self.young.objects.get(&record.key).filter(is_current) {
            return Some(text.clone());
        }
        let (revision, text) = self.old.objects.get(&record.key).filter(is_current)?.clone();
        self.put(record.key.clone(), revision, text.clone());
        Some(text)
    }

    fn put(&mut self, key: Arc<str>, revision: Revision, text: Bytes) {
        let size = text.len() + ENTRY;
        if self.young.bytes + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += size;
        if let Some((_, before)) = self.young.objects.insert(key, (revision, text)) {
            self.young.bytes -= before.len() + ENTRY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, revision: Revision) -> Record {
        Record { key: name.into(), created: 1, revision, value: Bytes::new(), slot: None }
    }

    #[test]
    fn an_object_is_kept_in_the_version_it_was_converted_from() {
        let kept = Converted::default();
        kept.put(&record("a", 1), &1.into());
        assert_eq!(kept.get(&record("a", 1)), Some(1.into()));
        assert_eq!(kept.get(&record("a", 2)), None);
        kept.put(&record("a", 2), &2.into());
        assert_eq!(kept.get(&record("a", 2)), Some(2.into()));
        assert_eq!(kept.get(&record("a", 1)), None);
        assert_eq!(kept.0.lock().young.bytes, 1 + ENTRY);
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let kept = Converted::default();
        let large = Value::from("x".repeat(GENERATION / 4));
        kept.put(&record("used", 1), &1.into());
        kept.put(&record("idle", 1), &1.into());
        for index in 0..12 {
            kept.put(&record(&format!("o{index}"), 1), &large);
            assert_eq!(kept.get(&record("used", 1)), Some(1.into()));
            let state = kept.0.lock();
            assert!(state.young.bytes + state.old.bytes <= 2 * GENERATION);
        }
        assert_eq!(kept.get(&record("idle", 1)), None);
    }
}
