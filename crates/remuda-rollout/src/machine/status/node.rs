//! NodeReady and NodeHealthy: what a Machine says about its Node, also when it cannot be seen.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use super::Input;
use crate::{
    condition::{Condition, SEE_LOG, Status as Is, seconds_between},
    health::NodeCondition,
    text,
};

/// How long a node's conditions stay as they were after the last successful probe.
const GRACE: f64 = 5.0 * 60.0;
/// After so many failures a connection is down rather than not yet up.
const FAILURES: u32 = 5;

/// What is known of the connection to the workload cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probe {
    pub last_success: Option<Timestamp>,
    pub failures: u32,
}

impl Probe {
    /// It never worked, but that may still be a matter of time.
    pub fn is_young(self) -> bool {
        self.last_success.is_none() && self.failures < FAILURES
    }
}

/// The Node, as it was looked for.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeReading {
    Found(Vec<NodeCondition>),
    NotFound,
    /// There is no connection at the moment.
    Disconnected,
    Failed,
}

/// The conditions to set; none where the last known ones stay.
pub(super) fn conditions(input: &Input<'_>, now: Timestamp) -> Vec<Condition> {
    let both = |status, reason: &str, message: String| {
        [kind::NODE_READY, kind::NODE_HEALTHY]
            .map(|kind| Condition::new(kind, status, reason, message.clone()))
            .to_vec()
    };
    let unknown = |reason: &str, message: &str| both(Is::Unknown, reason, message.to_owned());
    if !input.cluster.infrastructure_provisioned {
        let message = "Waiting for Cluster status.initialization.infrastructureProvisioned to be true";
        return unknown("InspectionFailed", message);
    }
    let Some(initialized) = input.cluster.control_plane_initialized else {
        return unknown("InspectionFailed", "Waiting for Cluster control plane to be initialized");
    };
    let known =
        input.machine.conditions.has(kind::NODE_READY) && input.machine.conditions.has(kind::NODE_HEALTHY);
    if input.probe.is_young() {
        return if known {
            Vec::new()
        } else {
            unknown("ConnectionDown", "Remote connection not established yet")
        };
    }
    let last_probe = input
        .probe
        .last_success
        .map_or_else(String::new, |at| format!("Last successful probe at {}", text::time(at)));
    let seen = input.probe.last_success.map_or(initialized, |success| success.max(initialized));
    if seconds_between(seen, now) > GRACE {
        return unknown("ConnectionDown", &last_probe);
    }
    match &input.node {
        NodeReading::Disconnected if known => Vec::new(),
        NodeReading::Disconnected => unknown("ConnectionDown", &last_probe),
        NodeReading::Failed => unknown("InternalError", SEE_LOG),
        NodeReading::Found(conditions) => vec![ready(conditions), healthy(conditions)],
        NodeReading::NotFound => {
            let deleting = input.machine.deleted.is_some();
            match &input.machine.node {
                Some(name) if deleting => {
                    both(Is::False, "NodeDeleted", format!("Node {name} has been deleted"))
                }
                Some(name) => {
                    let message = format!("Node {name} has been deleted while the Machine still exists");
                    both(Is::False, "NodeDeleted", message)
                }
                None if deleting => unknown("NodeDoesNotExist", "Node does not exist"),
                None if input.provider_id.is_empty() => {
                    let kind = input.infrastructure.kind;
                    unknown("InspectionFailed", &format!("Waiting for {kind} to report spec.providerID"))
                }
                None => {
                    let id = input.provider_id;
                    unknown(
                        "InspectionFailed",
                        &format!("Waiting for a Node with spec.providerID {id} to exist"),
                    )
                }
            }
        }
    }
}

fn ready(conditions: &[NodeCondition]) -> Condition {
    let Some(ready) = conditions.iter().rfind(|condition| condition.kind == "Ready") else {
        let message = "* Node.Ready: Condition not yet reported";
        return Condition::new(kind::NODE_READY, Is::Unknown, "NodeReadyUnknown", message);
    };
    let status = Is::parse(&ready.status).unwrap_or(Is::Unknown);
    let reason = match status {
        Is::True => kind::NODE_READY,
        Is::False => "NodeNotReady",
        Is::Unknown => "NodeReadyUnknown",
    };
    let quiet = status == Is::True || ready.message.is_empty();
    let message = if quiet { String::new() } else { format!("* Node.Ready: {}", ready.message) };
    Condition { since: ready.since, ..Condition::new(kind::NODE_READY, status, reason, message) }
}

/// All conditions the kubelet always reports; where several are bad for one reason it is told once.
fn healthy(conditions: &[NodeCondition]) -> Condition {
    let (mut bad, mut unknown) = (0, 0);
    let mut lines = Vec::new();
    let mut causes: Vec<String> = Vec::new();
    for (name, normal) in
        [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")]
    {
        let Some(condition) = conditions.iter().rfind(|condition| condition.kind == name) else {
            lines.push(format!("* Node.{name}: Condition not yet reported"));
            unknown += 1;
            continue;
        };
        if condition.status == normal {
            continue;
        }
        let cause = if condition.message.is_empty() {
            format!("Condition is {}", condition.status)
        } else {
            condition.message.clone()
        };
        lines.push(format!("* Node.{name}: {cause}"));
        causes.push(cause);
        if condition.status == "Unknown" {
            unknown += 1;
        } else {
            bad += 1;
        }
    }
    if causes.len() > 1 && causes.iter().all(|cause| *cause == causes[0]) {
        lines = vec![format!("* Node.AllConditions: {}", causes[0])];
    }
    let (status, reason) = match (bad, unknown) {
        (0, 0) => (Is::True, kind::NODE_HEALTHY),
        (0, _) => (Is::Unknown, "NodeHealthyUnknown"),
        _ => (Is::False, "NodeNotHealthy"),
    };
    Condition::new(kind::NODE_HEALTHY, status, reason, lines.join("\n"))
}
