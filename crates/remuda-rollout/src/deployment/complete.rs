//! When a rollout is done, and what is left of it.

use std::fmt;

use super::Set;
use crate::view::Counts;

/// Every machine is up to date and available, there is none too many, and the status says so of this spec.
pub fn is_complete(replicas: i32, counts: Counts, observed: bool) -> bool {
    let all = [counts.replicas, counts.available, counts.up_to_date];
    observed && all.iter().all(|count| count.unwrap_or(0) == replicas)
}

/// What becomes of an old set once the rollout is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing of it is left; history is not kept.
    Delete,
    AlreadyDeleting,
    HasMachines {
        asked: i32,
        actual: i32,
    },
    /// Its counts are of an earlier spec.
    NotObserved,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leftover::Delete => f.write_str("delete"),
            Leftover::AlreadyDeleting => f.write_str("already deleting"),
            Leftover::HasMachines { asked, actual } => write!(f, "keep: {actual}/{asked} machines left"),
            Leftover::NotObserved => f.write_str("keep: waiting for its status"),
        }
    }
}

/// Judges old sets after a complete rollout, oldest first.
pub fn clean_up<'a>(old: impl IntoIterator<Item = &'a Set>) -> Vec<(&'a str, Leftover)> {
    let mut sets: Vec<&Set> = old.into_iter().collect();
    sets.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let verdict = |set: &Set| match set {
        set if set.deleting => Leftover::AlreadyDeleting,
        set if set.replicas != 0 || set.actual() != 0 => {
            Leftover::HasMachines { asked: set.replicas, actual: set.actual() }
        }
        set if !set.observed => Leftover::NotObserved,
        _ => Leftover::Delete,
    };
    sets.into_iter().map(|set| (set.name.as_str(), verdict(set))).collect()
}
