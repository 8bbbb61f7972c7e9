//! The root of a machine, put together from single directories.
//!
//! An overlay over the whole of `/` does not work for unprivileged users: the host's mounts below it are
//! locked together. So the root is a directory of the machine's own, kept over restarts; the host's programs
//! appear in it read-only, directory by directory.

use std::{
    fs::{self, File},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{chdir, geteuid, pivot_root},
};

use remuda_names::sandbox::{IMAGES, PRELOADED, PROGRAM};

use super::hold::forbidden;
use crate::{
    cgroup,
    error::{Doing, Result},
    place::{Home, Place, list, make_dir, replace},
    seed::{OVERLAID, TOOLS},
    volume::Volume,
};

/// The host's programs and libraries, where they exist. Links stay links.
const HOST: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu"];
const DEVICES: &[&str] = &["full", "null", "random", "tty", "urandom", "zero"];
/// Devices of the host that a real distribution wants. Machines that are kept apart from the host have none.
const HOST_DEVICES: &[&str] = &["fuse", "kmsg"];
/// Settings of the whole kernel, not of a namespace, that Kubernetes' nodes set on start. A machine may set
/// them for itself, to no effect: whether the host panics is not its business.
const SETTINGS: &[&str] = &[
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];
const NONE: Option<&str> = None;

/// Builds the root and moves into it. The caller is alone in its mount namespace.
pub(crate) fn enter(
    place: &Place,
    home: &Home,
    program: &Path,
    volumes: &[Volume],
    isolated: bool,
) -> Result<()> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).doing(|| "keep mounts to ourselves")?;
    let root = home.file("mnt");
    bind(&home.private(""), &root)?;
    programs(&root)?;
    for path in OVERLAID {
        overlay(path, home, &root)?;
    }
    kernel(&root, isolated)?;
    settings(home, &root.join("proc/sys"))?;
    tmpfs(&root.join("run"), "mode=755")?;
    tmpfs(&root.join("tmp"), "mode=1777")?;
    let run = root.join("run/remuda");
    make_dir(&home.file("run/relay"), 0o755)?;
    bind(&home.file("run"), &run)?;
    bind(&place.relay(), &run.join("relay"))?;
    read_only(&run.join("relay"), None)?;
    for (images, inside) in [(place.images(), IMAGES), (place.preloaded(), PRELOADED)] {
        let inside = root.join(inside.trim_start_matches('/'));
        make_dir(&images, 0o755)?;
        bind(&images, &inside)?;
        read_only(&inside, None)?;
    }
    for Volume { host, inside } in volumes {
        bind(host, &root.join(inside.strip_prefix("/").unwrap_or(inside)))?;
    }
    let inside = root.join(PROGRAM.trim_start_matches('/'));
    bind(program, &inside)?;
    read_only(&inside, None)?;
    pivot(&root)?;
    // As on any host: what is mounted later is seen by whoever has a copy of this tree, such as containers.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SHARED, NONE).doing(|| "share mounts inside")?;
    cgroup::settle();
    inside_root();
    Ok(())
}

fn programs(root: &Path) -> Result<()> {
    for name in HOST {
        host(&Path::new("/").join(name), &root.join(name))?;
    }
    make_dir(&root.join("usr"), 0o755)?;
    for entry in list(Path::new("/usr"))? {
        if let Some(name) = entry.file_name().filter(|name| *name != "local") {
            host(&entry, &root.join("usr").join(name))?;
        }
    }
    read_only(root, Some(root))
}

/// A directory of the host's `/etc` that the machine may change for itself. Where that is not possible,
/// because of the file system the data directory is on, it is read-only.
fn overlay(path: &str, home: &Home, root: &Path) -> Result<()> {
    let (from, to) = (Path::new("/etc").join(path), root.join("etc").join(path));
    if !from.is_dir() {
        return Ok(());
    }
    make_dir(&to, 0o755)?;
    let (upper, work) = (home.file("overlay/upper").join(path), home.file("overlay/work").join(path));
    make_dir(&upper, 0o755)?;
    make_dir(&work, 0o755)?;
    let plain = |path: &Path| {
        path.display().to_string().replace('\\', "\\\\").replace(',', "\\,").replace(':', "\\:")
    };
    let options = format!("lowerdir={},upperdir={},workdir={}", plain(&from), plain(&upper), plain(&work));
    for options in [format!("{options},userxattr"), options] {
        let mounted = mount(Some("overlay"), &to, Some("overlay"), MsFlags::empty(), Some(options.as_str()));
        if mounted.is_ok() {
            return Ok(());
        }
    }
    bind(&from, &to)?;
    read_only(&to, None)
}

