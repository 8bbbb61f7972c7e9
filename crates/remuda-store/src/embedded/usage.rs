//! What the store takes on disk, for those who watch it: read from the outside, while it runs.

use std::{fs, path::Path, time::SystemTime};

/// Files of an embedded store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// All of them, in bytes.
    pub bytes: u64,
    /// The log since the last checkpoint, in bytes. Room for it is set aside ahead, so it grows in steps.
    pub log_bytes: u64,
    /// When the last checkpoint was made, which is what makes the log short again.
    pub checkpoint: Option<SystemTime>,
}

impl DiskUsage {
    /// Of the directory of a store; nothing if there is none, as with other engines.
    pub fn of(dir: &Path) -> Self {
        let mut usage = Self::default();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if !metadata.is_file() {
                continue;
            }
            usage.bytes += metadata.len();
            match entry.file_name().to_str() {
                Some(name) if name.starts_with("wal-") => usage.log_bytes += metadata.len(),
                Some(name) if name.starts_with("checkpoint-") && name.ends_with(".db") => {
                    usage.checkpoint = usage.checkpoint.max(metadata.modified().ok());
                }
                _ => {}
            }
        }
        usage
    }
}
