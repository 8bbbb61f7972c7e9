//! MachineDeployment.

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{Condition, LabelSelector, Time},
    util::intstr::IntOrString,
};
use kube::CustomResource;

use super::{MachineNaming, MachineTemplate, OldCondition, SetDeletion, StatusVersion};
use crate::wire;

wire! {
    /// What is wanted of a group of machines.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachineDeployment", plural = "machinedeployments",
        shortname = "md", namespaced, status = "MachineDeploymentStatus", schema = "disabled", derive = "PartialEq",
        derive = "Default"
    )]
    pub struct MachineDeploymentSpec {
        /// The cluster it belongs to.
        pub cluster_name: String,
        /// Machines that are wanted.
        pub replicas: Option<i32>,
        /// How machines are replaced when the template changes.
        pub rollout: Rollout,
        /// Which machines are its own.
        pub selector: LabelSelector,
        /// What machines are made from.
        pub template: MachineTemplate,
        /// How machines are named.
        pub machine_naming: MachineNaming,
        /// How unhealthy machines are replaced.
        pub remediation: DeploymentRemediation,
        /// Which machines go first.
        pub deletion: SetDeletion,
        /// Stops rollouts; scaling goes on.
        pub paused: Option<bool>,
    }

    pub struct Rollout {
        /// Replaces all machines that are older, once this time has come.
        pub after: Option<Time>,
        /// How machines are replaced.
        pub strategy: RolloutStrategy,
    }

    pub struct RolloutStrategy {
        /// `RollingUpdate` or `OnDelete`.
        #[serde(rename = "type")]
        pub kind: String,
        /// Bounds of a rolling update.
        pub rolling_update: RollingUpdate,
    }

    pub struct RollingUpdate {
        /// Machines that may be missing meanwhile, as a number or a percentage.
        pub max_unavailable: Option<IntOrString>,
        /// Machines there may be too many of meanwhile, as a number or a percentage.
        pub max_surge: Option<IntOrString>,
    }

    pub struct DeploymentRemediation {
        /// Machines replaced at the same time, as a number or a percentage.
        pub max_in_flight: Option<IntOrString>,
    }

    /// What is known of a group of machines.
    pub struct MachineDeploymentStatus {
        /// Conditions of the group.
        pub conditions: Vec<Condition>,
        /// The selector as text, for autoscalers.
        pub selector: String,
        /// Machines there are.
        pub replicas: Option<i32>,
        /// Machines that are ready.
        pub ready_replicas: Option<i32>,
        /// Machines that are available.
        pub available_replicas: Option<i32>,
        /// Machines that are as the template says.
        pub up_to_date_replicas: Option<i32>,
        /// Kubernetes versions of the machines.
        pub versions: Vec<StatusVersion>,
        /// A summary for people: ScalingUp, ScalingDown, Running, Failed or Unknown.
        pub phase: String,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// What only older API versions show.
        pub deprecated: Option<MachineDeploymentDeprecated>,
    }

    pub struct MachineDeploymentDeprecated {
        pub v1beta1: Option<OldMachineDeploymentStatus>,
    }

    pub struct OldMachineDeploymentStatus {
        pub conditions: Vec<OldCondition>,
        pub updated_replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub unavailable_replicas: Option<i32>,
    }
}
