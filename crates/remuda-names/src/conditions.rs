//! What conditions say: which status is the good one, and which crate writes them.
//!
//! Controllers and the list API that sum conditions up read it here. A type that is not listed is of another product,
//! and `True` is good.

use crate::{
    capi::condition as capi, machines::condition as machines, provisioning::condition as provisioning,
    rancher::condition as rancher,
};

/// The status of a condition when all is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// `True` is good.
    Positive,
    /// `True` means that something is under way or wrong.
    Negative,
}

/// A type of conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub polarity: Polarity,
    /// The crate whose controllers write it. Where several are named, each writes it on kinds of its own.
    pub writers: &'static [&'static str],
}

const fn positive(kind: &'static str, writers: &'static [&'static str]) -> Condition {
    Condition { kind, polarity: Polarity::Positive, writers }
}

const fn negative(kind: &'static str, writers: &'static [&'static str]) -> Condition {
    Condition { kind, polarity: Polarity::Negative, writers }
}

const CAPI: &[&str] = &["remuda-capi"];
/// Decided by the planner.
const RKE: &[&str] = &["remuda-rke"];
const GATEWAY: &[&str] = &["remuda-gateway"];
const MACHINES: &[&str] = &["remuda-machines"];
const PROVISIONING: &[&str] = &["remuda-provisioning"];

/// All that are written here.
pub const ALL: &[Condition] = &[
    positive(capi::AVAILABLE, CAPI),
    positive(
        rancher::READY,
        &["remuda-capi", "remuda-gateway", "remuda-machines", "remuda-provisioning", "remuda-rke"],
    ),
    positive(capi::UP_TO_DATE, CAPI),
    positive(capi::REMOTE_CONNECTION_PROBE, CAPI),
    positive(capi::BOOTSTRAP_CONFIG_READY, CAPI),
    positive(capi::INFRASTRUCTURE_READY, CAPI),
    positive(capi::CONTROL_PLANE_INITIALIZED, &["remuda-capi", "remuda-rke"]),
    positive(capi::CONTROL_PLANE_AVAILABLE, CAPI),
    positive(capi::WORKERS_AVAILABLE, CAPI),
    positive(capi::NODE_HEALTHY, CAPI),
    positive(capi::NODE_READY, CAPI),
    positive(capi::HEALTH_CHECK_SUCCEEDED, CAPI),
    positive(capi::OWNER_REMEDIATED, CAPI),
    positive(capi::EXTERNALLY_REMEDIATED, CAPI),
    positive(capi::TOPOLOGY_RECONCILED, CAPI),
    negative(capi::UPDATING, CAPI),
    negative(capi::ROLLING_OUT, &["remuda-capi", "remuda-rke"]),
    negative(capi::REMEDIATING, CAPI),
    negative(capi::SCALING_DOWN, &["remuda-capi", "remuda-rke"]),
    negative(capi::SCALING_UP, &["remuda-capi", "remuda-rke"]),
    positive(capi::MACHINES_READY, CAPI),
    positive(capi::CONTROL_PLANE_MACHINES_READY, CAPI),
    positive(capi::WORKER_MACHINES_READY, CAPI),
    positive(capi::MACHINES_UP_TO_DATE, CAPI),
    positive(capi::CONTROL_PLANE_MACHINES_UP_TO_DATE, CAPI),
    positive(capi::WORKER_MACHINES_UP_TO_DATE, CAPI),
    negative(capi::PAUSED, CAPI),
    negative(capi::DELETING, CAPI),
    positive(capi::REMEDIATION_ALLOWED, CAPI),
    positive(capi::RESOURCES_APPLIED, CAPI),
    positive(rancher::CREATED, PROVISIONING),
    positive(rancher::UPDATED, &["remuda-provisioning", "remuda-rke"]),
    positive(rancher::PROVISIONED, &["remuda-provisioning", "remuda-rke"]),
    negative(rancher::RECONCILING, PROVISIONING),
    negative(rancher::STALLED, PROVISIONING),
    negative(provisioning::HIBERNATED, PROVISIONING),
    negative(provisioning::EXPIRING, PROVISIONING),
    positive(rancher::REMOVED, &["remuda-provisioning", "remuda-rke"]),
    positive(rancher::CONNECTED, GATEWAY),
    positive(rancher::AGENT_DEPLOYED, GATEWAY),
    positive(rancher::REGISTERED, GATEWAY),
    positive(rancher::DRAINED, GATEWAY),
    positive(rancher::RECONCILED, RKE),
    positive(rancher::BOOTSTRAPPED, RKE),
    positive(rancher::STABLE, RKE),
    positive(rancher::SNAPSHOT_CREATED, RKE),
    positive(rancher::SNAPSHOT_RESTORED, RKE),
    positive(rancher::ENCRYPTION_KEYS_ROTATED, RKE),
    positive(rancher::PLAN_APPLIED, RKE),
    positive(rancher::AGENT_CONNECTED, RKE),
    negative(rancher::DRAIN_BLOCKED, &["remuda-capi", "remuda-rke"]),
    positive(rancher::HOST_CLEAN, RKE),
    positive(rancher::CREATE_JOB, MACHINES),
    positive(rancher::DELETE_JOB, MACHINES),
    positive(machines::POWERED, MACHINES),
    positive(rancher::DOWNLOADED, MACHINES),
    positive(rancher::INSTALLED, MACHINES),
    positive(rancher::ACTIVE, MACHINES),
    negative(rancher::INACTIVE, MACHINES),
];

/// Whether `True` of a condition is no good news.
pub fn is_negative(kind: &str) -> bool {
    ALL.iter().any(|condition| condition.kind == kind && condition.polarity == Polarity::Negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_stands_once_and_says_who_writes_it() {
        for (at, condition) in ALL.iter().enumerate() {
            assert!(!condition.writers.is_empty(), "{}", condition.kind);
            assert!(ALL[..at].iter().all(|other| other.kind != condition.kind), "{}", condition.kind);
        }
    }

    #[test]
    fn every_condition_of_cluster_api_is_listed() {
        let source = include_str!("capi.rs");
        let (_, rest) = source.split_once("pub mod condition {").unwrap();
        let (conditions, _) = rest.split_once("\n}").unwrap();
        let values: Vec<&str> = conditions.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert!(values.len() > 20, "{values:?}");
        for value in values {
            assert!(ALL.iter().any(|condition| condition.kind == value), "{value}");
        }
    }

    #[test]
    fn what_is_under_way_is_no_good_news() {
        let negative: Vec<&str> =
            ALL.iter().map(|condition| condition.kind).filter(|kind| is_negative(kind)).collect();
        assert_eq!(
            negative,
            [
                "Updating",
                "RollingOut",
                "Remediating",
                "ScalingDown",
                "ScalingUp",
                "Paused",
                "Deleting",
                "Reconciling",
                "Stalled",
                "Hibernated",
                "Expiring",
                "DrainBlocked",
                "Inactive",
            ]
        );
        assert!(!is_negative("Somebody'sElse"));
    }
}
