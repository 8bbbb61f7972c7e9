//! RKEControlPlane, from which plans of all machines of a cluster are made.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use remuda_names::rancher::group::RKE;

use super::{
    ClusterConfiguration, Condition, EnvVar, LocalClusterAuthEndpoint, RotateCertificates,
    RotateEncryptionKeys, SnapshotCreate, SnapshotRestore,
};
use crate::{lenient, object::object};

lenient! {
    pub struct RkeControlPlaneSpec {
        /// Environment of the node agent and of installers.
        pub agent_env_vars: Vec<EnvVar>,
        /// An address for clients that do not come through this server.
        pub local_cluster_auth_endpoint: LocalClusterAuthEndpoint,
        /// Asks for a snapshot of etcd.
        pub etcd_snapshot_create: Option<SnapshotCreate>,
        /// Asks for a snapshot to be restored.
        pub etcd_snapshot_restore: Option<SnapshotRestore>,
        /// Asks for new certificates.
        pub rotate_certificates: Option<RotateCertificates>,
        /// Asks for a new key for secrets at rest.
        pub rotate_encryption_keys: Option<RotateEncryptionKeys>,
        /// Version of the distribution.
        pub kubernetes_version: String,
        /// Name of the cluster.
        pub cluster_name: String,
        /// Name of the management Cluster.
        pub management_cluster_name: String,
        /// Somebody else writes the configuration of the nodes.
        pub unmanaged_config: bool,
        ..config: ClusterConfiguration,
    }

    pub struct RkeControlPlaneStatus {
        /// What was wanted when all nodes were last as wanted.
        pub applied_spec: Option<Box<RkeControlPlaneSpec>>,
        /// Conditions of the control plane.
        pub conditions: Vec<Condition>,
        /// Is not used any more.
        pub ready: bool,
        /// Is not used any more.
        pub initialized: bool,
        /// Steps that are done once and stay done.
        pub initialization: ControlPlaneInitialization,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// Which rotation of certificates was done last.
        pub certificate_rotation_generation: i64,
        /// The rotation of certificates that begins by itself, before they end.
        pub certificate_renewal: Option<CertificateRenewal>,
        /// Machines that are stopped, being stopped, or being started again.
        pub hibernation: Option<Hibernation>,
        /// The rotation of the key for secrets at rest that is under way or done.
        pub rotate_encryption_keys: Option<RotateEncryptionKeys>,
        /// How far that rotation is.
        pub rotate_encryption_keys_phase: String,
        /// Machine on which that rotation is done.
        pub rotate_encryption_keys_leader: String,
        /// The restore that is under way or done.
        pub etcd_snapshot_restore: Option<SnapshotRestore>,
        /// How far that restore is.
        pub etcd_snapshot_restore_phase: String,
        /// The snapshot that is being taken or was taken last.
        pub etcd_snapshot_create: Option<SnapshotCreate>,
        /// How far that snapshot is.
        pub etcd_snapshot_create_phase: String,
        /// Grows when nodes have to be configured again.
        pub config_generation: i64,
        /// The agent in the cluster is connected.
        pub agent_connected: bool,
        /// What the cluster waits for, in codes that programs can tell apart. Condition Ready says it in words.
        pub waiting_for: Option<WaitingFor>,
    }

    pub struct CertificateRenewal {
        /// What it waits for, if it is due and has not begun: MaintenanceWindow.
        pub code: String,
        /// The machine whose certificates end first.
        pub machine: String,
        /// When they do.
        pub expires: Option<Time>,
        /// When the next maintenance window opens.
        pub opens: Option<Time>,
        /// When it began.
        pub begun: Option<Time>,
        /// When all certificates were rotated last.
        pub ended: Option<Time>,
    }

    pub struct Hibernation {
        /// How far it is.
        pub phase: String,
        /// The request that is carried out.
        pub asked: String,
        /// When the phase began.
        pub since: Option<Time>,
        /// No snapshot was taken before: that was declined.
        pub without_snapshot: bool,
        /// Why it ended before a machine was stopped.
        pub failure: String,
    }

    pub struct WaitingFor {
        /// What it is.
        pub code: String,
        /// Machines it is about, three at the most.
        pub machines: Vec<String>,
        /// What is the matter with the machine, if it is one.
        pub reasons: Vec<ReasonCode>,
    }

    pub struct ReasonCode {
        /// What it is.
        pub code: String,
        /// What it is about, such as the names of probes.
        pub subjects: Vec<String>,
    }

    pub struct ControlPlaneInitialization {
        /// The API server of the cluster took requests.
        pub control_plane_initialized: Option<bool>,
    }
}

object! {
    /// The control plane of a cluster, and how all of its machines are configured.
    mod rke_control_plane; RkeControlPlane = "RKEControlPlane", RKE, "v1", "rkecontrolplanes", NamespaceResourceScope;
    spec: RkeControlPlaneSpec; status: RkeControlPlaneStatus;
    {}
}
