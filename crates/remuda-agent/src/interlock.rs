//! Keeping agent and installer out of each other's way.
//!
//! The installer creates `restart-pending` before it replaces the agent and waits until
//! `applyinator-active` is gone; the agent holds off while the former exists, but not for ever.

use std::{fs, path::Path, path::PathBuf};

use remuda_names::agent::path;

use crate::{
    disk::{DiskError, read_if_exists, remove_all, replace},
    stamp::Stamp,
};

const PATIENCE: i64 = 5 * 60;

/// Held while a plan is applied.
#[derive(Debug)]
pub struct Guard(Option<PathBuf>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "cannot remove interlock");
        }
    }
}

/// Why a plan is not applied now.
#[derive(Debug, thiserror::Error)]
pub enum InterlockError {
    /// The agent is about to be replaced.
    #[error("restart of the agent is pending, going on without it in {0} s")]
    RestartPending(i64),
    /// The interlock cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Takes the interlock; an empty directory name means that there is none.
pub fn acquire(directory: &Path, now: Stamp) -> Result<Guard, InterlockError> {
    if directory.as_os_str().is_empty() {
        return Ok(Guard(None));
    }
    let pending = directory.join(path::RESTART_PENDING);
    if let Some(seen) = read_if_exists(&pending, 4096)? {
        let seen = std::str::from_utf8(&seen).ok().and_then(Stamp::parse);
        match seen {
            None => {
                replace(&pending, now.unix_date().as_bytes(), 0o600)?;
                return Err(InterlockError::RestartPending(PATIENCE));
            }
            // A time in the future is as good as one long ago: the clock was set back.
            Some(seen) => match now.since(seen) {
                Some(elapsed) if elapsed < PATIENCE => {
                    return Err(InterlockError::RestartPending(PATIENCE - elapsed));
                }
                _ => remove_all(&pending)?,
            },
        }
    }
    let active = directory.join(path::APPLY_ACTIVE);
    if let Err(error) = replace(&active, now.unix_date().as_bytes(), 0o600) {
        // It only saves an upgrade from waiting; the plan matters more.
        tracing::warn!(error = %crate::Chain(&error), "cannot write interlock");
        return Ok(Guard(None));
    }
    Ok(Guard(Some(active)))
}

/// Removes what an agent killed while applying left behind.
pub fn clear(directory: &Path) {
    if !directory.as_os_str().is_empty() {
        let _ = remove_all(&directory.join(path::APPLY_ACTIVE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_restart_holds_plans_for_five_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let pending = dir.path().join(path::RESTART_PENDING);
        let active = dir.path().join(path::APPLY_ACTIVE);
        let now = Stamp(1_785_747_907);
        fs::write(&pending, "").unwrap();
        assert!(matches!(acquire(dir.path(), now), Err(InterlockError::RestartPending(300))));
        assert!(matches!(acquire(dir.path(), Stamp(now.0 + 299)), Err(InterlockError::RestartPending(1))));
        assert!(!active.exists());
        let guard = acquire(dir.path(), Stamp(now.0 + 300)).unwrap();
        assert!(active.exists() && !pending.exists());
        drop(guard);
        assert!(!active.exists());
    }

    #[test]
    fn without_a_directory_there_is_no_interlock() {
        drop(acquire(Path::new(""), Stamp(0)).unwrap());
        // A directory that is missing must not keep plans from being applied.
        drop(acquire(Path::new("/nonexistent/interlock"), Stamp(0)).unwrap());
    }
}
