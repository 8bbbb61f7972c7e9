//! Blobs that were fetched from registries: on a bounded disk, each downloaded once for all who wait for it.
//!
//! ```text
//! blobs/<hex>        whole, and checked when it came
//! blobs/<hex>.part   not yet; a download goes on where this one ended, also after a restart
//! tags/<hex>         what a tag stood for when it was asked for last
//! ```
//!
//! What was not used for longest goes first when room is needed. Requests that are being answered with it have it open.

mod download;

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use remuda_oci::Digest;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

pub use self::download::Download;
use crate::upstream::{Blob, UpstreamError};

/// Downloads at a time; the others wait.
const DOWNLOADS: usize = 8;
const PART: &str = ".part";

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("{0}")]
    Upstream(Arc<UpstreamError>),
    #[error("keep it in {}: {reason}", path.display())]
    Disk { path: PathBuf, reason: String },
    #[error("blob {digest} has {size} bytes, and the cache keeps {limit}")]
    TooLarge { digest: String, size: u64, limit: u64 },
    #[error("blob {digest} differs from its digest")]
    Digest { digest: String },
    #[error("blob {digest} has more bytes than were announced")]
    Announced { digest: String },
    #[error("the download of blob {digest} was given up")]
    GivenUp { digest: String },
}

struct Kept {
    size: u64,
    /// Larger is later.
    used: u64,
}

#[derive(Default)]
struct State {
    kept: HashMap<String, Kept>,
    /// Bytes that are kept or promised to downloads.
    total: u64,
    turn: u64,
    running: HashMap<String, Arc<Download>>,
}

pub struct Store {
    directory: PathBuf,
    limit: u64,
    state: Mutex<State>,
    turns: Semaphore,
    /// Downloads. One that is cut off goes on with the next request for it.
    tasks: TaskTracker,
}

/// Starts or goes on with a download from an offset.
pub type Start = Arc<dyn Fn(u64) -> BoxFuture<'static, Result<Blob, UpstreamError>> + Send + Sync>;

