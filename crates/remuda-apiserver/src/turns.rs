//! Writers of one object, one after another.
//!
//! A write that names no version must not fail because another one was faster: it reads again and repeats its change.
//! The first try takes no lock. Who loses it waits for a turn, so that ten writers of one object are a queue and not a
//! race in which most work is thrown away.
//!
//! A turn is a courtesy: the store compares versions anyway. It is not waited for longer than [`PATIENCE`], because its
//! holder may be waiting for a webhook which itself writes the object.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use tokio::sync::{Mutex, MutexGuard};

/// Objects that share a lane wait for each other, but only while they are contended.
const LANES: usize = 256;

/// How long a turn is waited for.
const PATIENCE: Duration = Duration::from_millis(250);

pub(crate) struct Turns {
    lanes: [Mutex<()>; LANES],
    /// Which objects share a lane is not for clients to choose.
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { lanes: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

impl Turns {
    /// For a write that has not lost any race yet.
    pub(crate) fn first(&self) -> Turn<'_> {
        Turn { turns: self, held: None }
    }
}

/// The place of one write among the writers of its object; given up when dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    held: Option<MutexGuard<'a, ()>>,
}

impl Turn<'_> {
    /// Another writer of the object at `key` was faster. Returns when it is worth while to read again.
    pub(crate) async fn lost(&mut self, key: &str) {
        if self.held.is_some() {
            return;
        }
        let lane = self.turns.hasher.hash_one(key) as usize % LANES;
        self.held = tokio::time::timeout(PATIENCE, self.turns.lanes[lane].lock()).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_but_not_for_ever() {
        let turns = Turns::default();
        let (mut one, mut two) = (turns.first(), turns.first());
        one.lost("/core/configmaps/a/b").await;
        assert!(one.held.is_some());
        let began = tokio::time::Instant::now();
        two.lost("/core/configmaps/a/b").await;
        assert_eq!((two.held.is_some(), began.elapsed() >= PATIENCE), (false, true));
        drop(one);
        two.lost("/core/configmaps/a/b").await;
        assert!(two.held.is_some());
    }
}
