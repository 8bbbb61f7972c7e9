//! `rotateEncryptionKeys`: another key for the Secrets of a cluster.
//!
//! ```text
//! Started ─ snapshots ─► Prepare ─► PostPrepareRestart ─► Rotate ─► PostRotateRestart ─► Reencrypt ─► PostReencryptRestart
//!                        a key is added                  it is used                     all is encrypted with it
//!   ─► RestartCluster: ordinary plans come back ─► Done
//! ```
//!
//! One server of the control plane, the leader, changes the keys. All servers are restarted after each change, so that
//! none meets what it has no key for. What fails stays in the status with the state the Secrets are in; a rotation that
//! is asked for after it goes on in the stage the servers are in.

use std::collections::BTreeMap;

use remuda_distro::{
    Distro,
    encryption::{self, Fixed},
};
use remuda_names::{provisioning::annotation::ROTATE_KEYS_WITHOUT_SNAPSHOT, rancher::condition};
use remuda_plan::{
    key,
    output::{self, Blob, PeriodicResults},
};

use super::{Assigned, Limits, assign, renderer, snapshot};
use crate::{
    desired::{ENCRYPTION_STATUS, Renderer, periodic_status},
    entry::Entry,
    join::printed,
    output::{Errand, Failure, NotRotated, Operation, Progress, Waiting, Write},
    phase::Phase,
    planner::{Pass, Stop},
    spec::{ConditionStatus, RotateEncryptionKeys},
};

const WITHOUT_SNAPSHOT: &str = "no snapshot was taken before it: that was declined";
const OPERATION: Operation = Operation::RotateEncryptionKeys;

/// Stages of the distribution, in order.
const STAGES: [&str; 5] =
    ["prepare", "rotate", "reencrypt_request", "reencrypt_active", "reencrypt_finished"];
const FINISHED: &str = STAGES[4];

/// A phase that gives plans to machines.
struct Step {
    phase: Phase,
    /// The command of the leader, or restarts of all servers.
    command: Option<&'static str>,
    /// Stages in which it is done. An earlier attempt may have come further.
    stages: &'static [&'static str],
    next: Phase,
}

fn step(phase: &Phase) -> Option<Step> {
    let (command, stages, next): (_, &[&str], _) = match phase {
        Phase::Prepare => (Some("prepare"), &STAGES[..4], Phase::PostPrepareRestart),
        Phase::PostPrepareRestart => (None, &STAGES[..4], Phase::Rotate),
        Phase::Rotate => (Some("rotate"), &STAGES[1..4], Phase::PostRotateRestart),
        Phase::PostRotateRestart => (None, &STAGES[1..4], Phase::Reencrypt),
        Phase::Reencrypt => (Some("reencrypt"), &STAGES[4..], Phase::PostReencryptRestart),
        Phase::PostReencryptRestart => (None, &STAGES[4..], Phase::Restart),
        _ => return None,
    };
    Some(Step { phase: phase.clone(), command, stages, next })
}

fn is_under_way(phase: &Phase) -> bool {
    matches!(phase, Phase::Started | Phase::Restart) || step(phase).is_some()
}

pub(crate) fn rotate(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let phase = pass.status.rotate_encryption_keys_phase.clone();
    let Some(asked) = pass.input.control_plane.spec.rotate_encryption_keys.clone() else {
        return forget(pass, &phase);
    };
    if pass.status.rotate_encryption_keys.as_ref() != Some(&asked) {
        if !is_under_way(&phase) && !may_begin(pass) {
            return Ok(());
        }
        return begin(pass, asked);
    }
    if !is_under_way(&phase) {
        return Ok(());
    }
    match go_on(pass, &asked, &phase) {
        Err(Stop::Failed(failure @ Failure::EncryptionKeys { .. })) => fail(pass, failure),
        // Anything else may be mended, and then it goes on.
        other => other,
    }
}

fn forget(pass: &mut Pass<'_>, phase: &Phase) -> Result<(), Stop> {
    let status = &mut pass.status;
    if status.rotate_encryption_keys.is_none() && phase.is_none() {
        return Ok(());
    }
    status.rotate_encryption_keys = None;
    status.rotate_encryption_keys_phase = Phase::None;
    status.rotate_encryption_keys_leader.clear();
    if is_under_way(phase) {
        resume_cluster(pass);
    }
    Err(Waiting::Refreshing(OPERATION).into())
}

/// Keys of a cluster are changed when all of it is as it should be.
fn may_begin(pass: &Pass<'_>) -> bool {
    pass.status.control_plane_initialized()
        && pass.input.control_plane.status.is_true(condition::READY)
        && has_init_node(pass)
}

