//! Cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde_json::Value;

use super::{ConditionGate, ContractReference, Deprecated, StatusVersion};
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "Cluster", plural = "clusters", shortname = "cl",
        namespaced, status = "ClusterStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct ClusterSpec {
        pub paused: Option<bool>,
        pub cluster_network: ClusterNetwork,
        pub control_plane_endpoint: Endpoint,
        pub control_plane_ref: ContractReference,
        pub infrastructure_ref: ContractReference,
        /// Kept as it is: nothing here follows a managed topology.
        pub topology: Option<Value>,
        pub availability_gates: Vec<ConditionGate>,
    }

    pub struct ClusterNetwork {
        pub api_server_port: i32,
        pub services: NetworkRanges,
        pub pods: NetworkRanges,
        pub service_domain: String,
    }

    pub struct NetworkRanges {
        pub cidr_blocks: Vec<String>,
    }

    pub struct Endpoint {
        pub host: String,
        pub port: i32,
    }

    pub struct ClusterStatus {
        pub conditions: Vec<Condition>,
        pub initialization: ClusterInitialization,
        pub control_plane: Option<ReplicaStatus>,
        pub workers: Option<ReplicaStatus>,
        pub failure_domains: Vec<FailureDomain>,
        pub phase: String,
        pub observed_generation: i64,
        pub deprecated: Option<Deprecated>,
    }

    pub struct ClusterInitialization {
        pub infrastructure_provisioned: Option<bool>,
        pub control_plane_initialized: Option<bool>,
    }

    /// Counters of the control plane or of the workers.
    pub struct ReplicaStatus {
        pub desired_replicas: Option<i32>,
        pub replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub up_to_date_replicas: Option<i32>,
        pub versions: Vec<StatusVersion>,
        pub upgrade_plan: Option<Value>,
    }

    pub struct FailureDomain {
        pub name: String,
        pub control_plane: Option<bool>,
        pub attributes: BTreeMap<String, String>,
    }
}

impl Endpoint {
    /// Host and port are known.
    pub fn is_valid(&self) -> bool {
        !self.host.is_empty() && self.port != 0
    }
}
