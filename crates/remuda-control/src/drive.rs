//! Runs a controller: from changes to keys, from keys to reconciles, from failures to retries.

mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    fmt::Debug,
    future::Future,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::worker::{Failure, Job, Reconcile, Reconciling, work};
use crate::{
    ctx::Ctx,
    error::Retryable,
    informer::{Cached, Change, Informer, Scope, Subscription},
    key::{Kind, ObjectKey},
    leases::Leadership,
    metrics::Metrics,
    queue::{BACKOFF, Backoff, Priority, WorkQueue},
};

/// The window of [`Controller::watches_debounced`] for what people read: too short to be noticed, and longer than the
/// objects of one cluster take to follow each other.
pub const DEBOUNCE: Duration = Duration::from_millis(100);

/// When an object is reconciled again. Named after controller-runtime's and kube-rs' results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// When something changes that is watched.
    AwaitChange,
    /// When something changes, and after this long at the latest.
    RequeueAfter(Duration),
}

type Keys = WorkQueue<ObjectKey>;
type Filter<K> = Arc<dyn Fn(&Change<K>) -> bool + Send + Sync>;

/// What a controller is about: its root kind and what enqueues its objects.
pub struct Controller<K> {
    name: &'static str,
    root: Informer<K>,
    sources: Vec<Source>,
    filter: Option<Filter<K>>,
    workers: usize,
    deadline: Option<Duration>,
    grace: Duration,
    leadership: Leadership,
    metrics: Metrics,
    enqueuer: Enqueuer,
}

/// Starts to feed the queue; the future is over once the first list is in.
type Feed = Box<dyn FnOnce(Keys) -> (Subscription, Synced) + Send>;
type Synced = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

struct Source {
    feed: Feed,
    required: bool,
}

impl<K: Cached> Controller<K> {
    /// A controller of all objects of a kind.
    pub fn new(name: &'static str, ctx: &Ctx) -> Self
    where
        K::DynamicType: Default,
    {
        Self::on(name, ctx, ctx.informers.of(Scope::all()))
    }

    /// A controller of the objects an informer has, of whatever kind they are.
    pub fn on(name: &'static str, ctx: &Ctx, root: Informer<K>) -> Self {
        let queue = WorkQueue::new(name, BACKOFF, ctx.metrics.queues());
        Self {
            name,
            root,
            sources: Vec::new(),
            filter: None,
            workers: 4,
            enqueuer: Enqueuer { queue, followed: Arc::default() },
            deadline: Some(Duration::from_secs(600)),
            grace: Duration::from_secs(20),
            leadership: ctx.leadership.clone(),
            metrics: ctx.metrics.clone(),
        }
    }

    /// The cache of the root kind.
    pub fn root(&self) -> &Informer<K> {
        &self.root
    }

    /// How many objects are reconciled at once; never one object twice at once.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        self.enqueuer.queue.set_backoff(backoff);
        self
    }

    /// Enqueues objects of this controller for reasons that are no objects, or not known yet.
    pub fn enqueuer(&self) -> Enqueuer {
        self.enqueuer.clone()
    }

