//! Infrastructure, bootstrap and control plane providers of the simulated world, as controllers.
//!
//! They keep the contract of Cluster API to the letter: they wait for owners, for the cluster's infrastructure and
//! for bootstrap data, leave paused objects alone, and hold a finalizer for as long as something of theirs exists.
//! What they manage exists in [`Workloads`].
//!
//! Nobody else writes the status of a server, of its bootstrap data or of a cluster's infrastructure, so these are
//! merged onto whatever the object is by then: a core controller that takes an object over at the same moment must
//! not make us begin again.

mod bootstrap;
mod control_plane;
mod infra_cluster;
mod infra_machine;

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine};
use remuda_control::{
    Ctx, Enqueuer, Error, Informer, ObjectKey, Scope,
    write::conditions::{self, ConditionUpdate},
};
use remuda_names::capi::{annotation, condition, group, label};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    dice::{Dice, Latency},
    names::FINALIZER,
    options::{Contract, Options},
    workload::Workloads,
};

/// What all providers share.
pub(crate) struct Providers {
    ctx: Arc<Ctx>,
    options: Options,
    workloads: Workloads,
    clusters: Informer<Cluster>,
    machines: Informer<Machine>,
    /// When something that takes time began, by the object's uid and what it is.
    begun: Mutex<HashMap<(String, &'static str), Timestamp>>,
    /// Control planes are told when their API begins to answer.
    control_planes: OnceLock<Enqueuer>,
}

/// Runs the providers until told to stop, and returns when their work has ended. Their kinds need not be installed yet.
pub async fn run(ctx: Arc<Ctx>, options: Options, workloads: Workloads, stop: CancellationToken) {
    let providers = Arc::new(Providers {
        clusters: ctx.informers.of(Scope::all()),
        machines: ctx.informers.of(Scope::all()),
        begun: Mutex::default(),
        control_planes: OnceLock::new(),
        options,
        workloads,
        ctx,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(control_plane::run(providers.clone(), stop.clone()));
    tasks.spawn(infra_cluster::run(providers.clone(), stop.clone()));
    tasks.spawn(infra_machine::run(providers.clone(), stop.clone()));
    tasks.spawn(bootstrap::run(providers.clone(), stop.clone()));
    while tasks.join_next().await.is_some() {}
}

/// What providers' kinds have in common.
pub(crate) trait Provided:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K> Provided for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

/// An owner of a core kind, whatever the version it is referred to in.
fn owner<'a, K: Resource>(object: &'a K, kind: &str) -> Option<&'a OwnerReference> {
    object.owner_references().iter().find(|owner| {
        owner.kind == kind
            && owner.api_version.rsplit_once('/').is_some_and(|(owner, _)| owner == group::CORE)
    })
}

fn key_of<K: Resource>(object: &K) -> ObjectKey {
    ObjectKey::of(object.meta())
}

fn is_deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

impl Providers {
    fn api<K: Provided>(&self, object: &impl Resource) -> Api<K> {
        Api::namespaced(self.ctx.client.clone(), object.meta().namespace.as_deref().unwrap_or_default())
    }

    fn now(&self) -> Timestamp {
        self.ctx.clock.now()
    }

    /// The Cluster that owns an object.
    fn owning_cluster(&self, object: &impl Resource) -> Option<Arc<Cluster>> {
        let name = &owner(object, "Cluster")?.name;
        self.clusters.get(&key_of(object).sibling(name))
    }

    /// The Machine that owns an object, and its Cluster.
    fn owning_machine(&self, object: &impl Resource) -> Option<(Arc<Machine>, Arc<Cluster>)> {
        let name = &owner(object, "Machine")?.name;
        let machine = self.machines.get(&key_of(object).sibling(name))?;
        let cluster = self.clusters.get(&key_of(object).sibling(&machine.spec.cluster_name))?;
        Some((machine, cluster))
    }

