//! Node, what is seen of a node of a cluster.

use std::collections::BTreeMap;

use remuda_names::rancher::group::MANAGEMENT;
use serde_json::Value;

use super::Other;
use crate::{lenient, object::object, rke::Condition};

lenient! {
    pub struct NodeSpec {
        /// Runs etcd.
        pub etcd: bool,
        /// Runs the control plane.
        pub control_plane: bool,
        /// Runs workloads. Nodes without a role do.
        pub worker: bool,
        /// Name of the host.
        pub requested_hostname: String,
        /// The spec of the node in its cluster.
        pub internal_node_spec: Option<Value>,
        ..other: Other,
    }

    pub struct NodeStatus {
        /// Conditions of the node.
        pub conditions: Vec<Condition>,
        /// Name of the node in its cluster.
        pub node_name: String,
        /// Labels of the node in its cluster.
        pub node_labels: BTreeMap<String, String>,
        /// Annotations of the node in its cluster.
        pub node_annotations: BTreeMap<String, String>,
        /// The status of the node in its cluster, without what changes all the time.
        pub internal_node_status: Option<Value>,
        /// What the Pods of the node ask for.
        pub requested: BTreeMap<String, String>,
        /// What the Pods of the node may take at most.
        pub limits: BTreeMap<String, String>,
        ..other: Other,
    }
}

object! {
    /// A node of a cluster, as it was seen last.
    mod node; Node = "Node", MANAGEMENT, "v3", "nodes", NamespaceResourceScope;
    spec: NodeSpec; status: NodeStatus;
    { ..other: Other, }
}
