//! MachineDrainRule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;

use crate::wire;

wire! {
    /// How pods are treated when machines are drained.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineDrainRule", plural = "machinedrainrules",
        namespaced, schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineDrainRuleSpec {
        /// What is done with the pods.
        pub drain: DrainBehavior,
        /// All machines of the namespace if empty.
        pub machines: Vec<MachineSelector>,
        /// All pods if empty.
        pub pods: Vec<PodSelector>,
    }

    pub struct DrainBehavior {
        /// `Drain`, `Skip` or `WaitCompleted`.
        pub behavior: String,
        /// Pods of a lower order are drained first.
        pub order: Option<i32>,
    }

    pub struct MachineSelector {
        /// By labels of the machine.
        pub selector: Option<LabelSelector>,
        /// By labels of its cluster.
        pub cluster_selector: Option<LabelSelector>,
    }

    pub struct PodSelector {
        /// By labels of the pod.
        pub selector: Option<LabelSelector>,
        /// By labels of its namespace.
        pub namespace_selector: Option<LabelSelector>,
    }
}
