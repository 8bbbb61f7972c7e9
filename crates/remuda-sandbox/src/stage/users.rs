//! Users of a machine that have no rights on the host.
//!
//! A machine of a root server is in a user namespace of its own: its users, root among them, are a range of the
//! host's that nothing else uses, and its capabilities are good inside of it only. Such a range is written to
//! the namespace, and the machine's cable is plugged into the hub, by a process that is still root of the host
//! and outside; it is started before, and ends right after.
//!
//! Paths to the data directory are closed to these users. So root first puts what a machine is made of together in
//! a mount namespace, below a directory that everybody may enter, where no other process sees it.

use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::fs::{PermissionsExt, lchown},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use nix::{
    mount::{MsFlags, mount},
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
    unistd::{Gid, Uid, setgroups, setresgid, setresuid},
};
use remuda_drivers::users::FIRST_OF_PROGRAMS;
pub(crate) use remuda_drivers::users::is_host_root;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

use super::{
    hold::{BRIDGE, forbidden},
    machine::{INTERFACE, own},
    program, read_word,
    root::{bind, tmpfs},
    say, verdict,
};
use crate::{
    error::{Doing, Error, Result},
    netlink::{Netlink, Peer},
    place::{Place, RELAY, list, make_dir},
};

/// Users of one machine, as on any host.
pub(crate) const RANGE: u32 = 1 << 16;
/// The first of all ranges. Distributions do not hand these out: users, containers and dynamic users of services are
/// below.
const FIRST: u32 = 0x7000_0000;
/// What is above is left to the users of driver programs.
const RANGES: u32 = (FIRST_OF_PROGRAMS - FIRST) / RANGE;
/// The program, beside the files of a machine.
pub(crate) const STAGED_PROGRAM: &str = "program";
/// Directories that every host has and everybody may enter.
const STAGES: &[&str] = &["/mnt", "/media", "/srv", "/opt", "/home", "/tmp"];

/// What concerns the kernel as a whole, or hardware. The kernel refuses these to a user namespace anyway; what
/// no process has cannot be got back through a mistake there.
const DROPPED: &[CapabilitySet] = &[
    CapabilitySet::AUDIT_CONTROL,
    CapabilitySet::AUDIT_READ,
    CapabilitySet::AUDIT_WRITE,
    CapabilitySet::BLOCK_SUSPEND,
    CapabilitySet::BPF,
    CapabilitySet::LINUX_IMMUTABLE,
    CapabilitySet::MAC_ADMIN,
    CapabilitySet::MAC_OVERRIDE,
    CapabilitySet::MKNOD,
    CapabilitySet::PERFMON,
    CapabilitySet::SYSLOG,
    CapabilitySet::SYS_BOOT,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_PACCT,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_TIME,
    CapabilitySet::SYS_TTY_CONFIG,
    CapabilitySet::WAKE_ALARM,
];

/// A range that is not taken. Data directories begin at different ones: servers on one host know nothing of each
/// other.
pub(crate) fn choose(place: &Path, taken: &[u32]) -> Option<u32> {
    let start = u32::try_from(crate::cgroup::hash(place) % u64::from(RANGES)).unwrap_or_default();
    let range = |number: u32| FIRST + (start + number) % RANGES * RANGE;
    (0..RANGES).map(range).find(|first| !taken.contains(first))
}

/// Gives a tree to the first user of a range. Links are not followed.
pub(crate) fn give(tree: &Path, first: u32) -> Result<()> {
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        lchown(&path, Some(first), Some(first))
            .doing(|| format!("change the owner of {}", path.display()))?;
        if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            pending.extend(list(&path)?);
        }
    }
    Ok(())
}

/// A process that stays root of the host while this one becomes another user.
pub(crate) struct Outside {
    child: Child,
    word: ChildStdin,
    answer: ChildStdout,
}

impl Outside {
    /// With a cable, this process is in the network of the hub.
    pub(crate) fn start(first: u32, cable: bool) -> Result<Self> {
        let mut command = program();
        command.args(["admit", &std::process::id().to_string(), &first.to_string()]);
        command.arg(if cable { "cable" } else { "alone" });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().doing(|| "start the process outside")?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(word), Some(answer)) => Ok(Self { child, word, answer }),
            _ => Err(Error::Stage("the process outside has no pipes".into())),
        }
    }

    /// Enters namespaces of our own and becomes their root.
    pub(crate) fn leave(mut self) -> Result<()> {
        unshare(CloneFlags::CLONE_NEWUSER | own()).map_err(forbidden)?;
        self.word.write_all(b"\n").doing(|| "tell the process outside")?;
        let text = read_word(&mut self.answer);
        let _ = self.child.wait();
        verdict(&text)?;
        become_root()
    }
}

