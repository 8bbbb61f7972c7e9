//! A machine with what its plan secret says, read once.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
};

use remuda_names::rancher::{annotation, label};
use remuda_plan::{Report, key, probe};

use crate::{
    desired::VERIFY,
    input::{Machine, PlanSecret},
    node_plan::NodePlan,
};

/// What a machine is for. The plan secret says so; a machine without one has no role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) etcd: bool,
    pub(crate) control_plane: bool,
    pub(crate) worker: bool,
}

impl Roles {
    pub(crate) fn of(labels: &BTreeMap<String, String>) -> Roles {
        let has = |key: &str| labels.get(key).is_some_and(|value| value == "true");
        Roles {
            etcd: has(label::ETCD_ROLE),
            control_plane: has(label::CONTROL_PLANE_ROLE),
            worker: has(label::WORKER_ROLE),
        }
    }

    pub(crate) fn only_worker(self) -> bool {
        self.worker && !self.etcd && !self.control_plane
    }

    pub(crate) fn only_etcd(self) -> bool {
        self.etcd && !self.control_plane
    }

    pub(crate) fn server(self) -> bool {
        self.etcd || self.control_plane
    }
}

/// A machine as the planner sees it.
pub(crate) struct Entry<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) secret: Option<&'a PlanSecret>,
    pub(crate) roles: Roles,
    pub(crate) windows: bool,
    /// Carries the init mark.
    pub(crate) init: bool,
    /// `None` until a plan was delivered.
    pub(crate) node: Option<NodeState<'a>>,
    /// The plan it should have, kept for those who ask for it: a thousand of them cost more than making them.
    pub(crate) wanted: Option<RefCell<Vec<u8>>>,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(machine: &'a Machine) -> Entry<'a> {
        let secret = machine.plan_secret.as_ref();
        let label = |key: &str| secret.and_then(|secret| secret.labels.get(key)).map_or("", String::as_str);
        Entry {
            machine,
            secret,
            roles: secret.map_or_else(Roles::default, |secret| Roles::of(&secret.labels)),
            windows: label(label::OS) == "windows",
            init: label(label::INIT_NODE) == "true",
            node: secret.and_then(NodeState::new),
            wanted: None,
        }
    }

    /// This plan was made for it.
    pub(crate) fn note_wanted(&self, plan: &[u8]) {
        if let Some(wanted) = &self.wanted {
            *wanted.borrow_mut() = plan.to_vec();
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.machine.name
    }

    pub(crate) fn label(&self, key: &str) -> &'a str {
        self.secret.and_then(|secret| secret.labels.get(key)).map_or("", String::as_str)
    }

    pub(crate) fn annotation(&self, key: &str) -> &'a str {
        self.secret.and_then(|secret| secret.annotations.get(key)).map_or("", String::as_str)
    }

    pub(crate) fn has_annotation(&self, key: &str) -> bool {
        self.secret.is_some_and(|secret| secret.annotations.contains_key(key))
    }

    pub(crate) fn join_url(&self) -> &'a str {
        self.annotation(annotation::JOIN_URL)
    }

    pub(crate) fn joined_to(&self) -> &'a str {
        self.annotation(annotation::JOINED_TO)
    }

    /// Fit to be the node all others start from.
    pub(crate) fn can_be_init(&self) -> bool {
        self.roles.etcd && !self.machine.deleting && !self.machine.failed && self.machine.infrastructure_ready
    }

    /// All it has ever done is to read a snapshot: it runs nothing, and belongs to no cluster.
    pub(crate) fn has_only_read(&self) -> bool {
        let reads = |node: &NodeState<'_>| {
            node.applied().is_some_and(|plan| plan.instructions.iter().any(|one| one.name == VERIFY))
        };
        // Members read snapshots, too, and have an address others join at.
        self.join_url().is_empty() && self.node.as_ref().is_some_and(reads)
    }

    /// Some part of the exchange with the drain controller is under way.
    pub(crate) fn in_drain(&self) -> bool {
        [annotation::PRE_DRAIN, annotation::POST_DRAIN, annotation::DRAIN_OPTIONS, annotation::UNCORDON]
            .iter()
            .any(|key| !self.annotation(key).is_empty())
    }
}

/// A delivered plan and what the agent has reported about it.
///
/// Plans are compared as bytes wherever that suffices and decoded at most once.
pub(crate) struct NodeState<'a> {
    pub(crate) plan_bytes: &'a [u8],
    applied_bytes: Option<&'a [u8]>,
    /// The two are the same.
    pub(crate) is_applied: bool,
    plan: OnceCell<Option<NodePlan>>,
    applied: OnceCell<Option<NodePlan>>,
    pub(crate) failed: bool,
    pub(crate) in_sync: bool,
    /// Names of probes that fail, sorted; empty is healthy.
    pub(crate) unhealthy: Vec<String>,
    /// All probes have passed at least once since the plan was delivered.
    pub(crate) probes_passed: bool,
}

