//! Two kinds of locks, for two questions.
//!
//! *Is somebody working on it?* A [`Work`] lock is a `flock`: it belongs to an open file, so that a process
//! hands it to the ones it starts (as their standard input) and it is free only when all of them have closed
//! it or are gone. Whoever gets it knows that no half-started process is left.
//!
//! *Is it alive, and which process is it?* A [`Life`] lock is a record lock: the kernel ties it to one
//! process, tells others its id, and drops it at the process's end, however that comes.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
    libc,
    unistd::Pid,
};

use crate::error::{Doing, Error, Result};

/// How often a taken lock is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// The right to change something. Dropping it closes one of possibly several descriptors.
#[derive(Debug)]
pub(crate) struct Work(File);

impl Work {
    /// Waits for the lock. `None` when the file's directory is gone.
    pub(crate) fn wait(path: &Path, patience: Duration) -> Result<Option<Self>> {
        let start = Instant::now();
        loop {
            let Some(file) = open(path)? else { return Ok(None) };
            match file.try_lock() {
                // The file may have been removed while we waited: then others lock another one.
                Ok(()) if is_current(&file, path) => return Ok(Some(Self(file))),
                Ok(()) => {}
                Err(TryLockError::Error(source)) => {
                    return Err(source).doing(|| format!("lock {}", path.display()));
                }
                Err(TryLockError::WouldBlock) => {
                    if start.elapsed() >= patience {
                        let (what, seconds) = (path.display().to_string(), patience.as_secs());
                        return Err(Error::Busy { what, seconds });
                    }
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// The lock as a child's standard input.
    pub(crate) fn share(&self) -> Result<Stdio> {
        self.0.try_clone().map(Stdio::from).doing(|| "share a lock")
    }
}

fn open(path: &Path) -> Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing(|| format!("open {}", path.display())),
    }
}

fn is_current(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(named)) => held.ino() == named.ino() && held.dev() == named.dev(),
        _ => false,
    }
}

/// Proof that this process is the one; kept open for its whole life.
#[derive(Debug)]
pub(crate) struct Life(#[allow(dead_code, reason = "held, not used")] File);

impl Life {
    /// `None` when another process has it, or the place for it is gone.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>> {
        let Some(file) = open(path)? else { return Ok(None) };
        match fcntl(&file, FcntlArg::F_SETLK(&whole(libc::F_WRLCK))) {
            Ok(_) => Ok(is_current(&file, path).then_some(Self(file))),
            Err(Errno::EACCES | Errno::EAGAIN) => Ok(None),
            Err(error) => Err(error).doing(|| format!("lock {}", path.display())),
        }
    }

    /// The process that holds the lock.
    pub(crate) fn holder(path: &Path) -> Result<Option<Pid>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).doing(|| format!("open {}", path.display())),
        };
        let mut question = whole(libc::F_WRLCK);
        fcntl(&file, FcntlArg::F_GETLK(&mut question)).doing(|| format!("ask for {}", path.display()))?;
        let held = i32::from(question.l_type) != libc::F_UNLCK && question.l_pid > 0;
        Ok(held.then(|| Pid::from_raw(question.l_pid)))
    }
}

fn whole(kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_exclusive_until_the_last_copy_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = Work::wait(&path, Duration::ZERO).unwrap().unwrap();
        let shared = first.0.try_clone().unwrap();
        drop(first);
        assert!(matches!(Work::wait(&path, Duration::ZERO), Err(Error::Busy { .. })));
        drop(shared);
        assert!(Work::wait(&path, Duration::ZERO).unwrap().is_some());
    }

    #[test]
    fn a_lock_whose_file_was_replaced_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let old = Work::wait(&path, Duration::ZERO).unwrap().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(Work::wait(&path, Duration::ZERO).unwrap().is_some());
        drop(old);
        assert!(Work::wait(&dir.path().join("gone/lock"), Duration::ZERO).unwrap().is_none());
    }

    #[test]
    fn nobody_lives_in_a_file_that_nobody_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("life");
        assert_eq!(Life::holder(&path).unwrap(), None);
        fs::write(&path, "").unwrap();
        assert_eq!(Life::holder(&path).unwrap(), None);
    }
}
