//! What wakes a Machine besides itself.

use std::sync::Arc;

use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineDrainRule, MachineSet};
use remuda_control::{Controller, Enqueuer, Informer, ObjectKey, write::controller_of};
use remuda_names::capi::{annotation, condition, label};
use remuda_workload::{Event, What};

use crate::{
    Capi,
    enqueue::true_since,
    managed::{BY_CLUSTER, Managed, cluster_value},
    providers::{REFERENCES, reference_keys},
    view,
};

/// Machines are filed under their Node, by name and by provider ID, within their Cluster.
const BY_NODE: &str = "machine-node";
const BY_PROVIDER_ID: &str = "machine-provider-id";
const BY_SET: &str = "machine-set";
const BY_DEPLOYMENT: &str = "machine-deployment";
/// Machines that are being drained, by namespace.
const DRAINING: &str = "machine-draining";
/// Control plane machines that are not in deletion, by Cluster.
pub(super) const CONTROL_PLANE: &str = "machine-control-plane";

/// How long nodes may be out of sight before their Machines say so.
const GRACE: std::time::Duration = std::time::Duration::from_secs(300);

fn within(namespace: &str, cluster: &str, value: &str) -> String {
    format!("{namespace}/{cluster}/{value}")
}

pub(super) fn index(machines: &Informer<Machine>) {
    let namespace = |machine: &Machine| machine.namespace().unwrap_or_default();
    machines.add_index(REFERENCES, move |machine| {
        let spec = &machine.spec;
        reference_keys(&namespace(machine), [&spec.bootstrap.config_ref, &spec.infrastructure_ref])
    });
    machines.add_index(BY_NODE, move |machine| {
        let name = machine.status.as_ref().map_or("", |status| status.node_ref.name.as_str());
        let filed = (!name.is_empty()).then(|| within(&namespace(machine), &machine.spec.cluster_name, name));
        filed.into_iter().collect()
    });
    machines.add_index(BY_PROVIDER_ID, move |machine| {
        let id = &machine.spec.provider_id;
        let filed = (!id.is_empty()).then(|| within(&namespace(machine), &machine.spec.cluster_name, id));
        filed.into_iter().collect()
    });
    machines.add_index(BY_SET, move |machine| {
        let owner = controller_of(&machine.metadata).filter(|owner| owner.kind == MachineSet::KIND);
        owner.map(|owner| cluster_value(&namespace(machine), &owner.name)).into_iter().collect()
    });
    machines.add_index(BY_DEPLOYMENT, move |machine| {
        let name = machine.labels().get(label::DEPLOYMENT_NAME);
        name.map(|name| cluster_value(&namespace(machine), name)).into_iter().collect()
    });
    machines.add_index(CONTROL_PLANE, move |machine| {
        let counts = machine.labels().contains_key(label::CONTROL_PLANE)
            && machine.metadata.deletion_timestamp.is_none();
        let filed = counts.then(|| cluster_value(&namespace(machine), &machine.spec.cluster_name));
        filed.into_iter().collect()
    });
    machines.add_index(DRAINING, move |machine| {
        let mut conditions = machine.conditions().iter();
        let stage = conditions.find(|known| known.type_ == condition::DELETING);
        let drains = stage.is_some_and(|stage| stage.reason == "DrainingNode");
        drains.then(|| namespace(machine)).into_iter().collect()
    });
}

/// Machines that a rule may be about.
pub(super) fn draining(capi: &Capi) -> impl Fn(&MachineDrainRule) -> Vec<ObjectKey> + Send + Sync + 'static {
    let machines = capi.machines.clone();
    move |rule| machines.keys_by_index(DRAINING, &rule.namespace().unwrap_or_default())
}

/// Facts of what Machines belong to.
pub(super) fn watches(controller: Controller<Machine>, capi: &Capi) -> Controller<Machine> {
    controller
        .watches_facts(&capi.clusters, of_cluster, filed(capi, BY_CLUSTER))
        .watches_facts(&capi.sets, of_set, filed(capi, BY_SET))
        .watches_facts(&capi.deployments, of_deployment, filed(capi, BY_DEPLOYMENT))
}

/// Machines that are filed under an object.
fn filed<K: Managed>(capi: &Capi, index: &'static str) -> impl Fn(&K) -> Vec<ObjectKey> + use<K> {
    let machines = capi.machines.clone();
    move |object| {
        let meta = object.meta();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        machines.keys_by_index(index, &cluster_value(namespace.unwrap_or_default(), name.unwrap_or_default()))
    }
}

fn of_cluster(cluster: &Cluster) -> impl PartialEq + use<> {
    let status = cluster.status.as_ref();
    (
        cluster.metadata.uid.clone(),
        cluster.metadata.deletion_timestamp.is_some(),
        cluster.spec.paused == Some(true),
        status.and_then(|status| status.initialization.infrastructure_provisioned),
        true_since(cluster, condition::CONTROL_PLANE_INITIALIZED),
        cluster.spec.control_plane_ref.clone(),
    )
}

fn of_set(set: &MachineSet) -> impl PartialEq + use<> {
    let annotations = set.metadata.annotations.as_ref();
    (
        set.metadata.uid.clone(),
        annotations.and_then(|known| known.get(annotation::REVISION)).cloned(),
        view::template(&set.spec.template),
        set.labels().get(label::DEPLOYMENT_NAME).cloned(),
    )
}

fn of_deployment(deployment: &MachineDeployment) -> impl PartialEq + use<> {
    let annotations = deployment.metadata.annotations.as_ref();
    (
        deployment.metadata.uid.clone(),
        annotations.and_then(|known| known.get(annotation::REVISION)).cloned(),
        view::template(&deployment.spec.template),
        deployment.spec.rollout.after.as_ref().map(|after| after.0),
    )
}

/// Enqueues Machines of clusters that connect and Nodes that change, until what this returns is dropped.
pub(super) fn to_workloads(capi: &Arc<Capi>, enqueuer: &Enqueuer) -> remuda_workload::Subscription {
    let (machines, enqueuer) = (capi.machines.clone(), enqueuer.clone());
    capi.workloads.subscribe(move |event: &Event| {
        let namespace = event.cluster.namespace.as_deref().unwrap_or_default();
        let cluster = &event.cluster.name;
        let woken = match &event.what {
            What::Connected | What::Disconnected => {
                machines.keys_by_index(BY_CLUSTER, &cluster_value(namespace, cluster))
            }
            What::Silent(grace) if *grace >= GRACE => {
                machines.keys_by_index(BY_CLUSTER, &cluster_value(namespace, cluster))
            }
            What::Silent(_) | What::Watch => Vec::new(),
            What::Node { old, new } => {
                let mut woken = Vec::new();
                for node in old.iter().chain(new) {
                    let name = within(namespace, cluster, &node.name_any());
                    woken.extend(machines.keys_by_index(BY_NODE, &name));
                    if let Some(id) = remuda_workload::provider_id(node) {
                        let id = within(namespace, cluster, id);
                        woken.extend(machines.keys_by_index(BY_PROVIDER_ID, &id));
                    }
                }
                woken.sort();
                woken.dedup();
                woken
            }
        };
        for key in woken {
            enqueuer.enqueue(key);
        }
    })
}
