//! Stopping a cluster and starting it again: its machines stay, their servers do not run.
//!
//! ```text
//! Snapshot ─► SnapshotRestart ─► StopWorkers ─► StopControlPlane ─► StopEtcd ─► Hibernated
//!    │ failed: nothing is stopped       └────────┴──────────────────┴─ asked for again ─┐
//!    ─► Failed                                                                          ▼
//! runs ◄─ ConfirmWorkers ◄─ StartWorkers ◄─ ConfirmServers ◄─ StartControlPlane ◄─ StartEtcd
//! ```
//!
//! The Cluster of Cluster API is paused all the while, so that no machine is replaced, made or deleted. What nodes said
//! of their probes is forgotten while they are off: a machine counts again when its agent has spoken. One that does not
//! come back holds the others up for a bounded time, and is then left to what takes care of machines otherwise.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use remuda_names::{
    driver::facts,
    power,
    provisioning::annotation::{HIBERNATE, HIBERNATE_WITHOUT_SNAPSHOT},
};
use remuda_plan::key;

use super::snapshot;
use crate::{
    driver::Driver,
    entry::Entry,
    output::{Errand, Failure, Waiting, Write},
    phase::Phase,
    planner::{Pass, Stop},
    spec::Hibernation,
};

/// How long machines that were started are waited for.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// How far it is. Names are as the status has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Snapshot,
    SnapshotRestart,
    StopWorkers,
    StopControlPlane,
    StopEtcd,
    Hibernated,
    StartEtcd,
    StartControlPlane,
    ConfirmServers,
    StartWorkers,
    ConfirmWorkers,
    /// Nothing was stopped.
    Failed,
}

impl Stage {
    const ALL: [(Stage, &str); 12] = [
        (Stage::Snapshot, "Snapshot"),
        (Stage::SnapshotRestart, "SnapshotRestart"),
        (Stage::StopWorkers, "StopWorkers"),
        (Stage::StopControlPlane, "StopControlPlane"),
        (Stage::StopEtcd, "StopEtcd"),
        (Stage::Hibernated, "Hibernated"),
        (Stage::StartEtcd, "StartEtcd"),
        (Stage::StartControlPlane, "StartControlPlane"),
        (Stage::ConfirmServers, "ConfirmServers"),
        (Stage::StartWorkers, "StartWorkers"),
        (Stage::ConfirmWorkers, "ConfirmWorkers"),
        (Stage::Failed, "Failed"),
    ];

    pub fn name(self) -> &'static str {
        Stage::ALL.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    pub fn parse(name: &str) -> Option<Stage> {
        Stage::ALL.iter().find(|(_, known)| *known == name).map(|(stage, _)| *stage)
    }

    /// A machine may be stopped in it.
    fn stops(self) -> bool {
        matches!(self, Stage::StopWorkers | Stage::StopControlPlane | Stage::StopEtcd | Stage::Hibernated)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Snapshot => "hibernating: taking a snapshot",
            Stage::SnapshotRestart => "hibernating: the snapshot is taken",
            Stage::StopWorkers => "hibernating: stopping workers",
            Stage::StopControlPlane => "hibernating: stopping the control plane",
            Stage::StopEtcd => "hibernating: stopping etcd",
            Stage::Hibernated => "hibernated",
            Stage::StartEtcd => "waking: starting etcd",
            Stage::StartControlPlane => "waking: starting the control plane",
            Stage::ConfirmServers => "waking: waiting for servers to be healthy",
            Stage::StartWorkers => "waking: starting workers",
            Stage::ConfirmWorkers => "waking: waiting for workers to be healthy",
            Stage::Failed => "not hibernated",
        })
    }
}

