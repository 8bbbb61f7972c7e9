//! ClusterResourceSet: gives every cluster that matches the objects it should have.
//!
//! Reads   the set, its ConfigMaps and Secrets, Clusters of its namespace and their bindings.
//! Writes  objects in workload clusters, what was applied into the binding of each Cluster, the set's status,
//!         and the set as an owner of its ConfigMaps and Secrets.
//! Never   removes anything from a workload cluster.

mod apply;
mod binding;
mod resource;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Resource, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;
use remuda_api::{
    addons::{ClusterResourceSet, ClusterResourceSetBinding},
    core::Cluster,
};
use remuda_control::{
    Action, Controller, Enqueuer, Informer, ObjectKey, Scope, drive, via_index, write::remove_finalizer,
};
use remuda_rollout::resource_set::{Fault, Outcome, Strategy, status};
use remuda_workload::What;
use tokio_util::sync::CancellationToken;

use self::resource::Resource as Loaded;
use crate::{Capi, Error, managed::Managed, save::save, view};

/// Type of Secrets that may be applied.
const SECRET_TYPE: &str = "addons.cluster.x-k8s.io/resource-set";
/// Sets are filed by this name under [`resource_value`] of each of their resources.
const BY_RESOURCE: &str = "resource";
/// Bindings are filed by this name under the namespace and name of each set they mention.
const BY_SET: &str = "resource-set";
/// Clusters that are given objects at the same time.
const AT_ONCE: usize = 16;

struct ResourceSets {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    sets: Informer<ClusterResourceSet>,
    bindings: Informer<ClusterResourceSetBinding>,
    secrets: Informer<Secret>,
    config_maps: Informer<PartialObjectMeta<ConfigMap>>,
    /// Version and hash of ConfigMaps, so that only those that changed are read again.
    hashes: Mutex<HashMap<ObjectKey, (String, String)>>,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    tokio::join!(run_sets(capi.clone(), stop.clone()), binding::run(capi, stop));
}

async fn run_sets(capi: Arc<Capi>, stop: CancellationToken) {
    let informers = &capi.ctx.informers;
    let sets = informers.of::<ClusterResourceSet>(Scope::all());
    let bindings = informers.of::<ClusterResourceSetBinding>(Scope::all());
    let secrets = informers.of::<Secret>(Scope::all().with_fields(format!("type={SECRET_TYPE}")));
    let config_maps = informers.metadata::<ConfigMap>(Scope::all());
    sets.add_index(BY_RESOURCE, |set: &ClusterResourceSet| {
        let namespace = set.namespace().unwrap_or_default();
        let resources = set.spec.resources.iter();
        resources.map(|resource| resource_value(&resource.kind, &namespace, &resource.name)).collect()
    });
    bindings.add_index(BY_SET, |binding: &ClusterResourceSetBinding| {
        let key = ObjectKey::of(&binding.metadata);
        let names = binding.spec.bindings.iter().map(|bound| &bound.cluster_resource_set_name);
        names.map(|name| key.sibling(name).to_string()).collect()
    });
    let controller = Controller::<ClusterResourceSet>::new("resource-set", &capi.ctx)
        .workers(capi.options.workers)
        .requires(&bindings)
        .watches(&secrets, via_index(&sets, BY_RESOURCE, |secret: &Secret| value_of("Secret", secret)))
        .watches(
            &config_maps,
            via_index(&sets, BY_RESOURCE, |map: &PartialObjectMeta<ConfigMap>| value_of("ConfigMap", map)),
        );
    let enqueuer = controller.enqueuer();
    let matching = sets.clone();
    let controller = controller.watches_facts(
        &capi.clusters,
        |cluster| {
            let (meta, paused) = (&cluster.metadata, cluster.spec.paused);
            (meta.labels.clone(), meta.uid.clone(), meta.deletion_timestamp.clone(), paused)
        },
        move |cluster| sets_for(&matching, cluster),
    );
    let of_bindings = bindings.subscribe({
        let enqueuer = enqueuer.clone();
        move |change| {
            let Some(old) = &change.old else {
                return;
            };
            for name in binding::forgotten(old, change.new.as_deref()) {
                enqueuer.enqueue(ObjectKey::of(&old.metadata).sibling(name));
            }
        }
    });
    let of_connections = capi.workloads.subscribe({
        let (enqueuer, clusters, sets) = (enqueuer.clone(), capi.clusters.clone(), sets.clone());
        move |event| {
            let connected = matches!(event.what, What::Connected);
            if let Some(cluster) = clusters.get(&event.cluster).filter(|_| connected) {
                for key in sets_for(&sets, &cluster) {
                    enqueuer.enqueue(key);
                }
            }
        }
    });
    let hashes = Mutex::default();
    let this = Arc::new(ResourceSets { capi, enqueuer, sets, bindings, secrets, config_maps, hashes });
    drive(controller, reconcile, this, stop).await;
    drop((of_bindings, of_connections));
}

