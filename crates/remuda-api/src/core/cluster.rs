//! Cluster.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde_json::Value;

use super::{ConditionGate, ContractReference, Deprecated, StatusVersion};
use crate::wire;

wire! {
    /// What is wanted of a cluster.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "Cluster", plural = "clusters", shortname = "cl",
        namespaced, status = "ClusterStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct ClusterSpec {
        /// Stops the controllers at everything that belongs to the cluster.
        pub paused: Option<bool>,
        /// Networks of the cluster, for whoever bootstraps it.
        pub cluster_network: ClusterNetwork,
        /// Where the API server of the cluster is reached. Filled in by providers unless it is given.
        pub control_plane_endpoint: Endpoint,
        /// The object that provides the control plane.
        pub control_plane_ref: ContractReference,
        /// The object that provides the infrastructure.
        pub infrastructure_ref: ContractReference,
        /// A managed topology. It is stored as it is; nothing here follows it.
        pub topology: Option<Value>,
        /// Conditions that must also hold for the cluster to be available.
        pub availability_gates: Vec<ConditionGate>,
    }

    pub struct ClusterNetwork {
        /// Port the API server listens on.
        pub api_server_port: i32,
        /// Ranges of service addresses.
        pub services: NetworkRanges,
        /// Ranges of pod addresses.
        pub pods: NetworkRanges,
        /// Domain of service names.
        pub service_domain: String,
    }

    pub struct NetworkRanges {
        /// Ranges in CIDR notation.
        pub cidr_blocks: Vec<String>,
    }

    pub struct Endpoint {
        /// Name or address.
        pub host: String,
        /// TCP port.
        pub port: i32,
    }

    /// What is known of a cluster.
    pub struct ClusterStatus {
        /// Conditions of the cluster.
        pub conditions: Vec<Condition>,
        /// Steps that are done once and stay done.
        pub initialization: ClusterInitialization,
        /// Machines of the control plane, counted.
        pub control_plane: Option<ReplicaStatus>,
        /// Machines of the workers, counted.
        pub workers: Option<ReplicaStatus>,
        /// Failure domains the infrastructure offers.
        pub failure_domains: Vec<FailureDomain>,
        /// A summary for people: Pending, Provisioning, Provisioned, Deleting, Failed or Unknown.
        pub phase: String,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// What only older API versions show.
        pub deprecated: Option<Deprecated>,
    }

    pub struct ClusterInitialization {
        /// The infrastructure provider said that it is done.
        pub infrastructure_provisioned: Option<bool>,
        /// The API server of the cluster took requests.
        pub control_plane_initialized: Option<bool>,
    }

    /// Counters of the control plane or of the workers.
    pub struct ReplicaStatus {
        /// Machines that are wanted.
        pub desired_replicas: Option<i32>,
        /// Machines there are.
        pub replicas: Option<i32>,
        /// Machines that are ready.
        pub ready_replicas: Option<i32>,
        /// Machines that are available.
        pub available_replicas: Option<i32>,
        /// Machines that are as they are wanted.
        pub up_to_date_replicas: Option<i32>,
        /// Kubernetes versions of the machines.
        pub versions: Vec<StatusVersion>,
        /// Versions an upgrade will pass through.
        pub upgrade_plan: Option<Value>,
    }

    pub struct FailureDomain {
        /// Name of the failure domain.
        pub name: String,
        /// Whether it is suitable for control plane machines.
        pub control_plane: Option<bool>,
        /// What the provider says about it.
        pub attributes: BTreeMap<String, String>,
    }
}

impl Endpoint {
    /// Host and port are known.
    pub fn is_valid(&self) -> bool {
        !self.host.is_empty() && self.port != 0
    }
}
