//! What every decision needs to know of a Machine.

use jiff::Timestamp;
use remuda_names::capi::condition;

use crate::condition::{Conditions, Owner, Source};

/// A Machine, as sets, deployments and clusters see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub name: String,
    pub created: Timestamp,
    /// When deletion was asked for.
    pub deleted: Option<Timestamp>,
    pub control_plane: bool,
    /// It belongs to a MachinePool.
    pub pooled: bool,
    /// The Cluster itself owns it.
    pub stand_alone: bool,
    pub node: Option<String>,
    pub conditions: Conditions,
    /// When draining began.
    pub drain_started: Option<Timestamp>,
    /// Version asked for; empty if none is.
    pub version: String,
    /// Version the kubelet reports; empty if it does not.
    pub kubelet_version: String,
    pub marks: Marks,
}

/// What annotations ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// `delete-machine`
    pub delete_first: bool,
    /// `remediate-machine`
    pub remediate: bool,
    /// `skip-remediation`
    pub skip_remediation: bool,
    /// `paused`
    pub paused: bool,
    /// `update-in-progress`
    pub updating: bool,
    /// `pending-acknowledge-move`
    pub moving: bool,
}

impl Machine {
    /// A health check failed and its owner is asked to replace it.
    pub fn awaits_remediation(&self) -> bool {
        self.is_unhealthy() && self.conditions.is_false(condition::OWNER_REMEDIATED)
    }

    /// A health check failed.
    pub fn is_unhealthy(&self) -> bool {
        self.conditions.is_false(condition::HEALTH_CHECK_SUCCEEDED)
    }

    /// As a contributor to an aggregate.
    pub fn source(&self) -> Source<'_> {
        let owner =
            Owner { kind: "Machine".into(), name: self.name.clone(), control_plane: self.control_plane };
        Source { owner, conditions: &self.conditions }
    }
}

/// How many machines there are, by quality. Nothing was counted yet where it says `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub replicas: Option<i32>,
    pub ready: Option<i32>,
    pub available: Option<i32>,
    pub up_to_date: Option<i32>,
}

impl Counts {
    /// The sum; what nobody counted stays uncounted.
    pub fn sum(counts: impl IntoIterator<Item = Counts>) -> Counts {
        let add = |a: Option<i32>, b: Option<i32>| match (a, b) {
            (None, None) => None,
            _ => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        counts.into_iter().fold(Counts::default(), |sum, one| Counts {
            replicas: add(sum.replicas, one.replicas),
            ready: add(sum.ready, one.ready),
            available: add(sum.available, one.available),
            up_to_date: add(sum.up_to_date, one.up_to_date),
        })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::condition::{Condition, Status};

    pub(crate) fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// One condition per line: `Type Status Reason message`, optionally `@seconds` behind the type.
    pub(crate) fn conditions(text: &str) -> Conditions {
        let parse = |line: &str| {
            let mut words = line.trim().splitn(4, ' ');
            let kind = words.next().unwrap();
            let (kind, since) = match kind.split_once('@') {
                Some((kind, since)) => (kind, since.parse().unwrap()),
                None => (kind, 0),
            };
            let status = Status::parse(words.next().unwrap()).unwrap();
            let reason = words.next().unwrap_or("");
            let message = words.next().unwrap_or("").replace("\\n", "\n");
            Condition { since: Some(at(since)), ..Condition::new(kind, status, reason, message) }
        };
        Conditions::read(text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect())
    }

    pub(crate) fn machine(name: &str) -> Machine {
        Machine {
            name: name.to_owned(),
            created: at(0),
            deleted: None,
            control_plane: false,
            pooled: false,
            stand_alone: false,
            node: Some(format!("node-{name}")),
            conditions: Conditions::default(),
            drain_started: None,
            version: String::new(),
            kubelet_version: String::new(),
            marks: Marks::default(),
        }
    }

    /// Lines without their indentation, to compare with text in a test's source.
    pub(crate) fn flat(text: &str) -> String {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    }
}