    /// A reconcile that takes longer is given up and tried again: ten minutes, unless told
    /// otherwise. It is there for connections that died without saying so.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long a reconcile under way may go on when the controller is told to stop.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Changes of root objects that are of no interest. Deletions and objects that are being
    /// deleted always are: a filter by generation alone would miss finalizers.
    #[must_use]
    pub fn only_when(mut self, interesting: impl Fn(&Change<K>) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(interesting));
        self
    }

    /// Nothing is reconciled before this cache is filled; its changes enqueue nothing.
    #[must_use]
    pub fn requires<S: Cached>(mut self, informer: &Informer<S>) -> Self {
        let informer = informer.clone();
        let feed = move |_: Keys| {
            let subscription = informer.subscribe(|_| {});
            (subscription, Box::pin(async move { informer.wait_synced().await }) as Synced)
        };
        self.sources.push(Source { feed: Box::new(feed), required: true });
        self
    }

    /// Changes of another kind enqueue the root objects `keys` names. It is asked about the state
    /// before and after each change.
    #[must_use]
    pub fn watches<S: Cached>(
        self,
        informer: &Informer<S>,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.source(informer, enqueuing(keys, Duration::ZERO), true)
    }

    /// As [`Self::watches`], for what is only summed up: changes within `window` of the first one are one reconcile.
    /// An object that is being deleted or is gone is told at once, since deletions wait for each other.
    #[must_use]
    pub fn watches_debounced<S: Cached>(
        self,
        window: Duration,
        informer: &Informer<S>,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.source(informer, enqueuing(keys, window), true)
    }

    /// As [`Self::watches`], for facts of an object only: `keys` are enqueued when the facts differ, and when an object
    /// comes or goes. The first list enqueues nothing, since a controller reconciles its own objects then anyway.
    #[must_use]
    pub fn watches_facts<S: Cached, F: PartialEq>(
        self,
        informer: &Informer<S>,
        facts: impl Fn(&S) -> F + Send + Sync + 'static,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_unless(informer, move |old, new| facts(old) == facts(new), keys)
    }

    /// As [`Self::watches_facts`], where comparing is cheaper than taking facts out.
    #[must_use]
    pub fn watches_unless<S: Cached>(
        self,
        informer: &Informer<S>,
        same: impl Fn(&S, &S) -> bool + Send + Sync + 'static,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let enqueue = enqueuing(keys, Duration::ZERO);
        let enqueue = move |queue: &Keys, change: &Change<S>| {
            let states = change.old.as_deref().zip(change.new.as_deref());
            if !change.initial && !states.is_some_and(|(old, new)| same(old, new)) {
                enqueue(queue, change);
            }
        };
        self.source(informer, enqueue, true)
    }

    /// As [`Self::watches`], for a kind that need not be served: the controller does not wait for it.
    #[must_use]
    pub fn watches_if_served<S: Cached>(
        self,
        informer: &Informer<S>,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.source(informer, enqueuing(keys, Duration::ZERO), false)
    }

    /// Changes of objects that a root object controls enqueue it.
    #[must_use]
    pub fn owns<S: Cached>(self, informer: &Informer<S>) -> Self {
        let root = self.root.clone();
        self.watches(informer, owner_of(&root))
    }

    fn source<S: Cached>(
        mut self,
        informer: &Informer<S>,
        wake: impl Fn(&Keys, &Change<S>) + Send + Sync + 'static,
        required: bool,
    ) -> Self {
        let informer = informer.clone();
        let feed = move |queue: Keys| {
            let subscription = informer.subscribe(move |change| wake(&queue, change));
            (subscription, Box::pin(async move { informer.wait_synced().await }) as Synced)
        };
        self.sources.push(Source { feed: Box::new(feed), required });
        self
    }

    fn root_source(&self) -> Source {
        let (informer, filter) = (self.root.clone(), self.filter.clone());
        let feed = move |queue: Keys| {
            let handle = move |change: &Change<K>| {
                let Some(object) = change.object() else {
                    return;
                };
                let dying = change.is_delete() || object.meta().deletion_timestamp.is_some();
                let uninteresting = filter.as_ref().is_some_and(|interesting| !interesting(change));
                if dying || change.initial || !uninteresting {
                    queue.add_with(ObjectKey::of(object.meta()), priority(change));
                }
            };
            let subscription = informer.subscribe(handle);
            (subscription, Box::pin(async move { informer.wait_synced().await }) as Synced)
        };
        Source { feed: Box::new(feed), required: true }
    }
}

fn enqueuing<S: Cached>(
    keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    window: Duration,
) -> impl Fn(&Keys, &Change<S>) + Send + Sync + 'static {
    move |queue, change| {
        let states = change.old.iter().chain(&change.new);
        let woken: BTreeSet<ObjectKey> = states.flat_map(|state| keys(state)).collect();
        let deleting = change.new.as_ref().is_none_or(|object| object.meta().deletion_timestamp.is_some());
        for key in woken {
            if window.is_zero() || deleting || change.initial {
                queue.add_with(key, priority(change));
            } else {
                queue.add_after(key, window);
            }
        }
    }
}

/// The way into a controller's queue from outside: a tunnel that opened, a process that ended, or
/// a kind first heard of in a reconcile. Clones share it.
#[derive(Clone)]
pub struct Enqueuer {
    queue: Keys,
    followed: Arc<Mutex<BTreeMap<Kind, Subscription>>>,
}

impl Enqueuer {
    pub fn enqueue(&self, key: ObjectKey) {
        self.queue.add(key);
    }

    /// Enqueues an object after `window`, unless it is requeued before that anyway.
    pub fn enqueue_debounced(&self, key: ObjectKey, window: Duration) {
        self.queue.add_after(key, window);
    }

    /// From now on changes of another kind enqueue the root objects `keys` names. A kind that is
    /// followed already stays as it is, so a reconcile may ask for it each time.
    pub fn follow<S: Cached>(
        &self,
        informer: &Informer<S>,
        keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) {
        let mut followed = self.followed.lock();
        if !followed.contains_key(informer.kind()) {
            let (queue, wake) = (self.queue.clone(), enqueuing(keys, Duration::ZERO));
            let subscription = informer.subscribe(move |change| wake(&queue, change));
            followed.insert(informer.kind().clone(), subscription);
        }
    }

    pub fn unfollow(&self, kind: &Kind) {
        self.followed.lock().remove(kind);
    }
}

/// Thousands of objects that only now became known must not hold up the one that changed.
fn priority<K>(change: &Change<K>) -> Priority {
    if change.initial { Priority::Low } else { Priority::Normal }
}

