//! Which informers there are.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject, PartialObjectMeta, TypeMeta},
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Cached, Informer, OfType, Read, Shared, Subscription, Trim,
    cache::{Cache, Object},
    reflector,
};
use crate::{key::Kind, metrics::Metrics};

/// Which objects of a kind. The default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    pub namespace: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
}

impl Scope {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// All objects with these labels.
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()), ..Self::default() }
    }

    #[must_use]
    pub fn with_labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    #[must_use]
    pub fn with_fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.namespace, &self.labels, &self.fields];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        f.write_str(&parts.join(" "))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Watches are opened anew after a random number of seconds between these, so that a dead
    /// connection is noticed and many watches do not end together.
    pub watch_seconds: (u32, u32),
    /// Failures are told to nobody but the log of a developer: whoever made the client hears of them anyway.
    pub quiet: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { watch_seconds: (300, 600), quiet: false }
    }
}

/// What is taken of an API that others serve. Sizes are those of objects as they are kept, printed for debugging:
/// rather more than what they take in memory.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// Objects in one page of a list.
    pub page: u32,
    pub objects: usize,
    /// Of one object.
    pub object_bytes: usize,
    /// Of all objects.
    pub bytes: usize,
}

/// A bound, and who is told when it is exceeded.
pub(super) type Bounding = (Bound, Arc<dyn Fn(&str) + Send + Sync>);

/// All informers on one API. Clones share them; they stop when the last clone is dropped or
/// [`Informers::stop`] is called.
#[derive(Clone)]
pub struct Informers(Arc<Registry>);

struct Registry {
    client: Client,
    options: Options,
    metrics: Metrics,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// An `Informer<K>` each, where `K` is the type of the id. None is ever taken away: others share it, and would
    /// hear nothing of a kind that is defined again.
    started: Mutex<HashMap<Id, Box<dyn Any + Send + Sync>>>,
    trims: Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>,
    bound: OnceLock<Bounding>,
    definitions: Arc<Definitions>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Id {
    object: TypeId,
    kind: Kind,
    scope: Scope,
}

/// Tells informers of kinds that are not served when it may be worth asking again.
#[derive(Default)]
struct Definitions {
    changed: Mutex<HashMap<String, watch::Sender<u64>>>,
    followed: Mutex<Option<Subscription>>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Informers")
    }
}

impl Informers {
    pub fn new(client: Client, options: Options, metrics: Metrics) -> Self {
        Self(Arc::new(Registry {
            client,
            options,
            metrics,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            started: Mutex::default(),
            trims: Mutex::default(),
            bound: OnceLock::new(),
            definitions: Arc::default(),
        }))
    }

    /// The cache of a typed kind; it is filled from the first time anybody asks for it.
    pub fn of<K>(&self, scope: Scope) -> Informer<K>
    where
        K: Cached,
        K::DynamicType: Default,
    {
        self.start(&K::DynamicType::default(), scope, false, Arc::new(drop_managed_fields::<K>))
    }

    /// The cache of a kind known by name only.
    pub fn dynamic(&self, resource: &ApiResource, scope: Scope) -> Informer<DynamicObject> {
        // Items of a list need not say what they are.
        let types = TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
        let trim = move |object: &mut DynamicObject| {
            drop_managed_fields(object);
            object.types.get_or_insert_with(|| types.clone());
        };
        self.start(resource, scope, false, Arc::new(trim))
    }

    /// The cache of a kind's metadata, for kinds whose content is large or none of our business.
    pub fn metadata<K>(&self, scope: Scope) -> Informer<PartialObjectMeta<K>>
    where
        K: Resource + fmt::Debug + Send + Sync + 'static,
        K::DynamicType: Default,
        PartialObjectMeta<K>: Cached + Resource<DynamicType = K::DynamicType>,
    {
        let trim = drop_managed_fields::<PartialObjectMeta<K>>;
        self.start(&K::DynamicType::default(), scope, true, Arc::new(trim))
    }

