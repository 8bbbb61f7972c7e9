//! Keys that wait to be worked on.
//!
//! A key is in the queue at most once and is worked on by at most one worker at a time; a key
//! added while it is worked on is worked on once more afterwards. Failures are counted per key
//! and make its next turn later and later until a success forgets them.

mod metrics;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
pub use remuda_base::Backoff;
use tokio::{sync::Notify, time::Instant};

pub use self::metrics::QueueMetrics;
use self::metrics::{Ages, Counters, Running};

/// Higher goes first; the same goes in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// What a first list brings: nothing has happened to it.
    Low,
    #[default]
    Normal,
    High,
}

/// How long a key waits after failures, unless its controller says otherwise.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1000));

/// Clones share the queue.
pub struct WorkQueue<T>(Arc<Shared<T>>);

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Something became ready, or an earlier moment became the next one.
    wake: Notify,
    /// Work ended while draining.
    idle: Notify,
    metrics: Counters,
}

struct State<T> {
    backoff: Backoff,
    ready: BTreeMap<Place, T>,
    waiting: HashMap<T, Waiting>,
    processing: HashMap<T, Processing>,
    later: BinaryHeap<Reverse<Later<T>>>,
    /// The one moment that counts for a key; other entries of `later` are stale.
    due: HashMap<T, Due>,
    failures: HashMap<T, u32>,
    sequence: u64,
    draining: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    priority: Reverse<Priority>,
    sequence: u64,
}

struct Waiting {
    place: Place,
    since: Instant,
}

struct Processing {
    since: Instant,
    /// Added again meanwhile.
    again: Option<(Priority, Instant)>,
}

#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    sequence: u64,
    priority: Priority,
}

struct Later<T> {
    at: Instant,
    sequence: u64,
    key: T,
}

impl<T> PartialEq for Later<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Later<T> {}

