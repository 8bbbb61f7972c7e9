//! Pools of machines.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ObjectReference, Taint},
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{lenient, rke::Userdata};

lenient! {
    pub struct MachinePool {
        /// Name of the pool; the MachineDeployment is named after it.
        pub name: String,
        /// Is stored; nothing here follows it.
        pub display_name: String,
        /// The object that says what the machines are like.
        pub machine_config_ref: Option<ObjectReference>,
        /// How many machines; 1 when absent.
        pub quantity: Option<i32>,
        /// The machines run etcd.
        pub etcd_role: bool,
        /// The machines run the control plane.
        pub control_plane_role: bool,
        /// The machines run workloads.
        pub worker_role: bool,
        /// Labels of the nodes.
        pub labels: BTreeMap<String, String>,
        /// Taints of the nodes.
        pub taints: Vec<Taint>,
        /// Secret with the credentials of the provider, in place of that of the cluster.
        pub cloud_credential_secret_name: String,
        /// What machines of foreign providers boot with beside our own.
        pub userdata: Option<Userdata>,
        /// Stops the controllers at the MachineDeployment.
        pub paused: bool,
        /// Drains nodes before their machines are deleted.
        pub drain_before_delete: bool,
        /// After which time draining is given up.
        pub drain_before_delete_timeout: Option<String>,
        /// How machines are replaced.
        pub rolling_update: Option<RollingUpdate>,
        /// Labels of the MachineDeployment.
        pub machine_deployment_labels: BTreeMap<String, String>,
        /// Annotations of the MachineDeployment.
        pub machine_deployment_annotations: BTreeMap<String, String>,
        /// Least machines an autoscaler leaves.
        pub autoscaling_min_size: Option<i32>,
        /// Most machines an autoscaler makes.
        pub autoscaling_max_size: Option<i32>,
        /// How long a machine may take to become a node; 0 is for ever.
        pub node_startup_timeout: Option<String>,
        /// How long a node may be unhealthy before its machine is replaced.
        pub unhealthy_node_timeout: Option<String>,
        /// Machines are replaced only while no more than this number or percentage are unhealthy.
        pub max_unhealthy: Option<String>,
        /// Machines are replaced only while as many as this range says are unhealthy.
        pub unhealthy_range: Option<String>,
        /// Either linux, which is meant when empty, or windows.
        #[serde(rename = "machineOS")]
        pub machine_os: String,
        /// What the driver could do when the pool was made, so that a newer driver replaces no machine.
        pub dynamic_schema_spec: String,
        /// Longest name of a machine, from 10 to 63.
        pub hostname_length_limit: i64,
    }

    pub struct RollingUpdate {
        /// How many machines may be missing, as number or percentage.
        pub max_unavailable: Option<IntOrString>,
        /// How many machines may be too many, as number or percentage.
        pub max_surge: Option<IntOrString>,
    }

    pub struct MachinePoolDefaults {
        /// Longest name of a machine, from 10 to 63.
        pub hostname_length_limit: i64,
    }
}
