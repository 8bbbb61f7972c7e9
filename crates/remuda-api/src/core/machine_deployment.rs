//! MachineDeployment.

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;

use super::{MachineNaming, MachineTemplate, OldCondition, SetDeletion, StatusVersion};
use crate::wire;

wire! {
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineDeployment", plural = "machinedeployments",
        shortname = "md", namespaced, status = "MachineDeploymentStatus", schema = "disabled", derive = "PartialEq",
        derive = "Default"
    )]
    pub struct MachineDeploymentSpec {
        pub cluster_name: String,
        pub replicas: Option<i32>,
        pub rollout: Rollout,
        pub selector: LabelSelector,
        pub template: MachineTemplate,
        pub machine_naming: MachineNaming,
        pub remediation: DeploymentRemediation,
        pub deletion: SetDeletion,
        pub paused: Option<bool>,
    }

    pub struct Rollout {
        pub after: Option<Time>,
        pub strategy: RolloutStrategy,
    }

    pub struct RolloutStrategy {
        /// `RollingUpdate` or `OnDelete`.
        #[serde(rename = "type")]
        pub kind: String,
        pub rolling_update: RollingUpdate,
    }

    pub struct RollingUpdate {
        pub max_unavailable: Option<IntOrString>,
        pub max_surge: Option<IntOrString>,
    }

    pub struct DeploymentRemediation {
        pub max_in_flight: Option<IntOrString>,
    }

    pub struct MachineDeploymentStatus {
        pub conditions: Vec<Condition>,
        pub selector: String,
        pub replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub up_to_date_replicas: Option<i32>,
        pub versions: Vec<StatusVersion>,
        pub phase: String,
        pub observed_generation: i64,
        pub deprecated: Option<MachineDeploymentDeprecated>,
    }

    pub struct MachineDeploymentDeprecated {
        pub v1beta1: Option<OldMachineDeploymentStatus>,
    }

    pub struct OldMachineDeploymentStatus {
        pub conditions: Vec<OldCondition>,
        pub updated_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub unavailable_replicas: i32,
    }
}