impl<T> PartialOrd for Later<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Later<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> WorkQueue<T> {
    pub fn new(name: &str, backoff: Backoff, metrics: &QueueMetrics) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State { backoff, ..State::default() }),
            wake: Notify::new(),
            idle: Notify::new(),
            metrics: metrics.of(name),
        });
        let running: Arc<dyn Running> = shared.clone();
        metrics.watch(name, Arc::downgrade(&running));
        Self(shared)
    }

    /// For failures from now on.
    pub fn set_backoff(&self, backoff: Backoff) {
        self.0.state.lock().backoff = backoff;
    }

    pub fn add(&self, key: T) {
        self.add_with(key, Priority::Normal);
    }

    /// A key that already waits keeps its place, or takes the better one of `priority`.
    pub fn add_with(&self, key: T, priority: Priority) {
        let mut state = self.0.state.lock();
        if state.draining {
            return;
        }
        state.add(key, priority, Instant::now(), &self.0.metrics);
        drop(state);
        self.0.wake.notify_one();
    }

    /// Adds the key when `delay` has passed. An earlier moment already asked for stays.
    pub fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let now = Instant::now();
        // Never, for any practical purpose, where the sum is not a moment.
        let at = now.checked_add(delay).unwrap_or(now + Duration::from_secs(365 * 24 * 3600));
        let mut state = self.0.state.lock();
        if state.draining || state.due.get(&key).is_some_and(|due| due.at <= at) {
            return;
        }
        state.sequence += 1;
        let sequence = state.sequence;
        state.due.insert(key.clone(), Due { at, sequence, priority: Priority::Normal });
        state.later.push(Reverse(Later { at, sequence, key }));
        let first = state.later.peek().is_some_and(|Reverse(later)| later.sequence == sequence);
        drop(state);
        if first {
            self.0.wake.notify_one();
        }
    }

    /// Counts a failure and adds the key after the delay that follows from it.
    pub fn retry(&self, key: T) -> Duration {
        self.retry_between(key, Duration::ZERO, Duration::MAX)
    }

    /// As [`Self::retry`], but no sooner than `least` and never later than `most`.
    pub fn retry_between(&self, key: T, least: Duration, most: Duration) -> Duration {
        let delay = {
            let mut state = self.0.state.lock();
            let backoff = state.backoff;
            let failures = state.failures.entry(key.clone()).or_default();
            *failures = failures.saturating_add(1);
            backoff.delay(*failures).max(least).min(most)
        };
        self.0.metrics.retries.inc();
        self.add_after(key, delay);
        delay
    }

    pub fn forget(&self, key: &T) {
        self.0.state.lock().failures.remove(key);
    }

    /// Ends work that succeeded: failures are forgotten, and so is the turn that was planned after the last one.
    pub fn succeed(&self, key: &T) {
        let mut state = self.0.state.lock();
        state.failures.remove(key);
        state.due.remove(key);
        drop(state);
        self.done(key);
    }

    /// Ends work that failed: the key has its next turn later, or at once if it was added meanwhile.
    pub fn fail(&self, key: &T) {
        self.retry(key.clone());
        self.done(key);
    }

    pub fn failures(&self, key: &T) -> u32 {
        self.0.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Keys that wait for a worker now.
    pub fn depth(&self) -> usize {
        self.0.state.lock().ready.len()
    }

    /// Whether no worker works and nothing waits, delayed keys aside.
    pub fn is_idle(&self) -> bool {
        let mut state = self.0.state.lock();
        state.promote(Instant::now(), &self.0.metrics);
        state.ready.is_empty() && state.processing.is_empty()
    }

    /// The next key, when there is one; `None` once the queue is draining and empty. The key is
    /// the caller's alone until [`Self::done`] is called for it. Cancel safe.
    pub async fn next(&self) -> Option<T> {
        loop {
            let woken = self.0.wake.notified();
            let (found, next) = self.0.state.lock().take(Instant::now(), &self.0.metrics);
            match (found, next) {
                (Taken::Key { key, more }, _) => {
                    // One stored permit may stand for many keys: pass it on.
                    if more {
                        self.0.wake.notify_one();
                    }
                    return Some(key);
                }
                (Taken::Drained, _) => {
                    self.0.wake.notify_one();
                    return None;
                }
                (Taken::Nothing, None) => woken.await,
                (Taken::Nothing, Some(at)) => {
                    tokio::select! {
                        () = woken => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }

    pub fn done(&self, key: &T) {
        let mut state = self.0.state.lock();
        let Some(processing) = state.processing.remove(key) else {
            return;
        };
        self.0.metrics.worked.observe(processing.since.elapsed().as_secs_f64());
        if let Some((priority, since)) = processing.again
            && !state.draining
        {
            state.enqueue(key.clone(), priority, since, &self.0.metrics);
        }
        drop(state);
        self.0.wake.notify_one();
        self.0.idle.notify_waiters();
    }

    /// Takes no more keys and forgets those that wait. Work under way goes on.
    pub fn shut_down(&self) {
        let mut state = self.0.state.lock();
        state.draining = true;
        state.ready.clear();
        state.waiting.clear();
        state.later.clear();
        state.due.clear();
        self.0.metrics.depth.set(0);
        drop(state);
        self.0.wake.notify_waiters();
        self.0.wake.notify_one();
    }

    /// Shuts down and waits until no worker works any more.
    pub async fn drain(&self) {
        self.shut_down();
        loop {
            let idle = self.0.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.0.state.lock().processing.is_empty() {
                return;
            }
            idle.await;
        }
    }
}

enum Taken<T> {
    Key { key: T, more: bool },
    Nothing,
    Drained,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self {
            backoff: BACKOFF,
            ready: BTreeMap::new(),
            waiting: HashMap::new(),
            processing: HashMap::new(),
            later: BinaryHeap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
            draining: false,
        }
    }
}

impl<T: Clone + Eq + Hash> State<T> {
    fn add(&mut self, key: T, priority: Priority, now: Instant, metrics: &Counters) {
        if let Some(processing) = self.processing.get_mut(&key) {
            match &mut processing.again {
                Some((known, _)) => *known = priority.max(*known),
                None => {
                    processing.again = Some((priority, now));
                    metrics.adds.inc();
                }
            }
            return;
        }
        match self.waiting.get(&key).map(|waiting| (waiting.place, waiting.since)) {
            Some((place, _)) if place.priority.0 >= priority => {}
            Some((place, since)) => {
                self.ready.remove(&place);
                self.enqueue(key, priority, since, metrics);
            }
            None => {
                metrics.adds.inc();
                self.enqueue(key, priority, now, metrics);
            }
        }
    }

    fn enqueue(&mut self, key: T, priority: Priority, since: Instant, metrics: &Counters) {
        self.sequence += 1;
        let place = Place { priority: Reverse(priority), sequence: self.sequence };
        self.ready.insert(place, key.clone());
        self.waiting.insert(key, Waiting { place, since });
        metrics.depth.set(self.ready.len() as i64);
    }

    /// Moves keys whose moment has come; tells the next moment.
    fn promote(&mut self, now: Instant, metrics: &Counters) -> Option<Instant> {
        loop {
            let Reverse(first) = self.later.peek()?;
            let current = self.due.get(&first.key).filter(|due| due.sequence == first.sequence).copied();
            if current.is_some() && first.at > now {
                return Some(first.at);
            }
            let Reverse(first) = self.later.pop()?;
            if let Some(due) = current {
                self.due.remove(&first.key);
                self.add(first.key, due.priority, now, metrics);
            }
        }
    }

    fn take(&mut self, now: Instant, metrics: &Counters) -> (Taken<T>, Option<Instant>) {
        let next = self.promote(now, metrics);
        let Some((_, key)) = self.ready.pop_first() else {
            return (if self.draining { Taken::Drained } else { Taken::Nothing }, next);
        };
        metrics.depth.set(self.ready.len() as i64);
        if let Some(waiting) = self.waiting.remove(&key) {
            metrics.waited.observe(now.saturating_duration_since(waiting.since).as_secs_f64());
        }
        self.processing.insert(key.clone(), Processing { since: now, again: None });
        (Taken::Key { key, more: !self.ready.is_empty() || next.is_some() }, next)
    }
}

impl<T: Send> Running for Shared<T> {
    fn ages(&self) -> Ages {
        let state = self.state.lock();
        let age = |since: Instant| since.elapsed().as_secs_f64();
        let mut ages = Ages::default();
        for processing in state.processing.values().map(|processing| age(processing.since)) {
            ages.unfinished += processing;
            ages.longest = ages.longest.max(processing);
        }
        let waiting = state.waiting.values().map(|waiting| age(waiting.since));
        ages.waiting = waiting.fold(0.0, f64::max);
        ages
    }
}

#[cfg(test)]
mod tests;
