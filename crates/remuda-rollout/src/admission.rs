//! What is filled in and what is refused when somebody writes a Cluster API object.
//!
//! Objects are in v1beta2, whatever version the request was in. Defaults come before the schema is checked:
//! schemas demand selectors that clients leave to us.

mod defaults;
mod ipam;
mod path;
mod rules;
mod selectors;
mod syntax;

use remuda_schema::FieldError;
use serde_json::Value;

/// Features that are off unless an administrator turns them on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// ClusterTopology
    pub topology: bool,
    /// MachineTaintPropagation
    pub taints: bool,
}

/// Fills in what a client may leave out. `old` is the stored object of an update.
pub fn default(kind: &str, object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    match kind {
        "Machine" => defaults::machine(object),
        "MachineSet" => defaults::machine_set(object, old)?,
        "MachineDeployment" => defaults::machine_deployment(object, old)?,
        "MachinePool" => defaults::machine_pool(object, old)?,
        "MachineHealthCheck" => defaults::machine_health_check(object),
        "ClusterResourceSet" => defaults::cluster_resource_set(object),
        _ => {}
    }
    Ok(())
}

/// Everything that is wrong with an object and that its schema cannot tell. `old` is the stored object of an update.
pub fn validate(kind: &str, object: &Value, old: Option<&Value>, features: Features) -> Vec<FieldError> {
    match kind {
        "Cluster" => rules::cluster(object, old, features),
        "Machine" => rules::machine(object, old, features),
        "MachineSet" => rules::machine_set(object, old, features),
        "MachineDeployment" => rules::machine_deployment(object, old, features),
        "MachinePool" => rules::machine_pool(object, old, features),
        "MachineHealthCheck" => rules::machine_health_check(object, old),
        "MachineDrainRule" => rules::machine_drain_rule(object),
        "ClusterResourceSet" => rules::cluster_resource_set(object, old),
        "ClusterResourceSetBinding" => rules::cluster_resource_set_binding(object, old),
        "IPAddressClaim" => ipam::claim(object, old),
        "IPAddress" => ipam::address(object, old),
        "InClusterIPPool" | "GlobalInClusterIPPool" => ipam::pool(object, old),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
