//! Status and conditions of a MachineDeployment.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use super::{Deployment, Set, Strategy};
use crate::{
    condition::{Condition, Status as Is},
    members,
    version::{self, VersionCount},
    view::{Counts, Machine},
};

/// Everything the status depends on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// `None` while `spec.replicas` is not set.
    pub deployment: Option<&'a Deployment>,
    pub deleting: bool,
    /// The sets and the versions they report; `None` if they could not be listed.
    pub sets: Option<&'a [(Set, Vec<VersionCount>)]>,
    pub machines: &'a [Machine],
    /// Kinds of referenced templates that do not exist, bootstrap first.
    pub missing_templates: &'a [String],
    /// Counts of the status as it was.
    pub before: Counts,
    pub versions_before: &'a [VersionCount],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    ScalingUp,
    ScalingDown,
    Running,
    Unknown,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::ScalingUp => kind::SCALING_UP,
            Phase::ScalingDown => kind::SCALING_DOWN,
            Phase::Running => "Running",
            Phase::Unknown => "Unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub counts: Counts,
    pub versions: Vec<VersionCount>,
    pub phase: Phase,
    pub conditions: Vec<Condition>,
}

pub fn status(input: &Input<'_>, now: Timestamp) -> Status {
    let (counts, versions) = match input.sets {
        Some(sets) => (
            Counts::sum(sets.iter().map(|(set, _)| set.counts)),
            version::aggregate(sets.iter().flat_map(|(_, versions)| versions.iter().cloned())),
        ),
        None => (input.before, input.versions_before.to_vec()),
    };
    let conditions = vec![
        available(input, counts),
        rolling_out(input.machines),
        scaling_up(input, counts),
        scaling_down(input, counts, now),
        members::ready(input.machines, kind::MACHINES_READY),
        members::up_to_date(input.machines, kind::MACHINES_UP_TO_DATE, now),
        members::remediating(input.machines, " by MachineDeployment/MachineSet"),
        deleting(input, now),
    ];
    Status { counts, versions, phase: phase(input, counts), conditions }
}

fn phase(input: &Input<'_>, counts: Counts) -> Phase {
    let (Some(deployment), Some(_)) = (input.deployment, input.sets) else {
        return Phase::Unknown;
    };
    let actual = counts.replicas.unwrap_or(0);
    match deployment.replicas {
        _ if input.deleting => Phase::ScalingDown,
        wanted if wanted == actual => Phase::Running,
        wanted if wanted < actual => Phase::ScalingDown,
        _ => Phase::ScalingUp,
    }
}

/// What cannot be said without sets or replicas is said the same way by several conditions.
fn usable<'a>(input: &Input<'a>, kind: &str) -> Result<&'a Deployment, Condition> {
    if input.sets.is_none() {
        return Err(Condition::internal_error(kind));
    }
    input.deployment.ok_or_else(|| {
        Condition::new(kind, Is::Unknown, "WaitingForReplicasSet", "Waiting for spec.replicas set")
    })
}

fn available(input: &Input<'_>, counts: Counts) -> Condition {
    let deployment = match usable(input, kind::AVAILABLE) {
        Ok(deployment) => deployment,
        Err(condition) => return condition,
    };
    let Some(available) = counts.available else {
        return Condition::new(
            kind::AVAILABLE,
            Is::Unknown,
            "WaitingForAvailableReplicasSet",
            "Waiting for status.availableReplicas set",
        );
    };
    let required = deployment.replicas - deployment.fenceposts().unavailable;
    if available >= required {
        return Condition::new(kind::AVAILABLE, Is::True, "Available", "");
    }
    let mut message = format!("{available} available replicas, at least {required} required");
    if let Strategy::Rolling { max_unavailable, .. } = deployment.strategy {
        message.push_str(&format!(
            " (spec.strategy.rollout.maxUnavailable is {max_unavailable}, spec.replicas is {})",
            deployment.replicas
        ));
    }
    if input.deleting {
        message = "Deletion in progress".into();
    }
    Condition::new(kind::AVAILABLE, Is::False, "NotAvailable", message)
}

