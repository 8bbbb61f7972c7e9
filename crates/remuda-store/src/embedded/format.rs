//! How bytes lie on disk. All numbers are little-endian.
//!
//! A file is a header and a sequence of frames, each padded to eight bytes:
//!
//! ```text
//! header  magic 8 │ version 4 │ salt 4 │ revision 8 │ base 8 │ zero 4 │ crc 4
//! frame   magic 4 │ kind 4 │ count 4 │ length 4 │ first 8 │ crc of payload 4 │ crc of header 4 │ payload
//! ```
//!
//! Checksums start from the file's random salt: bytes inside a value can never pass for a frame,
//! whoever chose them. In the log a frame is one batch, written and synced before the next one,
//! so a bad frame with a good one behind it cannot come from a crash: it is damage. Frames of the
//! log are numbered by revision, and a segment names the last frame of the segment before it, so
//! that the log is one chain.

use std::path::Path;

use super::error::OpenError;
use crate::{Change, Event, Record, Revision, seal::Sealing};

pub(super) const FORMAT: u32 = 1;
pub(super) const WAL_MAGIC: [u8; 8] = *b"RMDAWAL\n";
pub(super) const SNAPSHOT_MAGIC: [u8; 8] = *b"RMDASNP\n";
pub(super) const HEADER: usize = 40;
pub(super) const FRAME_HEADER: usize = 32;
const FRAME_MAGIC: u32 = 0x4d52_4652;
const NO_SLOT: u32 = u32::MAX;
const SEALED: u8 = 1;
/// No frame is larger: batches and chunks are cut long before.
pub(super) const MAX_FRAME: usize = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: u32,
    /// Log: the first revision in the file. Snapshot: the revision it is the state of.
    pub(super) revision: Revision,
    /// Snapshot: nothing before this revision is known to anyone. Log: the [`link`] to the segment
    /// before, or 0 if there was none or it is not known.
    pub(super) base: Revision,
}

/// What a segment says about the one before it: its salt and the checksum of its last frame. A
/// segment of another life of the store, put back under the right name, does not fit.
pub(super) fn link(salt: u32, last: u32) -> u64 {
    (u64::from(salt) << 32) | u64::from(last)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Batch = 1,
    Records = 2,
    Collections = 3,
    End = 4,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) count: u32,
    pub(super) len: usize,
    pub(super) first: u64,
    pub(super) crc: u32,
    /// The checksum of the header, which covers `crc` and thereby the whole frame.
    pub(super) own: u32,
}

pub(super) fn crc(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

impl Header {
    pub(super) fn encode(&self, magic: [u8; 8]) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&magic);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&self.salt.to_le_bytes());
        out[16..24].copy_from_slice(&self.revision.to_le_bytes());
        out[24..32].copy_from_slice(&self.base.to_le_bytes());
        let crc = crc(self.salt, &out[..36]);
        out[36..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8], magic: [u8; 8], file: &Path) -> Result<Self, OpenError> {
        let damaged = |detail: &str| OpenError::damaged(file, 0, detail);
        let bytes: &[u8; HEADER] = bytes
            .get(..HEADER)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| damaged("the file ends within its header"))?;
        if bytes[..8] != magic {
            return Err(damaged("it does not start as such a file does"));
        }
        let mut fields = Fields(&bytes[8..]);
        let fields = (|| Some((fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?, fields.u32()?)))();
        let (version, salt, revision, base, _) = fields.ok_or_else(|| damaged("the header is short"))?;
        if version > FORMAT {
            return Err(OpenError::Newer { file: file.into(), found: version, known: FORMAT });
        }
        if crc(salt, &bytes[..36]).to_le_bytes() != bytes[36..] {
            return Err(damaged("the header's checksum is wrong"));
        }
        Ok(Self { salt, revision, base })
    }
}

/// Starts a frame in `out`; `finish_frame` completes it.
pub(super) fn begin_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + FRAME_HEADER, 0);
    start
}

