//! Conditions: one fact about an object each, with the rules for setting, ordering and mirroring them.

mod aggregate;
mod merge;
pub mod old;
mod summary;

use std::fmt;

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

pub use aggregate::{Aggregate, Source, aggregate};
pub use merge::{Class, Owner, Reasons, class_of};
pub use summary::{Summary, summarize};

/// Reason of a condition somebody expects but nobody has set.
pub const NOT_YET_REPORTED: &str = "NotYetReported";
/// Reason of a provider's condition that came without one.
pub const NO_REASON_REPORTED: &str = "NoReasonReported";
/// What people read when only the log knows more.
pub const SEE_LOG: &str = "Please check controller logs for errors";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "True" => Some(Status::True),
            "False" => Some(Status::False),
            "Unknown" => Some(Status::Unknown),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(value: bool) -> Self {
        if value { Status::True } else { Status::False }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One condition. `kind` is its `type`, `since` its `lastTransitionTime`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: String,
    pub status: Status,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
    pub generation: i64,
}

impl Condition {
    pub fn new(kind: &str, status: Status, reason: &str, message: impl Into<String>) -> Self {
        let (kind, reason) = (kind.to_owned(), reason.to_owned());
        Condition { kind, status, reason, message: message.into(), since: None, generation: 0 }
    }

    /// What is said when deciding was not possible.
    pub fn internal_error(kind: &str) -> Self {
        Condition::new(kind, Status::Unknown, "InternalError", SEE_LOG)
    }
}

/// The conditions of one object, in the order they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions(Vec<Condition>);

/// Shown order. Types that are not listed stand before [`LAST`], by name.
const FIRST: &[&str] = &[
    kind::AVAILABLE,
    kind::READY,
    kind::UP_TO_DATE,
    kind::REMOTE_CONNECTION_PROBE,
    kind::BOOTSTRAP_CONFIG_READY,
    kind::INFRASTRUCTURE_READY,
    kind::CONTROL_PLANE_INITIALIZED,
    kind::CONTROL_PLANE_AVAILABLE,
    kind::WORKERS_AVAILABLE,
    "CertificatesAvailable",
    "Initialized",
    "EtcdClusterHealthy",
    "ControlPlaneComponentsHealthy",
    kind::NODE_HEALTHY,
    kind::NODE_READY,
    "NodeKubeadmLabelsAndTaintsSet",
    "EtcdPodHealthy",
    "EtcdMemberHealthy",
    "APIServerPodHealthy",
    "ControllerManagerPodHealthy",
    "SchedulerPodHealthy",
    kind::HEALTH_CHECK_SUCCEEDED,
    kind::OWNER_REMEDIATED,
    kind::TOPOLOGY_RECONCILED,
    kind::UPDATING,
    kind::ROLLING_OUT,
    kind::REMEDIATING,
    kind::SCALING_DOWN,
    kind::SCALING_UP,
    kind::MACHINES_READY,
    kind::CONTROL_PLANE_MACHINES_READY,
    kind::WORKER_MACHINES_READY,
    kind::MACHINES_UP_TO_DATE,
    kind::CONTROL_PLANE_MACHINES_UP_TO_DATE,
    kind::WORKER_MACHINES_UP_TO_DATE,
];
const LAST: &[&str] = &[kind::PAUSED, kind::DELETING];

fn rank(kind: &str) -> (usize, &str) {
    if let Some(place) = FIRST.iter().position(|known| *known == kind) {
        return (place, "");
    }
    match LAST.iter().position(|known| *known == kind) {
        Some(place) => (FIRST.len() + 1 + place, ""),
        None => (FIRST.len(), kind),
    }
}

impl Conditions {
    /// Conditions as they were read; they stay in that order until one changes.
    pub fn read(conditions: Vec<Condition>) -> Self {
        Conditions(conditions)
    }

    pub fn as_slice(&self) -> &[Condition] {
        &self.0
    }

    pub fn into_vec(self) -> Vec<Condition> {
        self.0
    }

    pub fn get(&self, kind: &str) -> Option<&Condition> {
        self.0.iter().find(|condition| condition.kind == kind)
    }

    pub fn has(&self, kind: &str) -> bool {
        self.get(kind).is_some()
    }

