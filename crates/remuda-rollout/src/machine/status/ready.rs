//! Ready: the summary of a Machine.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use super::Input;
use crate::{
    condition::{Class, Condition, Conditions, Status as Is, Summary, class_of, summarize},
    members,
    view::Machine,
};

pub(super) fn condition(input: &Input<'_>, conditions: &Conditions, now: Timestamp) -> Condition {
    let mut kinds = vec![
        kind::DELETING,
        kind::UPDATING,
        kind::BOOTSTRAP_CONFIG_READY,
        kind::INFRASTRUCTURE_READY,
        kind::NODE_HEALTHY,
        kind::HEALTH_CHECK_SUCCEEDED,
    ];
    let mut negative = vec![kind::DELETING, kind::UPDATING];
    for gate in input.gates {
        kinds.push(&gate.kind);
        if gate.negative {
            negative.push(&gate.kind);
        }
    }
    let deleting = input.machine.deleted.is_some();
    let class = |condition: &Condition| {
        if deleting && is_expected_loss(condition) { Class::Info } else { class_of(condition, &negative) }
    };
    let overrides: Vec<Condition> =
        deleting.then(|| in_deletion(input.machine, conditions, now)).into_iter().collect();
    let how = Summary {
        target: kind::READY,
        kinds: &kinds,
        optional: &[kind::HEALTH_CHECK_SUCCEEDED],
        overrides: &overrides,
        class: &class,
        reasons: members::READY,
        rewrite: Some(merge_control_plane),
    };
    summarize(conditions, &how).unwrap_or_else(|| Condition::internal_error(kind::READY))
}

/// What goes away with the machine is no fault of it.
fn is_expected_loss(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        kind::BOOTSTRAP_CONFIG_READY | kind::INFRASTRUCTURE_READY => {
            matches!(condition.reason.as_str(), "ObjectDeleted" | "ObjectDoesNotExist")
        }
        kind::NODE_HEALTHY => matches!(condition.reason.as_str(), "NodeDeleted" | "NodeDoesNotExist"),
        _ => false,
    }
}

/// Deleting in one line: the stage, and what is likely to hold it up when it takes long.
fn in_deletion(machine: &Machine, conditions: &Conditions, now: Timestamp) -> Condition {
    let stage = conditions.get(kind::DELETING).map_or("Deleting", |condition| condition.reason.as_str());
    let long = members::is_stale(machine, now);
    let since = if long { " since more than 15m" } else { "" };
    let mut message = format!("Machine deletion in progress{since}, stage: {stage}");
    if long {
        let with_stage = Machine { conditions: conditions.clone(), ..machine.clone() };
        let causes = members::stale_drain(&with_stage, now);
        if !causes.is_empty() {
            message.push_str(&format!(", delay likely due to {}", causes.join(", ")));
        }
    }
    Condition::new(kind::DELETING, Is::True, "Deleting", message)
}

/// Components of a control plane that say the same are told together.
fn merge_control_plane(lines: Vec<String>) -> Vec<String> {
    let component = |line: &str| {
        let (name, message) = line.split_once(':')?;
        let prefixes = ["* APIServer", "* ControllerManager", "* Scheduler"];
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix)) || name == "* EtcdPodHealthy";
        ours.then(|| message.to_owned())
    };
    let messages: Vec<String> = lines.iter().filter_map(|line| component(line)).collect();
    if messages.len() < 2 || messages.iter().any(|message| *message != messages[0]) {
        return lines;
    }
    let mut told = false;
    let mut merged = Vec::new();
    for line in lines {
        if component(&line).is_none() {
            merged.push(line);
        } else if !told {
            told = true;
            merged.push(format!("* Control plane components:{}", messages[0]));
        }
    }
    merged
}
