//! Status and conditions of a MachineSet.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use super::preflight::Failure;
use crate::{
    condition::{Condition, Status as Is},
    members,
    version::{self, VersionCount},
    view::{Counts, Machine},
};

/// Everything the status depends on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    pub replicas: Option<i32>,
    pub deleting: bool,
    /// `None` if they could not be listed or adopted.
    pub machines: Option<&'a [Machine]>,
    /// Kinds of referenced templates that do not exist, bootstrap first.
    pub missing_templates: &'a [String],
    pub failures: &'a [Failure],
}

/// What to write; counters stay as they are where there are none.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub counts: Option<Counts>,
    pub versions: Option<Vec<VersionCount>>,
    pub conditions: Vec<Condition>,
}

const KINDS: [&str; 6] = [
    kind::SCALING_UP,
    kind::SCALING_DOWN,
    kind::MACHINES_READY,
    kind::MACHINES_UP_TO_DATE,
    kind::REMEDIATING,
    kind::DELETING,
];

pub fn status(input: &Input<'_>, now: Timestamp) -> Status {
    let Some(machines) = input.machines else {
        let conditions = KINDS.iter().map(|kind| Condition::internal_error(kind)).collect();
        return Status { counts: None, versions: None, conditions };
    };
    let conditions = vec![
        scaling_up(input, machines),
        scaling_down(input, machines, now),
        members::ready(machines, kind::MACHINES_READY),
        members::up_to_date(machines, kind::MACHINES_UP_TO_DATE, now),
        members::remediating(machines, " by MachineSet"),
        deleting(input, machines, now),
    ];
    Status { counts: Some(count(machines)), versions: Some(version::of_machines(machines)), conditions }
}

/// Counts machines by their conditions; one that is being changed in place counts for nothing but a replica.
fn count(machines: &[Machine]) -> Counts {
    let with = |kind: &str| {
        let counted =
            machines.iter().filter(|machine| !machine.marks.updating && machine.conditions.is_true(kind));
        Some(size(counted.count()))
    };
    Counts {
        replicas: Some(size(machines.len())),
        ready: with(kind::READY),
        available: with(kind::AVAILABLE),
        up_to_date: with(kind::UP_TO_DATE),
    }
}

fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn wanted(input: &Input<'_>, kind: &str) -> Result<i32, Condition> {
    let waiting =
        || Condition::new(kind, Is::Unknown, "WaitingForReplicasSet", "Waiting for spec.replicas set");
    let replicas = input.replicas.ok_or_else(waiting)?;
    Ok(if input.deleting { 0 } else { replicas })
}

fn scaling_up(input: &Input<'_>, machines: &[Machine]) -> Condition {
    let wanted = match wanted(input, kind::SCALING_UP) {
        Ok(wanted) => wanted,
        Err(condition) => return condition,
    };
    let actual = size(machines.len());
    let missing = members::do_not_exist(input.missing_templates);
    if actual >= wanted {
        let blocked = missing.filter(|_| !input.deleting);
        let message = blocked
            .map_or_else(String::new, |missing| format!("Scaling up would be blocked because {missing}"));
        return Condition::new(kind::SCALING_UP, Is::False, "NotScalingUp", message);
    }
    let mut message = format!("Scaling up from {actual} to {wanted} replicas");
    let causes: Vec<String> = input
        .failures
        .iter()
        .map(ToString::to_string)
        .chain(missing)
        .map(|cause| format!("\n* {cause}"))
        .collect();
    if !causes.is_empty() {
        message.push_str(&format!(" is blocked because:{}", causes.concat()));
    }
    Condition::new(kind::SCALING_UP, Is::True, kind::SCALING_UP, message)
}

fn scaling_down(input: &Input<'_>, machines: &[Machine], now: Timestamp) -> Condition {
    let wanted = match wanted(input, kind::SCALING_DOWN) {
        Ok(wanted) => wanted,
        Err(condition) => return condition,
    };
    let actual = size(machines.iter().filter(|machine| !machine.marks.moving).count());
    if actual <= wanted {
        return Condition::new(kind::SCALING_DOWN, Is::False, "NotScalingDown", "");
    }
    let message = format!("Scaling down from {actual} to {wanted} replicas");
    Condition::new(
        kind::SCALING_DOWN,
        Is::True,
        kind::SCALING_DOWN,
        members::with_stale(message, machines, now),
    )
}

fn deleting(input: &Input<'_>, machines: &[Machine], now: Timestamp) -> Condition {
    if !input.deleting {
        return Condition::new(kind::DELETING, Is::False, "NotDeleting", "");
    }
    let message = members::deleting(machines, now).unwrap_or_else(|| "Deletion completed".into());
    Condition::new(kind::DELETING, Is::True, "Deleting", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, conditions, flat, machine};

    #[track_caller]
    fn check(input: &Input<'_>, expected: &str) {
        let found = status(input, at(10_000));
        let mut text = String::new();
        if let Some(counts) = found.counts {
            let all = [counts.replicas, counts.ready, counts.available, counts.up_to_date];
            text.push_str(&format!("{}\n", all.map(|count| count.unwrap_or(-1).to_string()).join("/")));
        }
        for Condition { kind, status, reason, message, .. } in &found.conditions {
            text.push_str(&format!("{kind} {status} {reason} {message}\n"));
        }
        assert_eq!(flat(&text), flat(expected));
    }

    #[test]
    fn a_set_tells_of_its_machines() {
        let good = Machine {
            conditions: conditions("Ready True Ready\nAvailable True Available\nUpToDate True UpToDate"),
            ..machine("a")
        };
        let bad = Machine {
            conditions: conditions(
                "Ready False NotReady * NodeHealthy: x\nUpToDate True UpToDate\nHealthCheckSucceeded False X",
            ),
            ..machine("b")
        };
        let failure = Failure::Provisioning { control_plane: "Foo ns/cp".into() };
        let machines = [good, bad];
        let input = Input {
            replicas: Some(3),
            deleting: false,
            machines: Some(&machines),
            missing_templates: &["BarTemplate".into(), "FooTemplate".into()],
            failures: &[failure],
        };
        check(
            &input,
            "2/1/1/2
             ScalingUp True ScalingUp Scaling up from 2 to 3 replicas is blocked because:
             * Foo ns/cp is provisioning (\"ControlPlaneIsStable\" preflight check failed)
             * BarTemplate and FooTemplate do not exist
             ScalingDown False NotScalingDown
             MachinesReady False NotReady * Machine b:
             * NodeHealthy: x
             MachinesUpToDate True UpToDate
             Remediating False NotRemediating Machine b is not healthy (not to be remediated by MachineSet)
             Deleting False NotDeleting",
        );
    }

    #[test]
    fn an_empty_set_in_deletion_is_done() {
        let input = Input {
            replicas: Some(3),
            deleting: true,
            machines: Some(&[]),
            missing_templates: &[],
            failures: &[],
        };
        check(
            &input,
            "0/0/0/0
             ScalingUp False NotScalingUp
             ScalingDown False NotScalingDown
             MachinesReady True NoReplicas
             MachinesUpToDate True NoReplicas
             Remediating False NotRemediating
             Deleting True Deleting Deletion completed",
        );
    }

    #[test]
    fn a_set_that_cannot_see_its_machines_says_nothing_of_them() {
        let input = Input {
            replicas: Some(3),
            deleting: false,
            machines: None,
            missing_templates: &[],
            failures: &[],
        };
        let found = status(&input, at(1));
        assert!(found.counts.is_none());
        assert!(found.conditions.iter().all(|condition| condition.reason == "InternalError"));
    }
}