    pub fn is(&self, kind: &str, status: Status) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == status)
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.is(kind, Status::True)
    }

    pub fn is_false(&self, kind: &str) -> bool {
        self.is(kind, Status::False)
    }

    /// Sets one condition, as seen at `generation`.
    ///
    /// The transition time moves only with the status: to the condition's own time if it has one,
    /// otherwise to `now`. Saying again what is already said changes nothing.
    pub fn set(&mut self, condition: Condition, generation: i64, now: Timestamp) {
        let since = Some(whole_seconds(condition.since.unwrap_or(now)));
        let mut condition = Condition { since, generation, ..condition };
        match self.0.iter_mut().find(|known| known.kind == condition.kind) {
            Some(known) => {
                if known.status == condition.status && known.since.is_some() {
                    condition.since = known.since;
                }
                if *known == condition {
                    return;
                }
                *known = condition;
            }
            None => self.0.push(condition),
        }
        self.0.sort_by(|a, b| rank(&a.kind).cmp(&rank(&b.kind)));
    }

    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|condition| condition.kind != kind);
    }
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Seconds from `from` to `to`, negative when `to` is earlier.
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// `at` plus some seconds; far beyond the calendar it stays where the calendar ends.
pub(crate) fn plus_seconds(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// What stands in for a source that says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    pub status: Status,
    pub reason: &'static str,
    pub message: String,
}

/// Copies a condition of another object, under another type.
pub fn mirror(
    source: Option<&Condition>,
    wanted: &str,
    target: &str,
    fallback: Option<Fallback>,
) -> Condition {
    match (source, fallback) {
        (Some(source), _) => Condition { kind: target.to_owned(), generation: 0, ..source.clone() },
        (None, Some(fallback)) => Condition::new(target, fallback.status, fallback.reason, fallback.message),
        (None, None) => {
            let message = format!("Condition {wanted} not yet reported");
            Condition::new(target, Status::Unknown, NOT_YET_REPORTED, message)
        }
    }
}

/// Makes a foreign reason and message acceptable to our own schema.
///
/// One odd provider must not make every status write of ours fail.
pub fn sanitize(mut condition: Condition) -> Condition {
    let mut reason: String = condition
        .reason
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_,:".contains(*c))
        .skip_while(|c| !c.is_ascii_alphabetic())
        .take(1024)
        .collect();
    while reason.ends_with([',', ':']) {
        reason.pop();
    }
    condition.reason = if reason.is_empty() { NO_REASON_REPORTED.to_owned() } else { reason };
    if condition.message.chars().nth(32_768).is_some() {
        condition.message = condition.message.chars().take(32_768).collect();
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Status, reason: &str) -> Condition {
        Condition::new("Ready", status, reason, "")
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut conditions = Conditions::default();
        conditions.set(ready(Status::False, "A"), 1, at(10));
        conditions.set(ready(Status::False, "B"), 2, at(20));
        let seen = conditions.get("Ready").unwrap();
        assert_eq!((seen.reason.as_str(), seen.since, seen.generation), ("B", Some(at(10)), 2));
        conditions.set(ready(Status::True, "C"), 2, at(30));
        assert_eq!(conditions.get("Ready").unwrap().since, Some(at(30)));
    }

    #[test]
    fn saying_it_again_changes_nothing() {
        let mut conditions = Conditions::default();
        conditions.set(ready(Status::True, "A"), 1, at(10));
        let before = conditions.clone();
        conditions.set(ready(Status::True, "A"), 1, at(99));
        assert_eq!(conditions, before);
    }

    #[test]
    fn conditions_are_shown_in_a_fixed_order() {
        let mut conditions = Conditions::default();
        for kind in ["Deleting", "Zebra", "Paused", "Apple", "WorkerMachinesUpToDate", "Ready", "Available"] {
            conditions.set(Condition::new(kind, Status::True, "X", ""), 1, at(1));
        }
        let order: Vec<_> = conditions.as_slice().iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(order.join(" "), "Available Ready WorkerMachinesUpToDate Apple Zebra Paused Deleting");
    }

    #[test]
    fn a_mirror_keeps_the_sources_time() {
        let source = Condition { since: Some(at(5)), ..ready(Status::False, "Booting") };
        let mirrored = mirror(Some(&source), "Ready", "InfrastructureReady", None);
        assert_eq!((mirrored.kind.as_str(), mirrored.since), ("InfrastructureReady", Some(at(5))));
        let missing = mirror(None, "Ready", "InfrastructureReady", None);
        assert_eq!(missing.message, "Condition Ready not yet reported");
    }

    #[test]
    fn odd_reasons_become_acceptable() {
        let fixed = |reason| sanitize(ready(Status::True, reason)).reason;
        assert_eq!(fixed("not ready!"), "notready");
        assert_eq!(fixed("9lives:"), "lives");
        assert_eq!(fixed("…"), NO_REASON_REPORTED);
    }
}
