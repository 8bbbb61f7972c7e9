//! Local machines.

/// The node driver that makes them.
pub const DRIVER: &str = "local";
/// The driver's flag for the file a machine runs at its first start; set by the machine job.
pub const USER_DATA_FLAG: &str = "local-user-data";
/// The environment variable that also sets it.
pub const USER_DATA_VARIABLE: &str = "LOCAL_USER_DATA";
/// The directory below the data directory that holds everything about them.
pub const DIRECTORY: &str = "sandbox";
/// Where a machine has this program; read by the agent's install script and by installer images.
pub const PROGRAM: &str = "/opt/remuda/remuda";
/// Where a machine finds the installer images of its host; the agent's directory is a link to it.
pub const IMAGES: &str = "/run/remuda/images";
/// Where it finds those its containers are made of; the directories distributions import from are links to it.
pub const PRELOADED: &str = "/run/remuda/preloaded";

/// What a machine's first process tells the agent's install script.
pub mod env {
    /// The agent need not be downloaded.
    pub const AGENT_IS_LOCAL: &str = "CATTLE_AGENT_BINARY_LOCAL";
    /// Where it is instead.
    pub const AGENT_LOCATION: &str = "CATTLE_AGENT_BINARY_LOCAL_LOCATION";
}
