//! The processes of machines, and files that machines may have changed.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{PermissionsExt, fchown},
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    fcntl::{OFlag, open, openat, renameat},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, UnlinkatFlags, unlinkat},
};

use crate::{
    error::{Doing, Error, Result},
    lock::Life,
    place::{Home, UNFINISHED},
    stage::verdict,
};

/// The kernel's own work after a kill.
const GONE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Reads a file of a machine, which may have replaced it, or any directory on the way there, by anything: no links,
/// no devices, nothing large.
pub(super) fn read_own(home: &Home, path: &str) -> Option<String> {
    let (dir, name) = open_parent(home, path).ok()?;
    read_plain(openat(&dir, name, READ, Mode::empty()).ok()?.into())
}

const READ: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);

fn read_plain(file: File) -> Option<String> {
    const MOST: u64 = 1 << 20;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Puts a file of a machine in place as a whole. As [`read_own`], it never leaves the machine's directories.
pub(super) fn replace_own(home: &Home, path: &str, bytes: &[u8], owner: Option<u32>) -> Result<()> {
    let doing = || format!("write {}", home.private(path).display());
    let (dir, name) = open_parent(home, path).doing(doing)?;
    let temporary = format!("{name}.{}{UNFINISHED}", std::process::id());
    let _ = unlinkat(&dir, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(&dir, temporary.as_str(), flags, Mode::from_bits_truncate(0o600)).doing(doing)?;
    let mut file = File::from(file);
    if owner.is_some() {
        fchown(&file, owner, owner).doing(doing)?;
    }
    file.set_permissions(fs::Permissions::from_mode(0o644)).doing(doing)?;
    file.write_all(bytes).doing(doing)?;
    renameat(&dir, temporary.as_str(), &dir, name).doing(doing)
}

/// The directory of a file of a machine, by steps that follow no link.
fn open_parent<'a>(home: &Home, path: &'a str) -> nix::Result<(OwnedFd, &'a str)> {
    let step = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let (dirs, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut dir = open(&home.private(""), step & !OFlag::O_NOFOLLOW, Mode::empty())?;
    for part in dirs.split('/').filter(|part| !part.is_empty()) {
        dir = openat(&dir, part, step, Mode::empty())?;
    }
    Ok((dir, name))
}

/// Ends the process that holds a life lock, gently first if there is patience, and waits until it is gone
/// with everything that ran below it.
pub(super) fn end_life(path: &Path, patience: Option<Duration>) -> Result<()> {
    let Some(pid) = Life::holder(path)? else { return Ok(()) };
    if let Some(patience) = patience {
        let _ = kill(pid, Signal::SIGTERM);
        if wait_gone(pid, path, patience)? {
            return Ok(());
        }
    }
    // The holder may have changed while we waited; only the lock knows.
    if Life::holder(path)? == Some(pid) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    if wait_gone(pid, path, GONE)? {
        return Ok(());
    }
    Err(Error::Stage(format!("process {pid} cannot be ended")))
}

/// The lock is free before the kernel has ended the processes below: the process must be gone as well.
fn wait_gone(pid: Pid, path: &Path, patience: Duration) -> Result<bool> {
    let start = Instant::now();
    loop {
        if Life::holder(path)? != Some(pid) && is_over(pid) {
            return Ok(true);
        }
        if start.elapsed() >= patience {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
}

/// Gone, or only waiting to be counted by its parent.
fn is_over(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Starts a stage and waits for its word.
pub(super) fn word(command: &mut Command, patience: Duration) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().doing(|| "start a process of the machine")?;
    let text = child.stdout.take().map(|mut out| read_word(&mut out, patience)).transpose();
    if !matches!(&text, Ok(Some(text)) if text.ends_with('\n')) {
        let _ = child.kill();
    }
    let _ = child.wait();
    let text = text.doing(|| "listen to a process of the machine")?.unwrap_or_default();
    verdict(&text)
}

/// Adds the last line of a log to the error of a process that ended without saying why.
pub(super) fn last_words(error: Error, log: &Path) -> Error {
    // Written by us and not seen inside the machine.
    let text = File::open(log).ok().and_then(read_plain).unwrap_or_default();
    match (error, text.lines().rev().find(|line| !line.trim().is_empty())) {
        (Error::Silent(_), Some(line)) => {
            Error::Silent(format!("; the last line of {}: {line}", log.display()))
        }
        (error, _) => error,
    }
}

fn read_word(out: &mut (impl Read + AsFd), patience: Duration) -> io::Result<String> {
    let start = Instant::now();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = patience.saturating_sub(start.elapsed());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let ready = poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLIN)], timeout);
        match ready {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let count = out.read(&mut buffer)?;
        text.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if count == 0 || text.ends_with(b"\n") {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
    }
}
