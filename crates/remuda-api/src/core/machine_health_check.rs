//! MachineHealthCheck.

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector},
    util::intstr::IntOrString,
};
use kube::CustomResource;

use super::DeprecatedConditions;
use crate::wire;

wire! {
    /// When machines count as unhealthy, and what is done then.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineHealthCheck", plural = "machinehealthchecks",
        shortname = "mhc", shortname = "mhcs", namespaced, status = "MachineHealthCheckStatus", schema = "disabled",
        derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineHealthCheckSpec {
        /// The cluster whose machines are watched.
        pub cluster_name: String,
        /// Which machines are watched.
        pub selector: LabelSelector,
        /// When a machine is unhealthy.
        pub checks: HealthChecks,
        /// What is done about it.
        pub remediation: HealthRemediation,
    }

    pub struct HealthChecks {
        /// How long a machine may take to become a Node; 0 is for ever.
        pub node_startup_timeout_seconds: Option<i32>,
        /// Conditions of the Node, any of which makes the machine unhealthy.
        pub unhealthy_node_conditions: Vec<UnhealthyCondition>,
        /// Conditions of the machine, any of which makes it unhealthy.
        pub unhealthy_machine_conditions: Vec<UnhealthyCondition>,
    }

    pub struct UnhealthyCondition {
        /// Type of the condition.
        #[serde(rename = "type")]
        pub kind: String,
        /// Status that is unhealthy.
        pub status: String,
        /// For how long it must have been so.
        pub timeout_seconds: Option<i32>,
    }

    pub struct HealthRemediation {
        /// When machines are replaced at all.
        pub trigger_if: RemediationTrigger,
        /// Template of an object that takes care of it instead.
        pub template_ref: Option<RemediationTemplate>,
    }

    pub struct RemediationTrigger {
        /// Not if more are unhealthy, as a number or a percentage.
        pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
        /// `[1-3]`; wins over the other when set.
        pub unhealthy_in_range: String,
    }

    pub struct RemediationTemplate {
        /// Group and version of the template.
        pub api_version: String,
        /// Kind of the template.
        pub kind: String,
        /// Name of the template.
        pub name: String,
    }

    /// What a health check sees.
    pub struct MachineHealthCheckStatus {
        /// Conditions of the health check.
        pub conditions: Vec<Condition>,
        /// Machines it watches.
        pub expected_machines: Option<i32>,
        /// Machines that are healthy.
        pub current_healthy: Option<i32>,
        /// Machines that may be replaced now.
        pub remediations_allowed: Option<i32>,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// Names of the machines.
        pub targets: Vec<String>,
        /// What only older API versions show.
        pub deprecated: Option<DeprecatedConditions>,
    }
}
