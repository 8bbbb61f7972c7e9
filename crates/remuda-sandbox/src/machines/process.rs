//! The processes of machines, and files that machines may have changed.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    error::{Doing, Error, Result},
    lock::Life,
    stage::verdict,
};

/// The kernel's own work after a kill.
const GONE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Reads a file that a machine may have replaced by anything: no links, no devices, nothing large.
pub(super) fn read_own(path: &Path) -> Option<String> {
    const MOST: u64 = 1 << 20;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
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
    let text = read_own(log).unwrap_or_default();
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
