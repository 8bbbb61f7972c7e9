//! ClusterResourceSet: what is applied to which cluster, when again, and what is told about it.

mod manifest;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use remuda_names::capi::condition as kind;

pub use manifest::{BadManifest, objects};

use crate::{
    condition::{
        Condition, Status,
        old::{OldCondition, Severity},
        sanitize,
    },
    text,
};

/// At most this many lines of a message.
const SHOWN: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Objects are created and never looked at again.
    ApplyOnce,
    /// Objects are applied again when the resource changes.
    Reconcile,
}

impl Strategy {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            // What admission fills in.
            "" | "ApplyOnce" => Some(Strategy::ApplyOnce),
            "Reconcile" => Some(Strategy::Reconcile),
            _ => None,
        }
    }
}

/// What a binding remembers of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<'a> {
    pub hash: &'a str,
    pub applied: bool,
}

/// Whether a resource, which has this hash now, must be applied.
pub fn needs_apply(strategy: Strategy, bound: Option<Bound<'_>>, hash: &str) -> bool {
    let Some(bound) = bound.filter(|bound| bound.applied) else {
        return true;
    };
    match strategy {
        Strategy::ApplyOnce => false,
        Strategy::Reconcile => bound.hash != hash,
    }
}

/// What is wrong with a resource, whatever the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A Secret of another type may be somebody else's.
    WrongSecretType { name: String },
    /// It may come; the others are applied meanwhile.
    Missing { kind: String, name: String },
    /// It has no data, or what it has are no objects.
    Unusable { kind: String, name: String, why: String },
    /// It could not be read.
    Unreadable { kind: String, name: String, why: String },
}

impl Fault {
    /// Nothing is applied until this is mended.
    pub fn blocks(&self) -> bool {
        matches!(self, Fault::WrongSecretType { .. } | Fault::Unreadable { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::WrongSecretType { name } => write!(f, "Secret type of resource {name} is not supported"),
            Fault::Missing { kind, name } => write!(f, "{kind} {name} does not exist"),
            Fault::Unusable { kind, name, why } => write!(f, "{kind} {name} cannot be applied: {why}"),
            Fault::Unreadable { kind, name, why } => write!(f, "{kind} {name} cannot be read: {why}"),
        }
    }
}

/// How it went with a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Applied,
    Unreachable,
    /// What the cluster, or our own API, answered.
    Failed {
        why: String,
    },
}

/// The ResourcesApplied conditions; nothing is told while no cluster matches and no resource is at fault.
///
/// Every cluster counts. Upstream tells how it went with the last one.
pub fn status(faults: &[Fault], clusters: &BTreeMap<String, Outcome>) -> Option<(Condition, OldCondition)> {
    if faults.is_empty() && clusters.is_empty() {
        return None;
    }
    let lines = lines(faults, clusters);
    if lines.is_empty() {
        let good = Condition::new(kind::RESOURCES_APPLIED, Status::True, "Applied", "");
        return Some((good, OldCondition::good(kind::RESOURCES_APPLIED)));
    }
    let (reason, old_reason, severity) = reasons(faults, clusters);
    let message = message(lines);
    let old_message: String = message.chars().take(10_240).collect();
    let new = Condition::new(kind::RESOURCES_APPLIED, Status::False, reason, message);
    let old = OldCondition::bad(kind::RESOURCES_APPLIED, severity, old_reason, old_message);
    Some((sanitize(new), old))
}

/// The worst there is, in both vocabularies.
fn reasons(faults: &[Fault], clusters: &BTreeMap<String, Outcome>) -> (&'static str, &'static str, Severity) {
    let fault = |wanted: fn(&Fault) -> bool| faults.iter().any(wanted);
    if fault(|fault| matches!(fault, Fault::WrongSecretType { .. })) {
        return ("WrongSecretType", "WrongSecretType", Severity::Warning);
    }
    let failed = clusters.values().any(|outcome| matches!(outcome, Outcome::Failed { .. }));
    if failed || fault(|fault| matches!(fault, Fault::Unusable { .. })) {
        return ("NotApplied", "ApplyFailed", Severity::Warning);
    }
    if !faults.is_empty() {
        return ("InternalError", "RetrievingResourceFailed", Severity::Warning);
    }
    ("InternalError", "RemoteClusterClientFailed", Severity::Error)
}

