//! A queue that holds each item once, never hands it to two workers, and brings failures back later.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Queue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    more: Notify,
}

struct State<T> {
    order: VecDeque<T>,
    queued: HashSet<T>,
    /// Being worked on; `true` if it was added again meanwhile.
    busy: HashMap<T, bool>,
    failures: HashMap<T, u32>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State {
            order: VecDeque::new(),
            queued: HashSet::new(),
            busy: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), more: Notify::new() }) }
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Shared<T> {
    fn add(&self, item: T) {
        let mut state = self.state.lock();
        if let Some(again) = state.busy.get_mut(&item) {
            *again = true;
        } else if state.queued.insert(item.clone()) {
            state.order.push_back(item);
            drop(state);
            self.more.notify_one();
        }
    }

    fn release(&self, item: &T) {
        let again = self.state.lock().busy.remove(item).unwrap_or(false);
        if again {
            self.add(item.clone());
        }
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Queue<T> {
    pub(crate) fn add(&self, item: T) {
        self.shared.add(item);
    }

    /// The next item; it is this worker's until `done` or `retry`.
    pub(crate) async fn take(&self) -> T {
        loop {
            {
                let mut state = self.shared.state.lock();
                if let Some(item) = state.order.pop_front() {
                    state.queued.remove(&item);
                    state.busy.insert(item.clone(), false);
                    if !state.order.is_empty() {
                        self.shared.more.notify_one();
                    }
                    return item;
                }
            }
            self.shared.more.notified().await;
        }
    }

    pub(crate) fn done(&self, item: &T) {
        self.shared.state.lock().failures.remove(item);
        self.shared.release(item);
    }

    /// Gives the item back, to come again after a pause.
    pub(crate) fn retry(&self, item: &T, tasks: &TaskTracker) {
        let failures = {
            let mut state = self.shared.state.lock();
            let failures = state.failures.entry(item.clone()).or_default();
            *failures += 1;
            *failures
        };
        let pause = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_PAUSE);
        self.shared.release(item);
        let (shared, item) = (self.shared.clone(), item.clone());
        let tasks_token = tasks.token();
        let sleep = async move {
            tokio::time::sleep(pause).await;
            shared.add(item);
        };
        // Not tracked: a sleeping retry must not hold up a shutdown.
        drop(tasks_token);
        tokio::task::spawn(sleep);
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
        let tasks = TaskTracker::new();
        queue.add(1);
        let mut last = Duration::ZERO;
        for _ in 0..6 {
            let start = tokio::time::Instant::now();
            assert_eq!(queue.take().await, 1);
            let waited = start.elapsed();
            assert!(waited >= last);
            last = waited;
            queue.retry(&1, &tasks);
        }
        assert!(last >= Duration::from_millis(80));
    }
}