fn has_init_node(pass: &Pass<'_>) -> bool {
    pass.entries.iter().any(|entry| entry.init && !entry.join_url().is_empty())
}

fn begin(pass: &mut Pass<'_>, asked: RotateEncryptionKeys) -> Result<(), Stop> {
    pass.status.rotate_encryption_keys = Some(asked);
    pass.status.rotate_encryption_keys_leader.clear();
    if let Some(cause) = impossible(pass) {
        pass.status.rotate_encryption_keys_phase = Phase::Started;
        return fail(pass, Failure::EncryptionKeys { phase: Phase::Started, cause, snapshot: None });
    }
    enter(pass, Phase::Started);
    Err(Waiting::Begun(OPERATION).into())
}

/// Why there is no use in trying.
fn impossible(pass: &Pass<'_>) -> Option<NotRotated> {
    let spec = &pass.input.control_plane.spec;
    if !encryption::has_steps(&pass.input.release) {
        return Some(NotRotated::Release { version: spec.kubernetes_version.clone() });
    }
    let selected = || spec.machine_selector_config.iter().map(|one| &one.config);
    let configs = || std::iter::once(&spec.machine_global_config).chain(selected());
    let setting = |name: &str| configs().find_map(|config| config.get(name));
    match encryption::fixed(Distro::of(&spec.kubernetes_version), setting)? {
        Fixed::NotEncrypted => Some(NotRotated::NotEncrypted),
        Fixed::Provider(provider) => Some(NotRotated::Provider { provider }),
    }
}

fn enter(pass: &mut Pass<'_>, phase: Phase) {
    let (status, reason, message) = match &phase {
        Phase::Done => (ConditionStatus::True, "", ""),
        phase => (ConditionStatus::Unknown, "Waiting", phase.name()),
    };
    pass.status.set(condition::ENCRYPTION_KEYS_ROTATED, status, reason, message, pass.input.now);
    pass.status.rotate_encryption_keys_phase = phase;
}

/// It ends here, and says so until another one is asked for.
fn fail(pass: &mut Pass<'_>, failure: Failure) -> Result<(), Stop> {
    let (kind, message) = (condition::ENCRYPTION_KEYS_ROTATED, failure.to_string());
    pass.status.set(kind, ConditionStatus::False, "Error", &message, pass.input.now);
    pass.status.rotate_encryption_keys_phase = Phase::Failed;
    pass.status.rotate_encryption_keys_leader.clear();
    resume_cluster(pass);
    Err(failure.into())
}

fn resume_cluster(pass: &mut Pass<'_>) {
    pass.writes.retain(|write| *write != Write::Pause);
    if pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused) {
        pass.writes.push(Write::Unpause);
    }
}

fn go_on(pass: &mut Pass<'_>, asked: &RotateEncryptionKeys, phase: &Phase) -> Result<(), Stop> {
    let snapshot = newest_snapshot(pass);
    let failed = |cause| Failure::EncryptionKeys { phase: phase.clone(), cause, snapshot: snapshot.clone() };
    let Some(step) = step(phase) else {
        return if *phase == Phase::Restart { give_back(pass) } else { take_snapshots(pass, asked) };
    };
    if !has_init_node(pass) {
        return Err(failed(NotRotated::NoLeader).into());
    }
    if pass.input.cluster.as_ref().is_some_and(|cluster| !cluster.paused) {
        pass.writes.push(Write::Pause);
    }
    let known = pass.status.rotate_encryption_keys_leader.clone();
    let Some(leader) = leader(pass, &known) else {
        if *phase != Phase::Prepare {
            return Err(failed(NotRotated::LeaderGone { machine: known }).into());
        }
        let machine = elect(pass).map(|entry| entry.name().to_owned());
        let machine = machine.ok_or_else(|| failed(NotRotated::NoLeader))?;
        pass.status.rotate_encryption_keys_leader.clone_from(&machine);
        return Err(Waiting::EncryptionLeader { machine }.into());
    };
    let round = Round { renderer: renderer(pass), step: &step, asked, leader };
    let mut writes = Vec::new();
    let done = match step.command {
        Some(command) => round.command(&mut writes, command),
        None => round.restarts(&mut writes, &pass.entries),
    };
    pass.writes.extend(writes);
    done.map_err(|stop| match stop {
        Under::Waiting(waiting) => Stop::Waiting(waiting),
        Under::Unrenderable(failure) => Stop::Failed(failure),
        Under::Failed(cause) => failed(cause).into(),
    })?;
    enter(pass, step.next.clone());
    Err(Waiting::Begun(OPERATION).into())
}

