//! One tier of machines: who gets a plan now, who waits, and for what.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    desired::{Desired, Renderer, Unrenderable},
    drain::{self, Drain},
    entry::{Entry, NodeState},
    input::{ControlPlane, Reconciled},
    join::Servers,
    keys::annotation,
    output::{Action, Delivery, Failure, PlanWrite, Report, TierName, Verdict, Waiting, Write},
    quorum::Members,
    release::parse_version,
    spec::DrainOptions,
};

/// What makes a tier.
pub(crate) struct Tier<'a> {
    pub(crate) name: TierName,
    /// Machines the tier is about.
    pub(crate) include: fn(&Entry<'_>) -> bool,
    /// Machines among them that it leaves alone.
    pub(crate) exclude: fn(&Entry<'_>) -> bool,
    /// A number, a percentage, or empty for one.
    pub(crate) concurrency: &'a str,
    pub(crate) join: Join<'a>,
    pub(crate) drain: &'a DrainOptions,
    pub(crate) failure_threshold: i64,
    /// The cluster cannot be without it.
    pub(crate) required: bool,
    /// Only machines whose etcd member is down.
    pub(crate) cure: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Join<'a> {
    /// All join the same server; empty for the init node.
    Server(&'a str),
    /// Each finds its own.
    Any,
}

/// What tiers share in a pass.
pub(crate) struct Shared<'p, 'a> {
    pub(crate) control_plane: &'a ControlPlane,
    pub(crate) entries: &'p [Entry<'a>],
    pub(crate) renderer: &'p Renderer<'a>,
    pub(crate) servers: &'p Servers<'a>,
    pub(crate) members: &'p mut Members,
    pub(crate) writes: &'p mut Vec<Write>,
    pub(crate) reports: &'p mut BTreeMap<String, Report>,
    /// Machines whose condition this pass has settled.
    pub(crate) conditioned: &'p mut BTreeSet<String>,
    pub(crate) pre_bootstrap: bool,
}

/// Why a tier is not clean.
#[derive(Debug, PartialEq)]
pub(crate) enum Unclean {
    /// Later tiers go on.
    Ignorable(Waiting),
    Waiting(Waiting),
    Failed(Failure),
}

impl From<Unrenderable> for Unclean {
    fn from(error: Unrenderable) -> Unclean {
        if error.is_ignorable() {
            Unclean::Ignorable(Waiting::Driver(error))
        } else {
            Unclean::Failed(Failure::Unrenderable(error))
        }
    }
}

struct Candidate<'p, 'a> {
    entry: &'p Entry<'a>,
    /// `None` if the machine has exactly this plan. Plans are not kept for nothing: a thousand of them cost
    /// more than making them.
    desired: Option<Desired>,
    change: bool,
    minor: bool,
}

impl Candidate<'_, '_> {
    /// Counts against the concurrency of the tier.
    fn unavailable(&self) -> bool {
        self.entry.node.as_ref().is_some_and(|node| {
            !node.in_sync || self.entry.in_drain() || (!self.change && !self.minor && !node.healthy())
        })
    }

    /// Whether applying the plan restarts the distribution on a node that runs it.
    fn restarts(&self) -> bool {
        let applied = self.entry.node.as_ref().and_then(|node| node.applied());
        let desired = self.desired.as_ref().map(|desired| &desired.plan);
        applied.zip(desired).is_some_and(|(applied, desired)| applied.instructions != desired.instructions)
    }
}

#[derive(Default)]
struct Groups {
    uncordoning: Vec<String>,
    draining: Vec<String>,
    configuring: Vec<String>,
    ready: Vec<String>,
    failing: Vec<String>,
    not_ready: Vec<String>,
    messages: BTreeMap<String, Vec<String>>,
}

/// Judges all machines of the tier, in order of their names.
///
/// All plans are made before any is delivered, so a machine whose plan cannot be made holds up its tier.
pub(crate) fn reconcile<'a>(shared: &mut Shared<'_, 'a>, tier: &Tier<'_>) -> Result<(), Unclean> {
    let included = || shared.entries.iter().filter(|entry| (tier.include)(entry));
    let mut candidates = Vec::new();
    for entry in included().filter(|entry| !(tier.exclude)(entry)) {
        if !tier.cure || shared.members.is_down(entry.name()) {
            candidates.push(candidate(shared, tier, entry)?);
        }
    }
    if tier.required && included().next().is_none() {
        return Err(Unclean::Waiting(Waiting::AtLeastOne { tier: tier.name }));
    }
    let limit = limit(tier.concurrency, candidates.len()).map_err(Unclean::Failed)?;
    let mut unavailable = candidates.iter().filter(|candidate| candidate.unavailable()).count();
    let mut groups = Groups::default();
    for candidate in &candidates {
        let verdict = judge(shared, tier, candidate, limit, &mut unavailable, &mut groups);
        let name = candidate.entry.name().to_owned();
        let messages = groups.messages.get(&name).cloned().unwrap_or_default();
        shared.reports.insert(name, Report { verdict, messages });
    }
    conclude(shared, tier.name, groups)
}

