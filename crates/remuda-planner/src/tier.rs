//! One tier of machines: who gets a plan now, who waits, and for what.

use std::collections::{BTreeMap, BTreeSet};

use remuda_distro::version;
use remuda_names::rancher::annotation;

use crate::{
    desired::{Desired, Renderer, Unrenderable},
    drain::{self, Drain},
    entry::{Entry, NodeState},
    input::{ControlPlane, Reconciled},
    join::Servers,
    output::{Action, Delivery, Failure, PlanWrite, Report, TierName, Verdict, Waiting, Write},
    quorum::Members,
    reason::{self, Reason},
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
    /// The stored plan has another restart stamp.
    other_stamp: bool,
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
        let Some((node, desired)) = self.entry.node.as_ref().zip(self.desired.as_ref()) else { return false };
        if !node.has_applied() {
            return false;
        }
        // What cannot be read may be anything.
        (self.other_stamp && node.is_applied)
            || node.applied().is_none_or(|applied| applied.instructions != desired.plan.instructions)
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
    reasons: BTreeMap<String, Vec<Reason>>,
}

impl Groups {
    fn add(&mut self, entry: &Entry<'_>, verdict: Verdict, reasons: Vec<Reason>) {
        let name = entry.name().to_owned();
        if entry.machine.summary.error {
            self.failing.push(name.clone());
        }
        if entry.machine.summary.transitioning {
            self.not_ready.push(name.clone());
        }
        if verdict == Verdict::Draining {
            self.draining.push(name.clone());
        }
        let group = match verdict {
            Verdict::Uncordoning => &mut self.uncordoning,
            Verdict::Ready => &mut self.ready,
            _ => &mut self.configuring,
        };
        group.push(name.clone());
        self.reasons.insert(name, reasons);
    }
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
    let unavailable = candidates.iter().filter(|candidate| candidate.unavailable()).count();
    let mut budget = Budget { limit, unavailable };
    let mut groups = Groups::default();
    for candidate in &candidates {
        let (verdict, reasons) = judge(shared, tier, candidate, &mut budget);
        groups.add(candidate.entry, verdict, reasons.clone());
        shared.reports.insert(candidate.entry.name().to_owned(), Report { verdict, reasons });
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
    entry.note_wanted(&desired.bytes);
    let mut candidate = Candidate { entry, desired: None, change: false, minor: false, other_stamp: false };
    if let Some(node) = &entry.node {
        if node.plan_bytes == desired.bytes {
            return Ok(candidate);
        }
        candidate.other_stamp = desired.plan.restart_stamp().is_some_and(|stamp| !node.contains(stamp));
        // Other bytes with the same stamp can still say the same.
        candidate.change = candidate.other_stamp || node.plan() != Some(&desired.plan);
        candidate.minor = !candidate.other_stamp
            && candidate.change
            && node.plan().is_some_and(|plan| plan.minor_change(&desired.plan));
    }
    candidate.desired = Some(desired);
    Ok(candidate)
}

/// The verdict about a machine, and what is to be told about it.
fn judge(
    shared: &mut Shared<'_, '_>,
    tier: &Tier<'_>,
    candidate: &Candidate<'_, '_>,
    budget: &mut Budget,
) -> (Verdict, Vec<Reason>) {
    let entry = candidate.entry;
    let status = plan_status(candidate);
    let mut reasons: Vec<_> = entry.machine.summary.messages.iter().cloned().map(Reason::Condition).collect();
    reasons.extend(status.clone());
    let verdict = match (&candidate.desired, &entry.node) {
        (Some(desired), None) => deliver(shared, tier, entry, desired, Delivery::Initial),
        (Some(desired), Some(_)) if candidate.minor => deliver(shared, tier, entry, desired, Delivery::Minor),
        (Some(desired), Some(node)) if candidate.change => {
            let turn = node.failed || node.never_healthy() || budget.allows(candidate);
            if turn {
                change(shared, tier, candidate, desired, budget, &mut reasons)
            } else {
                Verdict::Hold { unavailable: budget.unavailable, limit: budget.limit }
            }
        }
        _ if status.is_some() => Verdict::Pending,
        _ => applied(shared, entry, &mut reasons),
    };
    (verdict, reasons)
}

/// How many machines of the tier may be unavailable at a time, and how many are. A limit of 0 is none.
struct Budget {
    limit: usize,
    unavailable: usize,
}

impl Budget {
    /// A plan that has not been applied has already cost its machine; a better one costs nothing more.
    fn allows(&self, candidate: &Candidate<'_, '_>) -> bool {
        candidate.unavailable() || self.limit == 0 || self.unavailable < self.limit
    }

