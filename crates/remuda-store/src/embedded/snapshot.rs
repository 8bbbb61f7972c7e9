//! Checkpoints and backups: the whole state at one revision in one file.
//!
//! Frames with records in key order, then one with the collections and their newest change, then
//! an end frame with the number of records and frames. Without the end frame the file is not
//! complete. Frames are numbered, so none can be missing or repeated.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;

use super::{
    disk::Disk,
    error::OpenError,
    files,
    format::{
        FRAME_HEADER, Fields, Frame, HEADER, Header, Kind, SNAPSHOT_MAGIC, Value, begin_frame, finish_frame,
        padded, put_collection, put_record,
    },
};
use crate::{
    ListQuery, Record, Revision, Template,
    mvcc::{Mvcc, Pin, collection_of},
    seal::{SealError, Sealing},
};

const CHUNK_RECORDS: usize = 512;
const CHUNK_BYTES: usize = 1 << 20;

/// Writes the pinned state to `path`, complete or not at all. Returns the file's size.
pub(super) fn write(
    path: &Path,
    mvcc: &Mvcc,
    pin: &Pin,
    disk: &dyn Disk,
    sealing: Option<&Sealing>,
    abort: &AtomicBool,
) -> io::Result<u64> {
    let collections = mvcc.collections();
    let header = Header { salt: rand::random(), revision: pin.revision, base: mvcc.base() };
    let query = ListQuery { at: Some(pin.revision), limit: CHUNK_RECORDS, ..ListQuery::default() };
    let chunks = collections.iter().flat_map(|(name, _)| {
        let mut query = Some(ListQuery { prefix: name.to_string(), ..query.clone() });
        std::iter::from_fn(move || {
            let current = query.as_mut()?;
            let page = mvcc.list_without_count(current);
            match &page {
                Ok(records) if records.len() == CHUNK_RECORDS => {
                    current.after = records.last().map(|record| record.key.to_string());
                }
                _ => query = None,
            }
            Some(page.map_err(io::Error::other))
        })
    });
    // A collection changed after the pin says so with a newer revision: at most the next reader
    // believes it knows less history than it does.
    write_file(path, header, chunks, &collections, disk, sealing, abort)
}

