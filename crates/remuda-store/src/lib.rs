//! MVCC key-value store with one global revision, conditional writes and watches.
//!
//! Keys are UTF-8 paths `/<group>/<resource>/…`; the first two segments are the key's
//! *collection*, the unit in which history is kept and watchers are woken. Values are opaque
//! bytes with at most one *slot*: a place where the store writes the revision it assigns, in
//! decimal, so that readers and watchers share finished bytes.
//!
//! Every successful write takes the next revision. Revisions are strictly increasing for the
//! life of the data: across restart, compaction and restore. A write is acknowledged only when
//! it is durable (as far as the engine is) and visible to reads and watches.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;

pub type Revision = u64;

/// A value to store: bytes, and where the assigned revision goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub bytes: Bytes,
    /// Byte offset at which the decimal revision is inserted.
    pub slot: Option<u32>,
}

/// One version of one key. `value` is finished: the slot holds `revision`.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Arc<str>,
    pub created: Revision,
    pub revision: Revision,
    pub value: Bytes,
    /// Where the revision stands in `value`.
    pub slot: Option<Range<u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    Updated,
    Deleted,
}

/// One change, shared by all who watch it.
pub struct Event {
    pub change: Change,
    /// The new state; for a delete the last state, with the delete's revision in the slot.
    pub record: Arc<Record>,
    /// The state before, absent for a create.
    pub previous: Option<Arc<Record>>,
    /// Encoded forms of this event, made by the first reader who needs each.
    pub frames: Frames,
}

/// A single-key write. All of it happens, or nothing.
#[derive(Debug, Clone)]
pub enum Write {
    /// Fails with [`Error::Exists`].
    Create { key: String, value: Template },
    /// Fails with [`Error::Missing`] or [`Error::Conflict`] unless the key is at `expected`.
    Update { key: String, expected: Revision, value: Template },
    /// As update. `last` is the final state watchers see; without it the stored one.
    Delete { key: String, expected: Revision, last: Option<Template> },
}

/// What a read saw, and the revision at which that was the whole truth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    pub revision: Revision,
    pub value: T,
}

#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub prefix: String,
    /// Read the state at this revision; `None` is the most recent.
    pub at: Option<Revision>,
    /// Only keys strictly greater than this one.
    pub after: Option<String>,
    /// At most this many records; 0 is no limit.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The revision the page is consistent at.
    pub revision: Revision,
    /// In key order.
    pub records: Vec<Arc<Record>>,
    /// Keys of the prefix after the last record (so 0: this is the end).
    pub remaining: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Prefix(String),
    /// One key; wakes only for it.
    Key(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the key exists")]
    Exists { revision: Revision },
    #[error("the key does not exist")]
    Missing,
    #[error("the key is at revision {actual}")]
    Conflict { actual: Revision },
    #[error("revision {requested} has been compacted, the oldest is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    #[error("revision {requested} is in the future, the newest is {current}")]
    Future { requested: Revision, current: Revision },
    /// The engine cannot take writes now (disk full, quorum lost). Nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The outcome of the write is unknown (connection lost while it was under way).
    #[error("the outcome of the write is unknown: {0}")]
    Unknown(String),
    #[error("the value has {size} bytes, the limit is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("the store is closed")]
    Closed,
}

/// Why a watch ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// The reader fell behind the kept history; it must list again.
    #[error("history up to revision {oldest} is gone")]
    Compacted { oldest: Revision },
    #[error("the store is closed")]
    Closed,
}

/// The store. Engines differ in where a write becomes durable; reads and watches are served
/// from memory and are linearizable unless said otherwise.
pub trait Store: Send + Sync + 'static {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<At<Option<Arc<Record>>>, Error>>;

    /// Several keys at one revision.
    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> BoxFuture<'a, Result<At<Vec<Option<Arc<Record>>>>, Error>>;

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>>;

    /// Returns the record as stored; for a delete, its final state.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>>;

    /// Every event of the scope with a revision greater than `after`, in order, without gap.
    /// Registration and the look into history are one step.
    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error>;

    /// The newest revision, as of now for every writer.
    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// The newest revision this process has seen. Never blocks.
    fn observed(&self) -> Revision;

    /// Waits until `observed()` is at least `revision` (bounded by the caller's timeout).
    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()>;

    /// Forgets history before `revision`. What is current stays.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;

    fn health(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Stops taking writes, flushes, ends watches. Idempotent.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Encoded forms of an event, by tag.
#[derive(Default)]
pub struct Frames {
    _todo: (),
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// A position in one scope's events.
pub struct Watch {
    _todo: (),
}

impl Watch {
    /// The next events, at least one, in order. Cancel safe.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event>>, WatchEnd> {
        std::future::pending().await
    }

    /// Every event of the scope up to this revision has been returned by `next`.
    pub fn position(&self) -> Revision {
        0
    }
}
