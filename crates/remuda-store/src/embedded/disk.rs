//! The few file operations durability hangs on, replaceable so that tests can make them fail.

use std::{fs::File, io, os::unix::fs::FileExt};

/// File operations of the log and of checkpoints.
pub trait Disk: Send + Sync + 'static {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes written bytes, and the length needed to read them, survive a power cut.
    fn sync_data(&self, file: &File) -> io::Result<()>;
    fn set_len(&self, file: &File, len: u64) -> io::Result<()>;
}

/// The operating system's.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }
}