/// Servers get their ordinary plans again: to the tiers it would look as if these restarted them.
fn give_back(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let errand = |entry: &Entry<'_>| Errand::EncryptionKeys {
        machine: entry.name().to_owned(),
        phase: Phase::Restart,
    };
    snapshot::give_back_to(pass, |entry| entry.roles.server(), errand)?;
    enter(pass, Phase::Done);
    let declined = |asked: &RotateEncryptionKeys| is_without_snapshot(pass, asked);
    if pass.status.rotate_encryption_keys.as_ref().is_some_and(declined) {
        let (kind, now) = (condition::ENCRYPTION_KEYS_ROTATED, pass.input.now);
        pass.status.set(kind, ConditionStatus::True, "WithoutSnapshot", WITHOUT_SNAPSHOT, now);
    }
    pass.status.rotate_encryption_keys_leader.clear();
    resume_cluster(pass);
    Ok(())
}

/// Whether the snapshot before this rotation, and no other, was declined.
fn is_without_snapshot(pass: &Pass<'_>, asked: &RotateEncryptionKeys) -> bool {
    let declined = pass.input.control_plane.annotations.get(ROTATE_KEYS_WITHOUT_SNAPSHOT);
    declined.is_some_and(|declined| *declined == asked.generation.to_string())
}

/// A way back, before anything is changed.
fn take_snapshots(pass: &mut Pass<'_>, asked: &RotateEncryptionKeys) -> Result<(), Stop> {
    if is_without_snapshot(pass, asked) {
        enter(pass, Phase::Prepare);
        return Err(Waiting::Begun(OPERATION).into());
    }
    match snapshot::of_all_members(pass, Some(asked)) {
        Err(Stop::Failed(Failure::Errand { errand })) => {
            let cause = NotRotated::Snapshot(errand);
            Err(Failure::EncryptionKeys { phase: Phase::Started, cause, snapshot: None }.into())
        }
        Err(stop) => Err(stop),
        Ok(()) => {
            enter(pass, Phase::Prepare);
            Err(Waiting::Begun(OPERATION).into())
        }
    }
}

/// The one to go back to. Names of files end in the time at which they were taken.
fn newest_snapshot(pass: &Pass<'_>) -> Option<String> {
    let whole = pass.input.snapshots.iter().filter(|snapshot| !snapshot.failed && !snapshot.deleting);
    let taken = |file: &str| file.rsplit('-').next().and_then(|time| time.parse::<u64>().ok());
    whole.max_by_key(|snapshot| taken(&snapshot.file)).map(|snapshot| snapshot.name.clone())
}

/// The leader, as long as it can be one.
fn leader<'p, 'a>(pass: &'p Pass<'a>, known: &str) -> Option<&'p Entry<'a>> {
    pass.entries.iter().find(|entry| entry.name() == known && leads(entry))
}

fn leads(entry: &Entry<'_>) -> bool {
    entry.roles.control_plane && entry.node.is_some() && !entry.machine.deleting && !entry.machine.failed
}

fn elect<'p, 'a>(pass: &'p Pass<'a>) -> Option<&'p Entry<'a>> {
    let is_ready =
        |entry: &&Entry<'_>| entry.machine.node.is_some() && entry.machine.node_healthy == Some(true);
    let fit = || pass.entries.iter().filter(|entry| leads(entry));
    fit().find(|entry| entry.init).or_else(|| fit().find(is_ready))
}

/// Why a phase is not done.
enum Under {
    Waiting(Waiting),
    Failed(NotRotated),
    Unrenderable(Failure),
}

/// The plans of one phase.
struct Round<'r, 'a> {
    renderer: Renderer<'a>,
    step: &'r Step,
    asked: &'r RotateEncryptionKeys,
    leader: &'r Entry<'a>,
}

impl Round<'_, '_> {
    fn command(&self, writes: &mut Vec<Write>, command: &str) -> Result<(), Under> {
        let (leader, phase) = (self.leader, &self.step.phase);
        let desired = self.renderer.encryption_command(leader, command, phase, self.asked);
        let desired = desired.map_err(|error| Under::Unrenderable(error.into()))?;
        self.judge(leader, assign(writes, leader, &desired, Limits::of(1)))?;
        let found = stage(leader, Some(self.asked));
        // All is encrypted anew after the command has ended, and the agent goes on to ask.
        let goes_on = self.step.stages == [FINISHED] && STAGES[2..4].contains(&found.as_str());
        if goes_on {
            return Err(self.waiting(leader, Progress::Applying));
        }
        self.fits(leader, found).map(drop)
    }

