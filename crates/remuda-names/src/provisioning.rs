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
}
