//! Codes of what a cluster waits for: `status.waitingFor` of an RKEControlPlane. The planner writes them, and those
//! who explain read them; the words are made elsewhere, and are never read again.

pub const RELEASE_DATA: &str = "ReleaseData";
pub const CLUSTER: &str = "Cluster";
pub const INFRASTRUCTURE: &str = "Infrastructure";
pub const UNINITIALIZING: &str = "Uninitializing";
pub const ETCD_DELETED: &str = "EtcdDeleted";
pub const LAST_MEMBERS: &str = "LastEtcdMembers";
pub const ROLES: &str = "Roles";
/// Of earlier versions, whose control planes are read here as well.
pub const NOT_SUPPORTED: &str = "NotSupported";
pub const OPERATION: &str = "Operation";
/// A cluster is being stopped, is stopped, or is being started.
pub const HIBERNATION: &str = "Hibernation";
pub const MAINTENANCE_WINDOW: &str = "MaintenanceWindow";
pub const PAUSED: &str = "Paused";
pub const ETCD_REPLACED: &str = "EtcdReplaced";
pub const VIABLE_INIT_NODE: &str = "ViableInitNode";
pub const FORMER_INIT_NODE: &str = "FormerInitNode";
pub const DESIGNATED_INIT_NODE: &str = "DesignatedInitNode";
pub const JOIN_URL: &str = "JoinURL";
pub const CONTROL_PLANE: &str = "ControlPlaneUnavailable";
pub const MARKING_INITIALIZED: &str = "MarkingInitialized";
pub const AT_LEAST_ONE: &str = "AtLeastOne";
pub const UNCORDONING: &str = "Uncordoning";
pub const DRAINING: &str = "Draining";
pub const CONFIGURING: &str = "Configuring";
pub const MACHINES_DONE: &str = "MachinesDone";
pub const MACHINES_FAILING: &str = "MachinesFailing";
pub const MACHINES_NOT_READY: &str = "MachinesNotReady";
pub const DRIVER: &str = "Driver";

/// Codes of what is the matter with a machine.
pub mod reason {
    pub const CLUSTER_AGENT: &str = "WaitingForClusterAgent";
}