fn rolling_out(machines: &[Machine]) -> Condition {
    let stale: Vec<&Condition> = machines
        .iter()
        .filter_map(|machine| machine.conditions.get(kind::UP_TO_DATE))
        .filter(|condition| condition.status == Is::False)
        .collect();
    if stale.is_empty() {
        return Condition::new(kind::ROLLING_OUT, Is::False, "NotRollingOut", "");
    }
    let mut reasons: Vec<&str> = stale
        .iter()
        .filter(|condition| !condition.message.is_empty())
        .flat_map(|condition| condition.message.split('\n'))
        .collect();
    reasons.sort_by_key(|reason| (!reason.starts_with("* Version"), *reason));
    reasons.dedup();
    let mut message = format!("Rolling out {} not up-to-date replicas", stale.len());
    for reason in reasons {
        message.push('\n');
        message.push_str(reason);
    }
    Condition::new(kind::ROLLING_OUT, Is::True, kind::ROLLING_OUT, message)
}

fn scaling_up(input: &Input<'_>, counts: Counts) -> Condition {
    let deployment = match usable(input, kind::SCALING_UP) {
        Ok(deployment) => deployment,
        Err(condition) => return condition,
    };
    let wanted = if input.deleting { 0 } else { deployment.replicas };
    let actual = counts.replicas.unwrap_or(0);
    let missing = members::do_not_exist(input.missing_templates);
    if actual >= wanted {
        let blocked = missing.filter(|_| !input.deleting);
        let message = blocked
            .map_or_else(String::new, |missing| format!("Scaling up would be blocked because {missing}"));
        return Condition::new(kind::SCALING_UP, Is::False, "NotScalingUp", message);
    }
    let mut message = format!("Scaling up from {actual} to {wanted} replicas");
    if let Some(missing) = missing {
        message.push_str(&format!(" is blocked because {missing}"));
    }
    Condition::new(kind::SCALING_UP, Is::True, kind::SCALING_UP, message)
}

fn scaling_down(input: &Input<'_>, counts: Counts, now: Timestamp) -> Condition {
    let deployment = match usable(input, kind::SCALING_DOWN) {
        Ok(deployment) => deployment,
        Err(condition) => return condition,
    };
    let wanted = if input.deleting { 0 } else { deployment.replicas };
    let actual = counts.replicas.unwrap_or(0);
    if actual <= wanted {
        return Condition::new(kind::SCALING_DOWN, Is::False, "NotScalingDown", "");
    }
    let message = format!("Scaling down from {actual} to {wanted} replicas");
    let message = members::with_stale(message, input.machines, now);
    Condition::new(kind::SCALING_DOWN, Is::True, kind::SCALING_DOWN, message)
}

