//! Values, versions, writes and what can go wrong.

use std::{fmt, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::Frames;

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
#[derive(Debug)]
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

impl Scope {
    pub(crate) fn holds(&self, key: &str) -> bool {
        match self {
            Self::Prefix(prefix) => key.starts_with(prefix.as_str()),
            Self::Key(only) => key == only,
        }
    }
}

impl Template {
    /// A value without a slot.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), slot: None }
    }

    pub fn with_slot(bytes: impl Into<Bytes>, slot: u32) -> Self {
        Self { bytes: bytes.into(), slot: Some(slot) }
    }

    /// The finished bytes with `revision` written into the slot. A slot past the end counts as
    /// one at the end.
    pub(crate) fn finish(&self, revision: Revision) -> (Bytes, Option<Range<u32>>) {
        let Some(slot) = self.slot else { return (self.bytes.clone(), None) };
        let at = (slot as usize).min(self.bytes.len());
        splice(&self.bytes[..at], revision, &self.bytes[at..])
    }
}

fn splice(head: &[u8], revision: Revision, tail: &[u8]) -> (Bytes, Option<Range<u32>>) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    let mut rest = revision;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[start..];
    let mut bytes = Vec::with_capacity(head.len() + digits.len() + tail.len());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(digits);
    bytes.extend_from_slice(tail);
    let slot = head.len() as u32;
    (bytes.into(), Some(slot..slot + digits.len() as u32))
}

impl Record {
    pub(crate) fn new(key: Arc<str>, created: Revision, revision: Revision, value: &Template) -> Self {
        let (value, slot) = value.finish(revision);
        Self { key, created, revision, value, slot }
    }

    /// The value around the slot: with nothing between them these are the template's bytes.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        match &self.slot {
            Some(slot) => (&self.value[..slot.start as usize], &self.value[slot.end as usize..]),
            None => (&self.value, &[]),
        }
    }

    /// The same state under another revision.
    pub(crate) fn moved_to(&self, revision: Revision) -> Self {
        let (value, slot) = match &self.slot {
            Some(_) => {
                let (head, tail) = self.parts();
                splice(head, revision, tail)
            }
            None => (self.value.clone(), None),
        };
        Self { key: self.key.clone(), created: self.created, revision, value, slot }
    }
}

impl Event {
    pub(crate) fn new(change: Change, record: Arc<Record>, previous: Option<Arc<Record>>) -> Arc<Self> {
        Arc::new(Self { change, record, previous, frames: Frames::default() })
    }

    pub fn revision(&self) -> Revision {
        self.record.revision
    }

    /// Bytes that only history keeps alive once this event happened.
    pub(crate) fn superseded(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |record| record.value.len());
        let last = if self.change == Change::Deleted { self.record.value.len() } else { 0 };
        previous + last
    }
}

impl Write {
    pub fn key(&self) -> &str {
        match self {
            Self::Create { key, .. } | Self::Update { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(crate) fn value(&self) -> Option<&Template> {
        match self {
            Self::Create { value, .. } | Self::Update { value, .. } => Some(value),
            Self::Delete { last, .. } => last.as_ref(),
        }
    }

    pub(crate) fn check_size(&self, limit: usize) -> Result<(), Error> {
        match self.value().map(|value| value.bytes.len()) {
            Some(size) if size > limit => Err(Error::TooLarge { size, limit }),
            _ => Ok(()),
        }
    }

    /// Whether the write may happen to a key in this state.
    pub(crate) fn check(&self, current: Option<&Arc<Record>>) -> Result<(), Error> {
        match (self, current) {
            (Self::Create { .. }, Some(record)) => Err(Error::Exists { revision: record.revision }),
            (Self::Create { .. }, None) => Ok(()),
            (_, None) => Err(Error::Missing),
            (Self::Update { expected, .. } | Self::Delete { expected, .. }, Some(record)) => {
                if record.revision == *expected {
                    Ok(())
                } else {
                    Err(Error::Conflict { actual: record.revision })
                }
            }
        }
    }

    /// What the write does at `revision` to a key in this state.
    pub(crate) fn event(
        &self,
        current: Option<&Arc<Record>>,
        revision: Revision,
    ) -> Result<Arc<Event>, Error> {
        self.check(current)?;
        let key = || current.map_or_else(|| Arc::from(self.key()), |record| record.key.clone());
        let created = current.map_or(revision, |record| record.created);
        let (change, record) = match self {
            Self::Create { value, .. } => (Change::Created, Record::new(key(), created, revision, value)),
            Self::Update { value, .. } => (Change::Updated, Record::new(key(), created, revision, value)),
            Self::Delete { last: Some(value), .. } => {
                (Change::Deleted, Record::new(key(), created, revision, value))
            }
            Self::Delete { last: None, .. } => {
                let record = current.ok_or(Error::Missing)?;
                (Change::Deleted, record.moved_to(revision))
            }
        };
        Ok(Event::new(change, Arc::new(record), current.cloned()))
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("key", &self.key)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_written_into_the_slot() {
        for (slot, revision, expect, range) in [
            (3, 7, "abc7def", 3..4),
            (0, 120, "120abcdef", 0..3),
            (6, 0, "abcdef0", 6..7),
            (99, 5, "abcdef5", 6..7),
        ] {
            let record = Record::new("/a/b/c".into(), 1, revision, &Template::with_slot("abcdef", slot));
            assert_eq!((record.value.as_ref(), record.slot.clone()), (expect.as_bytes(), Some(range)));
            let (head, tail) = record.parts();
            assert_eq!([head, tail].concat(), b"abcdef");
        }
    }

    #[test]
    fn a_state_moves_to_a_revision_of_another_length() {
        let record = Record::new("/a/b/c".into(), 1, 9, &Template::with_slot("<>", 1));
        let moved = record.moved_to(u64::MAX);
        assert_eq!(moved.value, "<18446744073709551615>");
        assert_eq!(moved.slot, Some(1..21));
        assert_eq!((moved.created, moved.revision), (1, u64::MAX));
    }
}
