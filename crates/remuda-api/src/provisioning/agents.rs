//! How agents are deployed in a cluster.

use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements, Toleration};

use crate::lenient;

lenient! {
    pub struct AgentDeploymentCustomization {
        /// Tolerations beside those the agent has anyway.
        pub append_tolerations: Vec<Toleration>,
        /// Affinity in place of the usual one.
        pub override_affinity: Option<Affinity>,
        /// Resources in place of the usual ones.
        pub override_resource_requirements: Option<ResourceRequirements>,
        /// Priority and disruption budget of the agent.
        pub scheduling_customization: Option<SchedulingCustomization>,
    }

    pub struct SchedulingCustomization {
        /// Priority of the pods.
        pub priority_class: Option<PriorityClass>,
        /// How many pods may be missing.
        pub pod_disruption_budget: Option<DisruptionBudget>,
    }

    pub struct PriorityClass {
        /// The higher, the more important.
        pub value: i64,
        /// Never or PreemptLowerPriority.
        pub preemption_policy: Option<String>,
    }

    pub struct DisruptionBudget {
        /// Least pods, as number or percentage.
        pub min_available: String,
        /// Most missing pods, as number or percentage.
        pub max_unavailable: String,
    }

    pub struct WebhookDeploymentCustomization {
        /// How many pods.
        pub replica_count: Option<i32>,
        /// Tolerations beside those the pods have anyway.
        pub append_tolerations: Vec<Toleration>,
        /// Affinity in place of the usual one.
        pub override_affinity: Option<Affinity>,
        /// Resources in place of the usual ones.
        pub override_resource_requirements: Option<ResourceRequirements>,
        /// How many pods may be missing.
        pub pod_disruption_budget: Option<DisruptionBudget>,
    }
}