impl<'a> NodeState<'a> {
    fn new(secret: &'a PlanSecret) -> Option<NodeState<'a>> {
        let value = |key: &str| secret.data.get(key).map(Vec::as_slice).filter(|value| !value.is_empty());
        let plan_bytes = value(key::PLAN)?;
        let applied_bytes = value(key::APPLIED_PLAN);
        let report = Report::read(|key| value(key).unwrap_or_default());
        let passed = secret.annotations.get(annotation::PLAN_PROBES_PASSED);
        Some(NodeState {
            plan_bytes,
            applied_bytes,
            is_applied: applied_bytes == Some(plan_bytes),
            plan: OnceCell::new(),
            applied: OnceCell::new(),
            failed: report.failed,
            in_sync: report.applied,
            unhealthy: value(key::PROBE_STATUSES).map_or_else(Vec::new, unhealthy),
            probes_passed: passed.is_some_and(|time| !time.is_empty()),
        })
    }

    pub(crate) fn healthy(&self) -> bool {
        self.unhealthy.is_empty()
    }

    /// An agent has applied some plan.
    pub(crate) fn has_applied(&self) -> bool {
        self.applied_bytes.is_some()
    }

    /// The stored plan, unless it is damaged.
    pub(crate) fn plan(&self) -> Option<&NodePlan> {
        self.plan.get_or_init(|| NodePlan::decode(self.plan_bytes).ok()).as_ref()
    }

    /// Whether `text` occurs in the stored plan. Cheaper than reading the plan.
    pub(crate) fn contains(&self, text: &str) -> bool {
        std::str::from_utf8(self.plan_bytes).is_ok_and(|plan| plan.contains(text))
    }

    /// The stored plan has instructions, and no error. Quotes inside of JSON strings are escaped, so a key
    /// that is not found as it stands is not there.
    pub(crate) fn is_plain(&self) -> bool {
        let seems = |plan: &str| plan.contains("\"instructions\":[{") && !plan.contains("\"error\":");
        if std::str::from_utf8(self.plan_bytes).is_ok_and(seems) {
            return true;
        }
        self.plan().is_some_and(|plan| !plan.instructions.is_empty() && plan.error.is_empty())
    }

    /// The plan the agent last applied.
    pub(crate) fn applied(&self) -> Option<&NodePlan> {
        if self.is_applied {
            return self.plan();
        }
        self.applied.get_or_init(|| NodePlan::decode(self.applied_bytes?).ok()).as_ref()
    }

    /// The stored plan has been applied, but its probes have never passed.
    pub(crate) fn never_healthy(&self) -> bool {
        self.is_applied && !self.healthy() && !self.probes_passed
    }
}

/// Damaged statuses count as one failing probe without a name.
fn unhealthy(statuses: &[u8]) -> Vec<String> {
    let Some(statuses) = probe::parse(statuses) else { return vec!["unreadable probe statuses".to_owned()] };
    statuses.into_iter().filter(|(_, status)| !status.healthy).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `data` is `key=value` per line; answers `in-sync|out failed|ok unhealthy...`.
    #[track_caller]
    fn check(data: &str, expected: &str) {
        let mut secret = PlanSecret::default();
        for line in data.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').unwrap();
            let value = value.replace("HASH", &remuda_plan::sha256_hex(b"{}"));
            secret.data.insert(key.to_owned(), value.into_bytes());
        }
        let text = NodeState::new(&secret).map_or("none".to_owned(), |node| {
            let sync = if node.in_sync { "in-sync" } else { "out" };
            let failed = if node.failed { "failed" } else { "ok" };
            format!("{sync} {failed} {}", node.unhealthy.join(","))
        });
        assert_eq!(text.trim_end(), expected, "{data}");
    }

    #[test]
    fn a_secret_without_a_plan_is_no_node() {
        check("", "none");
        check("plan=", "none");
    }

    #[test]
    fn plans_are_judged_by_their_report() {
        check("plan={}", "out ok");
        check("plan={}\nappliedPlan={}", "in-sync ok");
        check("plan={}\nappliedPlan={}\nplan-state=failed", "out failed");
        check("plan={}\nfailure-count=1\nfailed-checksum=HASH", "out failed");
        check("plan={}\nfailure-count=1\nfailed-checksum=HASH\nfailure-threshold=3", "out ok");
    }

    #[test]
    fn probes_are_healthy_unless_one_says_otherwise() {
        check(
            "plan={}\nprobe-statuses={\"kubelet\":{\"healthy\":true},\"etcd\":{\"failureCount\":3},\"new\":{}}",
            "out ok etcd,new",
        );
        check("plan={}\nprobe-statuses=?", "out ok unreadable probe statuses");
        check("plan={}\nprobe-statuses={\"a\":null}", "out ok a");
    }
}
