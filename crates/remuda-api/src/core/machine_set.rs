//! MachineSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;

use super::{MachineNaming, MachineTemplate, OldCondition, StatusVersion};
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineSet", plural = "machinesets", shortname = "ms",
        namespaced, status = "MachineSetStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineSetSpec {
        pub cluster_name: String,
        pub replicas: Option<i32>,
        pub selector: LabelSelector,
        pub template: MachineTemplate,
        pub machine_naming: MachineNaming,
        pub deletion: SetDeletion,
    }

    pub struct SetDeletion {
        /// `Random`, which is meant when empty, `Newest` or `Oldest`.
        pub order: String,
    }

    pub struct MachineSetStatus {
        pub conditions: Vec<Condition>,
        pub selector: String,
        pub replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub up_to_date_replicas: Option<i32>,
        pub versions: Vec<StatusVersion>,
        pub observed_generation: i64,
        pub deprecated: Option<MachineSetDeprecated>,
    }

    pub struct MachineSetDeprecated {
        pub v1beta1: Option<OldMachineSetStatus>,
    }

    pub struct OldMachineSetStatus {
        pub conditions: Vec<OldCondition>,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
        pub fully_labeled_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
    }
}
