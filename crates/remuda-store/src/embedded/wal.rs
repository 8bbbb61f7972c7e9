//! The write-ahead log: appending batches, and reading them back.
//!
//! A segment is filled with zeros a little ahead of its end: overwriting allocated blocks lets
//! `fdatasync` write data only, without a change of the file's size or extents. A tail of zeros
//! is therefore how a segment normally ends.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    disk::Disk,
    error::OpenError,
    files,
    format::{FRAME_HEADER, Frame, HEADER, Header, Kind, WAL_MAGIC, padded},
};
use crate::Revision;

/// The segment that is being written.
pub(super) struct Segment {
    disk: Arc<dyn Disk>,
    file: File,
    pub(super) salt: u32,
    /// Where the next frame goes.
    end: u64,
    /// The file is zero from `end` to here.
    zeroed: u64,
    ahead: usize,
}

/// Why a batch is not in the log.
pub(super) struct Failure {
    pub(super) cause: io::Error,
    /// The log is as it was before. If not, the batch may turn up after a restart.
    pub(super) undone: bool,
    /// The log can take further batches.
    pub(super) usable: bool,
}

impl Segment {
    pub(super) fn create(dir: &Path, first: Revision, disk: Arc<dyn Disk>, ahead: usize) -> io::Result<Self> {
        let path = files::segment_path(dir, first);
        let temporary = files::temporary(&path);
        let create = || {
            let file = files::create_new(&temporary)?;
            let header = Header { salt: rand::random(), revision: first, base: 0 };
            disk.write_at(&file, &header.encode(WAL_MAGIC), 0)?;
            let zeroed = HEADER + ahead;
            disk.write_at(&file, &vec![0; ahead], HEADER as u64)?;
            disk.sync_data(&file)?;
            files::put_in_place(&temporary, &path)?;
            Ok((file, header.salt, zeroed as u64))
        };
        match create() {
            Ok((file, salt, zeroed)) => Ok(Self { disk, file, salt, end: HEADER as u64, zeroed, ahead }),
            Err(error) => {
                // The writer stays with its old segment. If the new one stays too, recovery finds
                // it empty and out of order, and ignores it.
                let _ = fs::remove_file(&temporary);
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Goes on where a scan found the end of the log.
    pub(super) fn resume(
        path: &Path,
        scan: &Scan,
        disk: Arc<dyn Disk>,
        ahead: usize,
    ) -> Result<Self, OpenError> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).map_err(OpenError::io(path))?;
        let mut zeroed = scan.len;
        if scan.tail != Tail::Clean {
            let cut = || {
                disk.set_len(&file, scan.end)?;
                disk.sync_data(&file)
            };
            cut().map_err(OpenError::io(path))?;
            zeroed = scan.end;
        }
        Ok(Self { disk, file, salt: scan.salt, end: scan.end, zeroed, ahead })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == HEADER as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// Makes a finished frame durable.
    pub(super) fn append(&mut self, frame: &[u8]) -> Result<(), Failure> {
        if let Err(cause) = self.disk.write_at(&self.file, frame, self.end) {
            return Err(self.undo(cause, true));
        }
        let end = self.end + frame.len() as u64;
        let mut zeroed = self.zeroed;
        if end > zeroed {
            // Without the zeros the next syncs are slower, nothing else.
            zeroed = match self.disk.write_at(&self.file, &vec![0; self.ahead], end) {
                Ok(()) => end + self.ahead as u64,
                Err(_) => match self.disk.set_len(&self.file, end) {
                    Ok(()) => end,
                    Err(cause) => return Err(self.undo(cause, true)),
                },
            };
        }
        // What a failed sync has left on disk is unknown, and a second one may report success
        // without having written it: the file is not written any more.
        if let Err(cause) = self.disk.sync_data(&self.file) {
            return Err(self.undo(cause, false));
        }
        (self.end, self.zeroed) = (end, zeroed);
        Ok(())
    }

    fn undo(&mut self, cause: io::Error, usable: bool) -> Failure {
        let cut = self.disk.set_len(&self.file, self.end).and_then(|()| self.disk.sync_data(&self.file));
        self.zeroed = self.end;
        Failure { cause, undone: cut.is_ok(), usable: usable && cut.is_ok() }
    }

    /// Tries whether the disk takes anything.
    pub(super) fn probe(&mut self) -> Result<(), Failure> {
        let zeros = vec![0; self.ahead.max(4096)];
        let written =
            self.disk.write_at(&self.file, &zeros, self.end).and_then(|()| self.disk.sync_data(&self.file));
        match written {
            Ok(()) => {
                self.zeroed = self.zeroed.max(self.end + zeros.len() as u64);
                Ok(())
            }
            Err(cause) => Err(self.undo(cause, true)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// The last frame is followed by nothing or by zeros.
    Clean,
    /// Something was being written when the process or machine died.
    Torn,
}

pub(super) struct Scan {
    salt: u32,
    /// End of the last good frame.
    pub(super) end: u64,
    len: u64,
    pub(super) tail: Tail,
    /// The revision after the last one.
    pub(super) next: Revision,
}

impl Scan {
    pub(super) fn is_empty(&self) -> bool {
        self.end == HEADER as u64 && self.tail == Tail::Clean
    }
}

/// Reads a segment, handing every batch to `each` with its first revision and its offset.
pub(super) fn scan(
    path: &PathBuf,
    first: Revision,
    mut each: impl FnMut(&Frame, &[u8], u64) -> Result<(), OpenError>,
) -> Result<Scan, OpenError> {
    let bytes = fs::read(path).map_err(OpenError::io(path))?;
    let header = Header::decode(&bytes, WAL_MAGIC, path)?;
    if header.revision != first {
        let detail = format!("it starts at revision {}, its name says {first}", header.revision);
        return Err(OpenError::damaged(path, 16, detail));
    }
    let salt = header.salt;
    let (mut at, mut next) = (HEADER, first);
    let tail = loop {
        let Some((frame, payload)) = frame_at(&bytes, at, salt) else {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.iter().all(|byte| *byte == 0) {
                break Tail::Clean;
            }
            if let Some(later) = frame_after(&bytes, at, salt) {
                let detail = format!("this batch cannot be read, but a later one at byte {later} can");
                return Err(OpenError::damaged(path, at as u64, detail));
            }
            break Tail::Torn;
        };
        if frame.kind != Kind::Batch || frame.first != next {
            let detail = format!("expected revision {next}, found {}", frame.first);
            return Err(OpenError::damaged(path, at as u64, detail));
        }
        each(&frame, payload, at as u64)?;
        next += u64::from(frame.count);
        at += padded(FRAME_HEADER + frame.len);
    };
    Ok(Scan { salt, end: at as u64, len: bytes.len() as u64, tail, next })
}

fn frame_at(bytes: &[u8], at: usize, salt: u32) -> Option<(Frame, &[u8])> {
    let rest = bytes.get(at..)?;
    let frame = Frame::decode(rest, salt)?;
    let payload = rest.get(FRAME_HEADER..FRAME_HEADER + frame.len)?;
    frame.matches(payload, salt).then_some((frame, payload))
}

/// The first good frame behind a bad one.
fn frame_after(bytes: &[u8], bad: usize, salt: u32) -> Option<usize> {
    (bad + 8..bytes.len()).step_by(8).find(|at| frame_at(bytes, *at, salt).is_some())
}
