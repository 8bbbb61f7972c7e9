//! How many Jobs of one driver and credential run at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use remuda_control::{Enqueuer, ObjectKey};

/// The Jobs under way, by lane. A machine whose lane is full waits in line.
pub(crate) struct Lanes {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    lanes: HashMap<String, Lane>,
    of: BTreeMap<ObjectKey, String>,
}

#[derive(Default)]
struct Lane {
    inside: BTreeSet<ObjectKey>,
    /// Machines in line, by when they came.
    waiting: BTreeMap<u64, ObjectKey>,
    came: u64,
}

impl State {
    /// A machine whose credential was changed has a place in one lane only.
    fn move_out(&mut self, key: &ObjectKey, lane: &str) {
        let other = self.of.get(key).filter(|of| *of != lane).cloned();
        if let Some(other) = other.and_then(|other| self.lanes.get_mut(&other)) {
            other.inside.remove(key);
            self.of.remove(key);
        }
    }
}

impl Lanes {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), state: Mutex::default() }
    }

    /// Takes a place if there is one. If not, the machine has to wait, and is woken when it may go on.
    pub(crate) fn enter(&self, lane: &str, key: &ObjectKey) -> bool {
        let mut state = self.state.lock();
        state.move_out(key, lane);
        let entry = state.lanes.entry(lane.to_owned()).or_default();
        if entry.inside.contains(key) {
            return true;
        }
        if entry.inside.len() < self.limit {
            entry.inside.insert(key.clone());
            entry.waiting.retain(|_, waiting| waiting != key);
            state.of.insert(key.clone(), lane.to_owned());
            return true;
        }
        if !entry.waiting.values().any(|waiting| waiting == key) {
            entry.came += 1;
            let came = entry.came;
            entry.waiting.insert(came, key.clone());
        }
        false
    }

    /// Takes a place for a Job that is under way, whether or not there is one.
    pub(crate) fn occupy(&self, lane: &str, key: &ObjectKey) {
        let mut state = self.state.lock();
        state.move_out(key, lane);
        state.lanes.entry(lane.to_owned()).or_default().inside.insert(key.clone());
        state.of.insert(key.clone(), lane.to_owned());
    }

    /// Gives the place back, in the lane or in the line for it, and wakes who is next.
    pub(crate) fn leave(&self, key: &ObjectKey, enqueuer: &Enqueuer) {
        let mut state = self.state.lock();
        for lane in state.lanes.values_mut() {
            lane.waiting.retain(|_, waiting| waiting != key);
        }
        let Some(name) = state.of.remove(key) else { return };
        let Some(lane) = state.lanes.get_mut(&name) else { return };
        lane.inside.remove(key);
        if let Some((_, next)) = lane.waiting.pop_first() {
            enqueuer.enqueue(next);
        }
        if lane.inside.is_empty() && lane.waiting.is_empty() {
            state.lanes.remove(&name);
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_makes_others_wait_and_lanes_do_not_mix() {
        let lanes = Lanes::new(2);
        let key = |name: &str| ObjectKey::namespaced("a", name);
        assert!(lanes.enter("x", &key("1")) && lanes.enter("x", &key("2")) && lanes.enter("x", &key("1")));
        assert!(!lanes.enter("x", &key("3")) && lanes.enter("y", &key("4")));
        lanes.occupy("x", &key("5"));
        assert!(!lanes.enter("x", &key("3")));
        let state = lanes.state.lock();
        assert_eq!((state.lanes["x"].inside.len(), state.lanes["x"].waiting.len()), (3, 1));
        drop(state);
        // Another credential is another lane, and the place in the first is free again.
        lanes.occupy("y", &key("5"));
        lanes.occupy("y", &key("1"));
        assert!(lanes.enter("x", &key("3")));
    }
}