fn lines(faults: &[Fault], clusters: &BTreeMap<String, Outcome>) -> Vec<String> {
    let mut lines: Vec<String> =
        faults.iter().map(Fault::to_string).collect::<BTreeSet<_>>().into_iter().collect();
    let mut by_problem: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for (cluster, outcome) in clusters {
        let problem = match outcome {
            Outcome::Applied => continue,
            Outcome::Unreachable => (true, "connection to the workload cluster is down"),
            Outcome::Failed { why } => (false, why.as_str()),
        };
        by_problem.entry(problem).or_default().push(cluster);
    }
    for ((_, problem), names) in by_problem {
        let noun = if names.len() == 1 { "Cluster" } else { "Clusters" };
        lines.push(format!("{noun} {}: {problem}", text::list(&names, 3)));
    }
    lines
}

fn message(mut lines: Vec<String>) -> String {
    if lines.len() == 1 {
        return lines.remove(0);
    }
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    let mut shown: Vec<String> = lines.into_iter().map(|line| format!("* {line}")).collect();
    if more > 0 {
        shown.push(format!("And {more} other problems"));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_applied_once_or_whenever_it_changes() {
        let bound = |applied, hash| Some(Bound { hash, applied });
        for (strategy, bound, expected) in [
            (Strategy::ApplyOnce, None, true),
            (Strategy::ApplyOnce, bound(false, "new"), true),
            (Strategy::ApplyOnce, bound(true, "old"), false),
            (Strategy::Reconcile, None, true),
            (Strategy::Reconcile, bound(false, "new"), true),
            (Strategy::Reconcile, bound(true, "old"), true),
            (Strategy::Reconcile, bound(true, "new"), false),
        ] {
            assert_eq!(needs_apply(strategy, bound, "new"), expected, "{strategy:?} {bound:?}");
        }
        assert_eq!(Strategy::parse("Often"), None);
    }

    /// One cluster per line: `name applied|unreachable|why it failed`.
    #[track_caller]
    fn check(faults: &[Fault], clusters: &str, expected: &str) {
        let parse = |line: &str| {
            let (name, outcome) = line.trim().split_once(' ').unwrap();
            let outcome = match outcome {
                "applied" => Outcome::Applied,
                "unreachable" => Outcome::Unreachable,
                why => Outcome::Failed { why: why.to_owned() },
            };
            (name.to_owned(), outcome)
        };
        let clusters = clusters.lines().filter(|line| !line.trim().is_empty()).map(parse).collect();
        let found = status(faults, &clusters).map_or("nothing".to_owned(), |(new, old)| {
            format!("{} {} {}\n{}", new.status, new.reason, old.reason, new.message).trim().to_owned()
        });
        let expected: Vec<_> = expected.lines().map(str::trim).collect();
        assert_eq!(found, expected.join("\n"));
    }

    #[test]
    fn every_cluster_counts() {
        check(&[], "", "nothing");
        check(&[], "a applied\nb applied", "True Applied");
        check(
            &[],
            "a applied\nb unreachable",
            "False InternalError RemoteClusterClientFailed
             Cluster b: connection to the workload cluster is down",
        );
        check(
            &[],
            "a unreachable\nb quota exceeded\nc unreachable\nd unreachable\ne unreachable",
            "False NotApplied ApplyFailed
             * Cluster b: quota exceeded
             * Clusters a, c, d, ... (1 more): connection to the workload cluster is down",
        );
    }

    #[test]
    fn what_is_wrong_with_a_resource_is_told() {
        let missing = Fault::Missing { kind: "ConfigMap".into(), name: "cni".into() };
        let wrong = Fault::WrongSecretType { name: "csi".into() };
        check(
            std::slice::from_ref(&missing),
            "a applied",
            "False InternalError RetrievingResourceFailed
             ConfigMap cni does not exist",
        );
        check(
            &[missing.clone(), wrong.clone()],
            "",
            "False WrongSecretType WrongSecretType
             * ConfigMap cni does not exist
             * Secret type of resource csi is not supported",
        );
        assert!(wrong.blocks() && !missing.blocks());
    }

    #[test]
    fn long_stories_are_cut_short() {
        let clusters: String = (0..9).map(|n| format!("c{n} failed with {n}\n")).collect();
        check(
            &[],
            &clusters,
            "False NotApplied ApplyFailed
             * Cluster c0: failed with 0
             * Cluster c1: failed with 1
             * Cluster c2: failed with 2
             * Cluster c3: failed with 3
             * Cluster c4: failed with 4
             And 4 other problems",
        );
    }
}