impl Store {
    /// Opens a directory, and makes it if it is not there.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Store> {
        for name in ["blobs", "tags"] {
            fs::create_dir_all(directory.join(name))?;
        }
        let mut found: Vec<(SystemTime, String, u64)> = Vec::new();
        for entry in fs::read_dir(directory.join("blobs"))? {
            let entry = entry?;
            let (metadata, name) = (entry.metadata()?, entry.file_name().to_string_lossy().into_owned());
            found.push((metadata.modified()?, name, metadata.len()));
        }
        found.sort();
        let mut state = State::default();
        for (_, name, size) in found {
            state.turn += 1;
            state.total += size;
            state.kept.insert(name, Kept { size, used: state.turn });
        }
        let store = Store {
            directory: directory.to_owned(),
            limit,
            state: Mutex::new(state),
            turns: Semaphore::new(DOWNLOADS),
            tasks: TaskTracker::new(),
        };
        store.make_room(&mut store.state.lock(), 0, "");
        Ok(store)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join("blobs").join(name)
    }

    /// Bytes on disk, or promised.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }

    /// A blob that is whole.
    pub fn get(&self, digest: &str) -> Option<(File, u64)> {
        let name = name(digest);
        let mut state = self.state.lock();
        state.turn += 1;
        let turn = state.turn;
        let kept = state.kept.get_mut(name)?;
        kept.used = turn;
        let size = kept.size;
        drop(state);
        let file = File::open(self.path(name)).ok()?;
        // Read again after a restart. That it was used is worth no failure.
        let _ = file.set_modified(SystemTime::now());
        Some((file, size))
    }

    /// A small blob.
    pub fn small(&self, digest: &str) -> Option<Vec<u8>> {
        let (mut file, size) =
            self.get(digest).filter(|(_, size)| *size <= crate::manifest::LARGEST as u64)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
        io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        crate::manifest::has_digest(&bytes, digest).then_some(bytes)
    }

    /// Keeps a small blob, such as a manifest.
    pub fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let digest = Digest::of(bytes).to_string();
        let name = name(&digest).to_owned();
        self.promise(&digest, bytes.len() as u64)?;
        let path = self.path(&name);
        let pending = path.with_extension("new");
        let written = fs::write(&pending, bytes).and_then(|()| fs::rename(&pending, &path));
        let mut state = self.state.lock();
        match written {
            Ok(()) => {
                state.turn += 1;
                let kept = Kept { size: bytes.len() as u64, used: state.turn };
                if let Some(before) = state.kept.insert(name, kept) {
                    state.total -= before.size;
                }
                Ok(digest)
            }
            Err(error) => {
                state.total -= bytes.len() as u64;
                Err(self.disk(&error))
            }
        }
    }

    /// What a name stood for.
    pub fn tag(&self, name: &str) -> Option<String> {
        let digest = fs::read_to_string(self.tag_path(name)).ok()?;
        remuda_oci::reference::is_digest(&digest).then_some(digest)
    }

    pub fn set_tag(&self, name: &str, digest: &str) -> Result<(), StoreError> {
        let path = self.tag_path(name);
        let pending = path.with_extension("new");
        let written = fs::write(&pending, digest).and_then(|()| fs::rename(&pending, &path));
        written.map_err(|error| self.disk(&error))
    }

    fn tag_path(&self, name: &str) -> PathBuf {
        self.directory.join("tags").join(Digest::of(name.as_bytes()).hex())
    }

    /// The download of a blob: the one that is running, or a new one.
    pub fn download(self: &Arc<Self>, digest: &str, start: Start) -> Arc<Download> {
        let mut state = self.state.lock();
        if let Some(running) = state.running.get(name(digest)) {
            return running.clone();
        }
        // The download may have ended since the caller looked for the blob.
        if let Some(kept) = state.kept.get(name(digest))
            && let Ok(file) = File::open(self.path(name(digest)))
        {
            return Arc::new(Download::finished(file, kept.size));
        }
        let part = format!("{}{PART}", name(digest));
        // From here on its bytes are those of the download.
        if let Some(before) = state.kept.remove(&part) {
            state.total -= before.size;
        }
        let (download, task) = download::begin(self.clone(), digest, self.path(&part), start);
        state.running.insert(name(digest).to_owned(), download.clone());
        drop(state);
        self.tasks.spawn(task);
        download
    }

    /// A download has ended, for which `promised` bytes were set aside; `written` is its size if it is whole.
    fn ended(&self, digest: &str, promised: u64, written: Option<u64>) {
        let name = name(digest);
        let mut state = self.state.lock();
        state.running.remove(name);
        state.total -= promised;
        state.turn += 1;
        let used = state.turn;
        let (name, size) = match written {
            Some(size) => (name.to_owned(), size),
            None => {
                let part = format!("{name}{PART}");
                let Ok(metadata) = fs::metadata(self.path(&part)) else { return };
                (part, metadata.len())
            }
        };
        state.total += size;
        state.kept.insert(name, Kept { size, used });
    }

    /// Sets room aside, and takes it from what was not used for longest.
    fn promise(&self, digest: &str, size: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if size > self.limit || !self.make_room(&mut state, size, name(digest)) {
            return Err(StoreError::TooLarge { digest: digest.to_owned(), size, limit: self.limit });
        }
        state.total += size;
        Ok(())
    }

    fn make_room(&self, state: &mut State, size: u64, but: &str) -> bool {
        while state.total + size > self.limit {
            let oldest = state.kept.iter().filter(|(name, _)| *name != but).min_by_key(|(_, kept)| kept.used);
            let Some((oldest, _)) = oldest else { return false };
            let oldest = oldest.clone();
            let _ = fs::remove_file(self.path(&oldest));
            tracing::debug!(blob = oldest, "let go of a blob to make room");
            if let Some(gone) = state.kept.remove(&oldest) {
                state.total -= gone.size;
            }
        }
        true
    }

    fn disk(&self, error: &io::Error) -> StoreError {
        StoreError::Disk { path: self.directory.clone(), reason: error.to_string() }
    }
}

/// Digests were checked for their form, so this is 64 hexadecimal digits.
fn name(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}

#[cfg(test)]
mod tests;
