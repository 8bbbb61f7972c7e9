//! MachineHealthCheck: which machines are unhealthy, and whether anything may be done about it.

mod verdict;

use std::{fmt, time::Duration};

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

pub use verdict::{Cause, NotEvaluated, Verdict, judge};

use crate::{
    amount::Amount,
    condition::{Condition, Status},
    view::Machine,
};

/// What a MachineHealthCheck asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthCheck {
    /// Seconds a machine may take to get a Node; 0 is for ever.
    pub startup_timeout: i64,
    pub machine_rules: Vec<Rule>,
    pub node_rules: Vec<Rule>,
    pub trigger: Trigger,
    /// Remediation is done by objects cloned from a template.
    pub external: bool,
}

/// A status that must not last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub kind: String,
    pub status: String,
    pub timeout: i64,
}

/// When too many machines are unhealthy for it to be their own fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// Act while at most so many are; a share is of all targets and rounds down.
    AtMost(Amount),
    /// Act while the number is within these limits.
    Within { min: u32, max: u32, text: String },
}

impl Default for Trigger {
    fn default() -> Self {
        Trigger::AtMost(Amount::Percent(100))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    #[error("invalid range {0:?}: must look like [1-3]")]
    Shape(String),
    #[error("max value {max} cannot be less than min value {min} for unhealthyRange")]
    Reversed { min: u32, max: u32 },
}

impl Trigger {
    /// Reads `[1-3]`.
    pub fn range(text: &str) -> Result<Self, BadRange> {
        let shape = || BadRange::Shape(text.to_owned());
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(shape)?;
        let (min, max) = inner.split_once('-').ok_or_else(shape)?;
        let number = |digits: &str| digits.parse::<u32>().map_err(|_| shape());
        let (min, max) = (number(min)?, number(max)?);
        if max < min {
            return Err(BadRange::Reversed { min, max });
        }
        Ok(Trigger::Within { min, max, text: text.to_owned() })
    }
}

/// What the check must know of the Cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Since when ControlPlaneInitialized is True.
    pub control_plane_initialized: Option<Timestamp>,
    /// Since when InfrastructureReady is True.
    pub infrastructure_ready: Option<Timestamp>,
    /// When its machines were started again, if they were stopped: nothing counts that is older.
    pub woken: Option<Timestamp>,
    pub paused: bool,
    /// We see the workload cluster, or it is too early to.
    pub connected: bool,
}

/// A machine the selector picks.
#[derive(Debug, Clone)]
pub struct Target<'a> {
    pub machine: &'a Machine,
    pub node: Node,
    /// A remediation request with its name exists.
    pub requested: bool,
}

/// The Node behind a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Node {
    /// The machine names none, or nobody could be asked.
    #[default]
    None,
    /// The machine names one that does not exist.
    Missing,
    Found(Vec<NodeCondition>),
}

/// A condition of a Node; its status is free text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

/// What a health check found out and what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Nothing was looked at: whoever cannot be seen is never remediated.
    pub blind: Option<Blind>,
    /// Names of all targets, sorted.
    pub targets: Vec<String>,
    pub healthy: usize,
    pub remediations_allowed: usize,
    pub verdicts: Vec<(String, Verdict)>,
    pub actions: Vec<(String, Action)>,
    pub short_circuit: Option<ShortCircuit>,
    /// When a machine may turn unhealthy without any event.
    pub next: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection to the workload cluster is down: no machine is evaluated")]
pub struct Blind;

/// What is done about one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// OwnerRemediated becomes False: its owner replaces it.
    AskOwner,
    /// It was asked before.
    Asked,
    /// A remediation request is created.
    Request,
    /// One exists.
    Requested,
    /// The machine is healthy: the request goes.
    Withdraw,
    /// It is in deletion already.
    Deleting,
    Paused,
}

/// Too many, or not enough, machines are unhealthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortCircuit {
    pub total: usize,
    pub unhealthy: usize,
    pub trigger: Trigger,
}

impl fmt::Display for ShortCircuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShortCircuit { total, unhealthy, trigger } = self;
        let start = "Remediation is not allowed, the number of not started or unhealthy machines";
        match trigger {
            Trigger::AtMost(limit) => {
                write!(
                    f,
                    "{start} exceeds maxUnhealthy (total: {total}, unhealthy: {unhealthy}, maxUnhealthy: {limit})"
                )
            }
            Trigger::Within { text, .. } => write!(
                f,
                "{start} does not fall within the range (total: {total}, unhealthy: {unhealthy}, unhealthyRange: {text})"
            ),
        }
    }
}