type Of = fn(&Entry<'_>) -> bool;

const WORKERS: Of = |entry| !entry.roles.server();
const CONTROL_PLANE: Of = |entry| entry.roles.control_plane && !entry.roles.etcd;
const ETCD: Of = |entry| entry.roles.etcd;
const SERVERS: Of = |entry| entry.roles.server();

pub(crate) fn run(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let asked = pass.input.control_plane.annotations.get(HIBERNATE).map_or("", String::as_str);
    let known = pass.status.hibernation.clone();
    let stage = known.as_ref().and_then(|known| Stage::parse(&known.phase));
    match (known, stage) {
        (None, _) if asked.is_empty() => Ok(()),
        (None, _) => begin(pass, asked),
        // It was told why; another request tries again.
        (Some(known), Some(Stage::Failed)) if known.asked != asked => {
            pass.status.hibernation = None;
            if asked.is_empty() { Ok(()) } else { begin(pass, asked) }
        }
        // Of a version that knows more, or less: nothing is done about it but what wakes it.
        (Some(known), None) => go_on(pass, &known, Stage::StartEtcd),
        (Some(_), Some(Stage::Failed)) => Ok(()),
        (Some(known), Some(stage)) => go_on(pass, &known, turned(stage, asked)),
    }
}

/// Where it goes on: a cluster that is not to be stopped any more is started from wherever it is. One that is to be
/// stopped while it starts comes up first.
fn turned(stage: Stage, asked: &str) -> Stage {
    if asked.is_empty() && stage.stops() { Stage::StartEtcd } else { stage }
}

fn begin(pass: &mut Pass<'_>, asked: &str) -> Result<(), Stop> {
    // What goes on is finished first, and brings the next pass.
    if !may_begin(pass) {
        return Ok(());
    }
    let without = pass.input.control_plane.annotations.get(HIBERNATE_WITHOUT_SNAPSHOT);
    // A request that declined it did so for itself.
    let without = without.is_some_and(|declined| declined == "true" || declined == asked);
    pass.status.hibernation =
        Some(Hibernation { asked: asked.to_owned(), without_snapshot: without, ..Hibernation::default() });
    if let Some(machine) = unstoppable(pass) {
        return fail(pass, Failure::Hibernation { machine });
    }
    // The Cluster is paused once this is kept: one that is paused for no known reason would stay so.
    enter(pass, if without { Stage::StopWorkers } else { Stage::Snapshot })
}

/// Whether nothing else is under way, and all servers are made.
fn may_begin(pass: &Pass<'_>) -> bool {
    let status = &pass.status;
    let under_way = |phase: &Phase| {
        !phase.is_none() && !matches!(phase, Phase::Finished | Phase::Failed | Phase::Done | Phase::Other(_))
    };
    let restore = &status.etcd_snapshot_restore_phase;
    let renewing = status
        .certificate_renewal
        .as_ref()
        .is_some_and(|known| known.begun.is_some() && known.ended.is_none());
    let spec = &pass.input.control_plane.spec;
    let rotating = spec.rotate_certificates.as_ref();
    let rotating =
        rotating.is_some_and(|asked| asked.generation != pass.status.certificate_rotation_generation);
    let paused =
        pass.input.control_plane.paused || pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused);
    let made = |entry: &Entry<'_>| {
        !entry.machine.deleting && entry.node.is_some() && entry.machine.driver != Driver::Unsaved
    };
    !paused
        && status.control_plane_initialized()
        && !renewing
        && !rotating
        && *restore != Phase::Failed
        && ![&status.etcd_snapshot_create_phase, restore, &status.rotate_encryption_keys_phase]
            .into_iter()
            .any(under_way)
        && pass.entries.iter().all(made)
}

/// The first machine whose server cannot be stopped by its driver.
fn unstoppable(pass: &Pass<'_>) -> Option<String> {
    let stoppable = |entry: &&Entry<'_>| match &entry.machine.driver {
        Driver::Saved(config) => facts(&config.driver).power,
        Driver::None | Driver::Unsaved => false,
    };
    pass.entries.iter().find(|entry| !stoppable(entry)).map(|entry| entry.name().to_owned())
}

fn fail(pass: &mut Pass<'_>, failure: Failure) -> Result<(), Stop> {
    let message = failure.to_string();
    if let Some(known) = &mut pass.status.hibernation {
        Stage::Failed.name().clone_into(&mut known.phase);
        known.failure = message;
        known.since = Some(whole(pass.input.now));
    }
    pass.writes.retain(|write| *write != Write::Pause);
    if pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused) {
        pass.writes.push(Write::Unpause);
    }
    Err(failure.into())
}

/// The phase is kept before anything of it is done, so that a pass after a restart goes on in it.
fn enter(pass: &mut Pass<'_>, stage: Stage) -> Result<(), Stop> {
    let now = whole(pass.input.now);
    if let Some(known) = &mut pass.status.hibernation {
        stage.name().clone_into(&mut known.phase);
        known.since = Some(now);
    }
    Err(waiting(stage, Vec::new()))
}

fn waiting(stage: Stage, machines: Vec<String>) -> Stop {
    Waiting::Hibernation { stage, machines }.into()
}

fn go_on(pass: &mut Pass<'_>, known: &Hibernation, stage: Stage) -> Result<(), Stop> {
    if stage.name() != known.phase {
        return enter(pass, stage);
    }
    if pass.input.cluster.as_ref().is_some_and(|cluster| !cluster.paused) {
        pass.writes.push(Write::Pause);
    }
    match stage {
        Stage::Snapshot => {
            if let Err(stop) = snapshot::of_all_members(pass, None) {
                return match stop {
                    Stop::Failed(failure @ Failure::Errand { .. }) => fail(pass, failure),
                    stop => Err(stop),
                };
            }
            enter(pass, Stage::SnapshotRestart)
        }
        Stage::SnapshotRestart => {
            snapshot::give_back_to(pass, ETCD, |_| Errand::SnapshotRestart)?;
            enter(pass, Stage::StopWorkers)
        }
        Stage::StopWorkers => stop(pass, stage, WORKERS, Stage::StopControlPlane),
        Stage::StopControlPlane => stop(pass, stage, CONTROL_PLANE, Stage::StopEtcd),
        Stage::StopEtcd => stop(pass, stage, ETCD, Stage::Hibernated),
        Stage::Hibernated => Err(Waiting::Hibernated { since: known.since }.into()),
        Stage::StartEtcd => start(pass, stage, known, ETCD, Stage::StartControlPlane),
        Stage::StartControlPlane => start(pass, stage, known, CONTROL_PLANE, Stage::ConfirmServers),
        Stage::ConfirmServers => confirm(pass, stage, known, SERVERS, Some(Stage::StartWorkers)),
        Stage::StartWorkers => start(pass, stage, known, WORKERS, Stage::ConfirmWorkers),
        Stage::ConfirmWorkers => confirm(pass, stage, known, WORKERS, None),
        Stage::Failed => Ok(()),
    }
}

