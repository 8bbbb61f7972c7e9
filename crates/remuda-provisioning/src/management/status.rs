//! What is known of a cluster beyond its connection.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use remuda_api::{
    management::{Cluster, ClusterStatus},
    provisioning,
    rke::RkeControlPlane,
};
use remuda_distro::Distro;
use remuda_names::rancher::{annotation, condition};

use crate::condition::{ConditionUpdate, get, is_true, set};

const IMPORTED: &str = "imported";

/// Everything the status depends on.
pub(super) struct View<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) provisioned: Option<&'a provisioning::Cluster>,
    pub(super) control_plane: Option<&'a RkeControlPlane>,
    /// How many machines the cluster has.
    pub(super) machines: usize,
}

pub(super) fn status(view: &View<'_>, now: Timestamp) -> ClusterStatus {
    let mut status = view.cluster.status.clone().unwrap_or_default();
    info(view, &mut status);
    conditions(view, &mut status, now);
    status
}

/// What is told while the provisioning Cluster goes: how far that is.
pub(super) fn removing(
    cluster: &Cluster,
    provisioned: &provisioning::Cluster,
    now: Timestamp,
) -> Option<ClusterStatus> {
    let told = provisioned.status.as_ref()?;
    let removed = get(&told.conditions, condition::REMOVED).map(ConditionUpdate::as_in)?;
    let mut status = cluster.status.clone().unwrap_or_default();
    for kind in [condition::PROVISIONED, condition::WAITING, condition::PENDING, condition::UPDATED] {
        set(&mut status.conditions, kind, &ConditionUpdate::yes(), now);
    }
    set(&mut status.conditions, condition::REMOVED, &removed, now);
    Some(status)
}

fn info(view: &View<'_>, status: &mut ClusterStatus) {
    let made = view.provisioned.filter(|cluster| cluster.spec.rke_config.is_some());
    let running = status.version.as_ref().map(|version| version.git_version.as_str()).unwrap_or_default();
    let wanted = view.provisioned.map(|cluster| cluster.spec.kubernetes_version.as_str()).unwrap_or_default();
    let version = if running.is_empty() { wanted } else { running }.to_owned();
    let runtime = Distro::reported(&version).map_or("", Distro::name);
    if !runtime.is_empty() {
        runtime.clone_into(&mut status.provider);
    }
    // Clients take a cluster whose driver is its distribution for one that others made. One that others made has none
    // until its agent has been connected, by which clients know that it waits for it.
    if made.is_some() || view.cluster.spec.internal {
        IMPORTED.clone_into(&mut status.driver);
    }
    let nodes = match made {
        Some(_) => i64::try_from(view.machines).unwrap_or(i64::MAX),
        None => status.node_count,
    };
    let provider = machine_provider(view);
    let info = status.info.get_or_insert_default();
    info.machine_provider = provider;
    info.kubernetes_version = version;
    info.node_count = nodes;
    info.provisioning_cluster_ref = made.map(|cluster| ObjectReference {
        api_version: Some(provisioning::Cluster::api_version(&()).into_owned()),
        kind: Some(provisioning::Cluster::kind(&()).into_owned()),
        namespace: cluster.namespace(),
        name: cluster.metadata.name.clone(),
        ..ObjectReference::default()
    });
}

fn machine_provider(view: &View<'_>) -> String {
    let Some(cluster) = view.provisioned else {
        return if view.cluster.spec.internal { "local" } else { IMPORTED }.to_owned();
    };
    if let Some(shown) = cluster.annotations().get(annotation::UI_PROVIDER).filter(|shown| !shown.is_empty())
    {
        return shown.clone();
    }
    let Some(config) = &cluster.spec.rke_config else {
        return if view.cluster.spec.internal { "local" } else { IMPORTED }.to_owned();
    };
    let kind =
        config.machine_pools.first().and_then(|pool| pool.machine_config_ref.as_ref()?.kind.as_deref());
    kind.map_or("custom", |kind| kind.strip_suffix("Config").unwrap_or(kind)).to_lowercase()
}

