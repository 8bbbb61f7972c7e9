//! How it went.

use serde::Serialize;

use crate::load::Percentiles;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionReport {
    pub clusters: usize,
    pub machines: usize,
    /// Until the last object of the last cluster was created.
    pub created_seconds: f64,
    /// Until all clusters were ready: `status.ready`, and Ready, Provisioned and Updated of this generation.
    pub ready_seconds: f64,
    /// From the creation of a cluster to its being ready.
    pub cluster: Percentiles,
    /// From the first sight of a Machine to its running.
    pub machine: Percentiles,
    /// How far the server's revision moved until all clusters were ready: writes, if it counts them as etcd does.
    pub store_writes: Option<u64>,
    pub writes_per_cluster: Option<f64>,
    /// Requests that reached workload clusters, through their tunnels.
    pub workload_requests: u64,
    /// How long the settled clusters were looked at, and how far the revision moved meanwhile.
    pub idle_seconds: Option<f64>,
    pub idle_writes: Option<u64>,
    pub config_change: Option<ConfigChange>,
    pub deleted_seconds: Option<f64>,
    /// Objects that should be gone, as kind and name.
    pub left_behind: Vec<String>,
}

/// A change of configuration that all clusters took over.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigChange {
    /// Until every plan was applied and every cluster ready again.
    pub seconds: f64,
    pub store_writes: Option<u64>,
    /// Machines whose plan is another one now.
    pub plans_changed: usize,
    /// Machines that were there before and are not any more. There should be none.
    pub machines_replaced: usize,
}
