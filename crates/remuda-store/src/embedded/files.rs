//! Names, creation and removal of files in the data directory.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{
    error::OpenError,
    mark::{self, Found},
};
use crate::Revision;

const LOCK: &str = "LOCK";

pub(super) struct Listing {
    /// First revisions of log segments, ascending.
    pub(super) segments: Vec<Revision>,
    /// Revisions of checkpoints, ascending.
    pub(super) checkpoints: Vec<Revision>,
    pub(super) mark: Found,
}

pub(super) fn segment_path(dir: &Path, first: Revision) -> PathBuf {
    dir.join(format!("wal-{first:020}.log"))
}

pub(super) fn checkpoint_path(dir: &Path, revision: Revision) -> PathBuf {
    dir.join(format!("checkpoint-{revision:020}.db"))
}

pub(super) fn create_dir(dir: &Path) -> Result<(), OpenError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(OpenError::io(dir))
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)?.sync_all()
}

/// The directory belongs to this process while this lives.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that was just forked still has the file open.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot release the lock file");
        }
    }
}

/// Takes the directory for this process.
pub(super) fn lock(dir: &Path) -> Result<Lock, OpenError> {
    let path = dir.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(OpenError::io(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
            let pid = if pid.is_empty() { "unknown".to_owned() } else { pid };
            return Err(OpenError::Locked { dir: dir.into(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(OpenError::Io { path, source }),
    }
    // Only for the message another process gives; a full disk does not keep the store closed.
    let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    if let Err(error) = noted {
        tracing::warn!(%error, path = %path.display(), "cannot note the process id in the lock file");
    }
    Ok(Lock(file))
}

pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// The name a file has until it is complete.
pub(super) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Gives a complete, synced file its name.
pub(super) fn put_in_place(temporary: &Path, path: &Path) -> io::Result<()> {
    fs::rename(temporary, path)?;
    sync_dir(path.parent().unwrap_or(Path::new("")))
}

/// What is in the directory. Files that were never completed are removed.
pub(super) fn list(dir: &Path) -> Result<Listing, OpenError> {
    let mut listing = Listing { segments: Vec::new(), checkpoints: Vec::new(), mark: mark::read(dir)? };
    for entry in fs::read_dir(dir).map_err(OpenError::io(dir))? {
        let entry = entry.map_err(OpenError::io(dir))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = |prefix, suffix| -> Option<Revision> {
            let digits: &str = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
            if digits.len() == 20 { digits.parse().ok() } else { None }
        };
        if let Some(first) = number("wal-", ".log") {
            listing.segments.push(first);
        } else if let Some(revision) = number("checkpoint-", ".db") {
            listing.checkpoints.push(revision);
        } else if ["wal-", "checkpoint-", mark::NAME].iter().any(|start| name.starts_with(start))
            && name.ends_with(".tmp")
        {
            let path = entry.path();
            fs::remove_file(&path).map_err(OpenError::io(&path))?;
        }
    }
    listing.segments.sort_unstable();
    listing.checkpoints.sort_unstable();
    Ok(listing)
}

/// Removes what a checkpoint at `revision` makes superfluous, oldest first, so that what a crash
/// leaves behind is without gap.
pub(super) fn remove_before(dir: &Path, revision: Revision) -> Result<(), OpenError> {
    let (mut segments, mut checkpoints) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir).map_err(OpenError::io(dir))? {
        let name = entry.map_err(OpenError::io(dir))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let number = |prefix, suffix| -> Option<Revision> {
            name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
        };
        segments.extend(number("wal-", ".log").filter(|first| *first <= revision));
        checkpoints.extend(number("checkpoint-", ".db").filter(|old| *old < revision));
    }
    segments.sort_unstable();
    checkpoints.sort_unstable();
    let segments = segments.into_iter().map(|first| segment_path(dir, first));
    for path in segments.chain(checkpoints.into_iter().map(|old| checkpoint_path(dir, old))) {
        fs::remove_file(&path).map_err(OpenError::io(&path))?;
    }
    Ok(())
}