fn resource_value(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

fn value_of<K: Resource>(kind: &str, object: &K) -> Option<String> {
    let meta = object.meta();
    Some(resource_value(kind, meta.namespace.as_deref()?, meta.name.as_deref()?))
}

fn matches(set: &ClusterResourceSet, cluster: &Cluster) -> bool {
    let selector = view::selector(&set.spec.cluster_selector);
    // An empty one would match everything, which nobody means.
    !selector.is_empty() && selector.matches(cluster.labels())
}

/// Sets that are for a cluster.
fn sets_for(sets: &Informer<ClusterResourceSet>, cluster: &Cluster) -> Vec<ObjectKey> {
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    let found = sets.in_namespace(namespace).into_iter().filter(|set| matches(set, cluster));
    found.map(|set| ObjectKey::of(&set.metadata)).collect()
}

async fn reconcile(set: Arc<ClusterResourceSet>, this: Arc<ResourceSets>) -> Result<Action, Error> {
    let capi = &this.capi;
    let Some(set) = capi.begin_alone(&*set, &this.sets, false).await? else {
        return Ok(Action::AwaitChange);
    };
    let api = capi.api::<ClusterResourceSet>(&set.namespace().unwrap_or_default());
    if set.metadata.deletion_timestamp.is_some() {
        this.unbind(&set).await?;
        remove_finalizer(&api, &set, &(), ClusterResourceSet::FINALIZER.unwrap_or_default()).await?;
        return Ok(Action::AwaitChange);
    }
    let clusters = this.clusters(&set);
    let now = capi.ctx.clock.now();
    let mut after = set.clone();
    let mut work = Work::default();
    if !clusters.is_empty() {
        work = this.work(&set, clusters).await;
    }
    // A cluster that was busy will be heard of; until then nothing new is known.
    if !work.busy
        && let Some((new, old)) = status(&work.faults, &work.outcomes)
    {
        view::set(&mut after, vec![new], now);
        let mut conditions = view::old_conditions(after.old_conditions_mut());
        conditions.set(old, now);
        *after.old_conditions_mut() = view::write_old(&conditions);
    }
    let failures = work.failures();
    if failures.is_none() && !work.busy {
        after.set_observed_generation(after.metadata.generation.unwrap_or(0));
    }
    save(&capi.ctx, &api, &this.sets, &set, &after).await?;
    match failures {
        Some(failures) => Err(failures),
        None => Ok(Action::AwaitChange),
    }
}

/// What came of a reconcile.
#[derive(Default)]
struct Work {
    faults: Vec<Fault>,
    outcomes: BTreeMap<String, Outcome>,
    busy: bool,
    errors: Vec<Error>,
}

impl Work {
    /// What is worth trying again. Clusters that cannot be reached and resources that are not right tell when
    /// that changes.
    fn failures(&mut self) -> Option<Error> {
        let mut errors = std::mem::take(&mut self.errors);
        for (cluster, outcome) in &self.outcomes {
            if let Outcome::Failed { why } = outcome {
                errors.push(Error::NotApplied(format!("Cluster {cluster}: {why}")));
            }
        }
        Error::join(errors)
    }
}

impl ResourceSets {
    /// Clusters the set is for. Those that go are left alone, as are those that are paused: nobody changes
    /// them, and what was applied to a cluster that moves may not be known here yet.
    fn clusters(&self, set: &ClusterResourceSet) -> Vec<Arc<Cluster>> {
        let namespace = set.namespace().unwrap_or_default();
        let mut clusters = self.capi.clusters.in_namespace(&namespace);
        clusters.retain(|cluster| {
            let (dying, paused) =
                (cluster.metadata.deletion_timestamp.is_some(), cluster.spec.paused == Some(true));
            !dying && !paused && matches(set, cluster)
        });
        clusters
    }

    async fn work(&self, set: &ClusterResourceSet, clusters: Vec<Arc<Cluster>>) -> Work {
        let mut work = Work::default();
        let Some(strategy) = Strategy::parse(&set.spec.strategy) else {
            let why = format!("unsupported or empty resource strategy: {:?}", set.spec.strategy);
            work.errors.push(Error::Invalid(why));
            return work;
        };
        let resources = self.load(set, strategy, &mut work).await;
        if work.faults.iter().any(Fault::blocks) {
            return work;
        }
        let resources: &[Loaded] = &resources;
        let all = futures::stream::iter(clusters).map(|cluster| async move {
            let outcome = self.apply(set, strategy, &cluster, resources).await;
            (cluster.name_any(), outcome)
        });
        let mut all = std::pin::pin!(all.buffer_unordered(AT_ONCE));
        while let Some((cluster, outcome)) = all.next().await {
            match outcome {
                Ok(Some(outcome)) => {
                    work.outcomes.insert(cluster, outcome);
                }
                Ok(None) => work.busy = true,
                Err(error) => {
                    let why = remuda_control::Chain(&error).to_string();
                    work.outcomes.insert(cluster, Outcome::Failed { why });
                }
            }
        }
        work
    }
}