    fn dice(&self, object: &impl Resource, purpose: &str) -> Dice {
        Dice::new(self.options.seed, &[&key_of(object).to_string(), purpose])
    }

    /// How much is left of something that takes time and began when it was first asked about.
    fn left(&self, object: &impl Resource, purpose: &'static str, latency: &Latency) -> Option<Duration> {
        let takes = latency.draw(&mut self.dice(object, purpose));
        if takes.is_zero() {
            return None;
        }
        let (now, uid) = (self.now(), object.meta().uid.clone().unwrap_or_default());
        let began = *self.begun.lock().entry((uid, purpose)).or_insert(now);
        let passed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        takes.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// Nothing of the object takes time any more.
    fn forget(&self, object: &impl Resource) {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        self.begun.lock().retain(|(known, _), _| known != uid);
    }

    /// A merge patch of exactly this state of an object; with our finalizer, if `guard`.
    async fn patch<K: Provided>(&self, object: &K, mut patch: Value, guard: bool) -> Result<K, Error> {
        if guard && !object.finalizers().iter().any(|known| known == FINALIZER) {
            let mut finalizers = object.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            patch["metadata"]["finalizers"] = finalizers.into();
        }
        patch["metadata"]["resourceVersion"] = object.resource_version().into();
        let params =
            PatchParams { field_manager: Some(self.ctx.field_manager.to_string()), ..PatchParams::default() };
        let patched = self.api::<K>(object).patch(&object.name_any(), &params, &Patch::Merge(patch)).await;
        patched.map_err(|source| api_error("write", object, source))
    }

    fn is_old(&self) -> bool {
        self.options.contract == Contract::V1Beta1
    }
}

fn api_error<K: Resource<DynamicType = ()>>(verb: &'static str, object: &K, source: kube::Error) -> Error {
    Error::Api { verb, what: format!("{} {}", K::kind(&()), key_of(object)), source }
}

fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Whether somebody has paused an object, or its whole cluster.
fn is_paused(object: &impl Resource, cluster: Option<&Cluster>) -> bool {
    let annotated = object.meta().annotations.iter().flatten().any(|(key, _)| key == annotation::PAUSED);
    annotated || cluster.is_some_and(|cluster| cluster.spec.paused == Some(true))
}

/// Sets a condition.
fn say(
    list: &mut Vec<Condition>,
    object: &impl Resource,
    now: Timestamp,
    (kind, status, reason, message): (&str, bool, &str, &str),
) {
    let generation = object.meta().generation;
    let says = ConditionUpdate { kind, status: Some(status), reason, message, generation };
    conditions::set(list, says, now);
}

fn say_paused(list: &mut Vec<Condition>, object: &impl Resource, now: Timestamp, paused: bool) {
    let reason = if paused { "Paused" } else { "NotPaused" };
    say(list, object, now, (condition::PAUSED, paused, reason, ""));
}

/// Whether the paused condition says something else.
fn pause_turned(list: &[Condition], paused: bool) -> bool {
    let known = list.iter().find(|known| known.type_ == condition::PAUSED);
    // An object that never was paused says so with whatever it says next.
    known.map_or(paused, |known| (known.status == "True") != paused)
}

/// Files objects under the cluster they are labelled with.
const BY_CLUSTER: &str = "sim-cluster";

fn cluster_label(object: &impl Resource) -> Vec<String> {
    let labels = object.meta().labels.iter().flatten();
    let mut names = labels.filter(|(key, _)| key.as_str() == label::CLUSTER_NAME).map(|(_, name)| name);
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    names.next().map(|name| format!("{namespace}/{name}")).into_iter().collect()
}

/// Whether the Cluster's infrastructure, on which everything else waits, is there.
fn infrastructure_is_there(cluster: &Cluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| status.initialization.infrastructure_provisioned == Some(true))
}

fn control_plane_is_initialized(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| {
        status.initialization.control_plane_initialized == Some(true)
            || conditions::is_true(&status.conditions, condition::CONTROL_PLANE_INITIALIZED)
    })
}
