//! Cluster: takes over what its infrastructure and control plane report, tells how everything below it is, and
//! takes it all down in order.
//!
//! Reads   the Cluster, the objects it refers to, and the machines, sets, deployments and pools below it.
//! Writes  the Cluster, owner and label of the objects it refers to, and, where no control plane object does
//!         it, the kubeconfig Secret.
//! Never   makes machines.

mod delete;
mod kubeconfig;
mod observe;
mod status;
mod takeover;

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Condition};
use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachinePool, MachineSet};
use remuda_control::{
    Action, Controller, DEBOUNCE, Enqueuer, Informer, ObjectKey, Scope, drive, informer::Subscription,
    write::remove_finalizer,
};
use remuda_names::capi::{condition, label};
use remuda_rollout::cluster::delete::Step;
use remuda_workload::{Health, What};
use tokio_util::sync::CancellationToken;

use self::takeover::Told;
use crate::{
    Capi, Error,
    managed::{Begun, Managed},
    providers::{REFERENCES, reference_keys},
    save::save,
};

/// How long the last successful probe may be ago before that is told.
const PROBE_GRACE: SignedDuration = SignedDuration::from_secs(50);
/// Machines younger than this need no UpToDate condition.
const YOUNG: SignedDuration = SignedDuration::from_secs(10);

struct Clusters {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    secrets: Informer<Secret>,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    capi.clusters.add_index(REFERENCES, |cluster: &Cluster| {
        let namespace = cluster.namespace().unwrap_or_default();
        reference_keys(&namespace, [&cluster.spec.infrastructure_ref, &cluster.spec.control_plane_ref])
    });
    let secrets = capi.ctx.informers.of::<Secret>(Scope::labels(label::CLUSTER_NAME));
    let clusters = capi.clusters.clone();
    let controller = Controller::<Cluster>::new("cluster", &capi.ctx)
        .workers(capi.options.workers)
        .requires(&capi.machines)
        .requires(&capi.sets)
        .requires(&capi.deployments)
        .requires(&capi.pools)
        .watches(&secrets, move |secret| makes_kubeconfig(secret, &clusters));
    let enqueuer = controller.enqueuer();
    // Objects below change far more often than a Cluster has something to say about it.
    let followed = [
        follow(&capi.machines, &enqueuer, same_machine),
        follow(&capi.sets, &enqueuer, same_set),
        follow(&capi.deployments, &enqueuer, same_deployment),
        follow(&capi.pools, &enqueuer, same_pool),
    ];
    let told = enqueuer.clone();
    let connections = capi.workloads.subscribe(move |event| match event.what {
        What::Connected | What::Disconnected | What::Silent(_) | What::Watch => {
            told.enqueue(event.cluster.clone());
        }
        What::Node { .. } => {}
    });
    let this = Arc::new(Clusters { capi, enqueuer, secrets });
    drive(controller, reconcile, this, stop).await;
    drop((followed, connections));
}

/// Wakes the Cluster of an object that comes, goes or differs. What is there at first is no news: every
/// Cluster is looked at then. Counts are gathered; what is being deleted is told at once, since deletion of a Cluster
/// waits for it.
fn follow<K: Managed>(
    cache: &Informer<K>,
    enqueuer: &Enqueuer,
    same: impl Fn(&K, &K) -> bool + Send + Sync + 'static,
) -> Subscription {
    let enqueuer = enqueuer.clone();
    cache.subscribe(move |change| {
        let unchanged = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                old.meta().deletion_timestamp == new.meta().deletion_timestamp
                    && old.meta().owner_references == new.meta().owner_references
                    && old.meta().labels == new.meta().labels
                    && same(old, new)
            }
            _ => change.initial,
        };
        if unchanged {
            return;
        }
        let deleting = change.new.as_ref().is_none_or(|object| object.meta().deletion_timestamp.is_some());
        for object in change.old.iter().chain(&change.new) {
            let key = ObjectKey::of(object.meta());
            let labelled = object.labels().get(label::CLUSTER_NAME).map(String::as_str);
            for name in [Some(object.cluster_name()), labelled].into_iter().flatten() {
                if deleting {
                    enqueuer.enqueue(key.sibling(name));
                } else {
                    enqueuer.enqueue_debounced(key.sibling(name), DEBOUNCE);
                }
            }
        }
    })
}

fn same_conditions(old: &[Condition], new: &[Condition], kinds: &[&str]) -> bool {
    let said = |list: &'_ [Condition], kind: &str| {
        let found = list.iter().find(|condition| condition.type_ == kind);
        found.map(|found| (found.status.clone(), found.reason.clone(), found.message.clone()))
    };
    kinds.iter().all(|kind| said(old, kind) == said(new, kind))
}

