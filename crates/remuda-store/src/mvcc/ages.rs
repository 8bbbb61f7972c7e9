//! Since when past states are past.
//!
//! A state that was replaced long ago cannot be read any more, also where nothing happened since that would have
//! trimmed it away: what a client may rely on must not depend on how busy others are. Nothing waits for that moment.
//! Commits leave marks, a few in the time history is kept, and who names a past state is judged by them.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::Revision;

/// Marks in the time history is kept.
const MARKS: u64 = 16;

pub(super) struct Ages {
    /// Times are milliseconds since then.
    start: Instant,
    /// The newest commit.
    last: AtomicU64,
    /// The next commit that leaves a mark comes then or later.
    next: AtomicU64,
    /// Commits, by time and revision.
    marks: Mutex<VecDeque<(u64, Revision)>>,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Ages {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: 0.into(), next: 0.into(), marks: Mutex::default() }
    }

    fn at(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.start))
    }

    /// `revision` is published next. There is one writer at a time.
    pub(super) fn committed(&self, now: Instant, revision: Revision, age: Duration) {
        let (now, age) = (self.at(now), millis(age));
        self.last.store(now, Ordering::Release);
        if now < self.next.load(Ordering::Relaxed) {
            return;
        }
        self.next.store(now.saturating_add(age / MARKS), Ordering::Relaxed);
        let mut marks = self.marks.lock();
        marks.push_back((now, revision));
        // The newest of those that are old enough says all.
        while marks.get(1).is_some_and(|(at, _)| at.saturating_add(age) <= now) {
            marks.pop_front();
        }
    }

    /// States before the one at this revision were replaced longer than `age` ago. `published` was read before.
    pub(super) fn oldest(&self, published: Revision, now: Instant, age: Duration) -> Revision {
        let (now, age) = (self.at(now), millis(age));
        if self.last.load(Ordering::Acquire).saturating_add(age) <= now {
            return published;
        }
        let marks = self.marks.lock();
        marks.iter().rev().find(|(at, _)| at.saturating_add(age) <= now).map_or(0, |(_, revision)| *revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(300);

    #[test]
    fn states_end_when_they_were_replaced_long_enough_ago() {
        let ages = Ages::new();
        let at = |seconds: u64| ages.start + Duration::from_secs(seconds);
        for (seconds, revision) in [(10, 1), (100, 2), (110, 3), (400, 4)] {
            ages.committed(at(seconds), revision, AGE);
        }
        // Replaced at 100, at 110 (which left no mark of its own) and at 400.
        assert_eq!(ages.oldest(4, at(401), AGE), 2);
        assert_eq!(ages.oldest(4, at(699), AGE), 2);
        // Nothing happens any more, and time goes on all the same.
        assert_eq!(ages.oldest(4, at(700), AGE), 4);
        assert_eq!(ages.oldest(4, at(10_000), AGE), 4);
    }

    #[test]
    fn marks_stay_few() {
        let ages = Ages::new();
        for second in 0..10_000_u64 {
            ages.committed(ages.start + Duration::from_secs(second), second + 1, AGE);
        }
        assert!(ages.marks.lock().len() <= MARKS as usize + 2);
        let oldest = ages.oldest(10_000, ages.start + Duration::from_secs(9_999), AGE);
        assert!((9_660..=9_700).contains(&oldest), "{oldest}");
    }
}
