//! One watch and one cache per kind and scope, shared by all controllers.
//!
//! Reads are local. Changes are delivered in order, each with the state before and after it; a
//! subscriber that comes late is first told of everything that is there. Caches are as old as
//! the last event: a controller that must see its own write waits for it with
//! [`Informer::wait_for`].

mod cache;
mod events;
mod reflector;
mod registry;

use std::{
    any::Any,
    fmt::{self, Debug, Write as _},
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::{Resource, ResourceExt, core::ObjectMeta};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::{sync::watch, time::Instant};

pub use self::registry::{Bound, Informers, Options, Scope};
use self::{
    cache::{AnyChange, Cache, Object},
    reflector::Progress,
};
use crate::{
    key::{Kind, ObjectKey},
    metrics::InformerMetrics,
};

/// What can be cached: a typed kind, `DynamicObject`, or `PartialObjectMeta` of either.
pub trait Cached: Resource + DeserializeOwned + Debug + Send + Sync + 'static {}

impl<K: Resource + DeserializeOwned + Debug + Send + Sync + 'static> Cached for K {}

/// One object before and after a change.
#[derive(Debug)]
pub struct Change<K> {
    /// `None` when the object is new to this cache.
    pub old: Option<Arc<K>>,
    /// `None` when the object is gone; `old` is then its last state.
    pub new: Option<Arc<K>>,
    /// Part of a first list or of a replay: nothing happened to the object just now.
    pub initial: bool,
}

impl<K> Change<K> {
    /// The newest state known.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    pub fn is_delete(&self) -> bool {
        self.new.is_none()
    }
}

/// Takes from an object what is not worth caching.
type Trim<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

struct Subscriber {
    alive: Arc<AtomicBool>,
    handler: Arc<dyn Fn(&AnyChange) + Send + Sync>,
}

/// Ends its handler when dropped.
#[derive(Debug)]
#[must_use = "a dropped subscription hears nothing"]
pub struct Subscription(Arc<AtomicBool>);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A shared cache of one kind. Clones share it.
///
/// A typed shell: what it holds is of type `K`, and all it does is to say so.
pub struct Informer<K>(Arc<Shared>, PhantomData<fn() -> K>);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<K> Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({})", self.0.kind)
    }
}

/// What has to be known of a type to cache objects of it.
#[derive(Clone, Copy)]
struct OfType {
    meta: fn(&dyn Any) -> &ObjectMeta,
    /// How much an object takes, about.
    size: fn(&dyn Any) -> usize,
}

impl OfType {
    fn of<K: Cached>() -> Self {
        Self { meta: meta_of::<K>, size: size_of::<K> }
    }
}

fn meta_of<K: Resource + 'static>(object: &dyn Any) -> &ObjectMeta {
    typed_ref::<K>(object).meta()
}

fn size_of<K: Debug + 'static>(object: &dyn Any) -> usize {
    printed_size(typed_ref::<K>(object))
}

fn printed_size(object: &dyn Debug) -> usize {
    struct Count(usize);
    impl fmt::Write for Count {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut count = Count(0);
    let _ = write!(count, "{object:?}");
    count.0
}

/// The types of a cache and of the informer on it are the same: only [`Informers`] puts them together.
#[expect(clippy::expect_used, reason = "a cache holds objects of the type of its informer, by construction")]
fn typed_ref<K: 'static>(object: &dyn Any) -> &K {
    object.downcast_ref().expect("an object of the informer's type")
}

fn typed<K: Send + Sync + 'static>(object: Object) -> Option<Arc<K>> {
    object.downcast().ok()
}

fn typed_list<K: Send + Sync + 'static>(objects: Vec<Object>) -> Vec<Arc<K>> {
    objects.into_iter().filter_map(typed).collect()
}

/// Reads an object of one type from JSON and trims it.
type Read = Box<dyn Fn(&str) -> serde_json::Result<Object> + Send + Sync>;

struct Shared {
    kind: Kind,
    of_type: OfType,
    read: Read,
    cache: RwLock<Cache>,
    /// Held while a change is made and told, so that subscribers hear changes in their order and
    /// a replay has no gap. Never held together with `cache` while a handler runs: handlers may
    /// read this cache.
    subscribers: Mutex<Vec<Subscriber>>,
    progress: watch::Sender<Progress>,
    trouble: watch::Sender<Option<Arc<str>>>,
    metrics: InformerMetrics,
}