fn candidate<'p, 'a>(
    shared: &Shared<'p, 'a>,
    tier: &Tier<'_>,
    entry: &'p Entry<'a>,
) -> Result<Candidate<'p, 'a>, Unrenderable> {
    let server = match tier.join {
        Join::Server(server) => server,
        Join::Any => shared.servers.of(entry, shared.control_plane)?,
    };
    let desired = shared.renderer.desired(entry, server)?;
    let Some(node) = entry.node.as_ref() else {
        return Ok(Candidate { entry, desired: Some(desired), change: false, minor: false });
    };
    if node.plan_bytes == desired.bytes {
        return Ok(Candidate { entry, desired: None, change: false, minor: false });
    }
    if desired.plan.restart_stamp().is_some_and(|stamp| !node.contains(stamp)) {
        return Ok(Candidate { entry, desired: Some(desired), change: true, minor: false });
    }
    // Other bytes can still say the same.
    let change = node.plan() != Some(&desired.plan);
    let minor = change && node.plan().is_some_and(|plan| plan.minor_change(&desired.plan));
    Ok(Candidate { entry, desired: Some(desired), change, minor })
}

fn judge(
    shared: &mut Shared<'_, '_>,
    tier: &Tier<'_>,
    candidate: &Candidate<'_, '_>,
    limit: usize,
    unavailable: &mut usize,
    groups: &mut Groups,
) -> Verdict {
    let entry = candidate.entry;
    let name = entry.name().to_owned();
    let summary = &entry.machine.summary;
    if summary.error {
        groups.failing.push(name.clone());
    }
    if summary.transitioning {
        groups.not_ready.push(name.clone());
    }
    let status = plan_status(candidate);
    let mut messages = summary.messages.clone();
    messages.extend(status.clone());
    let verdict = 'verdict: {
        let desired = candidate.desired.as_ref();
        let Some(node) = entry.node.as_ref() else {
            groups.configuring.push(name.clone());
            break 'verdict deliver(shared, tier, entry, desired, Delivery::Initial);
        };
        if candidate.minor {
            groups.configuring.push(name.clone());
            break 'verdict deliver(shared, tier, entry, desired, Delivery::Minor);
        }
        if let Some(wanted) = desired.filter(|_| candidate.change) {
            groups.configuring.push(name.clone());
            let restarts = candidate.restarts();
            // A plan that has not been applied has already cost its machine; a better one costs nothing more.
            let counted = candidate.unavailable();
            let turn = counted || node.failed || limit == 0 || *unavailable < limit || node.never_healthy();
            if !turn {
                break 'verdict Verdict::Hold { unavailable: *unavailable, limit };
            }
            if restarts && let Err(refusal) = shared.members.may_restart(entry.name()) {
                messages.push(format!("waiting for etcd: {refusal}"));
                break 'verdict Verdict::Quorum(refusal);
            }
            if !counted {
                *unavailable += 1;
            }
            let alone = shared.entries.len() == 1;
            match drain::drain(entry, &wanted.plan, tier.drain, alone) {
                Drain::Done => {
                    if !entry.annotation(annotation::DRAIN_DONE).is_empty() {
                        messages.push("drain completed".to_owned());
                    } else if status.is_none() {
                        messages.push(WAITING_FOR_PLAN.to_owned());
                    }
                    break 'verdict deliver(shared, tier, entry, desired, Delivery::Changed { restarts });
                }
                Drain::Error(error) => messages.push(error),
                Drain::Pending => messages.push("draining node".to_owned()),
                Drain::Write(key, value) => {
                    messages.push("draining node".to_owned());
                    annotate(shared, entry, key, value);
                }
            }
            if restarts {
                // Its turn has come: nobody else may rely on it from here on.
                shared.members.take_down(entry.name());
            }
            groups.draining.push(name.clone());
            break 'verdict Verdict::Draining;
        }
        if status.is_some() {
            groups.configuring.push(name.clone());
            break 'verdict Verdict::Pending;
        }
        let undrained = match drain::undrain(entry) {
            Drain::Done => true,
            Drain::Error(error) => {
                messages.push(error);
                false
            }
            pending => {
                messages.push("waiting for uncordon to finish".to_owned());
                if let Drain::Write(key, value) = pending {
                    annotate(shared, entry, key, value);
                }
                false
            }
        };
        if !undrained {
            groups.uncordoning.push(name.clone());
            break 'verdict Verdict::Uncordoning;
        }
        let connected = shared.control_plane.status.agent_connected;
        let pending = if connected && !kubelet_is_current(shared.control_plane, entry) {
            "waiting for kubelet to update"
        } else if entry.roles.control_plane && shared.pre_bootstrap {
            "waiting for cluster pre-bootstrap to complete"
        } else if entry.roles.control_plane && !connected {
            "waiting for cluster agent to connect"
        } else {
            groups.ready.push(name.clone());
            break 'verdict Verdict::Ready;
        };
        messages.push(pending.to_owned());
        groups.configuring.push(name.clone());
        Verdict::Pending
    };
    groups.messages.insert(name, messages);
    verdict
}

