//! What several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

wire! {
    /// A reference without version and namespace: the version follows from the contract label of its CRD,
    /// the namespace is the referrer's.
    pub struct ContractReference {
        /// Group of the object.
        pub api_group: String,
        /// Kind of the object.
        pub kind: String,
        /// Name of the object.
        pub name: String,
    }

    /// Labels and annotations of objects to be made.
    pub struct TemplateMeta {
        /// Labels of the objects.
        pub labels: BTreeMap<String, String>,
        /// Annotations of the objects.
        pub annotations: BTreeMap<String, String>,
    }

    /// How many machines run a version.
    pub struct StatusVersion {
        /// Kubernetes version.
        pub version: String,
        /// Machines that run it.
        pub replicas: i32,
    }

    /// A condition that Ready or Available also asks for.
    pub struct ConditionGate {
        /// Type of the condition.
        pub condition_type: String,
        /// `Positive`, which is meant when empty, or `Negative`.
        pub polarity: String,
    }

    /// A taint for the Node of a Machine.
    pub struct MachineTaint {
        /// Key of the taint.
        pub key: String,
        /// Value of the taint.
        pub value: String,
        /// NoSchedule, PreferNoSchedule or NoExecute.
        pub effect: String,
        /// `Always` or `OnInitialization`.
        pub propagation: String,
    }

    /// How Machines of a set are named.
    pub struct MachineNaming {
        /// Template of names; knows .cluster.name, .machineSet.name and .random, which must be in it.
        pub template: String,
    }

    /// A condition as v1beta1 has them.
    pub struct OldCondition {
        #[serde(rename = "type")]
        pub kind: String,
        pub status: String,
        pub severity: String,
        pub last_transition_time: Option<Time>,
        pub reason: String,
        pub message: String,
    }

    /// What only v1beta1 shows, where there are no counters.
    pub struct OldStatus {
        pub conditions: Vec<OldCondition>,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
    }

    /// Where `OldStatus` is kept.
    pub struct Deprecated {
        pub v1beta1: Option<OldStatus>,
    }

    /// What only v1beta1 shows of kinds that cannot fail.
    pub struct OldConditions {
        pub conditions: Vec<OldCondition>,
    }

    /// Where [`OldConditions`] are kept.
    pub struct DeprecatedConditions {
        pub v1beta1: Option<OldConditions>,
    }
}

impl ContractReference {
    /// A reference is there as soon as any part of it is.
    pub fn is_defined(&self) -> bool {
        *self != Self::default()
    }
}
