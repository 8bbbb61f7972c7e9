//! `etcdSnapshotRestore`: the cluster becomes again what it was when a snapshot was taken.
//!
//! ```text
//! Started ─ the file is read where it lies ─► Shutdown ─ all services stop ─► Restore ─ one server has the state
//!   │ not whole: Failed, nothing was touched       ─► … ─ all others join it again ─► Finished
//! ```
//!
//! From `Shutdown` on there is no way back but another restore; a failure stays and is told until one is asked for.

use remuda_names::rancher::condition;

use super::{Limits, assign, assign_and_check, renderer};
use crate::{
    entry::Entry,
    input::{Snapshot, Storage},
    output::{Again, Errand, Failure, Operation, Progress, Unusable, Waiting, Write},
    phase::Phase,
    planner::{self, Pass, Stop},
    spec::{ConditionStatus, S3, SnapshotRestore},
};

pub(crate) fn run(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let status = &mut pass.status;
    let asked = pass.input.control_plane.spec.etcd_snapshot_restore.clone();
    let Some(asked) = asked.filter(|asked| !asked.name.is_empty()) else {
        if status.etcd_snapshot_restore.is_none() && status.etcd_snapshot_restore_phase.is_none() {
            return Ok(());
        }
        status.etcd_snapshot_restore = None;
        status.etcd_snapshot_restore_phase = Phase::None;
        return Err(Waiting::Refreshing(Operation::SnapshotRestore).into());
    };
    if status.etcd_snapshot_restore.as_ref() != Some(&asked) {
        status.etcd_snapshot_restore = Some(asked);
        enter(pass, Phase::Started);
        return Err(Waiting::Begun(Operation::SnapshotRestore).into());
    }
    match pass.status.etcd_snapshot_restore_phase {
        Phase::Started => check(pass, &asked),
        Phase::Shutdown => shut_down(pass, &asked),
        Phase::Restore => reset(pass, &asked),
        Phase::PodCleanup => again(pass, Phase::InitialRestart),
        Phase::InitialRestart => again(pass, Phase::NodeCleanup),
        Phase::NodeCleanup => again(pass, Phase::Restart),
        Phase::Restart => again(pass, Phase::Finished),
        _ => Ok(()),
    }
}

fn enter(pass: &mut Pass<'_>, phase: Phase) {
    let (status, reason, message) = match &phase {
        Phase::Finished => (ConditionStatus::True, "", ""),
        phase => (ConditionStatus::Unknown, "Waiting", phase.name()),
    };
    pass.status.set(condition::SNAPSHOT_RESTORED, status, reason, message, pass.input.now);
    pass.status.etcd_snapshot_restore_phase = phase;
}

/// The restore is over before it began.
fn refuse(pass: &mut Pass<'_>, failure: Failure) -> Result<(), Stop> {
    pass.status.etcd_snapshot_restore_phase = Phase::Failed;
    let (kind, message) = (condition::SNAPSHOT_RESTORED, failure.to_string());
    pass.status.set(kind, ConditionStatus::False, "Error", &message, pass.input.now);
    Err(failure.into())
}

/// The machine that is to begin, the file, and where it is.
struct Place<'p, 'a> {
    entry: &'p Entry<'a>,
    file: String,
    storage: Storage,
}

fn place<'p, 'a>(pass: &'p Pass<'a>, asked: &SnapshotRestore) -> Result<Place<'p, 'a>, Unusable> {
    let known = pass.input.snapshots.iter().find(|snapshot| snapshot.name == asked.name);
    let Some(Snapshot { machine, file, storage, version, deleting, failed, .. }) = known else {
        // A name no object has is that of a file, and there must be no doubt where.
        let mut fit = pass.entries.iter().filter(|entry| entry.can_be_init() && entry.node.is_some());
        return match (fit.next(), fit.next()) {
            (Some(entry), None) => Ok(Place { entry, file: asked.name.clone(), storage: Storage::Local }),
            _ => Err(Unusable::Unknown),
        };
    };
    if *failed {
        return Err(Unusable::Failed);
    }
    if *deleting {
        return Err(Unusable::Deleting);
    }
    if too_old(version.as_deref(), &pass.input.control_plane.spec.kubernetes_version) {
        return Err(Unusable::Version { taken: version.clone().unwrap_or_default() });
    }
    let entry = match storage {
        Storage::S3 if !has_store(pass) => return Err(Unusable::NoStore),
        Storage::S3 => beginner(&pass.entries),
        Storage::Local => {
            let machine = machine.as_deref().ok_or(Unusable::NoMachine)?;
            let entry = pass.entries.iter().find(|entry| entry.name() == machine);
            entry.filter(|entry| entry.can_be_init() && entry.node.is_some())
        }
    };
    let entry =
        entry.ok_or(if *storage == Storage::S3 { Unusable::NoServer } else { Unusable::NoMachine })?;
    Ok(Place { entry, file: file.clone(), storage: *storage })
}

/// Whether machines know of a store.
fn has_store(pass: &Pass<'_>) -> bool {
    let etcd = pass.input.control_plane.spec.etcd.as_ref();
    etcd.and_then(|etcd| etcd.s3.as_ref()).is_some_and(S3::is_asked_for)
}

/// Any server can begin with a file of a store, also one that was never told anything: when all others are lost,
/// there is no other. The server that was chosen before is chosen again.
fn beginner<'p, 'a>(entries: &'p [Entry<'a>]) -> Option<&'p Entry<'a>> {
    let fit =
        || entries.iter().filter(|entry| entry.can_be_init() && entry.secret.is_some() && !entry.windows);
    fit()
        .find(|entry| entry.init && entry.node.is_some())
        .or_else(|| fit().find(|entry| entry.node.is_some()))
        .or_else(|| fit().next())
}