/// One entry of the host, as a link or read-only.
fn host(from: &Path, to: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(from) else { return Ok(()) };
    if meta.is_symlink() {
        let target = fs::read_link(from).doing(|| format!("read link {}", from.display()))?;
        if fs::read_link(to).is_ok_and(|current| current == target) {
            return Ok(());
        }
        let _ = fs::remove_file(to);
        return symlink(target, to).doing(|| format!("link {}", to.display()));
    }
    if meta.is_dir() { bind(from, to) } else { Ok(()) }
}

fn kernel(root: &Path, isolated: bool) -> Result<()> {
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let at = |path: &str| -> Result<PathBuf> {
        let path = root.join(path);
        make_dir(&path, 0o755)?;
        Ok(path)
    };
    mount(Some("proc"), &at("proc")?, Some("proc"), safe, NONE).map_err(forbidden)?;
    let sys = at("sys")?;
    if mount(Some("sysfs"), &sys, Some("sysfs"), safe, NONE).is_err() {
        bind(Path::new("/sys"), &sys)?;
    } else if Path::new(cgroup::UNIFIED).exists() {
        groups(&sys.join("fs/cgroup"), safe)?;
    }
    let dev = at("dev")?;
    tmpfs(&dev, "mode=755,size=64k")?;
    let host = if isolated { &[][..] } else { HOST_DEVICES };
    for name in DEVICES.iter().chain(host) {
        let from = Path::new("/dev").join(name);
        if from.exists() {
            let to = dev.join(name);
            File::create(&to).doing(|| format!("make {}", to.display()))?;
            bind(&from, &to)?;
        }
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name)).doing(|| format!("link /dev/{name}"))?;
    }
    let no_exec = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    mount(Some("devpts"), &at("dev/pts")?, Some("devpts"), no_exec, options).doing(|| "mount /dev/pts")?;
    tmpfs(&at("dev/shm")?, "mode=1777")
}

/// Lays files of the machine's own over settings of the kernel. Without root nothing can be set anyway.
fn settings(home: &Home, at: &Path) -> Result<()> {
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if !users.split_whitespace().eq(["0", "0", "4294967295"]) {
        return Ok(());
    }
    let own = home.file("settings");
    make_dir(&own, 0o700)?;
    for name in SETTINGS {
        let (setting, file) = (at.join(name), own.join(name.replace('/', ".")));
        let Ok(value) = fs::read(&setting) else { continue };
        replace(&file, &value, 0o644)?;
        bind(&file, &setting)?;
    }
    Ok(())
}

/// Control groups: the machine sees its own as the root of all. Where that cannot be done, what the host has.
fn groups(at: &Path, safe: MsFlags) -> Result<()> {
    let host = Path::new(cgroup::UNIFIED);
    if host.join("cgroup.controllers").exists() {
        if mount(Some("cgroup2"), at, Some("cgroup2"), safe, NONE).is_ok() {
            return Ok(());
        }
    } else if tmpfs(at, "mode=755").is_ok() {
        if old_groups(at, safe).is_ok() {
            return Ok(());
        }
        let _ = umount2(at, MntFlags::MNT_DETACH);
    }
    bind(host, at)
}

