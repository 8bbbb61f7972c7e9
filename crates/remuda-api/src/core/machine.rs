//! Machine.

use k8s_openapi::{
    api::core::v1::NodeSystemInfo,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::CustomResource;

use super::{ConditionGate, ContractReference, Deprecated, MachineTaint, TemplateMeta};
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "Machine", plural = "machines", shortname = "ma",
        namespaced, status = "MachineStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineSpec {
        pub cluster_name: String,
        pub bootstrap: Bootstrap,
        pub infrastructure_ref: ContractReference,
        pub version: String,
        #[serde(rename = "providerID")]
        pub provider_id: String,
        pub failure_domain: String,
        pub min_ready_seconds: Option<i32>,
        pub readiness_gates: Vec<ConditionGate>,
        pub deletion: MachineDeletion,
        pub taints: Vec<MachineTaint>,
    }

    pub struct Bootstrap {
        pub config_ref: ContractReference,
        pub data_secret_name: Option<String>,
    }

    /// Timeouts; none and 0 wait for ever.
    pub struct MachineDeletion {
        pub node_drain_timeout_seconds: Option<i32>,
        pub node_volume_detach_timeout_seconds: Option<i32>,
        pub node_deletion_timeout_seconds: Option<i32>,
    }

    /// What Machines of a set are made from.
    pub struct MachineTemplate {
        pub metadata: TemplateMeta,
        pub spec: MachineSpec,
    }

    pub struct MachineStatus {
        pub conditions: Vec<Condition>,
        pub initialization: MachineInitialization,
        pub node_ref: NodeReference,
        pub node_info: Option<NodeSystemInfo>,
        pub last_updated: Option<Time>,
        pub addresses: Vec<MachineAddress>,
        pub failure_domain: String,
        pub phase: String,
        pub certificates_expiry_date: Option<Time>,
        pub observed_generation: i64,
        pub deletion: Option<MachineDeletionStatus>,
        pub deprecated: Option<Deprecated>,
    }

    pub struct MachineInitialization {
        pub infrastructure_provisioned: Option<bool>,
        pub bootstrap_data_secret_created: Option<bool>,
    }

    pub struct NodeReference {
        pub name: String,
    }

    pub struct MachineAddress {
        #[serde(rename = "type")]
        pub kind: String,
        pub address: String,
    }

    /// When stages of the deletion began.
    pub struct MachineDeletionStatus {
        pub node_drain_start_time: Option<Time>,
        pub wait_for_node_volume_detach_start_time: Option<Time>,
        pub wait_for_pre_drain_hook_start_time: Option<Time>,
        pub wait_for_pre_terminate_hook_start_time: Option<Time>,
    }
}
