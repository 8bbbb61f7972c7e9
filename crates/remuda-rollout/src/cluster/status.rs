//! Conditions of a Cluster.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use crate::{
    condition::{
        Aggregate, Class, Condition, Conditions, Owner, Reasons, Source, Status as Is, Summary, aggregate,
        class_of, seconds_between, summarize,
    },
    machine::status::{Gate, Probe},
    members,
    provider::{Mirror, Provider, Reading, unreadable},
    text,
    view::Machine,
};

/// How long the last successful probe may be ago.
const GRACE: f64 = 50.0;

const INFRASTRUCTURE: Mirror = Mirror {
    source: kind::READY,
    target: kind::INFRASTRUCTURE_READY,
    good: "Ready",
    bad: "NotReady",
    field: "status.initialization.provisioned",
    survivor: Some("cluster"),
};

const CONTROL_PLANE: Mirror = Mirror {
    source: kind::AVAILABLE,
    target: kind::CONTROL_PLANE_AVAILABLE,
    good: "Available",
    bad: "NotAvailable",
    field: "status.initialization.controlPlaneInitialized",
    survivor: Some("cluster"),
};

/// Everything the conditions depend on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// Conditions as they were.
    pub before: &'a Conditions,
    /// `None` if the Cluster refers to none.
    pub infrastructure: Option<Provider<'a>>,
    pub control_plane: Option<ControlPlane<'a>>,
    pub probe: Probe,
    /// Why Nodes cannot be watched although the workload cluster answers.
    pub unwatched: Option<&'a str>,
    /// `None` if they could not be listed.
    pub descendants: Option<Descendants<'a>>,
    /// Reason and message of the stage of deletion, if the Cluster is in deletion.
    pub deleting: Option<(&'a str, &'a str)>,
    pub gates: &'a [Gate],
    /// A managed topology is asked for.
    pub topology: bool,
}

/// The control plane object.
#[derive(Debug, Clone)]
pub struct ControlPlane<'a> {
    pub provider: Provider<'a>,
    pub name: &'a str,
    /// What its contract field says right now.
    pub initialized: bool,
    /// All its conditions; RollingOut, ScalingUp and ScalingDown count if it has them.
    pub conditions: &'a Conditions,
}

/// What is below the Cluster.
#[derive(Debug, Clone, Copy)]
pub struct Descendants<'a> {
    pub machines: &'a [Machine],
    pub deployments: &'a [(String, Conditions)],
    /// Sets the Cluster itself owns.
    pub stand_alone_sets: &'a [(String, Conditions)],
}

/// The conditions as they should be.
pub fn status(input: &Input<'_>, generation: i64, now: Timestamp) -> Conditions {
    let mut conditions = input.before.clone();
    let mut set = |condition: Condition| conditions.set(condition, generation, now);
    if let Some(probe) = remote_connection(input, now) {
        set(probe);
    }
    let deleting = input.deleting.is_some();
    set(match &input.infrastructure {
        Some(provider) => INFRASTRUCTURE.condition(provider, deleting),
        None if input.topology => waiting_for_topology(kind::INFRASTRUCTURE_READY, Is::False, deleting),
        // Nothing to wait for; upstream leaves such clusters at InternalError.
        None => Condition::new(kind::INFRASTRUCTURE_READY, Is::True, "Ready", ""),
    });
    let initialized = initialized(input);
    set(control_plane_available(input, &initialized));
    set(initialized);
    for condition in of_descendants(input, now) {
        set(condition);
    }
    set(match input.deleting {
        Some((reason, message)) => Condition::new(kind::DELETING, Is::True, reason, message),
        None => Condition::new(kind::DELETING, Is::False, "NotDeleting", ""),
    });
    let available = available(input, &conditions);
    conditions.set(available, generation, now);
    conditions
}

fn waiting_for_topology(kind: &str, status: Is, deleting: bool) -> Condition {
    let message = if deleting { "" } else { "Waiting for cluster topology to be reconciled" };
    Condition::new(kind, status, "ObjectDoesNotExist", message)
}

