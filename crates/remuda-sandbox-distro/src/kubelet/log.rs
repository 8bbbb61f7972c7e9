//! What the processes of a container say: kept line by line with its time, in the format of the container
//! runtime interface (`<time> <stream> <F|P> <text>`), and told to whoever is attached.
//!
//! Each start of a container has a file of its own, `<restarts>.log`; the last two are kept, so that what the
//! one before said can be read. A file that becomes too long moves to `<restarts>.log.1` once and is followed
//! by a new one.

pub mod read;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{broadcast, watch},
};
use tracing::warn;

/// Where something was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
        }
    }
}

/// Bytes in one file of a log.
const LIMIT: u64 = 10 << 20;
/// Longer lines are kept in pieces, as container runtimes do.
const LINE: usize = 16 << 10;
/// Pieces that somebody who is attached may be behind.
const BEHIND: usize = 64;
const CHUNK: usize = 16 << 10;

/// The log of one start of a container.
pub struct Log {
    file: Mutex<Current>,
    changed: watch::Sender<u64>,
    heard: broadcast::Sender<(Stream, Bytes)>,
}

struct Current {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

/// The directory of a container's logs, in that of its Pod.
pub fn directory(pod: &Path, container: &str) -> PathBuf {
    pod.join("logs").join(container)
}

fn file_name(restarts: i32) -> String {
    format!("{restarts}.log")
}

/// The file before, of a log that became too long.
fn older(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.1", path.display()))
}

impl Log {
    /// Begins the log of a start, and forgets those before the one before it.
    pub fn begin(directory: &Path, restarts: i32) -> io::Result<Log> {
        Log::with_limit(directory, restarts, LIMIT)
    }

    fn with_limit(directory: &Path, restarts: i32, limit: u64) -> io::Result<Log> {
        fs::create_dir_all(directory)?;
        for (number, path) in starts(directory) {
            if number < restarts - 1 {
                let _ = fs::remove_file(older(&path));
                let _ = fs::remove_file(path);
            }
        }
        let path = directory.join(file_name(restarts));
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Log {
            file: Mutex::new(Current { path, file, size, limit }),
            changed: watch::Sender::new(0),
            heard: broadcast::Sender::new(BEHIND),
        })
    }

    /// Changes whenever there is more to read; closed when there will be no more.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// All that is said from now on.
    pub fn listen(&self) -> broadcast::Receiver<(Stream, Bytes)> {
        self.heard.subscribe()
    }

    /// Keeps what comes from a process until it ends.
    pub async fn keep(&self, stream: Stream, mut from: impl AsyncRead + Unpin) {
        let mut lines = Lines::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match from.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let now = Timestamp::now();
            self.write(&lines.take(&chunk[..read], stream, now));
            // Without anybody attached there is nobody to tell.
            if self.heard.receiver_count() > 0 {
                let _ = self.heard.send((stream, Bytes::copy_from_slice(&chunk[..read])));
            }
        }
        self.write(&lines.rest(stream, Timestamp::now()));
    }

    fn write(&self, records: &[u8]) {
        if records.is_empty() {
            return;
        }
        if let Err(error) = self.file.lock().write(records) {
            warn!(%error, "a line of a pod's log is lost");
        }
        self.changed.send_modify(|count| *count += 1);
    }
}

impl Current {
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + records.len() as u64 > self.limit {
            fs::rename(&self.path, older(&self.path))?;
            self.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            self.size = 0;
        }
        self.file.write_all(records)?;
        self.size += records.len() as u64;
        Ok(())
    }
}

/// Logs there are, by the start they are of, in no order.
fn starts(directory: &Path) -> Vec<(i32, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        Some((name.to_str()?.strip_suffix(".log")?.parse().ok()?, entry.path()))
    };
    entries.filter_map(number).collect()
}

/// Puts lines together from pieces.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, mut chunk: &[u8], stream: Stream, now: Timestamp) -> Vec<u8> {
        let mut records = Vec::new();
        while let Some(at) = chunk.iter().position(|byte| *byte == b'\n') {
            self.0.extend_from_slice(&chunk[..at]);
            chunk = &chunk[at + 1..];
            self.record(&mut records, stream, now, true);
        }
        self.0.extend_from_slice(chunk);
        if self.0.len() >= LINE {
            self.record(&mut records, stream, now, false);
        }
        records
    }

    /// What has no end of line.
    fn rest(&mut self, stream: Stream, now: Timestamp) -> Vec<u8> {
        let mut records = Vec::new();
        if !self.0.is_empty() {
            self.record(&mut records, stream, now, false);
        }
        records
    }

    fn record(&mut self, records: &mut Vec<u8>, stream: Stream, now: Timestamp, full: bool) {
        let time = now.strftime("%Y-%m-%dT%H:%M:%S%.9fZ");
        let tag = if full { 'F' } else { 'P' };
        // Writing to memory does not fail.
        let _ = write!(records, "{time} {} {tag} ", stream.as_str());
        records.append(&mut self.0);
        records.push(b'\n');
    }
}

#[cfg(test)]
mod tests;