impl<K: Cached> Informer<K> {
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.0.get(key).and_then(typed)
    }

    /// All objects, in no particular order.
    pub fn list(&self) -> Vec<Arc<K>> {
        typed_list(self.0.cache.read().all())
    }

    pub fn keys(&self) -> Vec<ObjectKey> {
        self.0.keys()
    }

    pub fn len(&self) -> usize {
        self.0.cache.read().objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects of a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        typed_list(self.0.cache.read().in_namespace(namespace))
    }

    /// Objects that are filed under `value`, ordered by key. An index nobody added is empty.
    pub fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        typed_list(self.0.cache.read().by_index(index, value))
    }

    pub fn keys_by_index(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        self.0.cache.read().keys_by_index(index, value)
    }

    /// Files every object under the values `of` gives for it. `of` must be a pure function of the
    /// object. The first of several indexes of one name stays: give a name to one meaning only.
    pub fn add_index(&self, name: &'static str, of: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        self.0.cache.write().add_index(name, Arc::new(move |object| of(typed_ref(object))));
    }

    /// Objects the server has that do not fit `K`. They are in no list: whoever counts objects to
    /// decide what to create must look here too.
    pub fn unreadable(&self) -> Vec<ObjectKey> {
        self.0.unreadable()
    }

    /// Calls `handler` for everything there is and for every change from now on, one at a time
    /// and in order. It must be quick, and may read this informer but not subscribe to it.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) -> Subscription {
        self.0.subscribe(Arc::new(move |change| {
            let state = |object: &Option<Object>| object.clone().and_then(typed);
            let (old, new) = (state(&change.old), state(&change.new));
            handler(&Change { old, new, initial: change.initial });
        }))
    }

    /// Whether the first list is in.
    pub fn is_synced(&self) -> bool {
        self.0.progress.borrow().synced
    }

    /// Since when the server could not be reached: what is cached is what was so then. `None` while
    /// it can, or before anybody tried.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.progress.borrow().lost
    }

    /// What the server answered instead of a watch, since there was one. While a watch is refused, what is cached is as
    /// old as the last list, which is made again each time the watch is tried. A server that does not answer is
    /// [`Self::stale_since`].
    pub fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.trouble.subscribe()
    }

    /// Returns when the first list is in: at once, ever after. A kind that is not served makes
    /// this wait until it is.
    pub async fn wait_synced(&self) {
        self.0.wait_synced().await;
    }

    /// Waits until the cache is at least as new as `version`, a resource version the API returned
    /// for a write to an object of this cache, and tells whether that came to be in time. Versions
    /// that are no numbers are not waited for.
    pub async fn wait_for(&self, version: &str, patience: Duration) -> bool {
        self.0.wait_for(version, patience).await
    }

    /// Waits until the cache has what was written, if anything was: a reconcile that looks again before that would
    /// decide from the old state, and its next write would be a conflict.
    pub async fn wait_seen<W: ResourceExt>(&self, written: Option<&W>) {
        /// A cache that lags longer than this is seen as old by the next write.
        const PATIENCE: Duration = Duration::from_secs(5);
        if let Some(version) = written.and_then(ResourceExt::resource_version) {
            self.wait_for(&version, PATIENCE).await;
        }
    }
}

impl Subscriber {
    /// A handler that panics has a bug; the cache and the other handlers go on.
    fn tell(&self, change: &AnyChange) {
        if self.alive.load(Ordering::Acquire)
            && catch_unwind(AssertUnwindSafe(|| (self.handler)(change))).is_err()
        {
            tracing::error!("handler of an informer panicked");
        }
    }
}

impl Shared {
    fn get(&self, key: &ObjectKey) -> Option<Object> {
        self.cache.read().objects.get(key).cloned()
    }

    fn keys(&self) -> Vec<ObjectKey> {
        self.cache.read().objects.keys().cloned().collect()
    }

    fn unreadable(&self) -> Vec<ObjectKey> {
        self.cache.read().unreadable.iter().cloned().collect()
    }

    fn subscribe(&self, handler: Arc<dyn Fn(&AnyChange) + Send + Sync>) -> Subscription {
        let alive = Arc::new(AtomicBool::new(true));
        let subscriber = Subscriber { alive: alive.clone(), handler };
        let mut subscribers = self.subscribers.lock();
        let known = self.cache.read().all();
        for object in known {
            subscriber.tell(&AnyChange { old: None, new: Some(object), initial: true });
        }
        subscribers.push(subscriber);
        Subscription(alive)
    }

    async fn wait_synced(&self) {
        // The sender lives as long as this handle.
        let _ = self.progress.subscribe().wait_for(|progress| progress.synced).await;
    }

    async fn wait_for(&self, version: &str, patience: Duration) -> bool {
        let Ok(version) = version.parse::<u64>() else {
            return true;
        };
        let mut progress = self.progress.subscribe();
        let seen = progress.wait_for(|progress| progress.version >= version);
        tokio::time::timeout(patience, seen).await.is_ok_and(|seen| seen.is_ok())
    }

    /// Makes changes and tells them. `change` runs under the cache's lock, handlers do not.
    fn update(&self, change: impl FnOnce(&mut Cache) -> Vec<AnyChange>) {
        let mut subscribers = self.subscribers.lock();
        let changes = {
            let mut cache = self.cache.write();
            let changes = change(&mut cache);
            self.metrics.objects.set(cache.objects.len() as i64);
            changes
        };
        if changes.is_empty() {
            return;
        }
        subscribers.retain(|subscriber| subscriber.alive.load(Ordering::Acquire));
        for change in &changes {
            for subscriber in subscribers.iter() {
                subscriber.tell(change);
            }
        }
    }
}
