//! The durable engine of a single process: a write-ahead log and checkpoints in one directory.
//!
//! All state is in memory anyway, so the disk only has to be good at one thing: taking a batch
//! of writes with one `write` and one `fdatasync`.
//!
//! ```text
//! LOCK                               held by the process that has the store open
//! STORE                              the directory has been set up; how far the log must reach
//! wal-<first revision>.log           batches of writes
//! checkpoint-<revision>.db           the whole state at a revision
//! ```
//!
//! **Never silently lose data.** A batch cut short at the very end of the log is what a crash
//! leaves: if `STORE` does not say that it was acknowledged, it is left out, and
//! [`Embedded::left_out`] says which revisions that are. A batch that is all there and cannot be
//! read, a log that ends before the mark in `STORE`, and a missing file refuse to open, with the
//! file, the offset and the revisions.
//!
//! **Backups** are files of the checkpoint format, made while the store runs. A restored store
//! continues [`RESTORE_MARGIN`] revisions later: no revision handed out after the backup was made
//! comes again, and watchers from before are told to list anew.

mod checkpoint;
mod disk;
mod error;
mod files;
mod format;
mod mark;
mod recover;
mod snapshot;
mod usage;
mod wal;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64},
        mpsc,
    },
    thread::JoinHandle,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::{
    checkpoint::Checkpointer,
    format::Header,
    mark::{Found, Mark},
    recover::Recovered,
    wal::Segment,
    writer::{Command, Writer},
};
pub use self::{
    disk::{Disk, RealDisk},
    error::OpenError,
    usage::DiskUsage,
    wal::LeftOut,
};
use crate::{
    DEFAULT_VALUE_LIMIT, Error, ListQuery, Page, Policy, Reading, Record, Revision, Scope, Sealing, Store,
    Watch, Write, mvcc::Mvcc,
};

/// How many revisions a restore skips: days of writing at full speed, years at a usual one.
pub const RESTORE_MARGIN: Revision = 10_000_000_000;

#[derive(Clone)]
pub struct Options {
    pub history: Policy,
    pub value_limit: usize,
    /// What is encrypted at rest.
    pub sealing: Option<Sealing>,
    /// A checkpoint is made when the log since the last one exceeds this and the last one's size.
    pub checkpoint_bytes: u64,
    /// A log segment larger than this is followed by a new one.
    pub segment_bytes: u64,
    /// How far a segment is filled with zeros ahead of its end.
    pub preallocate: usize,
    pub disk: Arc<dyn Disk>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Policy::default(),
            value_limit: DEFAULT_VALUE_LIMIT,
            sealing: None,
            checkpoint_bytes: 32 << 20,
            segment_bytes: 64 << 20,
            preallocate: 1 << 20,
            disk: Arc::new(RealDisk),
        }
    }
}

/// What the threads and the callers tell each other.
#[derive(Default)]
struct Shared {
    /// Why nothing can be written until a restart.
    read_only: OnceLock<String>,
    /// Why the last batch was refused.
    failure: Mutex<Option<String>>,
    /// Log since the last checkpoint.
    log_bytes: AtomicU64,
    /// Size of the last checkpoint.
    checkpoint_bytes: AtomicU64,
    checkpointing: AtomicBool,
    abort: AtomicBool,
}

impl Shared {
    fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn set_failure(&self, reason: String) {
        *self.failure.lock() = Some(reason);
    }

    fn clear_failure(&self) {
        *self.failure.lock() = None;
    }
}

/// A durable store in a directory of its own.
pub struct Embedded {
    mvcc: Arc<Mvcc>,
    shared: Arc<Shared>,
    options: Options,
    commands: mpsc::Sender<Command>,
    writer: Option<JoinHandle<()>>,
    left_out: Option<LeftOut>,
}

