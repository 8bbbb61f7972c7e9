//! What the conditions of sets, deployments and clusters say about their machines.

use std::fmt::Write as _;

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use crate::{
    condition::{Aggregate, Condition, Reasons, Status, aggregate, seconds_between},
    text,
    view::Machine,
};

/// After this long, a deletion is worth mentioning.
const STALE: f64 = 15.0 * 60.0;
/// After this long, what holds up a drain is worth mentioning.
const STALE_DRAIN: f64 = 5.0 * 60.0;
/// Machines younger than this may not have an UpToDate condition yet.
const YOUNG: f64 = 10.0;

pub(crate) const READY: Reasons = Reasons { issue: "NotReady", unknown: "ReadyUnknown", info: "Ready" };
pub(crate) const UP_TO_DATE: Reasons =
    Reasons { issue: "NotUpToDate", unknown: "UpToDateUnknown", info: kind::UP_TO_DATE };

/// Aggregate of the machines' Ready.
pub(crate) fn ready<'a>(machines: impl IntoIterator<Item = &'a Machine>, target: &str) -> Condition {
    over(machines, kind::READY, target, READY)
}

/// Aggregate of the machines' UpToDate, leaving out those that are too young to have it.
pub(crate) fn up_to_date<'a>(
    machines: impl IntoIterator<Item = &'a Machine>,
    target: &str,
    now: Timestamp,
) -> Condition {
    let old_enough = |machine: &&Machine| {
        machine.conditions.has(kind::UP_TO_DATE) || seconds_between(machine.created, now) > YOUNG
    };
    over(machines.into_iter().filter(old_enough), kind::UP_TO_DATE, target, UP_TO_DATE)
}

fn over<'a>(
    machines: impl IntoIterator<Item = &'a Machine>,
    kind: &str,
    target: &str,
    reasons: Reasons,
) -> Condition {
    let sources: Vec<_> = machines.into_iter().map(Machine::source).collect();
    aggregate(&sources, Aggregate { kind, target, negative: false, reasons })
        .unwrap_or_else(|| Condition::new(target, Status::True, "NoReplicas", ""))
}

/// The Remediating condition. `by_whom` ends the sentence about machines nobody replaces.
pub(crate) fn remediating<'a>(machines: impl IntoIterator<Item = &'a Machine>, by_whom: &str) -> Condition {
    let machines: Vec<&Machine> = machines.into_iter().collect();
    let waiting: Vec<_> = machines
        .iter()
        .filter(|machine| machine.awaits_remediation())
        .map(|machine| machine.source())
        .collect();
    let how = Aggregate {
        kind: kind::OWNER_REMEDIATED,
        target: kind::REMEDIATING,
        negative: false,
        reasons: Reasons::default(),
    };
    if let Some(merged) = aggregate(&waiting, how) {
        return Condition::new(kind::REMEDIATING, Status::True, "Remediating", merged.message);
    }
    let mut unhealthy: Vec<String> = machines
        .iter()
        .filter(|machine| machine.is_unhealthy())
        .map(|machine| machine.name.clone())
        .collect();
    unhealthy.sort();
    let message = if unhealthy.is_empty() {
        String::new()
    } else {
        format!("{} not healthy (not to be remediated{by_whom})", text::machines_are(&unhealthy))
    };
    Condition::new(kind::REMEDIATING, Status::False, "NotRemediating", message)
}

/// What is likely to hold up a drain, read off its message.
pub(crate) fn drain_delays(message: &str) -> Vec<&'static str> {
    const SIGNS: &[(&str, &str)] = &[
        ("cannot evict pod as it would violate the pod's disruption budget.", "PodDisruptionBudgets"),
        ("deletionTimestamp set, but still not removed from the Node", "Pods not terminating"),
        ("failed to evict Pod", "Pod eviction errors"),
        ("waiting for completion", "Pods not completed yet"),
    ];
    SIGNS.iter().filter(|(sign, _)| message.contains(sign)).map(|(_, cause)| *cause).collect()
}

/// What delays the machine's drain, if it has been draining for long.
pub(crate) fn stale_drain(machine: &Machine, now: Timestamp) -> Vec<&'static str> {
    let long = machine.drain_started.is_some_and(|started| seconds_between(started, now) > STALE_DRAIN);
    match machine.conditions.get(kind::DELETING) {
        Some(deleting) if long && deleting.status == Status::True && deleting.reason == "DrainingNode" => {
            drain_delays(&deleting.message)
        }
        _ => Vec::new(),
    }
}

/// Whether the machine has been in deletion for long.
pub(crate) fn is_stale(machine: &Machine, now: Timestamp) -> bool {
    machine.deleted.is_some_and(|since| seconds_between(since, now) > STALE)
}

/// A sentence about machines that have been in deletion for long.
pub(crate) fn stale<'a>(machines: impl IntoIterator<Item = &'a Machine>, now: Timestamp) -> Option<String> {
    let stale: Vec<&Machine> = machines.into_iter().filter(|machine| is_stale(machine, now)).collect();
    if stale.is_empty() {
        return None;
    }
    let mut names: Vec<String> = stale.iter().map(|machine| machine.name.clone()).collect();
    names.sort();
    let mut message = format!("{} in deletion since more than 15m", text::machines_are(&names));
    let found: Vec<&str> = stale.iter().flat_map(|machine| stale_drain(machine, now)).collect();
    // The order of causes is fixed, whatever the order of machines.
    let causes: Vec<&str> =
        ["PodDisruptionBudgets", "Pods not terminating", "Pod eviction errors", "Pods not completed yet"]
            .into_iter()
            .filter(|cause| found.contains(cause))
            .collect();
    if !causes.is_empty() {
        let _ = write!(message, ", delay likely due to {}", causes.join(", "));
    }
    Some(message)
}

/// `Deleting 2 Machines` with what delays them, or nothing without machines.
pub(crate) fn deleting(machines: &[Machine], now: Timestamp) -> Option<String> {
    let noun = if machines.len() == 1 { "Machine" } else { "Machines" };
    (!machines.is_empty()).then(|| with_stale(format!("Deleting {} {noun}", machines.len()), machines, now))
}

/// A message followed by what is stale.
pub(crate) fn with_stale(message: String, machines: &[Machine], now: Timestamp) -> String {
    match stale(machines, now) {
        Some(stale) => format!("{message}\n* {stale}"),
        None => message,
    }
}

/// `X does not exist` or `X and Y do not exist`.
pub(crate) fn do_not_exist(kinds: &[String]) -> Option<String> {
    match kinds {
        [] => None,
        [one] => Some(format!("{one} does not exist")),
        several => Some(format!("{} do not exist", several.join(" and "))),
    }
}
