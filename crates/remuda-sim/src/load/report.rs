//! How it went.

use std::time::Duration;

use serde::Serialize;

/// How long things took, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Percentiles {
    pub count: usize,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    pub mean: f64,
}

impl Percentiles {
    pub fn of(mut taken: Vec<Duration>) -> Self {
        taken.sort_unstable();
        let milliseconds = |duration: &Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
        // The smallest value that at least this share does not exceed.
        let at = |share: f64| {
            let rank = (share * taken.len() as f64).ceil() as usize;
            taken.get(rank.clamp(1, taken.len().max(1)) - 1).map_or(0.0, milliseconds)
        };
        let sum: Duration = taken.iter().sum();
        Self {
            count: taken.len(),
            min: taken.first().map_or(0.0, milliseconds),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: taken.last().map_or(0.0, milliseconds),
            mean: milliseconds(&(sum / u32::try_from(taken.len().max(1)).unwrap_or(u32::MAX))),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadReport {
    pub clusters: usize,
    pub machines: usize,
    /// Until the last object of the last cluster was created.
    pub created_seconds: f64,
    /// Until all Machines ran and all MachineDeployments were available.
    pub provisioned_seconds: f64,
    /// From the creation of a cluster to its last Machine running and its MachineDeployment available.
    pub cluster: Percentiles,
    /// From the first sight of a Machine to its running.
    pub machine: Percentiles,
    /// How far the server's revision moved on the way: writes, if it counts them as etcd does.
    pub store_writes: Option<u64>,
    /// Requests that reached workload clusters.
    pub workload_requests: u64,
    /// How long the settled population was looked at, and how far the revision moved meanwhile.
    pub idle_seconds: Option<f64>,
    pub idle_writes: Option<u64>,
    /// From the change of a template to the first new Machine.
    pub template_change: Option<Percentiles>,
    /// Clusters that were made unreachable.
    pub unreachable: usize,
    pub template_change_while_unreachable: Option<Percentiles>,
    pub deleted_seconds: Option<f64>,
    /// Objects that should be gone, as kind and name.
    pub left_behind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let taken = (1..=200).rev().map(Duration::from_millis).collect();
        let percentiles = Percentiles::of(taken);
        assert_eq!(
            (percentiles.min, percentiles.p50, percentiles.p90, percentiles.p99, percentiles.max),
            (1.0, 100.0, 180.0, 198.0, 200.0)
        );
        assert_eq!((percentiles.count, percentiles.mean), (200, 100.5));
        assert_eq!(Percentiles::of(vec![Duration::from_micros(1500)]).p99, 1.5);
        assert_eq!(Percentiles::of(Vec::new()), Percentiles::default());
    }
}