impl Embedded {
    /// Opens the store in `dir`, setting it up if there is none. Blocks while it reads: in async
    /// code call it on a thread for blocking work.
    pub fn open(dir: impl Into<PathBuf>, options: Options) -> Result<Self, OpenError> {
        let dir = dir.into();
        let Recovered { mvcc, segment, log_bytes, checkpoint_bytes, mark, left_out, lock } =
            recover::open(&dir, &options)?;
        let shared = Arc::new(Shared::default());
        shared.log_bytes.store(log_bytes, std::sync::atomic::Ordering::Relaxed);
        shared.checkpoint_bytes.store(checkpoint_bytes, std::sync::atomic::Ordering::Relaxed);
        let (commands, receiver) = mpsc::channel();
        let (jobs, job_receiver) = mpsc::channel();
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(body).map_err(OpenError::io(&dir))
        };
        let checkpointer = Checkpointer {
            dir: dir.clone(),
            options: options.clone(),
            mvcc: mvcc.clone(),
            shared: shared.clone(),
            jobs: job_receiver,
        };
        let checkpointer = spawn("store-checkpoint", Box::new(move || checkpointer.run()))?;
        let writer = Writer {
            dir: dir.clone(),
            options: options.clone(),
            mvcc: mvcc.clone(),
            shared: shared.clone(),
            segment,
            mark,
            commands: receiver,
            jobs,
            checkpointer,
            lock,
            buffer: Vec::new(),
        };
        let writer = spawn("store-writer", Box::new(move || writer.run()))?;
        Ok(Self { mvcc, shared, options, commands, writer: Some(writer), left_out })
    }

    /// Whether a store has been set up in `dir`.
    pub fn exists(dir: &Path) -> bool {
        dir.join(mark::NAME).exists()
    }

    /// What the recovery at this start could not read and left out, as far as it can be known.
    /// Nothing of it had been acknowledged, unless a power cut also took the note of that.
    pub fn left_out(&self) -> Option<LeftOut> {
        self.left_out
    }

    /// Writes a checkpoint now. After it nothing on disk but it and the log since then is left,
    /// so it also moves all sealed values to the active key of the keyring.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Checkpoint(answer)).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?.map_err(Error::Unavailable)
    }

    /// Writes the state as of now to a file, while everything goes on. Returns its revision.
    /// Sealed values stay sealed: keep a copy of the keyring apart from it.
    pub async fn backup(&self, path: impl Into<PathBuf>, overwrite: bool) -> Result<Revision, Error> {
        let path = path.into();
        let (mvcc, options) = (self.mvcc.clone(), self.options.clone());
        let write = move || {
            if !overwrite && path.exists() {
                return Err(Error::Unavailable(format!("{} exists", path.display())));
            }
            let pin = mvcc.pin();
            let (disk, sealing) = (&*options.disk, options.sealing.as_ref());
            snapshot::write(&path, &mvcc, &pin, disk, sealing, &AtomicBool::new(false))
                .map_err(|error| Error::Unavailable(format!("{}: {error}", path.display())))?;
            Ok(pin.revision)
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    /// Whether a backup could be restored: reads all of it, keeps none of it, and returns its revision.
    pub fn verify(backup: &Path, options: &Options) -> Result<Revision, OpenError> {
        let contents = snapshot::read(backup, options.sealing.as_ref(), |_, _| {})?;
        Ok(contents.header.revision)
    }

    /// Sets up a store in `dir`, which must not hold one, from a backup. Everything is verified
    /// before anything is written.
    pub fn restore(backup: &Path, dir: &Path, options: &Options) -> Result<Revision, OpenError> {
        files::create_dir(dir)?;
        let _lock = files::lock(dir)?;
        let listing = files::list(dir)?;
        if listing.mark != Found::Missing || !listing.segments.is_empty() || !listing.checkpoints.is_empty() {
            return Err(OpenError::NotEmpty { path: dir.into() });
        }
        let mut chunks = Vec::new();
        let sealing = options.sealing.as_ref();
        let contents = snapshot::read(backup, sealing, |_, records| chunks.push(records))?;
        let revision = contents.header.revision + RESTORE_MARGIN;
        let header = Header { salt: rand::random(), revision, base: revision };
        let collections: Vec<_> =
            contents.collections.into_iter().map(|(name, _)| (name, revision)).collect();
        let path = files::checkpoint_path(dir, revision);
        let abort = AtomicBool::new(false);
        // The segment first: a checkpoint without its log would be refused.
        Segment::create(dir, revision + 1, None, options.disk.clone(), options.preallocate)
            .map_err(OpenError::io(dir))?;
        let chunks = chunks.into_iter().map(Ok);
        snapshot::write_file(&path, header, chunks, &collections, &*options.disk, sealing, &abort)
            .map_err(OpenError::io(&path))?;
        Mark::create(dir, options.disk.clone(), revision)?;
        Ok(revision)
    }

    async fn write_through(&self, write: Write) -> Result<Arc<Record>, Error> {
        write.check_size(self.options.value_limit)?;
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Write(write, answer)).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        let (answer, _) = oneshot::channel();
        let _ = self.commands.send(Command::Close(answer));
        // The directory is free for another process, or for us again, when this returns.
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer panicked");
        }
        self.mvcc.close();
    }
}

impl Store for Embedded {
    fn get<'a>(&'a self, key: &'a str) -> Reading<'a, Option<Arc<Record>>> {
        async { self.mvcc.get(key) }.boxed()
    }

    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> Reading<'a, Vec<Option<Arc<Record>>>> {
        async move { self.mvcc.get_many(keys, at) }.boxed()
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>> {
        async move { self.mvcc.list(&query) }.boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        self.write_through(write).boxed()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error> {
        Watch::new(&self.mvcc, scope, after)
    }

    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async { Ok(self.mvcc.published()) }.boxed()
    }

    fn observed(&self) -> Revision {
        self.mvcc.published()
    }

    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.mvcc.wait_for(revision).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.mvcc.compact(revision) }.boxed()
    }

    /// After a refused batch this tries the disk again: space may have returned, and nobody
    /// writes to a store that says it is ill.
    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        async {
            if self.mvcc.is_closed() {
                return Err(Error::Closed);
            }
            if self.shared.failure().is_some() {
                let (answer, answered) = oneshot::channel();
                self.commands.send(Command::Probe(answer)).map_err(|_| Error::Closed)?;
                answered.await.map_err(|_| Error::Closed)?;
            }
            self.shared.failure().map_or(Ok(()), |reason| Err(Error::Unavailable(reason)))
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            let (answer, answered) = oneshot::channel();
            if self.commands.send(Command::Close(answer)).is_ok() {
                let _ = answered.await;
            }
            self.mvcc.close();
        }
        .boxed()
    }
}