/// Whether the workload cluster answers; `None` leaves what is known.
fn remote_connection(input: &Input<'_>, now: Timestamp) -> Option<Condition> {
    let failed = |message: String| {
        Some(Condition::new(kind::REMOTE_CONNECTION_PROBE, Is::False, "ProbeFailed", message))
    };
    if input.probe.is_young() {
        let known = input.before.has(kind::REMOTE_CONNECTION_PROBE);
        return if known { None } else { failed("Remote connection not established yet".into()) };
    }
    match input.probe.last_success {
        None => failed("Remote connection probe failed".into()),
        Some(success) if seconds_between(success, now) > GRACE => {
            failed(format!("Remote connection probe failed, probe last succeeded at {}", text::time(success)))
        }
        Some(_) => {
            let message = input.unwatched.map_or_else(String::new, |why| {
                format!("Nodes cannot be watched and are listed from time to time instead: {why}")
            });
            Some(Condition::new(kind::REMOTE_CONNECTION_PROBE, Is::True, "ProbeSucceeded", message))
        }
    }
}

/// ControlPlaneInitialized, which never goes back once it is True.
fn initialized(input: &Input<'_>) -> Condition {
    let target = kind::CONTROL_PLANE_INITIALIZED;
    if let Some(known) = input.before.get(target).filter(|known| known.status == Is::True) {
        return known.clone();
    }
    let done = |is: bool, message: &str| {
        let reason = if is { "Initialized" } else { "NotInitialized" };
        Condition::new(target, Is::from(is), reason, if is { "" } else { message })
    };
    match &input.control_plane {
        Some(control_plane) => match &control_plane.provider.reading {
            Reading::Failed(why) => unreadable(target, why),
            // Upstream asks here whether the infrastructure is missing, by mistake.
            Reading::NotFound => {
                let message = format!("{} does not exist", control_plane.provider.kind);
                Condition::new(target, Is::Unknown, "ObjectDoesNotExist", message)
            }
            Reading::Found(_) => done(control_plane.initialized, "Control plane not yet initialized"),
        },
        None if input.topology => waiting_for_topology(target, Is::Unknown, input.deleting.is_some()),
        None => match input.descendants {
            None => Condition::internal_error(target),
            Some(Descendants { machines, .. }) => {
                let up = machines.iter().any(|machine| machine.control_plane && machine.node.is_some());
                done(up, "Waiting for the first control plane machine to have status.nodeRef set")
            }
        },
    }
}

fn control_plane_available(input: &Input<'_>, initialized: &Condition) -> Condition {
    let target = kind::CONTROL_PLANE_AVAILABLE;
    match &input.control_plane {
        Some(control_plane) => CONTROL_PLANE.condition(&control_plane.provider, input.deleting.is_some()),
        None if input.topology => waiting_for_topology(target, Is::False, input.deleting.is_some()),
        // Without an object it is as available as it is initialized; upstream says InternalError for ever.
        None if initialized.status == Is::True => Condition::new(target, Is::True, "Available", ""),
        None => Condition::new(target, Is::False, "NotAvailable", initialized.message.clone()),
    }
}

fn of_descendants(input: &Input<'_>, now: Timestamp) -> Vec<Condition> {
    const KINDS: [&str; 9] = [
        kind::WORKERS_AVAILABLE,
        kind::CONTROL_PLANE_MACHINES_READY,
        kind::WORKER_MACHINES_READY,
        kind::CONTROL_PLANE_MACHINES_UP_TO_DATE,
        kind::WORKER_MACHINES_UP_TO_DATE,
        kind::REMEDIATING,
        kind::ROLLING_OUT,
        kind::SCALING_UP,
        kind::SCALING_DOWN,
    ];
    let Some(below) = input.descendants else {
        return KINDS.iter().map(|kind| Condition::internal_error(kind)).collect();
    };
    let machines = || below.machines.iter().filter(|machine| !machine.pooled);
    let of_control_plane = || below.machines.iter().filter(|machine| machine.control_plane);
    let workers = || machines().filter(|machine| !machine.control_plane);
    vec![
        workers_available(below),
        members::ready(of_control_plane(), kind::CONTROL_PLANE_MACHINES_READY),
        members::ready(workers(), kind::WORKER_MACHINES_READY),
        members::up_to_date(of_control_plane(), kind::CONTROL_PLANE_MACHINES_UP_TO_DATE, now),
        members::up_to_date(workers(), kind::WORKER_MACHINES_UP_TO_DATE, now),
        members::remediating(machines(), ""),
        moving(
            input,
            below,
            kind::ROLLING_OUT,
            Reasons { issue: kind::ROLLING_OUT, unknown: "RollingOutUnknown", info: "NotRollingOut" },
        ),
        moving(
            input,
            below,
            kind::SCALING_UP,
            Reasons { issue: kind::SCALING_UP, unknown: "ScalingUpUnknown", info: "NotScalingUp" },
        ),
        moving(
            input,
            below,
            kind::SCALING_DOWN,
            Reasons { issue: kind::SCALING_DOWN, unknown: "ScalingDownUnknown", info: "NotScalingDown" },
        ),
    ]
}

