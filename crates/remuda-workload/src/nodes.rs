//! What is kept of a node.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use remuda_control::{Informer, informer::Bound};
use remuda_names::capi::annotation;

/// Nodes are filed under their `spec.providerID` by this name.
pub(super) const BY_PROVIDER_ID: &str = "provider-id";

/// How many nodes are kept of one cluster, and how much of them. Kubernetes itself goes up to 5,000; what is kept
/// of one is a few KiB.
pub(super) const BOUND: Bound =
    Bound { page: 100, objects: 20_000, object_bytes: 256 << 10, bytes: 256 << 20 };

pub(super) fn index(nodes: &Informer<Node>) {
    nodes.add_index(BY_PROVIDER_ID, |node| crate::provider_id(node).map(str::to_owned).into_iter().collect());
}

/// Drops what nobody here reads: with thousands of nodes, images alone would be most of our memory.
pub(super) fn trim(node: &mut Node) {
    let meta = &mut node.metadata;
    meta.managed_fields = None;
    meta.owner_references = None;
    meta.finalizers = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(annotation::LAST_APPLIED);
    }
    if let Some(spec) = &mut node.spec {
        spec.pod_cidr = None;
        spec.pod_cidrs = None;
        spec.config_source = None;
        spec.external_id = None;
    }
    if let Some(status) = &mut node.status {
        status.config = None;
        status.daemon_endpoints = None;
        status.images = None;
        status.runtime_handlers = None;
        status.features = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        // A heartbeat is no news.
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
    }
}

/// Whether a node says anything new. Kubelets write theirs every few minutes whether or not it does.
pub(super) fn differ(old: &Node, new: &Node) -> bool {
    old.uid() != new.uid()
        || old.metadata.labels != new.metadata.labels
        || old.metadata.annotations != new.metadata.annotations
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.spec != new.spec
        || old.status != new.status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(version: &str, heartbeat: &str, ready: &str) -> Node {
        let mut node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "resourceVersion": version, "managedFields": [{"manager": "kubelet"}]},
            "spec": {"providerID": "x://1", "podCIDR": "10.0.0.0/24"},
            "status": {
                "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat}],
                "images": [{"names": ["a"]}],
                "capacity": {"cpu": "4"},
            },
        }))
        .unwrap();
        trim(&mut node);
        node
    }

    #[test]
    fn a_heartbeat_is_no_news_and_a_condition_is() {
        let first = node("1", "2026-01-01T00:00:00Z", "True");
        assert!(!differ(&first, &node("2", "2026-01-01T00:05:00Z", "True")));
        assert!(differ(&first, &node("3", "2026-01-01T00:10:00Z", "Unknown")));
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let kept = serde_json::to_string(&node("1", "2026-01-01T00:00:00Z", "True")).unwrap();
        assert!(!kept.contains("images") && !kept.contains("managedFields"));
        assert!(kept.contains("x://1") && kept.contains("capacity"));
    }
}
