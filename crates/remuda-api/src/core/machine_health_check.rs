//! MachineHealthCheck.

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector},
    util::intstr::IntOrString,
};
use kube::CustomResource;

use super::Deprecated;
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineHealthCheck", plural = "machinehealthchecks",
        shortname = "mhc", shortname = "mhcs", namespaced, status = "MachineHealthCheckStatus", schema = "disabled",
        derive = "PartialEq", derive = "Default"
    )]
    pub struct MachineHealthCheckSpec {
        pub cluster_name: String,
        pub selector: LabelSelector,
        pub checks: HealthChecks,
        pub remediation: HealthRemediation,
    }

    pub struct HealthChecks {
        /// 0 is for ever.
        pub node_startup_timeout_seconds: Option<i32>,
        pub unhealthy_node_conditions: Vec<UnhealthyCondition>,
        pub unhealthy_machine_conditions: Vec<UnhealthyCondition>,
    }

    pub struct UnhealthyCondition {
        #[serde(rename = "type")]
        pub kind: String,
        pub status: String,
        pub timeout_seconds: Option<i32>,
    }

    pub struct HealthRemediation {
        pub trigger_if: RemediationTrigger,
        pub template_ref: Option<RemediationTemplate>,
    }

    pub struct RemediationTrigger {
        pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
        /// `[1-3]`; wins over the other when set.
        pub unhealthy_in_range: String,
    }

    pub struct RemediationTemplate {
        pub api_version: String,
        pub kind: String,
        pub name: String,
    }

    pub struct MachineHealthCheckStatus {
        pub conditions: Vec<Condition>,
        pub expected_machines: Option<i32>,
        pub current_healthy: Option<i32>,
        pub remediations_allowed: Option<i32>,
        pub observed_generation: i64,
        pub targets: Vec<String>,
        pub deprecated: Option<Deprecated>,
    }
}
