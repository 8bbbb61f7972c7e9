//! Reading a log: from where, how much, and on as it grows.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use futures::{Stream as Pieces, stream};
use jiff::Timestamp;
use tokio::sync::watch;

use super::{Stream, older, starts};

/// What of a log is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail: Option<usize>,
    pub since: Option<Timestamp>,
    pub limit: Option<u64>,
    pub stream: Option<Stream>,
}

/// Bytes sent at once.
const PIECE: usize = 32 << 10;
/// A record is a line of the process and little more; more than this is not one of ours.
const RECORD: usize = 64 << 10;

/// A log that is being read.
pub struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    /// Files after the one that is open.
    next: VecDeque<PathBuf>,
    /// The beginning of a record whose end is not written yet.
    record: Vec<u8>,
    wanted: Wanted,
    left: u64,
}

/// The files of the last start, or of the one before, oldest first. None if there was no such start.
fn files(directory: &Path, previous: bool) -> VecDeque<PathBuf> {
    let mut starts = starts(directory);
    starts.sort_unstable();
    if previous {
        starts.pop();
    }
    let Some((_, path)) = starts.pop() else { return VecDeque::new() };
    [older(&path), path].into_iter().filter(|path| path.exists()).collect()
}

impl Reader {
    /// Opens the log of a container. `None` if it has none.
    pub fn open(directory: &Path, wanted: Wanted) -> io::Result<Option<Reader>> {
        let mut next = files(directory, wanted.previous);
        let skip = match wanted.tail {
            Some(tail) => {
                let mut lines = 0;
                for path in &next {
                    lines += count(path)?;
                }
                lines.saturating_sub(tail)
            }
            None => 0,
        };
        let Some(path) = next.pop_front() else { return Ok(None) };
        let file = BufReader::new(File::open(&path)?);
        let left = wanted.limit.unwrap_or(u64::MAX);
        let mut reader = Reader { path, file, next, record: Vec::new(), wanted, left };
        for _ in 0..skip {
            if !reader.fill()? {
                break;
            }
            reader.record.clear();
        }
        Ok(Some(reader))
    }

    /// Reads one record, newline and all. False if there is none now.
    fn fill(&mut self) -> io::Result<bool> {
        loop {
            if self.record.len() > RECORD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut limited = io::Read::take(&mut self.file, RECORD as u64 + 1);
            limited.read_until(b'\n', &mut self.record)?;
            if self.record.ends_with(b"\n") {
                return Ok(true);
            }
            if self.record.len() <= RECORD && !self.advance()? {
                return Ok(false);
            }
        }
    }

    /// Goes on to the file after this one, if there is one.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(path) = self.next.pop_front() {
            self.file = BufReader::new(File::open(&path)?);
            self.path = path;
            return Ok(true);
        }
        // A log that became too long goes on in another file of the same name.
        let (Ok(now), open) = (std::fs::metadata(&self.path), self.file.get_ref().metadata()?) else {
            return Ok(false);
        };
        if now.ino() == open.ino() {
            return Ok(false);
        }
        // What was written between the last look and the change of files is still in the old one.
        let at = self.file.stream_position()?;
        if open.len() > at {
            self.file.seek(SeekFrom::Start(at))?;
            return Ok(true);
        }
        self.file = BufReader::new(File::open(&self.path)?);
        Ok(true)
    }

    /// What there is to send now, of a bounded size. Empty if nothing.
    pub fn piece(&mut self) -> io::Result<Bytes> {
        let mut piece = Vec::new();
        while piece.len() < PIECE && self.left > 0 && self.fill()? {
            let before = piece.len();
            render(&self.record, &self.wanted, &mut piece);
            self.record.clear();
            let more = (piece.len() - before) as u64;
            piece.truncate(before + more.min(self.left) as usize);
            self.left -= more.min(self.left);
        }
        Ok(piece.into())
    }

    /// The log in pieces. `changes` says when there is more, and closes when there will be no more; without it
    /// what is there is all.
    pub fn pieces(self, changes: Option<watch::Receiver<u64>>) -> impl Pieces<Item = Bytes> + Send {
        let changes = changes.filter(|_| self.wanted.follow);
        stream::unfold((self, changes), |(mut reader, mut changes)| async move {
            loop {
                if let Some(changes) = &mut changes {
                    changes.borrow_and_update();
                }
                let piece = reader.piece().ok()?;
                if !piece.is_empty() {
                    return Some((piece, (reader, changes)));
                }
                if reader.left == 0 {
                    return None;
                }
                let waiting = changes.as_mut()?;
                if waiting.changed().await.is_err() {
                    // What was said last may have come after the last look.
                    changes = None;
                }
            }
        })
    }
}

fn count(path: &Path) -> io::Result<usize> {
    let mut file = BufReader::with_capacity(PIECE, File::open(path)?);
    let mut lines = 0;
    loop {
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            return Ok(lines);
        }
        lines += buffer.iter().filter(|byte| **byte == b'\n').count();
        let read = buffer.len();
        file.consume(read);
    }
}

/// Adds a record as it is wanted. One that is none of ours is passed over.
fn render(record: &[u8], wanted: &Wanted, piece: &mut Vec<u8>) {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let mut parts = record.splitn(4, |byte| *byte == b' ');
    let (Some(time), Some(stream), Some(tag), Some(text)) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    if wanted.stream.is_some_and(|wanted| wanted.as_str().as_bytes() != stream) {
        return;
    }
    if let Some(since) = wanted.since {
        let said = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
        if said.is_none_or(|said| said < since) {
            return;
        }
    }
    if wanted.timestamps {
        piece.extend_from_slice(time);
        piece.push(b' ');
    }
    piece.extend_from_slice(text);
    if tag != b"P" {
        piece.push(b'\n');
    }
}
