//! What several kinds share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::wire;

wire! {
    /// A reference without version and namespace: the version follows from the contract label of its CRD,
    /// the namespace is the referrer's.
    pub struct ContractReference {
        pub api_group: String,
        pub kind: String,
        pub name: String,
    }

    /// Labels and annotations of objects to be made.
    pub struct TemplateMeta {
        pub labels: BTreeMap<String, String>,
        pub annotations: BTreeMap<String, String>,
    }

    /// How many machines run a version.
    pub struct StatusVersion {
        pub version: String,
        pub replicas: i32,
    }

    /// A condition that Ready or Available also asks for.
    pub struct ConditionGate {
        pub condition_type: String,
        /// `Positive`, which is meant when empty, or `Negative`.
        pub polarity: String,
    }

    /// A taint for the Node of a Machine.
    pub struct MachineTaint {
        pub key: String,
        pub value: String,
        pub effect: String,
        /// `Always` or `OnInitialization`.
        pub propagation: String,
    }

    /// How Machines of a set are named.
    pub struct MachineNaming {
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

    /// Where [`OldStatus`] is kept.
    pub struct Deprecated {
        pub v1beta1: Option<OldStatus>,
    }
}

impl ContractReference {
    /// A reference is there as soon as any part of it is.
    pub fn is_defined(&self) -> bool {
        *self != Self::default()
    }
}
