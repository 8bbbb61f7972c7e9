//! Control groups of machines, for root on hosts that have them in their unified form.
//!
//! A machine in a group of its own outlives the service its maker was part of, and can run a real
//! distribution, which wants groups to put its containers into. Everyone else's machines stay in the group of
//! their maker. Nothing here is worth failing for.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::geteuid;

/// Where all our groups are.
const GROUP: &str = "remuda";
/// Inside a machine, where its first process moves so that the machine's own root group can have children.
const INIT: &str = "init.scope";
/// Where a machine, and a host without the old form, has its groups.
pub(crate) const UNIFIED: &str = "/sys/fs/cgroup";

/// The mount point of the unified hierarchy.
fn root() -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = table.lines().find(|line| line.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// The group of a machine, or of the hub. Data directories are told apart, for ids may repeat between them.
fn group(place: &Path, name: &str) -> Option<PathBuf> {
    if !geteuid().is_root() {
        return None;
    }
    // FNV-1a: small, and the same for ever.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = place.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    Some(root()?.join(GROUP).join(format!("{name}-{hash:016x}")))
}

/// Moves this process, and all it will start, into a group.
pub(crate) fn join(place: &Path, name: &str) {
    let Some(group) = group(place, name) else { return };
    if fs::create_dir_all(&group).is_err() {
        return;
    }
    for level in [group.ancestors().nth(2), group.parent()].into_iter().flatten() {
        pass_on(level);
    }
    let _ = fs::write(group.join("cgroup.procs"), "0");
}

/// Lets the children of a group have every controller it has.
fn pass_on(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Inside a new machine: makes its root group fit for children.
pub(crate) fn settle() {
    let root = Path::new(UNIFIED);
    if !root.join("cgroup.procs").exists() || fs::create_dir_all(root.join(INIT)).is_err() {
        return;
    }
    let _ = fs::write(root.join(INIT).join("cgroup.procs"), "0");
    pass_on(root);
}

/// Takes a group away whose processes have ended.
pub(crate) fn remove(place: &Path, name: &str) {
    let Some(group) = group(place, name) else { return };
    // A process that was just killed may still be counted for a moment.
    for _ in 0..100 {
        remove_tree(&group);
        if !group.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if let Some(parent) = group.parent() {
        let _ = fs::remove_dir(parent);
    }
}

/// Groups are removed one by one, the innermost first; their files go with them.
fn remove_tree(group: &Path) {
    let mut all = vec![group.to_owned()];
    let mut at = 0;
    while let Some(dir) = all.get(at).cloned() {
        at += 1;
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        all.extend(entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
    }
    for dir in all.iter().rev() {
        let _ = fs::remove_dir(dir);
    }
}