const WAITING_FOR_PLAN: &str = "waiting for plan to be applied";

/// What a machine's plan is waiting for; `None` if for nothing.
fn plan_status(candidate: &Candidate<'_, '_>) -> Option<String> {
    let entry = candidate.entry;
    // A plan equal to the desired one has instructions and no error.
    let plain = |node: &&NodeState<'_>| candidate.desired.is_none() || node.is_plain();
    let error =
        |node: &NodeState<'_>| node.plan().map(|plan| plan.error.clone()).filter(|error| !error.is_empty());
    let has_instructions =
        |node: &&NodeState<'_>| plain(node) || node.plan().is_some_and(|plan| !plan.instructions.is_empty());
    let Some(node) = entry.node.as_ref().filter(has_instructions) else {
        let text = if entry.roles.etcd {
            "waiting for bootstrap etcd to be available"
        } else if entry.roles.control_plane {
            "waiting for etcd to be available"
        } else {
            "waiting for control plane to be available"
        };
        return Some(text.to_owned());
    };
    let error = if plain(&node) { None } else { error(node) };
    if !node.has_applied() {
        Some("waiting for agent to check in and apply initial plan".to_owned())
    } else if error.is_some() {
        error
    } else if !node.healthy() {
        Some(format!("waiting for probes: {}", node.unhealthy.join(", ")))
    } else if node.in_sync {
        None
    } else if node.failed {
        Some("failure while applying plan".to_owned())
    } else {
        Some(WAITING_FOR_PLAN.to_owned())
    }
}

fn deliver(
    shared: &mut Shared<'_, '_>,
    tier: &Tier<'_>,
    entry: &Entry<'_>,
    desired: Option<&Desired>,
    delivery: Delivery,
) -> Verdict {
    // A machine with two roles is in two tiers; the plan is the same in both.
    let delivered = shared.reports.get(entry.name()).map(|report| report.verdict);
    if let Some(desired) = desired.filter(|_| !matches!(delivered, Some(Verdict::Deliver(_)))) {
        let joined_to = if entry.init { Some(String::new()) } else { desired.joined_to.clone() };
        shared.writes.push(Write::Plan(PlanWrite {
            machine: entry.name().to_owned(),
            secret: entry.secret.map_or_else(String::new, |secret| secret.name.clone()),
            delivery,
            plan: desired.bytes.clone(),
            joined_to,
            max_failures: Some(-1),
            failure_threshold: Some(tier.failure_threshold),
        }));
    }
    if delivery == (Delivery::Changed { restarts: true }) {
        shared.members.take_down(entry.name());
    }
    Verdict::Deliver(delivery)
}

fn annotate(shared: &mut Shared<'_, '_>, entry: &Entry<'_>, key: &'static str, value: String) {
    let secret = entry.secret.map_or_else(String::new, |secret| secret.name.clone());
    shared.writes.push(Write::Annotate { machine: entry.name().to_owned(), secret, key, value });
}

