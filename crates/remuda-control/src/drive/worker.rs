//! One worker of a controller.

use std::{
    any::Any, collections::HashMap, error::Error as StdError, future::Future, panic::AssertUnwindSafe,
    pin::Pin, sync::Arc, time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{Action, Keys};
use crate::{
    error::{Chain, Retry, Retryable},
    events::CONTROLLER,
    key::ObjectKey,
    leases::Leadership,
    metrics::ControllerMetrics,
};

/// After a conflict the newer object is already on its way, so waiting long helps nobody.
const LONGEST_AFTER_CONFLICT: Duration = Duration::from_secs(1);
/// Who does not answer now will not in a few milliseconds.
const SHORTEST_UNREACHABLE: Duration = Duration::from_secs(1);
/// Their return wakes us; this is for one whose event was missed.
const LONGEST_UNREACHABLE: Duration = Duration::from_secs(60);
/// Another failure of the same object is told after so long.
const TELL_ANOTHER: Duration = Duration::from_secs(10);
/// A failure that was told is told again only when it is tried as seldom as this.
const TELL_AGAIN: Duration = Duration::from_secs(30);

/// A reconcile without its types: boxed once per controller, so that workers are compiled once and not for each.
pub(super) type Reconcile = Box<dyn Fn(ObjectKey) -> Reconciling + Send + Sync>;
pub(super) type Reconciling = Pin<Box<dyn Future<Output = Result<Action, Failure>> + Send>>;

/// What is needed of a failed reconcile.
pub(super) struct Failure {
    retry: Retry,
    text: String,
}

impl Failure {
    pub(super) fn of(error: &(impl StdError + Retryable + 'static)) -> Self {
        Self { retry: error.retry(), text: Chain(error).to_string() }
    }
}

pub(super) struct Job {
    pub(super) name: &'static str,
    pub(super) queue: Keys,
    pub(super) leadership: Leadership,
    pub(super) metrics: ControllerMetrics,
    pub(super) deadline: Option<Duration>,
    pub(super) reconcile: Reconcile,
    /// The failure of each key that was told last.
    pub(super) told: Mutex<HashMap<ObjectKey, (String, Instant)>>,
}

/// How a reconcile ended.
enum Outcome {
    Returned(Result<Action, Failure>),
    Panicked(String),
    Late,
    /// Somebody else leads: whatever was under way is theirs now.
    Deposed,
}

pub(super) async fn work(job: Arc<Job>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = job.leadership.gained() => {}
        }
        let key = tokio::select! {
            () = job.leadership.lost() => continue,
            key = job.queue.next() => key,
        };
        let Some(key) = key else {
            return;
        };
        let span = tracing::info_span!(
            "reconcile",
            controller = job.name,
            namespace = key.namespace.as_deref().unwrap_or_default(),
            name = &*key.name
        );
        job.handle(key).instrument(span).await;
    }
}

impl Job {
    async fn handle(&self, key: ObjectKey) {
        let _held = Held { queue: &self.queue, key: &key };
        self.metrics.active.inc();
        let started = Instant::now();
        let outcome = self.run(key.clone()).await;
        self.metrics.durations.observe(started.elapsed().as_secs_f64());
        self.metrics.active.dec();
        self.settle(key.clone(), outcome);
    }

