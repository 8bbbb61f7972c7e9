//! `etcdSnapshotCreate`: a snapshot of every etcd member.

use remuda_names::rancher::{annotation, condition};
use remuda_plan::{key, output};

use super::{Assigned, Limits, assign, renderer};
use crate::{
    desired::VERIFY,
    entry::Entry,
    input::{Snapshot, Storage},
    output::{Errand, Failure, Operation, Progress, Waiting, Write},
    phase::Phase,
    planner::{Pass, Stop},
    spec::{ConditionStatus, RotateEncryptionKeys},
};

pub(crate) fn create(pass: &mut Pass<'_>) -> Result<(), Stop> {
    let status = &mut pass.status;
    let Some(asked) = pass.input.control_plane.spec.etcd_snapshot_create.clone() else {
        if status.etcd_snapshot_create.is_none() && status.etcd_snapshot_create_phase.is_none() {
            return Ok(());
        }
        status.etcd_snapshot_create = None;
        status.etcd_snapshot_create_phase = Phase::None;
        return Err(Waiting::Refreshing(Operation::SnapshotCreate).into());
    };
    if !status.control_plane_initialized() || !status.is_true(condition::BOOTSTRAPPED) {
        return Ok(());
    }
    if status.etcd_snapshot_create.as_ref() != Some(&asked) {
        status.etcd_snapshot_create = Some(asked);
        status.etcd_snapshot_create_phase = Phase::Started;
        let kind = condition::SNAPSHOT_CREATED;
        status.set(kind, ConditionStatus::Unknown, "Waiting", Phase::Started.name(), pass.input.now);
        return Err(Waiting::Begun(Operation::SnapshotCreate).into());
    }
    match status.etcd_snapshot_create_phase {
        Phase::Started => take(pass),
        Phase::Restart => give_back(pass),
        _ => Ok(()),
    }
}

fn take(pass: &mut Pass<'_>) -> Result<(), Stop> {
    if !pass.entries.iter().any(|entry| entry.init && !entry.join_url().is_empty()) {
        return Ok(());
    }
    if let Err(stop) = of_all_members(pass, None) {
        if let Stop::Failed(failure @ Failure::Errand { .. }) = &stop {
            let (kind, message) = (condition::SNAPSHOT_CREATED, failure.to_string());
            pass.status.etcd_snapshot_create_phase = Phase::Failed;
            pass.status.set(kind, ConditionStatus::False, "Error", &message, pass.input.now);
        }
        return Err(stop);
    }
    pass.status.etcd_snapshot_create_phase = Phase::Restart;
    Err(Waiting::Begun(Operation::SnapshotCreate).into())
}

/// Takes a snapshot on every member at once: one that fails leaves the others. It may be taken before a rotation.
pub(super) fn of_all_members(pass: &mut Pass<'_>, before: Option<&RotateEncryptionKeys>) -> Result<(), Stop> {
    let renderer = renderer(pass);
    let (mut under, mut failed) = (Vec::new(), Vec::new());
    let mut progress = Progress::Applying;
    for entry in &pass.entries {
        if !entry.roles.etcd || entry.node.is_none() || entry.machine.deleting {
            continue;
        }
        let desired = renderer.snapshot(entry, before).map_err(Failure::Unrenderable)?;
        let errand = Errand::Snapshot { machine: entry.name().to_owned() };
        match assign(&mut pass.writes, entry, &desired, Limits::of(3)) {
            Assigned::Under(one) => {
                progress = progress.min(one);
                under.push(errand);
            }
            Assigned::Failed => failed.push(errand),
            Assigned::Done => pass.writes.extend(verification(entry)),
        }
    }
    if !under.is_empty() {
        return Err(Waiting::Errand { errands: under, progress }.into());
    }
    match failed.into_iter().next() {
        Some(errand) => Err(Failure::Errand { errand }.into()),
        None => Ok(()),
    }
}