/// Finds the root object that controls another one, for [`Controller::watches`].
pub fn owner_of<K: Cached, S: Resource>(
    root: &Informer<K>,
) -> impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static {
    let root = root.clone();
    move |object| {
        let meta = object.meta();
        let owners = meta.owner_references.iter().flatten();
        let ours = owners.filter(|owner| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            let kind = root.kind();
            owner.controller == Some(true) && owner.kind == kind.kind && group == kind.group
        });
        let here = ObjectKey::of(meta);
        let key = |owner: &OwnerReference| {
            // What lives in a namespace may be owned from there or from outside.
            let outside = ObjectKey::cluster_wide(&owner.name);
            if root.get(&outside).is_some() { outside } else { here.sibling(&owner.name) }
        };
        ours.map(key).collect()
    }
}

/// Finds root objects by an index of theirs, for [`Controller::watches`]: those filed under the
/// value that `value` gives for the object that changed.
pub fn via_index<K: Cached, S>(
    root: &Informer<K>,
    index: &'static str,
    value: impl Fn(&S) -> Option<String> + Send + Sync + 'static,
) -> impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static {
    let root = root.clone();
    move |object| value(object).map(|value| root.keys_by_index(index, &value)).unwrap_or_default()
}

/// Runs a controller until it is told to stop, and returns when its work has ended.
///
/// Nothing is reconciled before all caches are filled and we lead. `reconcile` gets the newest
/// state in the cache; objects that are gone are not reconciled (see [`drive_keys`]).
pub async fn drive<K, C, E, F>(
    controller: Controller<K>,
    reconcile: impl Fn(Arc<K>, Arc<C>) -> F + Send + Sync + 'static,
    ctx: Arc<C>,
    stop: CancellationToken,
) where
    K: Cached,
    C: Send + Sync + 'static,
    E: StdError + Retryable + Send + 'static,
    F: Future<Output = Result<Action, E>> + Send + 'static,
{
    let root = controller.root.clone();
    let reconcile = move |key: ObjectKey, ctx: Arc<C>| {
        let reconciling = root.get(&key).map(|object| reconcile(object, ctx));
        async move {
            match reconciling {
                Some(reconciling) => reconciling.await,
                None => Ok(Action::AwaitChange),
            }
        }
    };
    drive_keys(controller, reconcile, ctx, stop).await;
}

/// As [`drive`], for controllers that have something to do when an object is gone.
pub async fn drive_keys<K, C, E, F>(
    controller: Controller<K>,
    reconcile: impl Fn(ObjectKey, Arc<C>) -> F + Send + Sync + 'static,
    ctx: Arc<C>,
    stop: CancellationToken,
) where
    K: Cached,
    C: Send + Sync + 'static,
    E: StdError + Retryable + Send + 'static,
    F: Future<Output = Result<Action, E>> + Send + 'static,
{
    let reconcile = move |key| -> Reconciling {
        let reconciling = reconcile(key, ctx.clone());
        Box::pin(async move { reconciling.await.map_err(|error| Failure::of(&error)) })
    };
    let sources = std::iter::once(controller.root_source()).chain(controller.sources).collect();
    let Controller { name, workers, deadline, grace, leadership, metrics, enqueuer, .. } = controller;
    let running = Driven { name, sources, workers, deadline, grace, leadership, metrics, enqueuer };
    running.run(Box::new(reconcile), stop).await;
}

/// A controller without the types of its objects and of its reconcile.
struct Driven {
    name: &'static str,
    sources: Vec<Source>,
    workers: usize,
    deadline: Option<Duration>,
    grace: Duration,
    leadership: Leadership,
    metrics: Metrics,
    enqueuer: Enqueuer,
}

impl Driven {
    async fn run(self, reconcile: Reconcile, stop: CancellationToken) {
        let queue = self.enqueuer.queue.clone();
        let mut subscriptions = Vec::new();
        let mut synced = Vec::new();
        for source in self.sources {
            let (subscription, ready) = (source.feed)(queue.clone());
            subscriptions.push(subscription);
            if source.required {
                synced.push(ready);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return queue.shut_down(),
            _ = futures::future::join_all(synced) => {}
        }
        tracing::debug!(controller = self.name, "caches are filled");

        let job = Arc::new(Job {
            name: self.name,
            queue: queue.clone(),
            leadership: self.leadership.clone(),
            metrics: self.metrics.controller(self.name),
            deadline: self.deadline,
            reconcile,
            told: Mutex::default(),
        });
        job.metrics.workers.set(self.workers as i64);
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            workers.spawn(work(job.clone(), stop.clone()));
        }
        stop.cancelled().await;
        queue.shut_down();
        let ended = async { while workers.join_next().await.is_some() {} };
        if tokio::time::timeout(self.grace, ended).await.is_err() {
            tracing::warn!(controller = self.name, "reconcile did not end in time");
            workers.shutdown().await;
        }
        self.enqueuer.followed.lock().clear();
        drop(subscriptions);
    }
}

impl<K> Debug for Controller<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}
