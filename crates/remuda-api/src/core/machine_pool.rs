//! MachinePool.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Condition};
use kube::CustomResource;

use super::{MachineInitialization, MachineTemplate, OldCondition, StatusVersion};
use crate::wire;

wire! {
    /// What is wanted of machines that the infrastructure keeps as one group.
    #[derive(CustomResource)]
    #[kube(
        group = "cluster.x-k8s.io", version = "v1beta2", kind = "MachinePool", plural = "machinepools", shortname = "mp",
        namespaced, status = "MachinePoolStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct MachinePoolSpec {
        /// The cluster it belongs to.
        pub cluster_name: String,
        /// Machines that are wanted.
        pub replicas: Option<i32>,
        /// What the machines are.
        pub template: MachineTemplate,
        /// Servers of the group, as the infrastructure reports them.
        #[serde(rename = "providerIDList")]
        pub provider_id_list: Vec<String>,
        /// Failure domains the servers may be in.
        pub failure_domains: Vec<String>,
    }

    /// What is known of the group.
    pub struct MachinePoolStatus {
        /// Conditions of the group.
        pub conditions: Vec<Condition>,
        /// Steps that are done once and stay done.
        pub initialization: MachineInitialization,
        /// The Nodes of the group.
        pub node_refs: Vec<ObjectReference>,
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
        /// A summary for people.
        pub phase: String,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// What only older API versions show.
        pub deprecated: Option<MachinePoolDeprecated>,
    }

    pub struct MachinePoolDeprecated {
        pub v1beta1: Option<OldMachinePoolStatus>,
    }

    pub struct OldMachinePoolStatus {
        pub conditions: Vec<OldCondition>,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
        pub ready_replicas: Option<i32>,
        pub available_replicas: Option<i32>,
        pub unavailable_replicas: Option<i32>,
    }
}