/// Objects of before 1.25 cannot be served from then on.
fn too_old(taken: Option<&str>, current: &str) -> bool {
    let before = |text: &str| {
        remuda_distro::version::parse(text).is_some_and(|version| (version.major, version.minor) < (1, 25))
    };
    taken.is_some_and(before) && !before(current)
}

/// Nothing has been touched. The file is read on the machine that holds it.
fn check(pass: &mut Pass<'_>, asked: &SnapshotRestore) -> Result<(), Stop> {
    let renderer = renderer(pass);
    let Place { entry, file, storage } = match place(pass, asked) {
        Ok(found) => found,
        Err(unusable) => {
            let failure = Failure::Snapshot { snapshot: asked.name.clone(), unusable };
            return refuse(pass, failure);
        }
    };
    let desired = renderer.snapshot_check(entry, &file, storage, &value(asked));
    let desired = desired.map_err(Failure::Unrenderable)?;
    let machine = entry.name().to_owned();
    let errand = Errand::SnapshotCheck { snapshot: asked.name.clone(), machine };
    let mut writes = Vec::new();
    let checked = assign_and_check(&mut writes, entry, &desired, Limits::of(1), errand);
    pass.writes.extend(writes);
    match checked {
        Ok(()) => {}
        Err(Stop::Failed(failure)) => return refuse(pass, failure),
        Err(stop) => return Err(stop),
    }
    pass.status.initialization.control_plane_initialized = Some(false);
    enter(pass, Phase::Shutdown);
    Err(Waiting::ShuttingDown.into())
}

/// The machine that has the snapshot begins; all services stop.
fn shut_down(pass: &mut Pass<'_>, asked: &SnapshotRestore) -> Result<(), Stop> {
    let unusable = |unusable| Failure::Snapshot { snapshot: asked.name.clone(), unusable };
    let first = place(pass, asked).map_err(unusable)?.entry.name().to_owned();
    let mark = |entry: &Entry<'_>, marked| Write::Mark {
        machine: entry.name().to_owned(),
        secret: entry.secret.map_or_else(String::new, |secret| secret.name.clone()),
        marked,
    };
    let moved = pass.entries.iter().filter(|entry| entry.init != (entry.name() == first));
    let moved: Vec<Write> = moved.map(|entry| mark(entry, entry.name() == first)).collect();
    if !moved.is_empty() {
        pass.writes.extend(moved);
        return Err(Stop::Again(Again::Election));
    }
    let leaving = pass.entries.iter().filter(|entry| entry.roles.etcd && entry.machine.deleting);
    let leaving: Vec<String> = leaving.map(|entry| entry.name().to_owned()).collect();
    if !leaving.is_empty() {
        let forced = leaving.iter().map(|machine| Write::ForceRemove { machine: machine.clone() });
        pass.writes.extend(forced);
        return Err(Waiting::EtcdDeleted.into());
    }
    let renderer = renderer(pass);
    let mut under = Vec::new();
    for entry in pass.entries.iter().filter(|entry| entry.node.is_some() && !entry.windows) {
        let desired = renderer.stop(entry, &value(asked)).map_err(Failure::Unrenderable)?;
        // Agents try without end: what cannot be stopped must not be taken for what is.
        if assign(&mut pass.writes, entry, &desired, Limits::ENDLESS) != super::Assigned::Done {
            under.push(Errand::Stop { machine: entry.name().to_owned() });
        }
    }
    if !under.is_empty() {
        return Err(Waiting::Errand { errands: under, progress: Progress::Applying }.into());
    }
    pass.status.set(condition::BOOTSTRAPPED, ConditionStatus::False, "", "", pass.input.now);
    enter(pass, Phase::Restore);
    Err(Waiting::ShutDown.into())
}

/// One server is given the state of the snapshot.
fn reset(pass: &mut Pass<'_>, asked: &SnapshotRestore) -> Result<(), Stop> {
    if pass.input.cluster.as_ref().is_some_and(|cluster| !cluster.paused) {
        pass.writes.push(Write::Pause);
    }
    let unusable = |unusable| Failure::Snapshot { snapshot: asked.name.clone(), unusable };
    let renderer = renderer(pass);
    let Place { entry, file, storage } = place(pass, asked).map_err(unusable)?;
    let desired = renderer.reset(entry, &file, storage, &value(asked)).map_err(Failure::Unrenderable)?;
    let mut writes = Vec::new();
    let done = assign_and_check(&mut writes, entry, &desired, Limits::of(1), Errand::Restore);
    pass.writes.extend(writes);
    if let Err(Stop::Failed(failure)) = &done {
        let (kind, message) = (condition::SNAPSHOT_RESTORED, failure.to_string());
        pass.status.set(kind, ConditionStatus::False, "Error", &message, pass.input.now);
    }
    done?;
    // Another stamp: every node starts again, on the new state.
    pass.status.config_generation += 1;
    enter(pass, Phase::PodCleanup);
    Err(Waiting::Begun(Operation::SnapshotRestore).into())
}

/// All machines get their ordinary plans, without asking whom that disturbs: nothing runs.
fn again(pass: &mut Pass<'_>, next: Phase) -> Result<(), Stop> {
    if pass.input.cluster.as_ref().is_some_and(|cluster| cluster.paused) {
        pass.writes.push(Write::Unpause);
    }
    planner::reconcile_all(pass, planner::Care::None)?;
    let finished = next == Phase::Finished;
    enter(pass, next);
    if finished { Ok(()) } else { Err(Waiting::Begun(Operation::SnapshotRestore).into()) }
}

/// What an attempt is known by on nodes.
fn value(asked: &SnapshotRestore) -> String {
    format!("{} {} {}", asked.name, asked.generation, asked.restore_rke_config)
}