fn deleting(input: &Input<'_>, now: Timestamp) -> Condition {
    let Some(sets) = input.sets else {
        return Condition::internal_error(kind::DELETING);
    };
    if !input.deleting {
        return Condition::new(kind::DELETING, Is::False, "NotDeleting", "");
    }
    let message = match members::deleting(input.machines, now) {
        Some(message) => message,
        None if !sets.is_empty() => format!("Deleting {} MachineSets", sets.len()),
        None => "Deletion completed".into(),
    };
    Condition::new(kind::DELETING, Is::True, "Deleting", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        amount::Amount,
        template::Template,
        view::testing::{at, conditions, flat, machine},
    };

    fn deployment(replicas: i32) -> Deployment {
        Deployment {
            replicas,
            strategy: Strategy::Rolling { max_surge: Amount::Count(1), max_unavailable: Amount::Percent(25) },
            paused: false,
            rollout_after: None,
            template: Template::default(),
            templates_exist: true,
        }
    }

    fn set(actual: i32, available: i32) -> (Set, Vec<VersionCount>) {
        let counts = Counts {
            replicas: Some(actual),
            ready: Some(available),
            available: Some(available),
            up_to_date: Some(actual),
        };
        let set = Set {
            name: "a".into(),
            created: at(0),
            deleting: false,
            observed: true,
            replicas: actual,
            counts,
            template: Template::default(),
            annotations: super::super::Numbers::default(),
        };
        (set, Vec::new())
    }

    #[track_caller]
    fn check(input: &Input<'_>, wanted: &[&str], expected: &str) {
        let found = status(input, at(10_000));
        let mut text = format!("phase {}\n", found.phase.as_str());
        for condition in found.conditions.iter().filter(|condition| wanted.contains(&condition.kind.as_str()))
        {
            let Condition { kind, status, reason, message, .. } = condition;
            text.push_str(&format!("{kind} {status} {reason} {message}\n"));
        }
        assert_eq!(flat(&text), flat(expected));
    }

    #[test]
    fn a_deployment_that_is_short_says_by_how_much() {
        let deployment = deployment(4);
        let sets = [set(4, 2)];
        let input = Input {
            deployment: Some(&deployment),
            deleting: false,
            sets: Some(&sets),
            machines: &[],
            missing_templates: &["FooTemplate".into()],
            before: Counts::default(),
            versions_before: &[],
        };
        check(
            &input,
            &["Available", "ScalingUp"],
            "phase Running
             Available False NotAvailable 2 available replicas, at least 3 required (spec.strategy.rollout.maxUnavailable is 25%, spec.replicas is 4)
             ScalingUp False NotScalingUp Scaling up would be blocked because FooTemplate does not exist",
        );
        check(
            &Input { sets: None, ..input.clone() },
            &["Available", "Deleting"],
            "phase Unknown
             Available Unknown InternalError Please check controller logs for errors
             Deleting Unknown InternalError Please check controller logs for errors",
        );
        check(
            &Input { deployment: None, ..input },
            &["ScalingDown"],
            "phase Unknown
             ScalingDown Unknown WaitingForReplicasSet Waiting for spec.replicas set",
        );
    }

    #[test]
    fn a_rollout_tells_versions_first_and_each_reason_once() {
        let outdated = |name: &str, message: &str| {
            let conditions = conditions(&format!("UpToDate False NotUpToDate {message}"));
            Machine { conditions, ..machine(name) }
        };
        let machines = [
            outdated("a", "* Foo is not up-to-date\\n* Version v1, v2 required"),
            outdated("b", "* Foo is not up-to-date"),
        ];
        let condition = rolling_out(&machines);
        assert_eq!(
            condition.message,
            "Rolling out 2 not up-to-date replicas\n* Version v1, v2 required\n* Foo is not up-to-date"
        );
    }

    #[test]
    fn machines_long_in_deletion_are_named_with_the_cause() {
        let deployment = deployment(0);
        let sets = [set(1, 0)];
        let draining = "Deleting True DrainingNode * Pod x/y: cannot evict pod as it would violate the pod's disruption budget. z";
        let stuck = Machine {
            deleted: Some(at(0)),
            drain_started: Some(at(0)),
            conditions: conditions(draining),
            ..machine("m")
        };
        let machines = [stuck];
        let input = Input {
            deployment: Some(&deployment),
            deleting: true,
            sets: Some(&sets),
            machines: &machines,
            missing_templates: &[],
            before: Counts::default(),
            versions_before: &[],
        };
        check(
            &input,
            &["ScalingDown", "Deleting"],
            "phase ScalingDown
             ScalingDown True ScalingDown Scaling down from 1 to 0 replicas
             * Machine m is in deletion since more than 15m, delay likely due to PodDisruptionBudgets
             Deleting True Deleting Deleting 1 Machine
             * Machine m is in deletion since more than 15m, delay likely due to PodDisruptionBudgets",
        );
    }
}