/// What the agent found when it read the snapshot, kept before the next plan takes its place.
fn verification(entry: &Entry<'_>) -> Option<Write> {
    const LIMIT: usize = 16 << 10;
    let secret = entry.secret?;
    let packed = secret.data.get(key::APPLIED_OUTPUT)?;
    let outputs = output::unpack::<output::Blob>(packed).ok()?;
    let said = String::from_utf8(outputs.get(VERIFY)?.0.clone()).ok()?;
    let value = said.lines().find(|line| line.starts_with('{') && line.len() <= LIMIT)?.to_owned();
    let known = entry.annotation(annotation::SNAPSHOT_VERIFICATION) == value;
    (!known).then(|| Write::Annotate {
        machine: entry.name().to_owned(),
        secret: secret.name.clone(),
        key: annotation::SNAPSHOT_VERIFICATION,
        value,
    })
}

fn give_back(pass: &mut Pass<'_>) -> Result<(), Stop> {
    give_back_to(pass, |entry| entry.roles.etcd, |_| Errand::SnapshotRestart)?;
    pass.status.etcd_snapshot_create_phase = Phase::Finished;
    pass.status.set(condition::SNAPSHOT_CREATED, ConditionStatus::True, "", "", pass.input.now);
    Ok(())
}

/// Gives machines their ordinary plans again. Nothing restarts: the stamp is the one they have.
pub(super) fn give_back_to(
    pass: &mut Pass<'_>,
    whom: impl Fn(&Entry<'_>) -> bool,
    errand: impl Fn(&Entry<'_>) -> Errand,
) -> Result<(), Stop> {
    let renderer = renderer(pass);
    let limits = Limits { max_failures: Some(1), failure_threshold: Some(-1) };
    for entry in &pass.entries {
        if !whom(entry) || entry.node.is_none() || entry.machine.deleting {
            continue;
        }
        let desired = renderer.desired(entry, "").map_err(Failure::Unrenderable)?;
        if let Assigned::Under(progress) = assign(&mut pass.writes, entry, &desired, limits) {
            return Err(Waiting::Errand { errands: vec![errand(entry)], progress }.into());
        }
    }
    Ok(())
}

/// Deletes files of ETCDSnapshots that are being deleted. A machine that is gone has taken its files along.
pub(crate) fn delete(pass: &mut Pass<'_>) -> Result<(), Stop> {
    if !pass.status.control_plane_initialized() {
        return Ok(());
    }
    let renderer = renderer(pass);
    for snapshot in pass.input.snapshots.iter().filter(|snapshot| snapshot.deleting) {
        let released = Write::ReleaseSnapshot { name: snapshot.name.clone() };
        let Some(entry) = deleter(&pass.entries, snapshot) else {
            pass.writes.push(released);
            continue;
        };
        let desired = renderer.snapshot_removal(entry, &snapshot.file, snapshot.storage);
        let desired = desired.map_err(Failure::Unrenderable)?;
        let errand =
            Errand::SnapshotDelete { snapshot: snapshot.name.clone(), machine: entry.name().to_owned() };
        super::assign_and_check(&mut pass.writes, entry, &desired, Limits::of(3), errand)?;
        pass.writes.push(released);
        // The plan is the one of this snapshot: one at a time.
        return Err(Waiting::Begun(Operation::SnapshotDelete).into());
    }
    Ok(())
}

/// The machine that deletes the file of a snapshot. Files of a store can be deleted by any member; one that has no
/// copy of its own keeps the copies of others, which the command would delete as well.
fn deleter<'e, 'a>(entries: &'e [Entry<'a>], snapshot: &Snapshot) -> Option<&'e Entry<'a>> {
    let mut able = entries.iter().filter(|entry| {
        entry.node.is_some()
            && !entry.machine.deleting
            && (entry.roles.etcd || snapshot.storage == Storage::Local)
    });
    match snapshot.storage {
        Storage::Local => able.find(|entry| Some(entry.name()) == snapshot.machine.as_deref()),
        Storage::S3 => {
            let holds = |entry: &&Entry<'_>| {
                entry.machine.node.as_deref().is_some_and(|node| snapshot.file.contains(node))
            };
            able.clone().find(|entry| !holds(entry)).or_else(|| able.next())
        }
    }
}
