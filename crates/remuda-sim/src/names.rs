//! What the simulated providers write where others see it.

/// API group of the provider kinds.
pub const GROUP: &str = "sim.remuda.io";
/// Their only version.
pub const VERSION: &str = "v1";
/// ClusterRole, and its binding, by which the controllers of a server may use these kinds.
pub const CONTROLLER_ROLE: &str = "remuda-sim:controllers";
/// What `clusterctl` calls the provider.
pub const PROVIDER: &str = "infrastructure-remuda-sim";
/// On everything that stands for something in the simulated world.
pub const FINALIZER: &str = "sim.remuda.io/world";
/// Begins every provider id.
pub const PROVIDER_ID_PREFIX: &str = "sim://";
/// On Pods of workload clusters: how many seconds they take to end. At once, unless told.
pub const TERMINATION_SECONDS: &str = "sim.remuda.io/termination-seconds";
/// Type of the secrets that Cluster API's providers make.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
