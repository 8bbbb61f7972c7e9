//! The high-water mark: up to which revision the log is known to be durable.
//!
//! The end of a log looks the same whether nothing came after it or it was cut off there. The
//! file `STORE` therefore says how far the log must reach:
//!
//! ```text
//! byte    0  format 2␊
//! byte  512  slot 0    magic 8 │ revision 8 │ crc 4 │ zero 4
//! byte 1024  slot 1    the same
//! ```
//!
//! The mark is written after a batch was synced and before it is acknowledged, into the slots by
//! turns, and is not synced itself: that would double the cost of a write. So it never says more
//! than is durable. It survives the death of the process; after a power cut it may lag behind by
//! what the kernel had not yet written back. It is synced when a segment or the store is closed.
//!
//! Format 1 is the first line alone. Programs that know only format 1 look at the presence of the
//! file and leave its content alone, so a mark they left behind is old, and never too new.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{disk::Disk, error::OpenError, files, format};
use crate::Revision;

/// Present once the store has been set up: a directory with it and without data lost its data.
pub(super) const NAME: &str = "STORE";
const FORMAT: u32 = 2;
const MAGIC: [u8; 8] = *b"RMDAMRK\n";
/// Sectors of their own, so that no write of one slot can damage the other.
const SLOTS: [usize; 2] = [512, 1024];
const SLOT: usize = 24;
const LEN: usize = 1536;

/// What a directory says about how far its log must reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The store has not been set up.
    Missing,
    /// The store was set up by a program that kept no mark.
    Unmarked,
    /// Everything up to this revision was durable.
    Durable(Revision),
}

impl Found {
    pub(super) fn revision(self) -> Revision {
        match self {
            Found::Missing | Found::Unmarked => 0,
            Found::Durable(revision) => revision,
        }
    }
}

pub(super) fn read(dir: &Path) -> Result<Found, OpenError> {
    let path = dir.join(NAME);
    match fs::read(&path) {
        Ok(bytes) => decode(&bytes, &path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        Err(source) => Err(OpenError::Io { path, source }),
    }
}

fn decode(bytes: &[u8], path: &Path) -> Result<Found, OpenError> {
    let damaged = |offset: usize, detail: &str| OpenError::damaged(path, offset as u64, detail);
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let format = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("format "));
    let format: u32 =
        format.and_then(|format| format.parse().ok()).ok_or_else(|| damaged(0, "it names no format"))?;
    if format > FORMAT {
        return Err(OpenError::Newer { file: path.into(), found: format, known: FORMAT });
    }
    if format < FORMAT {
        // A longer file had slots once, and its first line is damaged.
        let whole = bytes.len() == line.len() + 1;
        return if whole { Ok(Found::Unmarked) } else { Err(damaged(0, "it names a wrong format")) };
    }
    let newest = SLOTS.iter().filter_map(|at| slot(bytes, *at)).max();
    newest.map(Found::Durable).ok_or_else(|| damaged(SLOTS[0], "it does not say how far the log reaches"))
}

fn slot(bytes: &[u8], at: usize) -> Option<Revision> {
    let (body, crc) = bytes.get(at..at + 20)?.split_at(16);
    let valid = body[..8] == MAGIC && format::crc(0, body).to_le_bytes() == crc;
    valid.then(|| Revision::from_le_bytes(body[8..].try_into().unwrap_or_default()))
}

fn encode(revision: Revision) -> [u8; SLOT] {
    let mut out = [0; SLOT];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&revision.to_le_bytes());
    let crc = format::crc(0, &out[..16]);
    out[16..20].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The mark of a store that is open.
pub(super) struct Mark {
    disk: Arc<dyn Disk>,
    file: File,
    path: PathBuf,
    /// Where the next mark goes: never over the newest one.
    next: usize,
    /// A failure has been logged.
    failing: bool,
}

impl Mark {
    /// Puts a file in place that says `revision`, which must be durable.
    pub(super) fn create(dir: &Path, disk: Arc<dyn Disk>, revision: Revision) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let write = || {
            let mut bytes = vec![0; LEN];
            writeln!(&mut bytes[..], "format {FORMAT}")?;
            bytes[SLOTS[0]..SLOTS[0] + SLOT].copy_from_slice(&encode(revision));
            let temporary = files::temporary(&path);
            let mut file = files::create_new(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            files::put_in_place(&temporary, &path)?;
            Ok(file)
        };
        let file = write().map_err(OpenError::io(&path))?;
        Ok(Self { disk, file, path, next: 1, failing: false })
    }

    /// Notes that everything up to `revision` is durable. A failure is no reason to refuse a
    /// write that is in the log: it is logged, and the mark lags behind.
    pub(super) fn advance(&mut self, revision: Revision) {
        let written = self.disk.write_at(&self.file, &encode(revision), SLOTS[self.next] as u64);
        self.noted(written);
        self.next = 1 - self.next;
    }

    pub(super) fn sync(&mut self) {
        let synced = self.disk.sync_data(&self.file);
        self.noted(synced);
    }

    fn noted(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                let file = self.path.display();
                tracing::warn!(%error, %file, "cannot note how far the log reaches");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RealDisk;

    fn decoded(bytes: &[u8]) -> Result<Found, OpenError> {
        decode(bytes, Path::new("STORE"))
    }

    #[test]
    fn the_newest_mark_counts_and_damage_to_one_slot_is_survived() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Mark::create(dir.path(), Arc::new(RealDisk), 7).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Found::Durable(7));
        for revision in 8..12 {
            mark.advance(revision);
            assert_eq!(read(dir.path()).unwrap(), Found::Durable(revision));
        }
        let whole = fs::read(dir.path().join(NAME)).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x20;
            match decoded(&bytes) {
                Ok(found) => assert!((10..=11).contains(&found.revision()), "byte {at}: {found:?}"),
                Err(error) => assert!(at < 9, "byte {at}: {error}"),
            }
            match decoded(&whole[..at]) {
                Ok(found) => assert!((10..=11).contains(&found.revision()), "cut to {at}: {found:?}"),
                Err(error) => assert!(at < SLOTS[1] + SLOT, "cut to {at}: {error}"),
            }
        }
    }

    #[test]
    fn the_format_before_marks_is_known_and_a_newer_one_is_refused() {
        assert_eq!(decoded(b"format 1\n").unwrap(), Found::Unmarked);
        assert!(matches!(decoded(b"format 3\n"), Err(OpenError::Newer { found: 3, .. })));
        for damaged in [&b""[..], b"format", b"format 2\n", b"format 1\n\0\0", b"hello\n"] {
            assert!(matches!(decoded(damaged), Err(OpenError::Damaged { .. })), "{damaged:?}");
        }
    }
}