fn conditions(view: &View<'_>, status: &mut ClusterStatus, now: Timestamp) {
    let connected = is_true(&status.conditions, condition::CONNECTED);
    let reached = connected
        || view.provisioned.and_then(|cluster| cluster.status.as_ref()).is_some_and(|status| status.ready);
    let made = view.provisioned.is_some_and(|cluster| cluster.spec.rke_config.is_some());
    let told = view.control_plane.and_then(|control_plane| control_plane.status.as_ref());
    let says = |kind: &str| told.and_then(|told| get(&told.conditions, kind)).map(ConditionUpdate::as_in);
    let conditions = &mut status.conditions;
    if made {
        // Before there is a control plane, why there is none.
        let made = view.provisioned.and_then(|cluster| cluster.status.as_ref());
        let made = made
            .and_then(|status| get(&status.conditions, condition::RKE_CLUSTER))
            .map(ConditionUpdate::as_in);
        let made = made.filter(|made| told.is_none() && !made.is_true());
        let waiting = || {
            made.clone().unwrap_or_else(|| ConditionUpdate::waiting("waiting for control plane to report"))
        };
        let stable = says(condition::STABLE).is_some_and(|stable| stable.is_true());
        status.ready_reconciling = told.is_some() && !stable;
        let updated = says(condition::READY).unwrap_or_else(waiting);
        let provisioned =
            says(condition::PROVISIONED).or_else(|| says(condition::READY)).unwrap_or_else(waiting);
        set(conditions, condition::PROVISIONED, &provisioned, now);
        set(conditions, condition::UPDATED, &updated, now);
        if status.ready_reconciling {
            set(conditions, condition::READY, &updated, now);
        }
    } else {
        let provisioned = if reached {
            ConditionUpdate::yes()
        } else {
            ConditionUpdate::waiting("waiting for cluster agent to connect")
        };
        set(conditions, condition::PROVISIONED, &provisioned, now);
        set(conditions, condition::UPDATED, &ConditionUpdate::yes(), now);
    }
    let waiting = if reached {
        ConditionUpdate::yes()
    } else {
        ConditionUpdate::waiting("waiting for cluster agent to connect")
    };
    set(conditions, condition::WAITING, &waiting, now);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(provisioned: Option<Value>, control_plane: Option<Value>, expected: Value) {
        let cluster: Cluster = serde_json::from_value(json!({"metadata": {"name": "c-m-x"}})).unwrap();
        let provisioned: Option<provisioning::Cluster> =
            provisioned.map(|value| serde_json::from_value(value).unwrap());
        let control_plane: Option<RkeControlPlane> =
            control_plane.map(|value| serde_json::from_value(value).unwrap());
        let view = View {
            cluster: &cluster,
            provisioned: provisioned.as_ref(),
            control_plane: control_plane.as_ref(),
            machines: 3,
        };
        let mut status = serde_json::to_value(status(&view, Timestamp::UNIX_EPOCH)).unwrap();
        for condition in status["conditions"].as_array_mut().unwrap() {
            let fields = condition.as_object_mut().unwrap();
            fields.remove("lastUpdateTime");
            fields.remove("lastTransitionTime");
        }
        assert_eq!(status, expected);
    }

    #[test]
    fn a_cluster_of_ours_is_as_its_control_plane_says() {
        check(
            Some(json!({
                "metadata": {"name": "demo", "namespace": "ws"},
                "spec": {"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": {"machinePools": [
                    {"name": "p", "machineConfigRef": {"kind": "DigitaloceanConfig"}}]}},
                "status": {"ready": true},
            })),
            Some(json!({"status": {"conditions": [
                {"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "configuring"},
                {"type": "Provisioned", "status": "True"}]}})),
            json!({
                "driver": "imported", "provider": "rke2", "readyReconciling": true,
                "info": {
                    "machineProvider": "digitalocean", "kubernetesVersion": "v1.35.1+rke2r1", "nodeCount": 3,
                    "provisioningClusterRef": {
                        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "namespace": "ws", "name": "demo"},
                },
                "conditions": [
                    {"type": "Provisioned", "status": "True"},
                    {"type": "Updated", "status": "Unknown", "reason": "Waiting", "message": "configuring"},
                    {"type": "Ready", "status": "Unknown", "reason": "Waiting", "message": "configuring"},
                    {"type": "Waiting", "status": "True"},
                ],
            }),
        );
    }

    #[test]
    fn an_imported_cluster_waits_for_its_agent() {
        let waiting = "waiting for cluster agent to connect";
        check(
            Some(json!({"metadata": {"name": "theirs", "namespace": "ws"}})),
            None,
            json!({
                "info": {"machineProvider": "imported"},
                "conditions": [
                    {"type": "Provisioned", "status": "Unknown", "reason": "Waiting", "message": waiting},
                    {"type": "Updated", "status": "True"},
                    {"type": "Waiting", "status": "Unknown", "reason": "Waiting", "message": waiting},
                ],
            }),
        );
    }
}
