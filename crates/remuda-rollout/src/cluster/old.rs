//! Conditions of a Cluster as v1beta1 shows them.

use jiff::Timestamp;

use super::delete::Step;
use crate::condition::old::{OldCondition, OldConditions, Severity, mirror};

const INFRASTRUCTURE_READY: &str = remuda_names::capi::condition::INFRASTRUCTURE_READY;
const CONTROL_PLANE_READY: &str = "ControlPlaneReady";
const CONTROL_PLANE_INITIALIZED: &str = remuda_names::capi::condition::CONTROL_PLANE_INITIALIZED;

/// An object the Cluster refers to.
#[derive(Debug, Clone, Copy)]
pub enum Object<'a> {
    NoReference,
    /// It is not there, or could not be read.
    Absent,
    Here {
        conditions: &'a OldConditions,
        /// What its contract field says right now.
        done: bool,
        deleting: bool,
    },
}

/// Everything these conditions depend on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    pub before: &'a OldConditions,
    pub infrastructure: Object<'a>,
    pub control_plane: Object<'a>,
    /// The step of the deletion, if the Cluster is in deletion.
    pub deleting: Option<&'a Step>,
    /// A control plane machine that is not in deletion has its Node.
    pub first_node: bool,
}

/// The conditions as they should be.
pub fn status(input: &Input<'_>, now: Timestamp) -> OldConditions {
    let mut conditions = input.before.clone();
    let changes = [infrastructure(input), control_plane(input), initialized(input)];
    for condition in changes.into_iter().flatten() {
        conditions.set(condition, now);
    }
    if let Some(ready) = conditions.summarize(&[CONTROL_PLANE_READY, INFRASTRUCTURE_READY], None) {
        conditions.set(ready, now);
    }
    conditions
}

fn infrastructure(input: &Input<'_>) -> Option<OldCondition> {
    match input.infrastructure {
        Object::NoReference => input.deleting.is_none().then(|| OldCondition::good(INFRASTRUCTURE_READY)),
        Object::Absent => matches!(input.deleting, Some(Step::Finish)).then(|| deleted(INFRASTRUCTURE_READY)),
        object => ready(object, INFRASTRUCTURE_READY, "WaitingForInfrastructure", input.deleting.is_some()),
    }
}

fn control_plane(input: &Input<'_>) -> Option<OldCondition> {
    let past = matches!(input.deleting, Some(Step::DeleteInfrastructure { .. } | Step::Finish));
    match input.control_plane {
        Object::NoReference => None,
        Object::Absent => past.then(|| deleted(CONTROL_PLANE_READY)),
        object => ready(object, CONTROL_PLANE_READY, "WaitingForControlPlane", input.deleting.is_some()),
    }
}

fn deleted(kind: &str) -> OldCondition {
    OldCondition::bad(kind, Severity::Info, "Deleted", "")
}

fn ready(object: Object<'_>, kind: &str, waiting: &str, deleting: bool) -> Option<OldCondition> {
    let Object::Here { conditions, done, .. } = object else {
        return None;
    };
    let fallback = match (deleting, done) {
        (true, _) => OldCondition::bad(kind, Severity::Info, "Deleting", ""),
        (false, true) => OldCondition::good(kind),
        (false, false) => OldCondition::bad(kind, Severity::Info, waiting, ""),
    };
    Some(mirror(conditions, kind, fallback))
}

/// Never goes back once it is True.
fn initialized(input: &Input<'_>) -> Option<OldCondition> {
    let kind = CONTROL_PLANE_INITIALIZED;
    if input.before.get(kind).is_some_and(|known| known.status == crate::condition::Status::True) {
        return None;
    }
    let (done, reason, message) = match input.control_plane {
        Object::Here { deleting: true, .. } | Object::Absent => return None,
        Object::Here { done, .. } => (
            done,
            "WaitingForControlPlaneProviderInitialized",
            "Waiting for control plane provider to indicate the control plane has been initialized",
        ),
        Object::NoReference if input.deleting.is_some() => return None,
        Object::NoReference => (
            input.first_node,
            "MissingNodeRef",
            "Waiting for the first control plane machine to have its status.nodeRef set",
        ),
    };
    Some(if done {
        OldCondition::good(kind)
    } else {
        OldCondition::bad(kind, Severity::Info, reason, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, flat};

    #[track_caller]
    fn check(input: &Input<'_>, expected: &str) -> OldConditions {
        let found = status(input, at(1));
        let line = |condition: &OldCondition| {
            let severity = condition.severity.map_or("-", Severity::as_str);
            let OldCondition { kind, status, reason, .. } = condition;
            format!("{kind} {status} {severity} {reason}").trim_end().to_owned()
        };
        let text: Vec<_> = found.as_slice().iter().map(line).collect();
        assert_eq!(text.join("\n"), flat(expected));
        found
    }

    #[test]
    fn a_cluster_waits_for_its_providers_and_then_keeps_what_they_said() {
        let nothing = OldConditions::default();
        let here = |done| Object::Here { conditions: &nothing, done, deleting: false };
        let mut input = Input {
            before: &nothing,
            infrastructure: here(false),
            control_plane: here(false),
            deleting: None,
            first_node: false,
        };
        check(
            &input,
            "Ready False Info WaitingForControlPlane
             ControlPlaneInitialized False Info WaitingForControlPlaneProviderInitialized
             ControlPlaneReady False Info WaitingForControlPlane
             InfrastructureReady False Info WaitingForInfrastructure",
        );
        (input.infrastructure, input.control_plane) = (here(true), here(true));
        let done = check(
            &input,
            "Ready True -
             ControlPlaneInitialized True -
             ControlPlaneReady True -
             InfrastructureReady True -",
        );
        // It once was.
        (input.before, input.control_plane) = (&done, here(false));
        check(
            &input,
            "Ready False Info WaitingForControlPlane
             ControlPlaneInitialized True -
             ControlPlaneReady False Info WaitingForControlPlane
             InfrastructureReady True -",
        );
    }

    #[test]
    fn without_references_the_first_node_decides() {
        let nothing = OldConditions::default();
        let mut input = Input {
            before: &nothing,
            infrastructure: Object::NoReference,
            control_plane: Object::NoReference,
            deleting: None,
            first_node: false,
        };
        check(
            &input,
            "Ready True -
             ControlPlaneInitialized False Info MissingNodeRef
             InfrastructureReady True -",
        );
        input.first_node = true;
        check(
            &input,
            "Ready True -
             ControlPlaneInitialized True -
             InfrastructureReady True -",
        );
    }

    #[test]
    fn what_a_deletion_took_away_is_told() {
        let nothing = OldConditions::default();
        let step = Step::DeleteInfrastructure { delete: true, kind: "Infra".into() };
        let mut input = Input {
            before: &nothing,
            infrastructure: Object::Here { conditions: &nothing, done: true, deleting: true },
            control_plane: Object::Absent,
            deleting: Some(&step),
            first_node: false,
        };
        check(
            &input,
            "Ready False Info Deleted
             ControlPlaneReady False Info Deleted
             InfrastructureReady False Info Deleting",
        );
        (input.infrastructure, input.deleting) = (Object::Absent, Some(&Step::Finish));
        check(
            &input,
            "Ready False Info Deleted
             ControlPlaneReady False Info Deleted
             InfrastructureReady False Info Deleted",
        );
    }
}