fn same_machine(old: &Machine, new: &Machine) -> bool {
    const KINDS: &[&str] = &[
        condition::READY,
        condition::AVAILABLE,
        condition::UP_TO_DATE,
        condition::HEALTH_CHECK_SUCCEEDED,
        condition::OWNER_REMEDIATED,
    ];
    let node = |machine: &Machine| {
        machine.status.as_ref().map(|status| {
            let version = status.node_info.as_ref().map(|info| info.kubelet_version.clone());
            (status.node_ref.name.is_empty(), version)
        })
    };
    old.spec.version == new.spec.version
        && node(old) == node(new)
        && same_conditions(old.conditions(), new.conditions(), KINDS)
}

/// A set of a deployment counts through its deployment.
fn same_set(old: &MachineSet, new: &MachineSet) -> bool {
    let controlled = new.owner_references().iter().any(|owner| owner.controller == Some(true));
    controlled || (old.spec.replicas == new.spec.replicas && old.status == new.status)
}

fn same_deployment(old: &MachineDeployment, new: &MachineDeployment) -> bool {
    old.spec.replicas == new.spec.replicas && old.status == new.status
}

fn same_pool(old: &MachinePool, new: &MachinePool) -> bool {
    old.spec.replicas == new.spec.replicas && old.status == new.status
}

/// The Cluster whose kubeconfig we make, if this is a Secret of such a one.
fn makes_kubeconfig(secret: &Secret, clusters: &Informer<Cluster>) -> Vec<ObjectKey> {
    let Some(name) = secret.labels().get(label::CLUSTER_NAME) else {
        return Vec::new();
    };
    let key = ObjectKey::of(&secret.metadata).sibling(name);
    let ours = clusters.get(&key).is_some_and(|cluster| !cluster.spec.control_plane_ref.is_defined());
    if ours { vec![key] } else { Vec::new() }
}

async fn reconcile(cluster: Arc<Cluster>, this: Arc<Clusters>) -> Result<Action, Error> {
    let capi = &this.capi;
    let Begun::Go(cluster, _) = capi.begin(&*cluster, &capi.clusters).await? else {
        return Ok(Action::AwaitChange);
    };
    let mut observed = this.observe(cluster).await;
    let mut errors = std::mem::take(&mut observed.errors);
    let now = capi.ctx.clock.now();
    let deleting = observed.cluster.metadata.deletion_timestamp.is_some();

    let mut after = observed.cluster.clone();
    let mut told: Vec<Told> = Vec::new();
    takeover::all(&observed, &mut after, &mut told, &mut errors);
    let mut stage = None;
    if deleting {
        stage = Some(delete::advance(capi, &observed, &mut errors).await);
    } else if let Err(error) = this.ensure_kubeconfig(&after, now).await {
        errors.push(error);
    }
    status::write(&observed, &mut after, stage.as_ref(), &mut told, now);
    if errors.is_empty() {
        after.set_observed_generation(after.metadata.generation.unwrap_or(0));
    }

    let api = capi.api::<Cluster>(&observed.namespace);
    let finished = stage.as_ref().is_some_and(|stage| stage.step == Step::Finish);
    // Nobody will read what an object says that goes with this write.
    if !(finished && after.finalizers().len() <= 1) {
        save(&capi.ctx, &api, &capi.clusters, &observed.cluster, &after).await?;
    }
    if finished {
        let finalizer = Cluster::FINALIZER.unwrap_or_default();
        remove_finalizer(&api, &after, &(), finalizer).await?;
        told.push(Told::Deleted);
    }
    for told in told {
        told.record(&capi.ctx.recorder, &after);
    }
    match Error::join(errors) {
        Some(error) => Err(error),
        None => Ok(next(&observed.health, &observed.machines, now)),
    }
}

/// When something changes by the mere passing of time.
fn next(health: &Health, machines: &[Arc<Machine>], now: Timestamp) -> Action {
    let left = |until: SignedDuration| Duration::try_from(until).ok().filter(|left| !left.is_zero());
    let stale = match health.last_success {
        Some(success) if !health.connected || health.failures > 0 => {
            left(PROBE_GRACE - now.duration_since(success) + SignedDuration::from_secs(1))
        }
        _ => None,
    };
    let young = machines.iter().filter(|machine| {
        !machine.conditions().iter().any(|condition| condition.type_ == condition::UP_TO_DATE)
    });
    let grown = young
        .filter_map(|machine| {
            let created = machine.metadata.creation_timestamp.as_ref()?.0;
            left(YOUNG - now.duration_since(created) + SignedDuration::from_secs(1))
        })
        .max();
    match stale.into_iter().chain(grown).min() {
        Some(after) => Action::RequeueAfter(after),
        None => Action::AwaitChange,
    }
}
