//! The order in which a MachinePool goes away.

use std::fmt;

use jiff::Timestamp;

use crate::{condition::plus_seconds, machine::delete::Object, text};

/// Everything the next step depends on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// With its kind; `None` if the pool refers to none.
    pub bootstrap: Option<(Object, &'a str)>,
    pub infrastructure: (Object, &'a str),
    /// Nodes of the pool that are still there; `None` if the cluster cannot be asked.
    pub nodes: Option<&'a [String]>,
    /// The pool had nodes.
    pub had_nodes: bool,
    /// The cluster itself goes, with all its nodes.
    pub cluster_deleting: bool,
    pub deleted: Timestamp,
    /// Seconds; `None` and 0 wait for ever.
    pub timeout: Option<i64>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Something could not be read, and that is not the same as gone.
    CannotTell {
        what: String,
    },
    DeleteObjects {
        bootstrap: bool,
        infrastructure: bool,
        reason: &'static str,
        left: Vec<String>,
    },
    DeleteNodes {
        names: Vec<String>,
    },
    WaitForCluster,
    /// The finalizer goes.
    Finish,
}

impl Step {
    /// Reason of the Deleting condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Step::CannotTell { .. } => "InternalError",
            Step::DeleteObjects { reason, .. } => reason,
            Step::DeleteNodes { .. } | Step::WaitForCluster => "DeletingNode",
            Step::Finish => "DeletionCompleted",
        }
    }
}

/// Message of the Deleting condition.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::CannotTell { what } => {
                write!(f, "Cannot read {what}, please check controller logs for errors")
            }
            Step::DeleteObjects { left, .. } => write!(f, "Waiting for {} to be deleted", left.join(" and ")),
            Step::DeleteNodes { names } => write!(f, "Deleting Nodes {}", text::list(names, 3)),
            Step::WaitForCluster => {
                f.write_str("Waiting to delete Nodes, connection to the workload cluster is down")
            }
            Step::Finish => f.write_str("Deletion completed"),
        }
    }
}

/// The next step: servers and what they boot from, then their nodes.
pub fn next(input: &Input<'_>, now: Timestamp) -> Step {
    let objects: Vec<(Object, &str)> = input.bootstrap.into_iter().chain([input.infrastructure]).collect();
    if let Some((_, kind)) = objects.iter().find(|(object, _)| *object == Object::Unreadable) {
        return Step::CannotTell { what: (*kind).to_owned() };
    }
    let here = |object: Object| matches!(object, Object::Present | Object::Deleting);
    if objects.iter().any(|(object, _)| here(*object)) {
        let infrastructure = here(input.infrastructure.0);
        return Step::DeleteObjects {
            bootstrap: input.bootstrap.is_some_and(|(object, _)| object == Object::Present),
            infrastructure: input.infrastructure.0 == Object::Present,
            reason: if infrastructure {
                "WaitingForInfrastructureDeletion"
            } else {
                "WaitingForBootstrapDeletion"
            },
            left: objects
                .iter()
                .filter(|(object, _)| here(*object))
                .map(|(_, kind)| (*kind).to_owned())
                .collect(),
        };
    }
    let timeout = input.timeout.filter(|timeout| *timeout > 0);
    let late = timeout.is_some_and(|timeout| plus_seconds(input.deleted, timeout) < now);
    if !input.had_nodes || input.cluster_deleting || late {
        return Step::Finish;
    }
    match input.nodes {
        None => Step::WaitForCluster,
        Some([]) => Step::Finish,
        Some(names) => Step::DeleteNodes { names: names.to_vec() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    fn input() -> Input<'static> {
        Input {
            bootstrap: Some((Object::Gone, "Config")),
            infrastructure: (Object::Gone, "Pool"),
            nodes: Some(&[]),
            had_nodes: true,
            cluster_deleting: false,
            deleted: at(100),
            timeout: Some(10),
        }
    }

    #[track_caller]
    fn check(input: &Input<'_>, expected: &str) {
        let step = next(input, at(105));
        assert_eq!(format!("{} {step}", step.reason()), expected);
    }

    #[test]
    fn servers_go_before_their_nodes() {
        let both = Input {
            bootstrap: Some((Object::Present, "Config")),
            infrastructure: (Object::Deleting, "Pool"),
            ..input()
        };
        check(&both, "WaitingForInfrastructureDeletion Waiting for Config and Pool to be deleted");
        let step = next(&both, at(105));
        assert!(matches!(step, Step::DeleteObjects { bootstrap: true, infrastructure: false, .. }));
        let config = Input { bootstrap: Some((Object::Deleting, "Config")), ..input() };
        check(&config, "WaitingForBootstrapDeletion Waiting for Config to be deleted");
        let names = ["a".to_owned(), "b".to_owned()];
        check(&Input { nodes: Some(&names), ..input() }, "DeletingNode Deleting Nodes a, b");
        check(&input(), "DeletionCompleted Deletion completed");
    }

    #[test]
    fn nodes_are_waited_for_only_so_long() {
        let blind = Input { nodes: None, ..input() };
        check(&blind, "DeletingNode Waiting to delete Nodes, connection to the workload cluster is down");
        assert_eq!(next(&blind, at(111)), Step::Finish);
        assert_eq!(next(&Input { timeout: Some(0), ..blind.clone() }, at(9999)), Step::WaitForCluster);
        check(&Input { cluster_deleting: true, ..blind.clone() }, "DeletionCompleted Deletion completed");
        check(&Input { had_nodes: false, ..blind }, "DeletionCompleted Deletion completed");
    }

    #[test]
    fn what_cannot_be_read_stops_the_deletion() {
        let lost = Input { infrastructure: (Object::Unreadable, "Pool"), ..input() };
        check(&lost, "InternalError Cannot read Pool, please check controller logs for errors");
    }
}