    /// What is done to every object of a type before it is cached, instead of dropping
    /// `metadata.managedFields`. Caches already filled are not touched.
    pub fn trim<K: Cached>(&self, trim: impl Fn(&mut K) + Send + Sync + 'static) {
        let trim: Trim<K> = Arc::new(trim);
        self.0.trims.lock().insert(TypeId::of::<K>(), Box::new(trim));
    }

    /// Bounds the caches that are started from now on. `exceeded` is told why one cannot be filled; it is tried
    /// again until the informers are stopped.
    pub fn bound(&self, bound: Bound, exceeded: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.0.bound.set((bound, Arc::new(exceeded)));
    }

    /// Stops all and waits until they are.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn start<K: Cached>(
        &self,
        dynamic: &K::DynamicType,
        scope: Scope,
        metadata_only: bool,
        trim: Trim<K>,
    ) -> Informer<K> {
        let kind = Kind::of::<K>(dynamic);
        let id = Id { object: TypeId::of::<K>(), kind: kind.clone(), scope: scope.clone() };
        let mut started = self.0.started.lock();
        let known = started.get(&id).and_then(|informer| informer.downcast_ref::<Informer<K>>());
        if let Some(informer) = known {
            return informer.clone();
        }
        let own = self.0.trims.lock().get(&TypeId::of::<K>()).and_then(|own| own.downcast_ref().cloned());
        let trim: Trim<K> = own.unwrap_or(trim);
        let read = move |text: &str| -> serde_json::Result<Object> {
            let mut object = serde_json::from_str::<K>(text)?;
            trim(&mut object);
            Ok(Arc::new(object))
        };
        let url = K::url_path(dynamic, scope.namespace.as_deref());
        let shared = self.begin(kind, scope, url, metadata_only, OfType::of::<K>(), Box::new(read));
        let informer = Informer(shared, PhantomData);
        started.insert(id, Box::new(informer.clone()));
        informer
    }

    /// The part of starting an informer that does not depend on its type.
    fn begin(
        &self,
        kind: Kind,
        scope: Scope,
        url: String,
        metadata_only: bool,
        of_type: OfType,
        read: Read,
    ) -> Arc<Shared> {
        let shared = Arc::new(Shared {
            of_type,
            read,
            cache: RwLock::new(Cache::new(of_type.meta)),
            subscribers: Mutex::default(),
            progress: watch::Sender::default(),
            trouble: watch::Sender::default(),
            metrics: self.0.metrics.informer(&kind.to_string(), scope.to_string()),
            kind: kind.clone(),
        });
        let source = reflector::Source {
            client: self.0.client.clone(),
            url,
            metadata_only,
            labels: scope.labels,
            fields: scope.fields,
            watch_seconds: self.0.options.watch_seconds,
            quiet: self.0.options.quiet,
            bound: self.0.bound.get().cloned(),
        };
        let stop = self.0.stop.child_token();
        let definition = self.0.definitions.of(&kind);
        let weak = Arc::downgrade(&self.0);
        let custom = !kind.group.is_empty() && kind.crd_name() != DEFINITIONS;
        let absent = move || {
            if custom && let Some(registry) = weak.upgrade() {
                Self(registry).follow_definitions();
            }
        };
        let absent = Box::new(absent);
        self.0.tasks.spawn(reflector::run(source, shared.clone(), definition, absent, stop));
        shared
    }

    /// From the first kind on that is not served, definitions are watched: no definition, no
    /// request.
    fn follow_definitions(&self) {
        if self.0.definitions.followed.lock().is_some() {
            return;
        }
        let definitions = self.0.definitions.clone();
        let subscription = self.metadata::<CustomResourceDefinition>(Scope::all()).subscribe(move |change| {
            if let Some(definition) = change.object() {
                definitions.changed(&definition.name_any());
            }
        });
        self.0.definitions.followed.lock().get_or_insert(subscription);
    }
}

/// The definition of definitions: there is none.
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Definitions {
    fn of(&self, kind: &Kind) -> reflector::Definition {
        self.changed.lock().entry(kind.crd_name()).or_default().subscribe()
    }

    fn changed(&self, name: &str) {
        if let Some(sender) = self.changed.lock().get(name) {
            sender.send_modify(|times| *times = times.wrapping_add(1));
        }
    }
}

fn drop_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}
