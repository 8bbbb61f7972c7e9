//! Enqueuing objects when facts of their Cluster change.

use jiff::Timestamp;
use remuda_api::core::{Cluster, ContractReference};
use remuda_control::{Controller, Informer};
use remuda_names::capi::condition;
use serde_json::Value;

use crate::managed::{BY_CLUSTER, Managed, cluster_value};

/// What those below a Cluster look at.
#[derive(PartialEq)]
pub(crate) struct Facts {
    uid: Option<String>,
    deleting: bool,
    paused: bool,
    control_plane: ContractReference,
    topology: Option<Value>,
    initialized: Option<Timestamp>,
    infrastructure: Option<Timestamp>,
}

fn facts(cluster: &Cluster) -> Facts {
    Facts {
        uid: cluster.metadata.uid.clone(),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
        paused: cluster.spec.paused == Some(true),
        control_plane: cluster.spec.control_plane_ref.clone(),
        topology: cluster.spec.topology.as_ref().and_then(|topology| topology.get("version")).cloned(),
        initialized: true_since(cluster, condition::CONTROL_PLANE_INITIALIZED),
        infrastructure: true_since(cluster, condition::INFRASTRUCTURE_READY),
    }
}

/// Since when a condition is True.
pub(crate) fn true_since<K: Managed>(object: &K, kind: &str) -> Option<Timestamp> {
    let condition = object.conditions().iter().find(|condition| condition.type_ == kind)?;
    (condition.status == "True").then_some(condition.last_transition_time.0)
}

/// Enqueues objects when facts of their Cluster change. They are found by the index [`BY_CLUSTER`].
pub(crate) fn watches_cluster<K: Managed>(
    controller: Controller<K>,
    clusters: &Informer<Cluster>,
) -> Controller<K> {
    let root = controller.root().clone();
    controller.watches_facts(clusters, facts, move |cluster| {
        let meta = &cluster.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        root.keys_by_index(
            BY_CLUSTER,
            &cluster_value(namespace.unwrap_or_default(), name.unwrap_or_default()),
        )
    })
}
