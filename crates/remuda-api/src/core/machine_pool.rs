//! MachinePool.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;

use super::{MachineInitialization, MachineTemplate, OldCondition, StatusVersion};
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachinePool", plural = "machinepools", shortname = "mp",
        namespaced, status = "MachinePoolStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachinePoolSpec {
        pub cluster_name: String,
        pub replicas: Option<i32>,
        pub template: MachineTemplate,
        #[serde(rename = "providerIDList")]
        pub provider_id_list: Vec<String>,
        pub failure_domains: Vec<String>,
    }

    pub struct MachinePoolStatus {
        pub conditions: Vec<Condition>,
        pub initialization: MachineInitialization,
        pub node_refs: Vec<ObjectReference>,
        pub replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub up_to_date_replicas: Option<i32>,
        pub versions: Vec<StatusVersion>,
        pub phase: String,
        pub observed_generation: i64,
        pub deprecated: Option<MachinePoolDeprecated>,
    }

    pub struct MachinePoolDeprecated {
        pub v1beta1: Option<OldMachinePoolStatus>,
    }

    pub struct OldMachinePoolStatus {
        pub conditions: Vec<OldCondition>,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub unavailable_replicas: i32,
    }
}