fn source<'a>(kind: &str, name: &str, conditions: &'a Conditions) -> Source<'a> {
    Source { owner: Owner { kind: kind.into(), name: name.into(), control_plane: false }, conditions }
}

fn workers_available(below: Descendants<'_>) -> Condition {
    let sources: Vec<_> = below
        .deployments
        .iter()
        .map(|(name, conditions)| source("MachineDeployment", name, conditions))
        .collect();
    let reasons = Reasons { issue: "NotAvailable", unknown: "AvailableUnknown", info: "Available" };
    let how = Aggregate { kind: kind::AVAILABLE, target: kind::WORKERS_AVAILABLE, negative: false, reasons };
    aggregate(&sources, how)
        .unwrap_or_else(|| Condition::new(kind::WORKERS_AVAILABLE, Is::True, "NoWorkers", ""))
}

/// RollingOut, ScalingUp or ScalingDown of the control plane, deployments and stand-alone sets.
fn moving(input: &Input<'_>, below: Descendants<'_>, kind: &str, reasons: Reasons) -> Condition {
    let mut sources = Vec::new();
    if let Some(control_plane) = &input.control_plane {
        if let Reading::Failed(why) = &control_plane.provider.reading {
            return unreadable(kind, why);
        }
        if control_plane.conditions.has(kind) {
            sources.push(source(control_plane.provider.kind, control_plane.name, control_plane.conditions));
        }
    }
    sources.extend(
        below.deployments.iter().map(|(name, conditions)| source("MachineDeployment", name, conditions)),
    );
    if kind != kind::ROLLING_OUT {
        let sets = below.stand_alone_sets.iter();
        sources.extend(sets.map(|(name, conditions)| source("MachineSet", name, conditions)));
    }
    aggregate(&sources, Aggregate { kind, target: kind, negative: true, reasons })
        .unwrap_or_else(|| Condition::new(kind, Is::False, reasons.info, ""))
}

fn available(input: &Input<'_>, conditions: &Conditions) -> Condition {
    let mut kinds = vec![
        kind::DELETING,
        kind::REMOTE_CONNECTION_PROBE,
        kind::INFRASTRUCTURE_READY,
        kind::CONTROL_PLANE_AVAILABLE,
        kind::WORKERS_AVAILABLE,
        kind::TOPOLOGY_RECONCILED,
    ];
    let mut negative = vec![kind::DELETING];
    for gate in input.gates {
        kinds.push(&gate.kind);
        if gate.negative {
            negative.push(&gate.kind);
        }
    }
    let class = |condition: &Condition| {
        let lost = matches!(condition.reason.as_str(), "ObjectDeleted" | "ObjectDoesNotExist");
        let expected = match condition.kind.as_str() {
            kind::INFRASTRUCTURE_READY | kind::CONTROL_PLANE_AVAILABLE => input.deleting.is_some() && lost,
            // A topology that is still being rolled out is no issue of availability.
            kind::TOPOLOGY_RECONCILED => {
                let failed = ["ReconcileFailed", "ClusterClassNotReconciled"];
                condition.status == Is::False && !failed.contains(&condition.reason.as_str())
            }
            _ => false,
        };
        if expected { Class::Info } else { class_of(condition, &negative) }
    };
    let how = Summary {
        target: kind::AVAILABLE,
        kinds: &kinds,
        optional: if input.topology { &[] } else { &[kind::TOPOLOGY_RECONCILED] },
        overrides: &[],
        class: &class,
        reasons: Reasons { issue: "NotAvailable", unknown: "AvailableUnknown", info: "Available" },
        rewrite: None,
    };
    summarize(conditions, &how).unwrap_or_else(|| Condition::internal_error(kind::AVAILABLE))
}

#[cfg(test)]
mod tests;