/// The stage outside: gives a process its users, and its network namespace a cable.
pub(crate) fn admit(pid: &str, first: &str, cable: &str) -> Result<()> {
    let wrong = || Error::Usage("remuda sandbox admit PID FIRST cable|alone");
    let pid: i32 = pid.parse().map_err(|_| wrong())?;
    let first: u32 = first.parse().map_err(|_| wrong())?;
    let mut word = [0; 1];
    if std::io::stdin().read(&mut word).doing(|| "wait for the machine")? == 0 {
        // It ended before.
        return Ok(());
    }
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{file}");
        fs::write(&path, format!("0 {first} {RANGE}")).doing(|| format!("write {path}"))?;
    }
    if cable == "cable" {
        let network = File::open(format!("/proc/{pid}/ns/net"));
        let network = network.doing(|| "open the machine's network namespace")?;
        let bridge = if_nametoindex(BRIDGE).doing(|| "find the bridge")?;
        let peer = Peer { name: INTERFACE, namespace: network.as_fd() };
        let mut hub = Netlink::open().doing(|| "open netlink")?;
        hub.add_pair("m%d", bridge, &peer).doing(|| "connect the machine to the bridge")?;
    }
    say("ready");
    Ok(())
}

/// A process that entered a user namespace from outside has the overflow user there until it sets its own.
pub(crate) fn become_root() -> Result<()> {
    let (user, group) = (Uid::from_raw(0), Gid::from_raw(0));
    setgroups(&[]).doing(|| "leave the host's groups")?;
    setresgid(group, group, group).doing(|| "become root of the machine")?;
    setresuid(user, user, user).doing(|| "become root of the machine")
}

/// Takes from this process, and all it will start, what a machine has no use for.
pub(crate) fn drop_capabilities() {
    for capability in DROPPED {
        // A capability the kernel does not know is one no process has.
        let _ = remove_capability_from_bounding_set(*capability);
    }
}

/// Puts the files of a machine where its users can enter, and tells where that is. The rest of this process sees
/// the host's mounts as they are now.
pub(crate) fn stage(place: &Place, id: &str, first: u32) -> Result<PathBuf> {
    const NONE: Option<&str> = None;
    let program = std::env::current_exe().doing(|| "find the program")?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(forbidden)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).doing(|| "keep mounts to ourselves")?;
    let covers = |at: &Path| place.dir().starts_with(at) || program.starts_with(at);
    let free = STAGES.iter().map(Path::new).find(|at| at.is_dir() && !covers(at));
    let at = free.ok_or_else(|| Error::Stage("there is no directory to mount a machine at".into()))?;
    let home = place.machine(id);
    // The machine itself never sees these: it sees what is in `root` and in `run`.
    for name in ["root", "run", "overlay", "mnt"] {
        make_dir(&home.file(name), 0o755)?;
    }
    for name in ["", "root", "run", "overlay", "mnt", "machine.json", "console.log", "life"] {
        let path = home.file(name);
        if path.exists() {
            lchown(&path, Some(first), Some(first))
                .doing(|| format!("change the owner of {}", path.display()))?;
        }
    }
    // Whoever gets here may call the server; the way here leads through the data directory or this stage.
    for (path, mode) in [(place.relay(), 0o755), (place.relay().join(RELAY), 0o666)] {
        let mode = Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).doing(|| format!("open {} to the machine", path.display()))?;
    }
    let staged = Place::at(at);
    tmpfs(at, "mode=755,size=64k")?;
    for (from, to) in [
        (home.dir().to_owned(), staged.machine(id).dir().to_owned()),
        (place.relay(), staged.relay()),
        (place.images(), staged.images()),
        (place.preloaded(), staged.preloaded()),
    ] {
        make_dir(&from, 0o755)?;
        bind(&from, &to)?;
    }
    let to = at.join(STAGED_PROGRAM);
    File::create(&to).doing(|| format!("make {}", to.display()))?;
    bind(&program, &to)?;
    Ok(at.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_run_out() {
        let place = Path::new("/data/sandbox");
        let one = choose(place, &[]).unwrap();
        let two = choose(place, &[one]).unwrap();
        assert!(one.abs_diff(two) >= RANGE);
        assert!(one >= FIRST && u64::from(one) + u64::from(RANGE) <= 1 << 31);
        let all: Vec<u32> = (0..RANGES).map(|number| FIRST + number * RANGE).collect();
        assert_eq!(choose(place, &all), None);
        assert_eq!(choose(place, &all[1..]), Some(FIRST));
    }
}