pub(super) fn write_file(
    path: &Path,
    header: Header,
    chunks: impl Iterator<Item = io::Result<Vec<Arc<Record>>>>,
    collections: &[(Box<str>, Revision)],
    disk: &dyn Disk,
    sealing: Option<&Sealing>,
    abort: &AtomicBool,
) -> io::Result<u64> {
    let temporary = files::temporary(path);
    let result = (|| {
        let file = files::create_new(&temporary)?;
        let mut out = Output { disk, file: &file, salt: header.salt, at: 0, frames: 0, buffer: Vec::new() };
        out.put(&header.encode(SNAPSHOT_MAGIC))?;
        let mut total = 0u64;
        for records in chunks {
            let records = records?;
            let mut rest = records.as_slice();
            while !rest.is_empty() {
                if abort.load(Ordering::Relaxed) {
                    return Err(io::Error::other("the store is closing"));
                }
                let start = begin_frame(&mut out.buffer);
                let mut count = 0;
                while let Some((record, others)) = rest.split_first() {
                    put_record(&mut out.buffer, record, sealing);
                    (rest, count) = (others, count + 1);
                    if out.buffer.len() > CHUNK_BYTES {
                        break;
                    }
                }
                total += u64::from(count);
                out.finish(start, Kind::Records, count)?;
            }
        }
        let start = begin_frame(&mut out.buffer);
        for (name, last) in collections {
            put_collection(&mut out.buffer, name, *last);
        }
        out.finish(start, Kind::Collections, collections.len() as u32)?;
        let start = begin_frame(&mut out.buffer);
        out.buffer.extend_from_slice(&total.to_le_bytes());
        let frames = out.frames;
        out.buffer.extend_from_slice(&frames.to_le_bytes());
        out.finish(start, Kind::End, 0)?;
        let size = out.at;
        disk.sync_data(&file)?;
        files::put_in_place(&temporary, path)?;
        Ok(size)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

struct Output<'a> {
    disk: &'a dyn Disk,
    file: &'a File,
    salt: u32,
    at: u64,
    frames: u64,
    buffer: Vec<u8>,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(self.file, bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self, start: usize, kind: Kind, count: u32) -> io::Result<()> {
        let number = self.frames;
        self.frames += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        finish_frame(&mut buffer, start, self.salt, kind, count, number);
        let result = self.put(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }
}

/// What a snapshot is of.
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) collections: Vec<(Box<str>, Revision)>,
    pub(super) size: u64,
}

/// Reads and verifies a whole snapshot. `each` gets the records in key order, a part of one
/// collection at a time.
pub(super) fn read(
    path: &Path,
    sealing: Option<&Sealing>,
    mut each: impl FnMut(&str, Vec<Arc<Record>>),
) -> Result<Contents, OpenError> {
    let file = File::open(path).map_err(OpenError::io(path))?;
    let size = file.metadata().map_err(OpenError::io(path))?.len();
    let mut input = io::BufReader::with_capacity(1 << 20, file);
    let mut head = [0; HEADER];
    input.read_exact(&mut head).map_err(|error| short(error, path, 0))?;
    let header = Header::decode(&head, SNAPSHOT_MAGIC, path)?;
    let mut at = HEADER as u64;
    let (mut number, mut total) = (0u64, 0u64);
    let mut collections = Vec::new();
    let mut payload = Vec::new();
    let mut newest_key: Option<Arc<str>> = None;
    let mut reported = 0;
    loop {
        let damaged = |detail: &str| OpenError::damaged(path, at, detail);
        let mut head = [0; FRAME_HEADER];
        input.read_exact(&mut head).map_err(|error| short(error, path, at))?;
        let frame = Frame::decode(&head, header.salt).ok_or_else(|| damaged("this is not a frame"))?;
        if frame.first != number {
            return Err(damaged("a frame is missing or repeated"));
        }
        payload.resize(padded(frame.len), 0);
        input.read_exact(&mut payload).map_err(|error| short(error, path, at))?;
        let bytes = &payload[..frame.len];
        if !frame.matches(bytes, header.salt) {
            return Err(damaged("the checksum is wrong"));
        }
        let mut fields = Fields(bytes);
        match frame.kind {
            Kind::Records => {
                let mut records: Vec<Arc<Record>> = Vec::with_capacity(frame.count as usize);
                for _ in 0..frame.count {
                    let entry = fields.record().ok_or_else(|| damaged("a record makes no sense"))?;
                    if newest_key.as_deref().is_some_and(|newest| newest >= entry.key) {
                        return Err(damaged("records are out of order"));
                    }
                    if entry.revision > header.revision {
                        return Err(damaged("a record is newer than the whole"));
                    }
                    let value = template(entry.key, entry.value, sealing)
                        .map_err(|source| OpenError::Seal { file: path.into(), source })?;
                    let record = Record::new(entry.key.into(), entry.created, entry.revision, &value);
                    newest_key = Some(record.key.clone());
                    records.push(Arc::new(record));
                }
                total += u64::from(frame.count);
                for run in records.chunk_by(|one, other| collection_of(&one.key) == collection_of(&other.key))
                {
                    each(collection_of(&run[0].key), run.to_vec());
                }
            }
            Kind::Collections => {
                for _ in 0..frame.count {
                    let (name, last) =
                        fields.collection().ok_or_else(|| damaged("a collection makes no sense"))?;
                    collections.push((name.into(), last.min(header.revision)));
                }
            }
            Kind::End => {
                let counts = (fields.u64(), fields.u64());
                if counts != (Some(total), Some(number)) {
                    return Err(damaged("the number of records is wrong"));
                }
                return Ok(Contents { header, collections, size });
            }
            Kind::Batch => return Err(damaged("a batch of the log does not belong here")),
        }
        number += 1;
        at += (FRAME_HEADER + payload.len()) as u64;
        if at >= reported + (256 << 20) {
            reported = at;
            tracing::info!(file = %path.display(), read = at, of = size, "reading the checkpoint");
        }
    }
}

/// The value as it was given to the store.
pub(super) fn template(
    key: &str,
    value: Value<'_>,
    sealing: Option<&Sealing>,
) -> Result<Template, SealError> {
    let bytes = if value.sealed {
        let sealing = sealing.ok_or_else(|| SealError::NoKeyring { key: key.into() })?;
        sealing.open(key, value.bytes)?.into()
    } else {
        Bytes::copy_from_slice(value.bytes)
    };
    Ok(Template { bytes, slot: value.slot })
}

fn short(error: io::Error, path: &Path, at: u64) -> OpenError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return OpenError::damaged(path, at, "the file ends too early");
    }
    OpenError::Io { path: path.into(), source: error }
}