/// Hierarchies of the old form, each in a directory as on the host, with the links between them.
fn old_groups(at: &Path, safe: MsFlags) -> Result<()> {
    let host = Path::new(cgroup::UNIFIED);
    for hierarchy in cgroup::mounted() {
        let Ok(name) = hierarchy.point.strip_prefix(host) else { continue };
        let point = at.join(name);
        make_dir(&point, 0o755)?;
        let kind = if hierarchy.old.is_some() { "cgroup" } else { "cgroup2" };
        mount(Some(kind), &point, Some(kind), safe, hierarchy.old.as_deref())
            .doing(|| format!("mount {}", point.display()))?;
    }
    for entry in list(host)?.into_iter().filter(|entry| entry.is_symlink()) {
        if let (Some(name), Ok(target)) = (entry.file_name(), fs::read_link(&entry)) {
            symlink(target, at.join(name)).doing(|| format!("link {}", entry.display()))?;
        }
    }
    Ok(())
}

pub(super) fn tmpfs(at: &Path, options: &str) -> Result<()> {
    make_dir(at, 0o755)?;
    let flags = MsFlags::MS_NOSUID;
    mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options)).map_err(forbidden)
}

pub(super) fn bind(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        make_dir(to, 0o755)?;
    }
    // Always with what is mounted below: unprivileged users may not look under such mounts.
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, NONE, flags, NONE).doing(|| format!("bind {} into the machine", from.display()))
}

/// Makes every mount at and below a path read-only, but the one at `except`.
fn read_only(below: &Path, except: Option<&Path>) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").doing(|| "read the mount table")?;
    for line in table.lines() {
        let Some(entry) = Mount::parse(line) else { continue };
        if !entry.point.starts_with(below) || Some(entry.point.as_path()) == except {
            continue;
        }
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | entry.flags;
        mount(NONE, &entry.point, NONE, flags, NONE)
            .doing(|| format!("make {} read-only", entry.point.display()))?;
    }
    Ok(())
}

/// A line of the mount table.
#[derive(Debug, PartialEq)]
struct Mount {
    point: PathBuf,
    /// Those that must be repeated when remounting: unprivileged users may not take them away.
    flags: MsFlags,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ');
        let point = fields.nth(4)?;
        let mut flags = MsFlags::empty();
        for option in fields.next()?.split(',') {
            flags |= match option {
                "nosuid" => MsFlags::MS_NOSUID,
                "nodev" => MsFlags::MS_NODEV,
                "noexec" => MsFlags::MS_NOEXEC,
                "noatime" => MsFlags::MS_NOATIME,
                "nodiratime" => MsFlags::MS_NODIRATIME,
                "relatime" => MsFlags::MS_RELATIME,
                _ => MsFlags::empty(),
            };
        }
        Some(Self { point: unescape(point), flags })
    }
}

/// Spaces and the like are octal in the mount table.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let (bytes, mut out) = (text.as_bytes(), Vec::new());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *byte == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) => {
                out.push(code);
                at += 4;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

fn pivot(root: &Path) -> Result<()> {
    chdir(root).doing(|| "enter the machine's root")?;
    // The old root ends up on top of the new one, from where it is let go.
    pivot_root(".", ".").doing(|| "change the root")?;
    umount2(".", MntFlags::MNT_DETACH).doing(|| "let go of the host's root")?;
    chdir("/").doing(|| "enter the new root")
}

/// Comforts that need the final paths. None of them is worth failing for.
fn inside_root() {
    for dir in ["/run/systemd/system", "/run/lock", "/run/user", "/run/remuda-notify"] {
        let _ = fs::create_dir_all(dir);
    }
    let _ = fs::set_permissions("/root", fs::Permissions::from_mode(0o700));
    // Scripts call these by their full path; the host's own would look for the host's service manager.
    for tool in TOOLS {
        for dir in ["/usr/bin", "/bin"] {
            let path = Path::new(dir).join(tool);
            if path.exists() && !path.is_symlink() {
                let _ = bind(Path::new(PROGRAM), &path);
                break;
            }
        }
    }
    debug_assert!(geteuid().is_root());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read_with_its_escapes() {
        let line = "36 35 98:0 /mnt1 /my\\040dir/x rw,nosuid,relatime shared:1 - ext4 /dev/root rw";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/my dir/x"));
        assert_eq!(mount.flags, MsFlags::MS_NOSUID | MsFlags::MS_RELATIME);
        assert_eq!(Mount::parse("36 35"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in "\\PC{0,80}") {
            let _ = Mount::parse(&line);
            let _ = unescape(&line);
        }
    }
}