    /// One server after the other: what others join, other members, the leader, and the rest of the control plane.
    fn restarts(&self, writes: &mut Vec<Write>, entries: &[Entry<'_>]) -> Result<(), Under> {
        let others = || {
            entries.iter().filter(|entry| {
                let there = entry.node.is_some() && !entry.machine.deleting && !entry.windows;
                there && entry.roles.server() && entry.name() != self.leader.name()
            })
        };
        let before = others().filter(|entry| entry.init);
        let before = before.chain(others().filter(|entry| !entry.init && entry.roles.only_etcd()));
        let after = others().filter(|entry| !entry.init && entry.roles.control_plane);
        for entry in before {
            self.restart(writes, entry)?;
        }
        self.restart(writes, self.leader)?;
        let reached = self.fits(self.leader, stage(self.leader, None))?;
        let told = others().filter(|entry| entry.init && entry.roles.control_plane);
        for entry in told {
            self.equals(entry, &reached)?;
        }
        for entry in after {
            self.restart(writes, entry)?;
            self.equals(entry, &reached)?;
        }
        Ok(())
    }

    fn restart(&self, writes: &mut Vec<Write>, entry: &Entry<'_>) -> Result<(), Under> {
        let desired = self.renderer.encryption_restart(entry, &self.step.phase, self.asked);
        let desired = desired.map_err(|error| Under::Unrenderable(error.into()))?;
        self.judge(entry, assign(writes, entry, &desired, Limits::of(5)))
    }

    fn judge(&self, entry: &Entry<'_>, assigned: Assigned) -> Result<(), Under> {
        match assigned {
            Assigned::Done => Ok(()),
            Assigned::Under(progress) => Err(self.waiting(entry, progress)),
            Assigned::Failed => Err(Under::Failed(NotRotated::Plan { machine: entry.name().to_owned() })),
        }
    }

    fn waiting(&self, entry: &Entry<'_>, progress: Progress) -> Under {
        let errand =
            Errand::EncryptionKeys { machine: entry.name().to_owned(), phase: self.step.phase.clone() };
        Under::Waiting(Waiting::Errand { errands: vec![errand], progress })
    }

    /// The stage, if the phase is done in it.
    fn fits(&self, entry: &Entry<'_>, found: String) -> Result<String, Under> {
        if self.step.stages.contains(&found.as_str()) {
            return Ok(found);
        }
        Err(Under::Failed(NotRotated::Stage { machine: entry.name().to_owned(), found }))
    }

    fn equals(&self, entry: &Entry<'_>, reached: &str) -> Result<(), Under> {
        match stage(entry, None) {
            found if found == reached => Ok(()),
            found => Err(Under::Failed(NotRotated::Stage { machine: entry.name().to_owned(), found })),
        }
    }
}

/// Before the stage, as the distribution prints it.
const LINE: &str = "Current Rotation Stage: ";

/// A node prints what it likes: only words that are known are told again.
fn stage_of(text: &str) -> Option<String> {
    let word = text.lines().find_map(|line| Some(line.strip_prefix(LINE)?.trim()))?;
    let known = word == "start" || STAGES.contains(&word);
    Some(if known { word } else { "unknown" }.to_owned())
}

fn applied_stage(packed: &[u8]) -> Option<String> {
    let outputs = output::unpack::<Blob>(packed).ok()?;
    stage_of(&String::from_utf8_lossy(&outputs.get(ENCRYPTION_STATUS)?.0))
}

/// Of the output of a plan nothing but the stage.
pub(crate) fn only_stage(packed: &[u8]) -> Option<Vec<u8>> {
    let stage = applied_stage(packed)?;
    let told = Blob(format!("{LINE}{stage}\n").into_bytes());
    Some(output::pack(BTreeMap::from([(ENCRYPTION_STATUS.to_owned(), told)])))
}

/// The stage a server was in when its plan was applied, or in which the leader is now. Empty if it has told none.
fn stage(entry: &Entry<'_>, now: Option<&RotateEncryptionKeys>) -> String {
    let Some(secret) = entry.secret else { return String::new() };
    let periodic = now.and_then(|asked| {
        let packed = secret.data.get(key::APPLIED_PERIODIC_OUTPUT)?;
        let results: PeriodicResults = output::unpack(packed).ok()?;
        stage_of(&printed(&results, &periodic_status(asked))?)
    });
    let applied = || applied_stage(secret.data.get(key::APPLIED_OUTPUT)?);
    periodic.or_else(applied).unwrap_or_default()
}
