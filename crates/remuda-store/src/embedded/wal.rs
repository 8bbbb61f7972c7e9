//! The write-ahead log: appending batches, and reading them back.
//!
//! A segment is filled with zeros a little ahead of its end: overwriting allocated blocks lets
//! `fdatasync` write data only, without a change of the file's size or extents. A tail of zeros
//! is therefore how a segment normally ends.

use std::{
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    disk::Disk,
    error::OpenError,
    files,
    format::{FRAME_HEADER, Frame, HEADER, Header, Kind, WAL_MAGIC, link, padded},
};
use crate::Revision;

/// The segment that is being written.
pub(super) struct Segment {
    disk: Arc<dyn Disk>,
    file: File,
    pub(super) salt: u32,
    /// The checksum of the last frame, 0 before the first one.
    last: u32,
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
    /// `before` is the segment this one follows.
    pub(super) fn create(
        dir: &Path,
        first: Revision,
        before: Option<&Segment>,
        disk: Arc<dyn Disk>,
        ahead: usize,
    ) -> io::Result<Self> {
        let path = files::segment_path(dir, first);
        let temporary = files::temporary(&path);
        let create = || {
            let file = files::create_new(&temporary)?;
            let header =
                Header { salt: rand::random(), revision: first, base: before.map_or(0, Segment::link) };
            disk.write_at(&file, &header.encode(WAL_MAGIC), 0)?;
            let zeroed = HEADER + ahead;
            disk.write_at(&file, &vec![0; ahead], HEADER as u64)?;
            disk.sync_data(&file)?;
            files::put_in_place(&temporary, &path)?;
            Ok((file, header.salt, zeroed as u64))
        };
        match create() {
            Ok((file, salt, zeroed)) => {
                Ok(Self { disk, file, salt, last: 0, end: HEADER as u64, zeroed, ahead })
            }
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
            disk.set_len(&file, scan.end).map_err(OpenError::io(path))?;
            zeroed = scan.end;
        }
        // Of a process that was killed, what was read may be in the kernel's cache only.
        disk.sync_data(&file).map_err(OpenError::io(path))?;
        Ok(Self { disk, file, salt: scan.salt, last: scan.last, end: scan.end, zeroed, ahead })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == HEADER as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.end
    }

    /// What the next segment says about this one.
    fn link(&self) -> u64 {
        link(self.salt, self.last)
    }

    /// Makes a finished frame with this checksum durable.
    pub(super) fn append(&mut self, frame: &[u8], own: u32) -> Result<(), Failure> {
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
        (self.end, self.zeroed, self.last) = (end, zeroed, own);
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
    /// Something was being written when the process or machine died. `count` is the number of
    /// revisions in it, if its header can be read.
    Torn { count: Option<u32> },
    /// There is a frame that cannot be read, and it is not what an interrupted write leaves.
    Damaged { count: Option<u32>, detail: &'static str },
}

impl Tail {
    /// The revisions that cannot be read, of which the first one is known.
    pub(super) fn range(&self, next: Revision) -> Option<LeftOut> {
        match self {
            Tail::Clean => None,
            Tail::Torn { count } | Tail::Damaged { count, .. } => Some(LeftOut {
                first: next,
                last: count.map(|count| next + u64::from(count).saturating_sub(1)),
            }),
        }
    }
}

/// Revisions at the end of the log that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    pub first: Revision,
    /// `None`: unknown, since the header of their batch is not readable either.
    pub last: Option<Revision>,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some(last) if last == self.first => write!(f, "revision {last}"),
            Some(last) => write!(f, "revisions {} to {last}", self.first),
            None => write!(f, "revisions from {} on", self.first),
        }
    }
}

pub(super) struct Scan {
    salt: u32,
    /// What the segment says about the one before it.
    pub(super) before: u64,
    last: u32,
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

    /// What the next segment should say about this one.
    pub(super) fn link(&self) -> u64 {
        link(self.salt, self.last)
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
    let (mut at, mut next, mut last) = (HEADER, first, 0);
    let tail = loop {
        let Some((frame, payload)) = frame_at(&bytes, at, salt) else {
            if let Some(later) = frame_after(&bytes, at, salt) {
                let detail = format!("this batch cannot be read, but a later one at byte {later} can");
                return Err(OpenError::damaged(path, at as u64, detail));
            }
            break tail_at(&bytes, at, salt);
        };
        if frame.kind != Kind::Batch || frame.first != next {
            let detail = format!("expected revision {next}, found {}", frame.first);
            return Err(OpenError::damaged(path, at as u64, detail));
        }
        each(&frame, payload, at as u64)?;
        next += u64::from(frame.count);
        last = frame.own;
        at += padded(FRAME_HEADER + frame.len);
    };
    Ok(Scan { salt, before: header.base, last, end: at as u64, len: bytes.len() as u64, tail, next })
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

/// What disks write as a whole, and files are aligned to.
const SECTOR: usize = 512;

/// Judges what follows the last good frame.
///
/// Where a frame goes the file holds zeros or ends, and an interrupted write leaves some of its
/// sectors as they were, or its beginning without its end. So a frame that was torn lacks
/// something; one that is all there and has a wrong checksum was changed later.
fn tail_at(bytes: &[u8], at: usize, salt: u32) -> Tail {
    let zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let rest = bytes.get(at..).unwrap_or_default();
    if zero(rest) {
        return Tail::Clean;
    }
    let to_sector = SECTOR - at % SECTOR;
    let Some(frame) = Frame::decode(rest, salt) else {
        let count = None;
        // All of it was written or none, in each sector it lies in.
        let lost = |part: Option<&[u8]>| part.is_some_and(|part| !part.is_empty() && zero(part));
        let short = rest.len() < FRAME_HEADER || zero(&rest[FRAME_HEADER - 1..]);
        let first = rest.get(..to_sector.min(rest.len()));
        let second = rest.get(to_sector..FRAME_HEADER.max(to_sector));
        if short || lost(first) || lost(second) {
            return Tail::Torn { count };
        }
        return Tail::Damaged { count, detail: "the header of the last batch is damaged" };
    };
    let count = Some(frame.count);
    let Some(payload) = rest.get(FRAME_HEADER..FRAME_HEADER + frame.len) else {
        return Tail::Torn { count };
    };
    let whole = &rest[..FRAME_HEADER + payload.len()];
    let sectors = &whole[to_sector.min(whole.len())..];
    if payload.ends_with(&[0]) || sectors.chunks(SECTOR).any(zero) {
        return Tail::Torn { count };
    }
    Tail::Damaged { count, detail: "the last batch is all there, but its checksum is wrong" }
}
