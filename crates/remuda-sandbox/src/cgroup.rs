//! Control groups of machines, for root.
//!
//! A machine in a group of its own outlives the service its maker was part of, and can run a real
//! distribution, which wants groups to put its containers into: those of two machines have the same names, and
//! each takes what it does not know for rubbish of its own. Everyone else's machines stay in the group of
//! their maker. Nothing here is worth failing for.

use std::{
    fs,
    os::unix::fs::lchown,
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

/// A tree of control groups: the unified one, or one of the old form with some controllers of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hierarchy {
    pub(crate) point: PathBuf,
    /// For the old form: what it is mounted with, and what `/proc/self/cgroup` calls it: `cpu,cpuacct`,
    /// `name=systemd`.
    pub(crate) old: Option<String>,
}

/// All hierarchies there are, from a mount table.
pub(crate) fn hierarchies(table: &str) -> Vec<Hierarchy> {
    /// Options of every file system, as opposed to names of controllers.
    const PLAIN: &[&str] = &["rw", "ro", "xattr", "clone_children", "cpuset_v2_mode", "noprefix"];
    let read = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        // Where only a part of a tree is mounted, we cannot tell our own place in it. Seen from a group of our
        // own, the whole begins some levels up.
        mount.next().filter(|root| root.split('/').all(|level| ["", ".."].contains(&level)))?;
        let point = PathBuf::from(mount.next()?);
        let mut kind = kind.split(' ');
        let old = match kind.next()? {
            "cgroup2" => None,
            "cgroup" => {
                let options = kind
                    .nth(1)?
                    .split(',')
                    .filter(|option| !PLAIN.contains(option) && !option.starts_with("release_agent="));
                Some(options.collect::<Vec<_>>().join(","))
            }
            _ => return None,
        };
        Some(Hierarchy { point, old })
    };
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in table.lines().filter_map(read) {
        if found.iter().all(|known| known.old != hierarchy.old) {
            found.push(hierarchy);
        }
    }
    found
}

/// Those of this process's mount table.
pub(crate) fn mounted() -> Vec<Hierarchy> {
    hierarchies(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// Where this process is in a hierarchy of the old form, from `/proc/self/cgroup`.
fn place_in(old: &str, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (name, path) = rest.rsplit_once(":/")?;
        (name == old).then_some(path)
    })?;
    Some(PathBuf::from(path))
}

/// The name of the group of a machine, or of the hub. Data directories are told apart, for ids may repeat
/// between them.
fn leaf(place: &Path, name: &str) -> String {
    format!("{name}-{:016x}", hash(place))
}

/// A number for a path. FNV-1a: small, and the same for ever.
pub(crate) fn hash(path: &Path) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// Moves this process, and all it will start, into groups of its own: at the top of the unified hierarchy, so
/// that they outlive their maker; with the old form below the maker's, whose limits they stay under. Tells which
/// groups these are.
pub(crate) fn join(place: &Path, name: &str) -> Vec<PathBuf> {
    let mut joined = Vec::new();
    if !geteuid().is_root() {
        return joined;
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for hierarchy in mounted() {
        let top = match &hierarchy.old {
            None => hierarchy.point.clone(),
            Some(old) => match place_in(old, &own) {
                Some(path) => hierarchy.point.join(path),
                None => continue,
            },
        };
        let group = top.join(GROUP).join(leaf(place, name));
        if fs::create_dir_all(&group).is_err() {
            continue;
        }
        for level in [Some(top.as_path()), group.parent()].into_iter().flatten() {
            pass_on(level);
        }
        for level in [group.parent(), Some(group.as_path())].into_iter().flatten() {
            inherit(level);
        }
        let _ = fs::write(group.join("cgroup.procs"), "0");
        joined.push(group);
    }
    joined
}

/// Lets a user divide groups among processes of theirs. What limits the groups themselves stays root's.
pub(crate) fn hand_over(groups: &[PathBuf], user: u32) {
    for group in groups {
        let _ = lchown(group, Some(user), Some(user));
        for file in ["cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"] {
            let _ = lchown(group.join(file), Some(user), Some(user));
        }
    }
}

/// In the old form a new group has no processors and no memory to run on until it is told which.
fn inherit(group: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let is_empty = fs::read_to_string(group.join(file)).is_ok_and(|text| text.trim().is_empty());
        if is_empty && let Some(parent) = group.parent() {
            let _ = fs::read(parent.join(file)).and_then(|value| fs::write(group.join(file), value));
        }
    }
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

/// Takes the groups away whose processes have ended.
pub(crate) fn remove(place: &Path, name: &str) {
    if !geteuid().is_root() {
        return;
    }
    let leaf = leaf(place, name);
    for group in mounted().iter().flat_map(|hierarchy| find(&hierarchy.point, &leaf)) {
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
}

/// Groups of ours by their name: whoever made them may have been anywhere.
fn find(top: &Path, leaf: &str) -> Vec<PathBuf> {
    let (mut pending, mut found) = (vec![top.to_owned()], Vec::new());
    while let Some(dir) = pending.pop() {
        if dir.file_name() == Some(GROUP.as_ref()) {
            // Nothing of ours is below a machine.
            found.extend(Some(dir.join(leaf)).filter(|group| group.is_dir()));
            continue;
        }
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        pending.extend(entries.filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        40 31 0:37 /../.. /sys/fs/cgroup/systemd rw - cgroup systemd rw,xattr,release_agent=/x,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        50 31 0:29 / /elsewhere rw - cgroup cgroup rw,cpu,cpuacct\n\
        51 31 0:30 /part /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        rubbish - cgroup\n";

    #[test]
    fn every_hierarchy_is_found_once_with_its_controllers() {
        let found = hierarchies(TABLE);
        let shown: Vec<_> = found
            .iter()
            .map(|h| (h.point.to_str().unwrap(), h.old.as_deref().unwrap_or("unified")))
            .collect();
        assert_eq!(
            shown,
            [
                ("/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct"),
                ("/sys/fs/cgroup/systemd", "name=systemd"),
                ("/sys/fs/cgroup/unified", "unified"),
            ]
        );
    }

    #[test]
    fn the_place_of_a_process_is_read_also_where_its_name_has_colons() {
        let own = "9:name=systemd:/\n4:cpu,cpuacct:/a:b/c\n0::/x\n";
        assert_eq!(place_in("cpu,cpuacct", own), Some("a:b/c".into()));
        assert_eq!(place_in("name=systemd", own), Some("".into()));
        assert_eq!(place_in("memory", own), None);
    }

    #[test]
    fn groups_are_found_wherever_their_maker_was() {
        let dir = tempfile::tempdir().unwrap();
        let leaf = leaf(Path::new("/data/sandbox"), "m1");
        for path in ["remuda", "user/session/remuda"] {
            fs::create_dir_all(dir.path().join(path).join(&leaf).join("init.scope")).unwrap();
        }
        fs::create_dir_all(dir.path().join("remuda/other")).unwrap();
        let found = find(dir.path(), &leaf);
        assert_eq!(found.len(), 2, "{found:?}");
        found.iter().for_each(|group| remove_tree(group));
        assert_eq!(find(dir.path(), &leaf), Vec::<PathBuf>::new());
        assert!(dir.path().join("remuda/other").exists());
    }
}
