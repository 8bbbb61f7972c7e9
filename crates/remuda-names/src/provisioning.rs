//! What provisioning leaves on the objects it makes.

/// Labels.
pub mod label {
    /// On objects made from provisioning Clusters: hash of what was last applied, by which a server that starts
    /// again knows that there is nothing to do. A label, since annotations of MachineDeployments are copied on.
    pub const APPLIED: &str = "remuda.io/applied";
}

/// Annotations.
pub mod annotation {
    /// On MachineDeployments: how many machines the pool asked for when it was last applied. If the number of the
    /// MachineDeployment differs from it, somebody has scaled.
    pub const REPLICAS: &str = "remuda.io/pool-quantity";
    /// On Clusters, and in `machineDeploymentAnnotations` of pools, which come first: whether an edit of a machine
    /// configuration may replace machines. `Never`, `Ask` (meant if nothing is said) or `Auto`. Written by people.
    pub const CONFIG_POLICY: &str = "remuda.io/config-update-policy";
    /// On Clusters: edits of configurations that may replace machines, as `pool=revision,…`. Written by
    /// `remuda cluster apply-config`.
    pub const APPROVED_CONFIGS: &str = "remuda.io/approved-configs";
    /// On MachineDeployments: an edit of the configuration that has not reached the machines, as JSON with `config`,
    /// `fields`, `policy` and `revision`.
    pub const PENDING_CONFIG: &str = "remuda.io/pending-config";
    /// On machine configurations: `true` if several clusters use it, or may. It then belongs to none of them and
    /// outlives them. Written by people, and as soon as a second cluster uses it.
    pub const SHARED: &str = "remuda.io/shared";
}

/// Conditions.
pub mod condition {
    /// On Clusters: false while an edit of a machine configuration has not reached all machines.
    pub const CONFIGURATION_APPLIED: &str = "ConfigurationApplied";
}