/// Returns the frame's own checksum.
pub(super) fn finish_frame(
    out: &mut Vec<u8>,
    start: usize,
    salt: u32,
    kind: Kind,
    count: u32,
    first: u64,
) -> u32 {
    let len = out.len() - start - FRAME_HEADER;
    let payload = crc(salt, &out[start + FRAME_HEADER..]);
    let header = &mut out[start..start + FRAME_HEADER];
    header[..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
    header[8..12].copy_from_slice(&count.to_le_bytes());
    header[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    header[16..24].copy_from_slice(&first.to_le_bytes());
    header[24..28].copy_from_slice(&payload.to_le_bytes());
    let own = crc(salt, &header[..28]);
    header[28..32].copy_from_slice(&own.to_le_bytes());
    out.resize(start + padded(out.len() - start), 0);
    own
}

impl Frame {
    /// A frame header at the start of `bytes`, if a real one is there.
    pub(super) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER)?;
        let mut fields = Fields(bytes);
        if fields.u32()? != FRAME_MAGIC {
            return None;
        }
        let kind = match fields.u32()? {
            1 => Kind::Batch,
            2 => Kind::Records,
            3 => Kind::Collections,
            4 => Kind::End,
            _ => return None,
        };
        let (count, len, first) = (fields.u32()?, fields.u32()? as usize, fields.u64()?);
        let (payload, own) = (fields.u32()?, fields.u32()?);
        if own != crc(salt, &bytes[..28]) || len > MAX_FRAME {
            return None;
        }
        Some(Self { kind, count, len, first, crc: payload, own })
    }

    pub(super) fn matches(&self, payload: &[u8], salt: u32) -> bool {
        crc(salt, payload) == self.crc
    }
}

/// What one write did, as the log keeps it.
pub(super) struct LogEntry<'a> {
    pub(super) change: Change,
    pub(super) key: &'a str,
    pub(super) value: Value<'a>,
}

/// A template as it lies on disk.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) slot: Option<u32>,
    pub(super) sealed: bool,
    pub(super) bytes: &'a [u8],
}

pub(super) struct RecordEntry<'a> {
    pub(super) created: Revision,
    pub(super) revision: Revision,
    pub(super) key: &'a str,
    pub(super) value: Value<'a>,
}

pub(super) fn put_event(out: &mut Vec<u8>, event: &Event, sealing: Option<&Sealing>) {
    out.push(match event.change {
        Change::Created => 1,
        Change::Updated => 2,
        Change::Deleted => 3,
    });
    put_value(out, &event.record, sealing);
}

pub(super) fn put_record(out: &mut Vec<u8>, record: &Record, sealing: Option<&Sealing>) {
    out.extend_from_slice(&record.created.to_le_bytes());
    out.extend_from_slice(&record.revision.to_le_bytes());
    put_value(out, record, sealing);
}

pub(super) fn put_collection(out: &mut Vec<u8>, name: &str, last: Revision) {
    out.extend_from_slice(&last.to_le_bytes());
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(name.as_bytes());
}

fn put_value(out: &mut Vec<u8>, record: &Record, sealing: Option<&Sealing>) {
    let sealing = sealing.filter(|sealing| sealing.covers(&record.key));
    out.push(if sealing.is_some() { SEALED } else { 0 });
    let slot = record.slot.as_ref().map_or(NO_SLOT, |slot| slot.start);
    out.extend_from_slice(&slot.to_le_bytes());
    out.extend_from_slice(&(record.key.len() as u32).to_le_bytes());
    let len_at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(record.key.as_bytes());
    let start = out.len();
    let (head, tail) = record.parts();
    match sealing {
        Some(sealing) => sealing.seal(&record.key, &[head, tail], out),
        None => {
            out.extend_from_slice(head);
            out.extend_from_slice(tail);
        }
    }
    let len = (out.len() - start) as u32;
    out[len_at..len_at + 4].copy_from_slice(&len.to_le_bytes());
}

/// A reader of fields. `None`: the bytes end too early or make no sense.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    fn value(&mut self) -> Option<(&'a str, Value<'a>)> {
        let flags = self.u8()?;
        if flags & !SEALED != 0 {
            return None;
        }
        let slot = self.u32()?;
        let (key, value) = (self.u32()? as usize, self.u32()? as usize);
        let key = std::str::from_utf8(self.take(key)?).ok()?;
        let bytes = self.take(value)?;
        let slot = (slot != NO_SLOT).then_some(slot);
        Some((key, Value { slot, sealed: flags & SEALED != 0, bytes }))
    }

    pub(super) fn event(&mut self) -> Option<LogEntry<'a>> {
        let change = match self.u8()? {
            1 => Change::Created,
            2 => Change::Updated,
            3 => Change::Deleted,
            _ => return None,
        };
        let (key, value) = self.value()?;
        Some(LogEntry { change, key, value })
    }

    pub(super) fn record(&mut self) -> Option<RecordEntry<'a>> {
        let (created, revision) = (self.u64()?, self.u64()?);
        let (key, value) = self.value()?;
        Some(RecordEntry { created, revision, key, value })
    }

    pub(super) fn collection(&mut self) -> Option<(&'a str, Revision)> {
        let (last, len) = (self.u64()?, self.u32()? as usize);
        Some((std::str::from_utf8(self.take(len)?).ok()?, last))
    }
}
