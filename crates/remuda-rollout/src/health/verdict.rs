//! The verdict on one machine.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use remuda_names::capi::{annotation, condition as kind};

use super::{Cluster, HealthCheck, Node, Rule, Target};
use crate::{
    condition::{Condition, Status, plus_seconds},
    text,
};

#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Healthy,
    Unhealthy {
        causes: Vec<Cause>,
    },
    /// It will be unhealthy if nothing changes.
    Pending {
        after: Duration,
    },
    NotEvaluated(NotEvaluated),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotEvaluated {
    ControlPlaneNotInitialized,
    InfrastructureNotReady,
    /// Nothing speaks against it, but it has no Node that could speak for it.
    NoNode,
    Deleting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    Annotation,
    MachineCondition { kind: String, status: String, reason: String, timeout: i64 },
    NodeCondition { kind: String, status: String, reason: String, timeout: i64 },
    NodeDeleted { node: String },
    Startup { timeout: i64 },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Annotation => {
                write!(f, "marked for remediation via {} annotation", annotation::REMEDIATE_MACHINE)
            }
            Cause::MachineCondition { kind, status, reason, timeout } => write!(
                f,
                "Condition {kind} on Machine is reporting status {status} with reason {reason} for more than {}",
                text::duration(*timeout)
            ),
            Cause::NodeCondition { kind, status, reason, timeout } => write!(
                f,
                "Condition {kind} on Node is reporting status {status} with reason {reason} for more than {}",
                text::duration(*timeout)
            ),
            Cause::NodeDeleted { node } => write!(f, "Node {node} has been deleted"),
            Cause::Startup { timeout } => {
                write!(f, "Node failed to report startup in {}", text::duration(*timeout))
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Healthy => f.write_str("healthy"),
            Verdict::Pending { after } => write!(f, "pending: look again in {}s", after.as_secs()),
            Verdict::Unhealthy { causes } => {
                let told: Vec<_> = causes.iter().map(ToString::to_string).collect();
                write!(f, "unhealthy: {}", told.join("; "))
            }
            Verdict::NotEvaluated(why) => f.write_str(match why {
                NotEvaluated::ControlPlaneNotInitialized => {
                    "not evaluated: the control plane is not initialized"
                }
                NotEvaluated::InfrastructureNotReady => {
                    "not evaluated: the cluster infrastructure is not ready"
                }
                NotEvaluated::NoNode => "not evaluated: no node yet",
                NotEvaluated::Deleting => "not evaluated: in deletion",
            }),
        }
    }
}

impl Verdict {
    /// The HealthCheckSucceeded condition, if the verdict says anything about it.
    pub fn condition(&self) -> Option<Condition> {
        let condition = |status, reason, message: String| {
            Some(Condition::new(kind::HEALTH_CHECK_SUCCEEDED, status, reason, message))
        };
        let causes = match self {
            Verdict::Healthy => return condition(Status::True, kind::HEALTH_CHECK_SUCCEEDED, String::new()),
            Verdict::Unhealthy { causes } => causes,
            Verdict::Pending { .. } | Verdict::NotEvaluated(_) => return None,
        };
        if causes.contains(&Cause::Annotation) {
            let message = format!("Health check failed: {}", Cause::Annotation);
            return condition(Status::False, "HasRemediateAnnotation", message);
        }
        // Machine conditions come first in the list and outrank the node's.
        let reason = match causes.first() {
            Some(Cause::MachineCondition { .. }) => "UnhealthyMachine",
            Some(Cause::NodeDeleted { .. }) => "NodeDeleted",
            Some(Cause::Startup { .. }) => "NodeStartupTimeout",
            _ => "UnhealthyNode",
        };
        let lines: Vec<_> = causes.iter().map(|cause| format!("\n  * {cause}")).collect();
        condition(Status::False, reason, format!("Health check failed:{}", lines.concat()))
    }
}

/// Judges one machine.
pub fn judge(check: &HealthCheck, cluster: Cluster, target: &Target<'_>, now: Timestamp) -> Verdict {
    let machine = target.machine;
    if machine.marks.remediate {
        return Verdict::Unhealthy { causes: vec![Cause::Annotation] };
    }
    if cluster.control_plane_initialized.is_none() && !machine.control_plane {
        return Verdict::NotEvaluated(NotEvaluated::ControlPlaneNotInitialized);
    }
    if cluster.infrastructure_ready.is_none() {
        return Verdict::NotEvaluated(NotEvaluated::InfrastructureNotReady);
    }
    let mut findings = Findings { causes: Vec::new(), after: None, woken: cluster.woken, now };
    for rule in &check.machine_rules {
        let condition = machine.conditions.get(&rule.kind);
        if let Some(condition) = condition.filter(|condition| condition.status.as_str() == rule.status) {
            let reason = condition.reason.clone();
            let Rule { kind, status, timeout } = rule.clone();
            let cause = Cause::MachineCondition { kind, status, reason, timeout };
            findings.limit(condition.since, timeout, cause);
        }
    }
    match &target.node {
        Node::Missing => {
            findings.causes.push(Cause::NodeDeleted { node: machine.node.clone().unwrap_or_default() });
        }
        Node::None if check.startup_timeout > 0 => {
            let since =
                [cluster.control_plane_initialized, cluster.infrastructure_ready, infra_ready(target)];
            let since = since.into_iter().flatten().fold(machine.created, Timestamp::max);
            let timeout = check.startup_timeout;
            findings.limit(Some(since), timeout, Cause::Startup { timeout });
        }
        Node::None => {}
        Node::Found(conditions) => {
            for rule in &check.node_rules {
                let found = conditions.iter().find(|condition| condition.kind == rule.kind);
                if let Some(condition) = found.filter(|condition| condition.status == rule.status) {
                    let reason = condition.reason.clone();
                    let Rule { kind, status, timeout } = rule.clone();
                    let cause = Cause::NodeCondition { kind, status, reason, timeout };
                    findings.limit(condition.since, timeout, cause);
                }
            }
        }
    }
    match (findings.causes, findings.after) {
        (causes, _) if !causes.is_empty() => Verdict::Unhealthy { causes },
        (_, Some(after)) => Verdict::Pending { after },
        _ if machine.deleted.is_some() => Verdict::NotEvaluated(NotEvaluated::Deleting),
        _ if matches!(target.node, Node::Found(_)) => Verdict::Healthy,
        _ => Verdict::NotEvaluated(NotEvaluated::NoNode),
    }
}

/// Since when the machine's own infrastructure is ready.
fn infra_ready(target: &Target<'_>) -> Option<Timestamp> {
    let condition = target.machine.conditions.get(kind::INFRASTRUCTURE_READY)?;
    condition.since.filter(|_| condition.status == Status::True)
}

struct Findings {
    causes: Vec<Cause>,
    after: Option<Duration>,
    woken: Option<Timestamp>,
    now: Timestamp,
}

impl Findings {
    /// Something that holds since `since` must not for longer than `timeout` seconds.
    fn limit(&mut self, since: Option<Timestamp>, timeout: i64, cause: Cause) {
        let since = since.max(self.woken).unwrap_or(Timestamp::MIN);
        let due = plus_seconds(since, timeout);
        if due < self.now {
            self.causes.push(cause);
            return;
        }
        // A second more, so that the limit has passed when we look again.
        let after = plus_seconds(due, 1).duration_since(self.now);
        let after = Duration::try_from(after).unwrap_or(Duration::from_secs(1));
        self.after = Some(self.after.map_or(after, |known| known.min(after)));
    }
}