    async fn run(&self, key: ObjectKey) -> Outcome {
        // The closure too may panic, before there is a future.
        let reconcile = CONTROLLER.scope(self.name, async { (self.reconcile)(key).await });
        let reconcile = AssertUnwindSafe(reconcile).catch_unwind();
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.leadership.lost() => Outcome::Deposed,
            outcome = reconcile => match outcome {
                Ok(result) => Outcome::Returned(result),
                Err(panic) => Outcome::Panicked(panic_text(&*panic)),
            },
            () = late => Outcome::Late,
        }
    }

    /// Decides when the key is looked at again. The only place that does.
    fn settle(&self, key: ObjectKey, outcome: Outcome) {
        let metrics = &self.metrics;
        match outcome {
            Outcome::Returned(Ok(next)) => {
                self.queue.forget(&key);
                self.told.lock().remove(&key);
                match next {
                    Action::AwaitChange => drop(metrics.success.inc()),
                    Action::RequeueAfter(delay) => {
                        metrics.requeue_after.inc();
                        self.queue.add_after(key, delay);
                    }
                }
            }
            Outcome::Returned(Err(Failure { retry, text: error })) => match retry {
                Retry::Conflict => {
                    metrics.requeue.inc();
                    let retry = self.queue.retry_between(key, Duration::ZERO, LONGEST_AFTER_CONFLICT);
                    tracing::debug!(error, ?retry, "reconcile met a conflict");
                }
                Retry::Transient => {
                    metrics.error.inc();
                    metrics.errors.inc();
                    let retry = self.queue.retry(key.clone());
                    self.tell(key, error, retry);
                }
                Retry::Unreachable => {
                    metrics.error.inc();
                    metrics.errors.inc();
                    let (least, most) = (SHORTEST_UNREACHABLE, LONGEST_UNREACHABLE);
                    let retry = self.queue.retry_between(key.clone(), least, most);
                    self.tell(key, error, retry);
                }
                Retry::UserMustAct => {
                    metrics.error.inc();
                    metrics.errors.inc();
                    metrics.terminal_errors.inc();
                    self.queue.forget(&key);
                    // It is not tried again, so this is the only chance to tell it.
                    if self.is_news(key, &error, Duration::ZERO) {
                        tracing::warn!(error, "reconcile needs a change");
                    }
                }
                Retry::NoNamespace => {
                    metrics.requeue.inc();
                    let retry = self.queue.retry(key.clone());
                    if retry < SHORTEST_UNREACHABLE {
                        tracing::debug!(error, ?retry, "reconcile found no namespace");
                    } else {
                        self.tell(key, error, retry);
                    }
                }
                Retry::Terminating => {
                    metrics.requeue.inc();
                    let retry = self.queue.retry_between(key, SHORTEST_UNREACHABLE, LONGEST_UNREACHABLE);
                    tracing::debug!(error, ?retry, "reconcile came too late");
                }
            },
            Outcome::Panicked(panic) => {
                metrics.error.inc();
                metrics.panics.inc();
                let retry = self.queue.retry(key);
                tracing::error!(panic, ?retry, "reconcile panicked");
            }
            Outcome::Late => {
                metrics.error.inc();
                metrics.errors.inc();
                let retry = self.queue.retry(key);
                tracing::warn!(deadline = ?self.deadline, ?retry, "reconcile took too long");
            }
            Outcome::Deposed => self.queue.add(key),
        }
    }

    /// One line for a failure, however often it is met, and a reminder now and then.
    fn tell(&self, key: ObjectKey, error: String, retry: Duration) {
        // Those who cannot be reached have many ways to say so, in turns.
        if self.is_news(key, &error, TELL_ANOTHER) || retry >= TELL_AGAIN {
            tracing::warn!(error, ?retry, "reconcile failed");
        } else {
            tracing::debug!(error, ?retry, "reconcile failed again");
        }
    }

    /// Whether a failure is not the one told last, which was told at least `pause` ago.
    fn is_news(&self, key: ObjectKey, error: &str, pause: Duration) -> bool {
        let mut told = self.told.lock();
        let known = told.get(&key).is_some_and(|(text, at)| text == error || at.elapsed() < pause);
        if !known {
            told.insert(key, (error.to_owned(), Instant::now()));
        }
        !known
    }
}

/// Gives the key back however the reconcile ends, also when its worker is aborted.
struct Held<'a> {
    queue: &'a Keys,
    key: &'a ObjectKey,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.queue.done(self.key);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown".to_owned())
}
