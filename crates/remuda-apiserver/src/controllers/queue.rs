//! A queue that holds each item once, never hands it to two workers, and brings failures back later.
//!
//! It runs nothing of its own: the workers that wait for items also watch the clock for it.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use parking_lot::Mutex;
use remuda_base::Backoff;
use tokio::{sync::Notify, time::Instant};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    more: Notify,
}

struct State<T> {
    order: VecDeque<T>,
    queued: HashSet<T>,
    /// Being worked on; `true` if it was added again meanwhile.
    busy: HashMap<T, bool>,
    failures: HashMap<T, Failure>,
    /// Failed items by the time they come back; the number tells equal times apart.
    later: BTreeMap<(Instant, u64), T>,
    count: u64,
}

/// How often an item has failed, and when it comes back.
struct Failure {
    times: u32,
    due: (Instant, u64),
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State {
            order: VecDeque::new(),
            queued: HashSet::new(),
            busy: HashMap::new(),
            failures: HashMap::new(),
            later: BTreeMap::new(),
            count: 0,
        };
        Self { state: Mutex::new(state), more: Notify::new() }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    /// Says whether there is something new to take.
    fn add(&mut self, item: T) -> bool {
        if let Some(again) = self.busy.get_mut(&item) {
            *again = true;
            return false;
        }
        let new = self.queued.insert(item.clone());
        if new {
            self.order.push_back(item);
        }
        new
    }

    fn release(&mut self, item: &T) -> bool {
        self.busy.remove(item) == Some(true) && self.add(item.clone())
    }

    /// Queues what has waited long enough.
    fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let item = entry.remove();
            self.add(item);
        }
    }
}

impl<T: Clone + Eq + Hash> Queue<T> {
    pub(crate) fn add(&self, item: T) {
        if self.state.lock().add(item) {
            self.more.notify_one();
        }
    }

    /// The next item; it is this worker's until `done` or `retry`.
    pub(crate) async fn take(&self) -> T {
        loop {
            let next = {
                let mut state = self.state.lock();
                state.wake(Instant::now());
                if let Some(item) = state.order.pop_front() {
                    state.queued.remove(&item);
                    state.busy.insert(item.clone(), false);
                    // Another worker takes over: the next item, or the watch over the clock.
                    if !state.order.is_empty() || !state.later.is_empty() {
                        self.more.notify_one();
                    }
                    return item;
                }
                state.later.first_key_value().map(|((due, _), _)| *due)
            };
            match next {
                None => self.more.notified().await,
                Some(due) => {
                    tokio::select! {
                        () = self.more.notified() => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    pub(crate) fn done(&self, item: &T) {
        let mut state = self.state.lock();
        if let Some(failure) = state.failures.remove(item) {
            state.later.remove(&failure.due);
        }
        if state.release(item) {
            self.more.notify_one();
        }
    }

    /// Gives the item back, to come again after a pause, or at once if something new is known of it.
    pub(crate) fn retry(&self, item: &T) {
        let mut state = self.state.lock();
        let before = state.failures.remove(item);
        if let Some(failure) = &before {
            state.later.remove(&failure.due);
        }
        let times = before.map_or(1, |failure| failure.times.saturating_add(1));
        let pause = BACKOFF.delay(times);
        state.count += 1;
        let due = (Instant::now() + pause, state.count);
        state.failures.insert(item.clone(), Failure { times, due });
        state.later.insert(due, item.clone());
        state.release(item);
        self.more.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_item_added_while_worked_on_comes_once_more() {
        let queue = Queue::default();
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.take().await, 1);
        queue.add(1);
        assert!(tokio::time::timeout(Duration::from_millis(1), queue.take()).await.is_err(), "busy");
        queue.done(&1);
        assert_eq!(queue.take().await, 1);
        queue.done(&1);
        assert!(tokio::time::timeout(Duration::from_secs(100), queue.take()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_ever_later() {
        let queue = Queue::default();
        queue.add(1);
        let mut last = Duration::ZERO;
        for _ in 0..6 {
            let start = tokio::time::Instant::now();
            assert_eq!(queue.take().await, 1);
            let waited = start.elapsed();
            assert!(waited >= last);
            last = waited;
            queue.retry(&1);
        }
        assert!(last >= Duration::from_millis(80));
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_forgets_the_retry_that_was_planned() {
        let queue = Queue::default();
        queue.add(1);
        queue.take().await;
        queue.retry(&1);
        queue.add(1);
        queue.take().await;
        queue.done(&1);
        assert!(tokio::time::timeout(Duration::from_secs(100), queue.take()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_is_watched_while_other_workers_are_busy() {
        let queue = std::sync::Arc::new(Queue::default());
        queue.add(1);
        queue.take().await;
        let mut other = tokio::task::JoinSet::new();
        other.spawn({
            let queue = queue.clone();
            async move { queue.take().await }
        });
        tokio::task::yield_now().await;
        queue.retry(&1);
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(1), other.join_next()).await.unwrap().unwrap().unwrap(),
            1
        );
    }
}
