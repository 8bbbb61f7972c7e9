//! The order in which a Cluster and everything below it goes away.

use std::fmt;

use crate::{machine::delete::Object, text};

/// An object below the Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub kind: ChildKind,
    pub name: String,
    /// The Cluster itself owns it; what others own goes with its owner.
    pub owned: bool,
    pub deleting: bool,
}

/// Kinds below a Cluster, in the order their deletion is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChildKind {
    MachinePool,
    MachineDeployment,
    MachineSet,
    WorkerMachine,
    ControlPlaneMachine,
}

/// Everything the next step depends on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// `None` if they could not be listed.
    pub children: Option<&'a [Child]>,
    /// The object and its kind; `None` if the Cluster refers to none.
    pub control_plane: Option<(Object, &'a str)>,
    pub infrastructure: Option<(Object, &'a str)>,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Something could not be read, and that is not the same as gone.
    CannotTell {
        what: String,
    },
    /// These are asked to go; everything in `left` is waited for.
    DeleteChildren {
        delete: Vec<(ChildKind, String)>,
        left: Vec<String>,
    },
    DeleteControlPlane {
        delete: bool,
        kind: String,
    },
    DeleteInfrastructure {
        delete: bool,
        kind: String,
    },
    /// The finalizer goes.
    Finish,
}

impl Step {
    /// Reason of the Deleting condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Step::CannotTell { .. } => "InternalError",
            Step::DeleteChildren { .. } => "WaitingForWorkersDeletion",
            Step::DeleteControlPlane { .. } => "WaitingForControlPlaneDeletion",
            Step::DeleteInfrastructure { .. } => "WaitingForInfrastructureDeletion",
            Step::Finish => "DeletionCompleted",
        }
    }
}

/// Message of the Deleting condition.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Upstream only points at its log; what blocks a deletion belongs where people look.
            Step::CannotTell { what } => {
                write!(f, "Cannot read {what}, please check controller logs for errors")
            }
            Step::DeleteChildren { left, .. } => {
                let lines: Vec<_> = left.iter().map(|line| format!("* {line}")).collect();
                f.write_str(&lines.join("\n"))
            }
            Step::DeleteControlPlane { kind, .. } | Step::DeleteInfrastructure { kind, .. } => {
                write!(f, "Waiting for {kind} to be deleted")
            }
            Step::Finish => f.write_str("Deletion completed"),
        }
    }
}

/// The next step: everything that makes machines, then the control plane, then the infrastructure.
///
/// Machines of a control plane object go with it; without one they go with the workers.
pub fn next(input: &Input<'_>) -> Step {
    let Some(children) = input.children else {
        return Step::CannotTell { what: "the objects of the Cluster".into() };
    };
    let stand_alone = input.control_plane.is_none();
    let counts = |child: &&Child| stand_alone || child.kind != ChildKind::ControlPlaneMachine;
    let mut left: Vec<&Child> = children.iter().filter(counts).collect();
    if !left.is_empty() {
        left.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        let delete = left
            .iter()
            .filter(|child| child.owned && !child.deleting)
            .map(|child| (child.kind, child.name.clone()))
            .collect();
        return Step::DeleteChildren { delete, left: tell(&left) };
    }
    if let Some((object, kind)) = input.control_plane {
        let kind = kind.to_owned();
        match object {
            Object::Gone => {}
            Object::Unreadable => return Step::CannotTell { what: kind },
            object => return Step::DeleteControlPlane { delete: object == Object::Present, kind },
        }
    }
    if let Some((object, kind)) = input.infrastructure {
        let kind = kind.to_owned();
        match object {
            Object::Gone => {}
            Object::Unreadable => return Step::CannotTell { what: kind },
            object => return Step::DeleteInfrastructure { delete: object == Object::Present, kind },
        }
    }
    Step::Finish
}

fn tell(children: &[&Child]) -> Vec<String> {
    const ORDER: [(ChildKind, &str); 5] = [
        (ChildKind::ControlPlaneMachine, "Control plane Machines"),
        (ChildKind::MachineDeployment, "MachineDeployments"),
        (ChildKind::MachineSet, "MachineSets"),
        (ChildKind::MachinePool, "MachinePools"),
        (ChildKind::WorkerMachine, "Worker Machines"),
    ];
    let mut lines = Vec::new();
    for (kind, title) in ORDER {
        let names: Vec<&String> =
            children.iter().filter(|child| child.kind == kind).map(|child| &child.name).collect();
        if !names.is_empty() {
            lines.push(format!("{title}: {}", text::list(&names, 5)));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::flat;

    /// One child per line: `kind name [owned] [deleting]`.
    #[track_caller]
    fn check(children: &str, control_plane: Option<Object>, infrastructure: Option<Object>, expected: &str) {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let kind = match words[0] {
                "pool" => ChildKind::MachinePool,
                "md" => ChildKind::MachineDeployment,
                "ms" => ChildKind::MachineSet,
                "worker" => ChildKind::WorkerMachine,
                _ => ChildKind::ControlPlaneMachine,
            };
            let has = |word| words.contains(&word);
            Child { kind, name: words[1].into(), owned: has("owned"), deleting: has("deleting") }
        };
        let children: Vec<_> =
            children.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect();
        let step = next(&Input {
            children: Some(&children),
            control_plane: control_plane.map(|object| (object, "Plane")),
            infrastructure: infrastructure.map(|object| (object, "Infra")),
        });
        let mut text = String::new();
        if let Step::DeleteChildren { delete, .. } = &step {
            let names: Vec<_> = delete.iter().map(|(_, name)| name.as_str()).collect();
            text.push_str(&format!("delete: {}\n", names.join(" ")));
        }
        text.push_str(&format!("{} {step}", step.reason()));
        assert_eq!(flat(&text), flat(expected));
    }

    const HERE: Option<Object> = Some(Object::Present);
    const GONE: Option<Object> = Some(Object::Gone);

    #[test]
    fn children_go_first_and_only_the_clusters_own_are_deleted() {
        check(
            "worker w1
             ms s1
             md d1 owned
             md d2 owned deleting
             pool p1 owned
             cp c1",
            HERE,
            HERE,
            "delete: p1 d1
             WaitingForWorkersDeletion * MachineDeployments: d1, d2
             * MachineSets: s1
             * MachinePools: p1
             * Worker Machines: w1",
        );
    }

    #[test]
    fn machines_of_a_control_plane_object_go_with_it() {
        check("cp c1", HERE, HERE, "WaitingForControlPlaneDeletion Waiting for Plane to be deleted");
        check(
            "cp c1 owned",
            None,
            HERE,
            "delete: c1
             WaitingForWorkersDeletion * Control plane Machines: c1",
        );
    }

    #[test]
    fn the_infrastructure_goes_last() {
        check("", GONE, HERE, "WaitingForInfrastructureDeletion Waiting for Infra to be deleted");
        check("", GONE, GONE, "DeletionCompleted Deletion completed");
        check("", None, None, "DeletionCompleted Deletion completed");
    }

    #[test]
    fn what_cannot_be_read_stops_the_deletion_and_is_named() {
        check(
            "",
            Some(Object::Unreadable),
            HERE,
            "InternalError Cannot read Plane, please check controller logs for errors",
        );
        let step = next(&Input { children: None, control_plane: None, infrastructure: None });
        assert_eq!(step.reason(), "InternalError");
    }
}
