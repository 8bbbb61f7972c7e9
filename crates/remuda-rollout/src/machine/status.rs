//! Conditions of a Machine.

mod node;
mod ready;

use std::time::Duration;

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

pub use node::{NodeReading, Probe};

use crate::{
    condition::{Condition, Conditions, Status as Is, plus_seconds},
    provider::{Mirror, Provider},
    template::Difference,
    view::Machine,
};

const BOOTSTRAP: Mirror = Mirror {
    source: kind::READY,
    target: kind::BOOTSTRAP_CONFIG_READY,
    good: "Ready",
    bad: "NotReady",
    field: "status.initialization.dataSecretCreated",
    survivor: None,
};

const INFRASTRUCTURE: Mirror = Mirror {
    source: kind::READY,
    target: kind::INFRASTRUCTURE_READY,
    good: "Ready",
    bad: "NotReady",
    field: "status.initialization.provisioned",
    survivor: Some("Machine"),
};

/// Everything the conditions depend on, besides those the machine has.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    pub machine: &'a Machine,
    /// `None` if the machine refers to no bootstrap config.
    pub bootstrap: Option<Provider<'a>>,
    pub infrastructure: Provider<'a>,
    pub provider_id: &'a str,
    pub cluster: Cluster,
    pub probe: Probe,
    pub node: NodeReading,
    /// Reason and message of the stage of deletion.
    pub deleting: Option<(&'a str, &'a str)>,
    /// Message of an update in place, if one is under way.
    pub updating: Option<&'a str>,
    /// How its set's template differs from its deployment's; `None` if there is no deployment.
    pub outdated: Option<&'a [Difference]>,
    pub gates: &'a [Gate],
    pub min_ready_seconds: i64,
}

/// What the node's conditions depend on in the Cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cluster {
    pub infrastructure_provisioned: bool,
    /// Since when ControlPlaneInitialized is True.
    pub control_plane_initialized: Option<Timestamp>,
}

/// A condition somebody else sets and that Ready or Available asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    pub kind: String,
    /// True is the bad status.
    pub negative: bool,
}

/// The conditions as they should be, and when Available may turn True by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub conditions: Conditions,
    pub requeue: Option<Duration>,
}

pub fn status(input: &Input<'_>, generation: i64, now: Timestamp) -> Status {
    let mut conditions = input.machine.conditions.clone();
    let deleting = input.machine.deleted.is_some();
    let mut set = |condition: Condition| conditions.set(condition, generation, now);
    set(match &input.bootstrap {
        Some(bootstrap) => BOOTSTRAP.condition(bootstrap, deleting),
        None => Condition::new(kind::BOOTSTRAP_CONFIG_READY, Is::True, "DataSecretProvided", ""),
    });
    set(INFRASTRUCTURE.condition(&input.infrastructure, deleting));
    for condition in node::conditions(input, now) {
        set(condition);
    }
    set(deleting_condition(input));
    set(match input.updating {
        Some(message) => {
            let message = if message.is_empty() { "In-place update in progress" } else { message };
            Condition::new(kind::UPDATING, Is::True, "InPlaceUpdating", message)
        }
        None => Condition::new(kind::UPDATING, Is::False, "NotUpdating", ""),
    });
    if let Some(condition) = up_to_date(input) {
        set(condition);
    }
    let ready = ready::condition(input, &conditions, now);
    conditions.set(ready, generation, now);
    let (available, requeue) = available(input, &conditions, now);
    conditions.set(available, generation, now);
    Status { conditions, requeue }
}

fn deleting_condition(input: &Input<'_>) -> Condition {
    match (input.machine.deleted, input.deleting) {
        (None, _) => Condition::new(kind::DELETING, Is::False, "NotDeleting", ""),
        (Some(_), Some((reason, message))) => Condition::new(kind::DELETING, Is::True, reason, message),
        (Some(_), None) => Condition::new(kind::DELETING, Is::True, "Deleting", "Deletion started"),
    }
}

/// Only machines of a deployment are ever out of date.
fn up_to_date(input: &Input<'_>) -> Option<Condition> {
    let differences = input.outdated?;
    let outdated = |reason, message| Some(Condition::new(kind::UP_TO_DATE, Is::False, reason, message));
    if !differences.is_empty() {
        let lines: Vec<_> = differences.iter().map(|difference| format!("* {difference}")).collect();
        return outdated("NotUpToDate", lines.join("\n"));
    }
    if let Some(message) = input.updating {
        let message = if message.is_empty() { "In-place update in progress" } else { message };
        return outdated("Updating", format!("* {message}"));
    }
    let Machine { version, kubelet_version, .. } = input.machine;
    // A machine that asks for no version runs whatever its provider installs; upstream compares all the same
    // and never finishes rolling out such machines.
    if !version.is_empty() && !kubelet_version.is_empty() && version != kubelet_version {
        let message = format!("* Node.status.nodeInfo.kubeletVersion {kubelet_version}, {version} required");
        return outdated("Updating", message);
    }
    Some(Condition::new(kind::UP_TO_DATE, Is::True, kind::UP_TO_DATE, ""))
}

fn available(input: &Input<'_>, conditions: &Conditions, now: Timestamp) -> (Condition, Option<Duration>) {
    let ready = conditions.get(kind::READY).filter(|ready| ready.status == Is::True);
    let Some(ready) = ready else {
        return (Condition::new(kind::AVAILABLE, Is::False, "NotReady", ""), None);
    };
    let due = plus_seconds(ready.since.unwrap_or(now), input.min_ready_seconds.max(0));
    if due <= now {
        return (Condition::new(kind::AVAILABLE, Is::True, "Available", ""), None);
    }
    let left = Duration::try_from(due.duration_since(now)).ok();
    (Condition::new(kind::AVAILABLE, Is::False, "WaitingForMinReadySeconds", ""), left)
}

#[cfg(test)]
mod tests;