/// Build metadata and pre-releases do not show in what a kubelet reports.
fn kubelet_is_current(control_plane: &ControlPlane, entry: &Entry<'_>) -> bool {
    let Some(reported) = &entry.machine.kubelet_version else { return true };
    let core = |text: &str| parse_version(text).map(|version| (version.major, version.minor, version.patch));
    core(reported).is_some_and(|reported| Some(reported) == core(&control_plane.spec.kubernetes_version))
}

/// How many machines may be unavailable at a time; 0 is any number.
pub(crate) fn limit(concurrency: &str, machines: usize) -> Result<usize, Failure> {
    if concurrency.is_empty() {
        return Ok(1);
    }
    if let Ok(number) = concurrency.parse::<usize>() {
        return Ok(number);
    }
    let garbage = || Failure::Concurrency { value: concurrency.to_owned() };
    let percent = concurrency.strip_suffix('%').unwrap_or(concurrency);
    let percent: f64 = percent.parse().map_err(|_| garbage())?;
    if !percent.is_finite() || percent < 0.0 {
        return Err(garbage());
    }
    let limit = (machines as f64 * percent / 100.0).ceil();
    Ok(limit.min(machines as f64 * 1000.0) as usize)
}

/// Conditions of the machines, and what the tier as a whole is waiting for.
fn conclude(shared: &mut Shared<'_, '_>, tier: TierName, groups: Groups) -> Result<(), Unclean> {
    // Entries are sorted by name.
    let entries = shared.entries;
    let find = |name: &str| {
        let at = entries.binary_search_by(|entry| entry.name().cmp(name)).ok();
        at.and_then(|at| entries.get(at))
    };
    let mut first = None;
    let no_messages = BTreeMap::new();
    let all = [
        (Action::Uncordoning, &groups.uncordoning, &groups.messages),
        (Action::Draining, &groups.draining, &groups.messages),
        (Action::Configuring, &groups.configuring, &groups.messages),
        (Action::Done, &groups.ready, &no_messages),
    ];
    for (action, names, messages) in all {
        let mut waiting = false;
        for name in names {
            let Some(entry) = find(name) else { continue };
            if !entry.machine.infrastructure_ready {
                waiting = true;
                continue;
            }
            let message = messages.get(name).filter(|messages| !messages.is_empty());
            waiting |= set_reconciled(shared, entry, message.map(|messages| messages.join(", ")));
        }
        if waiting && first.is_none() {
            let details = details(names, messages);
            first = Some(Waiting::Tier { action, tier, machines: names.clone(), details });
        }
    }
    if let Some(waiting) = first {
        return Err(Unclean::Waiting(waiting));
    }
    for (failing, names) in [(true, groups.failing), (false, groups.not_ready)] {
        if !names.is_empty() {
            let details = details(&names, &groups.messages);
            return Err(Unclean::Ignorable(Waiting::Machines { failing, tier, machines: names, details }));
        }
    }
    Ok(())
}

fn details(names: &[String], messages: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    match names {
        [one] => messages.get(one).cloned().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Writes condition `Reconciled` if it changes; answers whether the machine is waited for.
fn set_reconciled(shared: &mut Shared<'_, '_>, entry: &Entry<'_>, message: Option<String>) -> bool {
    let current = match (&entry.machine.reconciled, &message) {
        (Some(Reconciled { is_true: true, .. }), None) => return false,
        (Some(Reconciled { is_true, message: stored }), Some(message)) => !is_true && stored == message,
        _ => false,
    };
    if !current && shared.conditioned.insert(entry.name().to_owned()) {
        shared.writes.push(Write::Reconciled { machine: entry.name().to_owned(), message });
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrency_is_a_number_or_a_share_rounded_up() {
        for (text, machines, expected) in [
            ("", 10, Some(1)),
            ("0", 10, Some(0)),
            ("3", 10, Some(3)),
            ("10%", 10, Some(1)),
            ("10%", 11, Some(2)),
            ("25%", 1, Some(1)),
            ("100%", 7, Some(7)),
            ("0%", 7, Some(0)),
            ("1.5", 200, Some(3)),
            ("x", 1, None),
            ("-1", 1, None),
            ("-5%", 1, None),
            ("inf%", 1, None),
            ("NaN%", 1, None),
        ] {
            assert_eq!(limit(text, machines).ok(), expected, "{text} of {machines}");
        }
    }
}