impl Report {
    /// The RemediationAllowed condition.
    pub fn condition(&self) -> Condition {
        match &self.short_circuit {
            None => Condition::new(kind::REMEDIATION_ALLOWED, Status::True, kind::REMEDIATION_ALLOWED, ""),
            Some(why) => {
                Condition::new(kind::REMEDIATION_ALLOWED, Status::False, "TooManyUnhealthy", why.to_string())
            }
        }
    }
}

/// The machines a check looks at: paused and exempted ones are not among them.
pub fn is_target(machine: &Machine) -> bool {
    !machine.marks.paused && !machine.marks.skip_remediation
}

/// Judges every target and decides what to do.
///
/// Machines without a Node and machines that may yet turn unhealthy are not healthy: they count against the
/// trigger. A short circuit still tells when to look again, since time alone can end it.
pub fn check(check: &HealthCheck, cluster: Cluster, targets: &[Target<'_>], now: Timestamp) -> Report {
    let targets: Vec<&Target<'_>> = targets.iter().filter(|target| is_target(target.machine)).collect();
    let mut names: Vec<String> = targets.iter().map(|target| target.machine.name.clone()).collect();
    names.sort();
    let mut report = Report {
        blind: None,
        targets: names,
        healthy: 0,
        remediations_allowed: 0,
        verdicts: Vec::new(),
        actions: Vec::new(),
        short_circuit: None,
        next: None,
    };
    if !cluster.connected {
        report.blind = Some(Blind);
        return report;
    }
    for target in &targets {
        let verdict = judge(check, cluster, target, now);
        match &verdict {
            Verdict::Healthy => report.healthy += 1,
            Verdict::Pending { after } => {
                report.next = Some(report.next.map_or(*after, |known: Duration| known.min(*after)));
            }
            Verdict::Unhealthy { .. } | Verdict::NotEvaluated(_) => {}
        }
        report.verdicts.push((target.machine.name.clone(), verdict));
    }
    let total = targets.len();
    let not_healthy = total - report.healthy;
    let (allowed, left) = allowance(&check.trigger, total, not_healthy);
    if allowed {
        report.remediations_allowed = left;
        let judged = report.verdicts.iter().map(|(_, verdict)| verdict);
        report.actions = targets
            .iter()
            .zip(judged)
            .filter_map(|(target, verdict)| {
                Some((target.machine.name.clone(), action(check, cluster, target, verdict)?))
            })
            .collect();
    } else {
        let unhealthy = report
            .verdicts
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Unhealthy { .. }))
            .count();
        report.short_circuit = Some(ShortCircuit { total, unhealthy, trigger: check.trigger.clone() });
    }
    report
}

fn allowance(trigger: &Trigger, total: usize, not_healthy: usize) -> (bool, usize) {
    let (min, max) = match trigger {
        Trigger::AtMost(amount) => {
            let total = i32::try_from(total).unwrap_or(i32::MAX);
            match usize::try_from(amount.of_down(total)) {
                Ok(max) => (0, max),
                Err(_) => return (false, 0),
            }
        }
        Trigger::Within { min, max, .. } => (*min as usize, *max as usize),
    };
    (not_healthy >= min && not_healthy <= max, max.saturating_sub(not_healthy))
}

fn action(check: &HealthCheck, cluster: Cluster, target: &Target<'_>, verdict: &Verdict) -> Option<Action> {
    let machine = target.machine;
    match verdict {
        Verdict::Healthy => (check.external && target.requested).then_some(Action::Withdraw),
        Verdict::Unhealthy { .. } => Some(match machine.conditions.get(kind::OWNER_REMEDIATED) {
            _ if cluster.paused => Action::Paused,
            _ if check.external && target.requested => Action::Requested,
            _ if check.external => Action::Request,
            _ if machine.deleted.is_some() => Action::Deleting,
            Some(condition) if condition.status != Status::True => Action::Asked,
            _ => Action::AskOwner,
        }),
        Verdict::Pending { .. } | Verdict::NotEvaluated(_) => None,
    }
}

#[cfg(test)]
mod tests;
