//! Machine.

use k8s_openapi::{
    api::core::v1::NodeSystemInfo,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;

use super::{ConditionGate, ContractReference, Deprecated, MachineTaint, TemplateMeta};
use crate::wire;

wire! {
    /// What is wanted of a machine.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "Machine", plural = "machines", shortname = "ma",
        namespaced, status = "MachineStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineSpec {
        /// The cluster it belongs to.
        pub cluster_name: String,
        /// Where the data it boots with comes from.
        pub bootstrap: Bootstrap,
        /// The object that provides the server.
        pub infrastructure_ref: ContractReference,
        /// Kubernetes version, such as v1.34.1.
        pub version: String,
        /// Identifies the server in its infrastructure; the Node says the same.
        #[serde(rename = "providerID")]
        pub provider_id: String,
        /// Failure domain to create the server in.
        pub failure_domain: String,
        /// How long the Node must be ready before the machine is available.
        pub min_ready_seconds: Option<i32>,
        /// Conditions that must also hold for the machine to be ready.
        pub readiness_gates: Vec<ConditionGate>,
        /// How the machine is deleted.
        pub deletion: MachineDeletion,
        /// Taints for the Node.
        pub taints: Vec<MachineTaint>,
    }

    pub struct Bootstrap {
        /// The object that makes the data.
        pub config_ref: ContractReference,
        /// Secret with the data; filled in from the object, or given instead of it.
        pub data_secret_name: Option<String>,
    }

    /// Timeouts; none and 0 wait for ever.
    pub struct MachineDeletion {
        /// How long draining may take.
        pub node_drain_timeout_seconds: Option<i32>,
        /// How long detaching volumes may take.
        pub node_volume_detach_timeout_seconds: Option<i32>,
        /// How long deleting the Node is tried.
        pub node_deletion_timeout_seconds: Option<i32>,
    }

    /// What Machines of a set are made from.
    pub struct MachineTemplate {
        /// Labels and annotations of the machines.
        pub metadata: TemplateMeta,
        /// Spec of the machines.
        pub spec: MachineSpec,
    }

    /// What is known of a machine.
    pub struct MachineStatus {
        /// Conditions of the machine.
        pub conditions: Vec<Condition>,
        /// Steps that are done once and stay done.
        pub initialization: MachineInitialization,
        /// The Node the machine became.
        pub node_ref: NodeReference,
        /// What the Node reports of its system.
        pub node_info: Option<NodeSystemInfo>,
        /// When the phase changed last.
        pub last_updated: Option<Time>,
        /// Addresses of the server.
        pub addresses: Vec<MachineAddress>,
        /// Failure domain the server is in.
        pub failure_domain: String,
        /// A summary for people: Pending, Provisioning, Provisioned, Running, Updating, Deleting, Deleted, Failed or Unknown.
        pub phase: String,
        /// When the certificates of a control plane machine expire.
        pub certificates_expiry_date: Option<Time>,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// How far a deletion has come.
        pub deletion: Option<MachineDeletionStatus>,
        /// What only older API versions show.
        pub deprecated: Option<Deprecated>,
    }

    pub struct MachineInitialization {
        /// The infrastructure provider said that it is done.
        pub infrastructure_provisioned: Option<bool>,
        /// The bootstrap provider said that the data is there.
        pub bootstrap_data_secret_created: Option<bool>,
    }

    pub struct NodeReference {
        /// Name of the Node.
        pub name: String,
    }

    pub struct MachineAddress {
        /// Hostname, ExternalIP, InternalIP, ExternalDNS or InternalDNS.
        #[serde(rename = "type")]
        pub kind: String,
        /// The address itself.
        pub address: String,
    }

    /// When stages of the deletion began.
    pub struct MachineDeletionStatus {
        /// When draining began.
        pub node_drain_start_time: Option<Time>,
        /// When waiting for volumes began.
        pub wait_for_node_volume_detach_start_time: Option<Time>,
        /// When waiting for hooks before the drain began.
        pub wait_for_pre_drain_hook_start_time: Option<Time>,
        /// When waiting for hooks before the end of the server began.
        pub wait_for_pre_terminate_hook_start_time: Option<Time>,
    }
}