    fn spend(&mut self, candidate: &Candidate<'_, '_>) {
        self.unavailable += usize::from(!candidate.unavailable());
    }
}

/// The machine's turn to change has come: it is drained and given its plan, unless etcd needs it.
fn change(
    shared: &mut Shared<'_, '_>,
    tier: &Tier<'_>,
    candidate: &Candidate<'_, '_>,
    desired: &Desired,
    budget: &mut Budget,
    reasons: &mut Vec<Reason>,
) -> Verdict {
    let entry = candidate.entry;
    let restarts = candidate.restarts();
    if restarts && let Err(refusal) = shared.members.may_restart(entry.name()) {
        reasons.push(Reason::Quorum(refusal));
        return Verdict::Quorum(refusal);
    }
    budget.spend(candidate);
    if restarts {
        // Nobody else may rely on it from here on.
        shared.members.take_down(entry.name());
    }
    let alone = shared.entries.len() == 1;
    match drain::drain(entry, &desired.plan, tier.drain, alone) {
        Drain::Done => {
            if !entry.annotation(annotation::DRAIN_DONE).is_empty() {
                reasons.push(Reason::Drained);
            } else if plan_status(candidate).is_none() {
                reasons.push(Reason::Plan);
            }
            return deliver(shared, tier, entry, desired, Delivery::Changed { restarts });
        }
        Drain::Error(error) => reasons.push(error),
        Drain::Pending => reasons.push(Reason::Draining),
        Drain::Write(key, value) => {
            reasons.push(Reason::Draining);
            annotate(shared, entry, key, value);
        }
    }
    Verdict::Draining
}

/// The machine has its plan and is healthy. What is left?
fn applied(shared: &mut Shared<'_, '_>, entry: &Entry<'_>, reasons: &mut Vec<Reason>) -> Verdict {
    match drain::undrain(entry) {
        Drain::Done => {}
        Drain::Error(error) => {
            reasons.push(error);
            return Verdict::Uncordoning;
        }
        pending => {
            reasons.push(Reason::Uncordon);
            if let Drain::Write(key, value) = pending {
                annotate(shared, entry, key, value);
            }
            return Verdict::Uncordoning;
        }
    }
    let connected = shared.control_plane.status.agent_connected;
    let other_version = other_kubelet(shared.control_plane, entry).filter(|_| connected);
    let pending = if let Some(reported) = other_version {
        Reason::Kubelet { reported: reported.to_owned() }
    } else if entry.roles.control_plane && shared.pre_bootstrap {
        Reason::PreBootstrap
    } else if entry.roles.control_plane && !connected {
        Reason::ClusterAgent
    } else {
        return Verdict::Ready;
    };
    reasons.push(pending);
    Verdict::Pending
}

/// What a machine's plan is waiting for; `None` if for nothing.
fn plan_status(candidate: &Candidate<'_, '_>) -> Option<Reason> {
    let entry = candidate.entry;
    // A plan equal to the desired one has instructions and no error.
    let plain = |node: &&NodeState<'_>| candidate.desired.is_none() || node.is_plain();
    let error =
        |node: &NodeState<'_>| node.plan().map(|plan| plan.error.clone()).filter(|error| !error.is_empty());
    let has_instructions =
        |node: &&NodeState<'_>| plain(node) || node.plan().is_some_and(|plan| !plan.instructions.is_empty());
    let Some(node) = entry.node.as_ref().filter(has_instructions) else {
        return Some(if entry.roles.etcd {
            Reason::BootstrapEtcd
        } else if entry.roles.control_plane {
            Reason::Etcd
        } else {
            Reason::ControlPlane
        });
    };
    let error = if plain(&node) { None } else { error(node) };
    if !node.has_applied() {
        Some(Reason::Agent)
    } else if let Some(error) = error {
        Some(Reason::PlanError(error))
    } else if !node.healthy() {
        Some(Reason::Probes(node.unhealthy.clone()))
    } else if node.in_sync {
        None
    } else if node.failed {
        Some(Reason::PlanFailed)
    } else {
        Some(Reason::Plan)
    }
}

fn deliver(
    shared: &mut Shared<'_, '_>,
    tier: &Tier<'_>,
    entry: &Entry<'_>,
    desired: &Desired,
    delivery: Delivery,
) -> Verdict {
    // A machine with two roles is in two tiers; the plan is the same in both.
    let delivered = shared.reports.get(entry.name()).map(|report| report.verdict);
    if !matches!(delivered, Some(Verdict::Deliver(_))) {
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
    Verdict::Deliver(delivery)
}

fn annotate(shared: &mut Shared<'_, '_>, entry: &Entry<'_>, key: &'static str, value: String) {
    let secret = entry.secret.map_or_else(String::new, |secret| secret.name.clone());
    shared.writes.push(Write::Annotate { machine: entry.name().to_owned(), secret, key, value });
}

/// The version a kubelet reports, if it is not the cluster's. Build metadata and pre-releases do not show in it.
fn other_kubelet<'a>(control_plane: &ControlPlane, entry: &Entry<'a>) -> Option<&'a str> {
    let reported = entry.machine.kubelet_version.as_deref()?;
    let core = |text: &str| version::parse(text).map(|version| (version.major, version.minor, version.patch));
    let current =
        core(reported).is_some_and(|reported| Some(reported) == core(&control_plane.spec.kubernetes_version));
    (!current).then_some(reported)
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
    let no_reasons = BTreeMap::new();
    let all = [
        (Action::Uncordoning, &groups.uncordoning, &groups.reasons),
        (Action::Draining, &groups.draining, &groups.reasons),
        (Action::Configuring, &groups.configuring, &groups.reasons),
        (Action::Done, &groups.ready, &no_reasons),
    ];
    for (action, names, reasons) in all {
        let mut waiting = false;
        for name in names {
            let Some(entry) = find(name) else { continue };
            if !entry.machine.infrastructure_ready {
                waiting = true;
                continue;
            }
            let told = reasons.get(name).filter(|reasons| !reasons.is_empty());
            waiting |= set_reconciled(shared, entry, told.map(|reasons| reason::join(reasons)));
        }
        if waiting && first.is_none() {
            let details = details(names, reasons);
            first = Some(Waiting::Tier { action, tier, machines: names.clone(), details });
        }
    }
    if let Some(waiting) = first {
        return Err(Unclean::Waiting(waiting));
    }
    for (failing, names) in [(true, groups.failing), (false, groups.not_ready)] {
        if !names.is_empty() {
            let details = details(&names, &groups.reasons);
            return Err(Unclean::Ignorable(Waiting::Machines { failing, tier, machines: names, details }));
        }
    }
    Ok(())
}

fn details(names: &[String], reasons: &BTreeMap<String, Vec<Reason>>) -> Vec<Reason> {
    match names {
        [one] => reasons.get(one).cloned().unwrap_or_default(),
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
