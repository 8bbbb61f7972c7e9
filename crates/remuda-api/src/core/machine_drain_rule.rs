//! MachineDrainRule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;

use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineDrainRule", plural = "machinedrainrules",
        namespaced, schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineDrainRuleSpec {
        pub drain: DrainBehavior,
        /// All machines of the namespace if empty.
        pub machines: Vec<MachineSelector>,
        /// All pods if empty.
        pub pods: Vec<PodSelector>,
    }

    pub struct DrainBehavior {
        /// `Drain`, `Skip` or `WaitCompleted`.
        pub behavior: String,
        pub order: Option<i32>,
    }

    pub struct MachineSelector {
        pub selector: Option<LabelSelector>,
        pub cluster_selector: Option<LabelSelector>,
    }

    pub struct PodSelector {
        pub selector: Option<LabelSelector>,
        pub namespace_selector: Option<LabelSelector>,
    }
}