fn is_stopped(entry: &Entry<'_>) -> bool {
    matches!(&entry.machine.driver, Driver::Saved(config) if config.stopped)
}

/// Tells machines whether they are to run.
fn tell(pass: &mut Pass<'_>, of: Of, on: bool) {
    let wanted = if on { power::RUNNING } else { power::STOPPED };
    for entry in pass.entries.iter().filter(|entry| of(entry) && entry.machine.power != wanted) {
        pass.writes.push(Write::Power { machine: entry.name().to_owned(), on });
    }
}

fn names<'a>(entries: &[Entry<'a>], is: impl Fn(&Entry<'a>) -> bool) -> Vec<String> {
    entries.iter().filter(|entry| is(entry)).map(|entry| entry.name().to_owned()).collect()
}

fn stop(pass: &mut Pass<'_>, stage: Stage, of: Of, next: Stage) -> Result<(), Stop> {
    tell(pass, of, false);
    let left = names(&pass.entries, |entry| of(entry) && !is_stopped(entry));
    for entry in pass.entries.iter().filter(|entry| of(entry) && is_stopped(entry)) {
        if let Some(secret) = entry.secret.filter(|secret| secret.data.contains_key(key::PROBE_STATUSES)) {
            let (machine, secret) = (entry.name().to_owned(), secret.name.clone());
            pass.writes.push(Write::ForgetProbes { machine, secret });
        }
    }
    if left.is_empty() { enter(pass, next) } else { Err(waiting(stage, left)) }
}

fn start(pass: &mut Pass<'_>, stage: Stage, known: &Hibernation, of: Of, next: Stage) -> Result<(), Stop> {
    tell(pass, of, true);
    let left = names(&pass.entries, |entry| of(entry) && is_stopped(entry));
    if left.is_empty() || is_over(pass, known) { enter(pass, next) } else { Err(waiting(stage, left)) }
}

/// Waits for agents to say how their nodes are.
fn confirm(
    pass: &mut Pass<'_>,
    stage: Stage,
    known: &Hibernation,
    of: Of,
    next: Option<Stage>,
) -> Result<(), Stop> {
    let left = names(&pass.entries, |entry| of(entry) && !is_back(entry));
    if !left.is_empty() && !is_over(pass, known) {
        return Err(waiting(stage, left));
    }
    match next {
        Some(next) => enter(pass, next),
        None => {
            pass.status.hibernation = None;
            pass.writes.retain(|write| *write != Write::Pause);
            pass.writes.push(Write::Woken { at: whole(pass.input.now) });
            Err(waiting(stage, Vec::new()))
        }
    }
}

/// Its agent has spoken since it was started, and its probes pass.
fn is_back(entry: &Entry<'_>) -> bool {
    let Some(node) = &entry.node else { return true };
    let probes = node.plan().is_some_and(|plan| !plan.probes.is_empty());
    let spoke = entry.secret.is_some_and(|secret| secret.data.contains_key(key::PROBE_STATUSES));
    !is_stopped(entry) && node.healthy() && (spoke || !probes)
}

/// Whether a phase took too long to be waited for any more.
fn is_over(pass: &mut Pass<'_>, known: &Hibernation) -> bool {
    let end = known.since.and_then(|since| since.saturating_add(PATIENCE).ok());
    pass.look_again(end);
    end.is_none_or(|end| end <= pass.input.now)
}

fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_stages_are_read_back() {
        for (stage, name) in Stage::ALL {
            assert_eq!((stage.name(), Stage::parse(name)), (name, Some(stage)));
        }
        assert_eq!(Stage::parse("Asleep"), None);
    }

    #[test]
    fn what_is_not_asked_for_any_more_is_undone_from_wherever_it_is() {
        for (stage, _) in Stage::ALL {
            let expected = if stage.stops() { Stage::StartEtcd } else { stage };
            assert_eq!(turned(stage, ""), expected);
            assert_eq!(turned(stage, "2026-01-01T00:00:00Z"), stage);
        }
    }
}
