//! MachineSet.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;

use super::{MachineNaming, MachineTemplate, OldCondition, StatusVersion};
use crate::wire;

wire! {
    /// What is wanted of a set of equal machines.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineSet", plural = "machinesets", shortname = "ms",
        namespaced, status = "MachineSetStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineSetSpec {
        /// The cluster it belongs to.
        pub cluster_name: String,
        /// Machines that are wanted.
        pub replicas: Option<i32>,
        /// Which machines are its own.
        pub selector: LabelSelector,
        /// What machines are made from.
        pub template: MachineTemplate,
        /// How machines are named.
        pub machine_naming: MachineNaming,
        /// Which machines go first.
        pub deletion: SetDeletion,
    }

    pub struct SetDeletion {
        /// `Random`, which is meant when empty, `Newest` or `Oldest`.
        pub order: String,
    }

    /// What is known of a set of machines.
    pub struct MachineSetStatus {
        /// Conditions of the set.
        pub conditions: Vec<Condition>,
        /// The selector as text, for autoscalers.
        pub selector: String,
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
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// What only older API versions show.
        pub deprecated: Option<MachineSetDeprecated>,
    }

    pub struct MachineSetDeprecated {
        pub v1beta1: Option<OldMachineSetStatus>,
    }

    pub struct OldMachineSetStatus {
        pub conditions: Vec<OldCondition>,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
        // Counts of older versions are there when they are 0, too.
        pub fully_labeled_replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
    }
}
