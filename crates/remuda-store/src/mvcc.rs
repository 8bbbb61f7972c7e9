//! The state all engines share: every key's recent versions and every collection's recent
//! events, in memory.
//!
//! A writer (there is one at a time) adds the events of a batch to their collections and then
//! publishes the batch's last revision. Readers take the published revision first and pick, for
//! each key, the newest version that is not newer: they see batches whole or not at all, and
//! never wait for more than a page being copied.
//!
//! History is trimmed by the writer as it appends, a few events per write. Nothing newer than
//! the published revision, or than a [`Pin`], is trimmed: what a reader has chosen to read
//! stays readable while it holds the collection's lock, and what a checkpoint reads stays for as
//! long as it takes.

mod ages;
mod chain;
mod collection;
mod groups;

use std::{
    collections::BTreeMap,
    future::poll_fn,
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};

use self::{ages::Ages, collection::Cut, groups::GroupName};
pub(crate) use self::{
    collection::{Collection, Found},
    groups::Group,
};
use crate::{
    At, Error, Event, ListQuery, Page, Record, Revision, Scope, WatchEnd,
    bell::{Bell, Listener},
};

/// Records copied under one lock by lists without a limit.
const LIST_CHUNK: usize = 4096;

/// How much history a collection keeps.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Events are kept for this long…
    pub age: Duration,
    /// …and at least this many of them…
    pub events: usize,
    /// …unless the values only they keep alive take more than this.
    pub superseded_bytes: usize,
    /// A past state can be named for so long after it was replaced, even if the events since then are all kept.
    pub past: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(300),
            events: 10_000,
            superseded_bytes: 8 << 20,
            past: Duration::from_secs(300),
        }
    }
}

pub(crate) struct Mvcc {
    collections: RwLock<BTreeMap<Box<str>, Arc<Collection>>>,
    published: AtomicU64,
    /// Woken at every publication: for those who wait for a revision or read everything.
    progress: Arc<Bell>,
    pins: Mutex<Pins>,
    policy: Policy,
    ages: Ages,
    /// Where history begins for collections nothing is known of.
    base: AtomicU64,
    closed: AtomicBool,
}

#[derive(Default)]
struct Pins {
    /// Pinned revisions with the number of their holders.
    held: BTreeMap<Revision, usize>,
    /// A compaction that had to stop at a pin.
    deferred: Revision,
}

/// The state at `revision` stays readable while this lives.
pub(crate) struct Pin {
    mvcc: Arc<Mvcc>,
    pub(crate) revision: Revision,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let deferred = {
            let mut pins = self.mvcc.pins.lock();
            if let Some(count) = pins.held.get_mut(&self.revision) {
                *count -= 1;
                if *count == 0 {
                    pins.held.remove(&self.revision);
                }
            }
            if pins.held.is_empty() { std::mem::take(&mut pins.deferred) } else { 0 }
        };
        if deferred > 0 {
            self.mvcc.compact_to(deferred);
        }
    }
}

/// The name of the collection a key or prefix lies in: up to and with the third slash. A key
/// with fewer is a collection of its own. So defined, collections sorted by name hold their keys
/// in key order.
pub(crate) fn collection_of(key: &str) -> &str {
    let mut slashes = key.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.nth(2).map_or(key, |(index, _)| &key[..=index])
}

/// Whether all keys with this prefix are in one collection.
pub(crate) fn is_narrow(prefix: &str) -> bool {
    collection_of(prefix).bytes().filter(|byte| *byte == b'/').count() == 3
}

impl Mvcc {
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            collections: RwLock::default(),
            published: AtomicU64::new(0),
            progress: Arc::default(),
            pins: Mutex::default(),
            policy,
            ages: Ages::new(),
            base: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn published(&self) -> Revision {
        self.published.load(Ordering::Acquire)
    }

    fn find(&self, name: &str) -> Option<Arc<Collection>> {
        self.collections.read().get(name).cloned()
    }

    pub(crate) fn collection(&self, name: &str) -> Arc<Collection> {
        if let Some(found) = self.find(name) {
            return found;
        }
        let base = self.base.load(Ordering::Acquire);
        let mut collections = self.collections.write();
        collections.entry(name.into()).or_insert_with(|| Arc::new(Collection::new(name, base))).clone()
    }

    /// The collections that may hold keys with this prefix, in key order.
    fn spanned(&self, prefix: &str) -> Vec<Arc<Collection>> {
        if is_narrow(prefix) {
            return self.find(collection_of(prefix)).into_iter().collect();
        }
        let collections = self.collections.read();
        let range = collections.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        range
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, collection)| collection.clone())
            .collect()
    }

    // ---- writing: one writer at a time ----

    /// The newest state, published or not. For the writer.
    pub(crate) fn newest(&self, key: &str) -> Option<Arc<Record>> {
        self.find(collection_of(key))?.newest(key)
    }

    /// Applies a batch (in revision order), publishes `revision` and wakes who is concerned.
    pub(crate) fn commit(&self, events: &[Arc<Event>], revision: Revision) {
        let mut wakes = Vec::new();
        if !events.is_empty() {
            let now = Instant::now();
            self.ages.committed(now, revision, self.policy.past);
            let limit = self.trim_limit();
            let name = |event: &Arc<Event>| collection_of(&event.record.key).len();
            let same = |one: &Arc<Event>, other: &Arc<Event>| {
                one.record.key.get(..name(one)) == other.record.key.get(..name(other))
            };
            for run in events.chunk_by(same) {
                let collection = self.collection(collection_of(&run[0].record.key));
                collection.append(run, revision, limit, &self.policy, now, &mut wakes);
            }
        }
        self.published.store(revision, Ordering::Release);
        self.progress.ring();
        for wake in wakes {
            wake.ring();
        }
    }

    /// What may be trimmed. Never more than is published, so a reader that takes the published
    /// revision under a collection's lock can read it there.
    fn trim_limit(&self) -> Revision {
        let pins = self.pins.lock();
        pins.held.keys().next().copied().unwrap_or_else(|| self.published())
    }

    /// Keeps the published state readable. Read and registered as one step: what was trimmed
    /// before is older.
    pub(crate) fn pin(self: &Arc<Self>) -> Pin {
        let mut pins = self.pins.lock();
        let revision = self.published();
        *pins.held.entry(revision).or_default() += 1;
        Pin { mvcc: self.clone(), revision }
    }

    pub(crate) fn compact(&self, revision: Revision) -> Result<(), Error> {
        let current = self.published();
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        {
            let mut pins = self.pins.lock();
            if pins.held.keys().next().is_some_and(|oldest| *oldest < revision) {
                pins.deferred = pins.deferred.max(revision);
            }
        }
        self.compact_to(revision);
        Ok(())
    }

    fn compact_to(&self, revision: Revision) {
        for collection in self.spanned("") {
            collection.compact(revision, || self.trim_limit());
        }
    }

    /// Puts records without history in place, before anything is published. `last` is the newest
    /// change their collection ever had.
    pub(crate) fn load(&self, name: &str, records: impl Iterator<Item = Arc<Record>>, last: Revision) {
        self.collection(name).load(records, last);
    }

    /// Declares everything before `revision` unknown, also of collections not seen yet.
    pub(crate) fn set_base(&self, revision: Revision) {
        self.base.fetch_max(revision, Ordering::AcqRel);
        for collection in self.spanned("") {
            collection.load(std::iter::empty(), revision);
        }
    }

    /// Replaces everything by a newer state (records in key order); all watches end.
    ///
    /// The new collections and the revision appear under one lock. A reader that found an old
    /// collection before finds it retired and looks again.
    pub(crate) fn replace(&self, records: &[Arc<Record>], revision: Revision) {
        self.base.fetch_max(revision, Ordering::AcqRel);
        let mut new = BTreeMap::new();
        let same =
            |one: &Arc<Record>, other: &Arc<Record>| collection_of(&one.key) == collection_of(&other.key);
        for run in records.chunk_by(same) {
            let name = collection_of(&run[0].key);
            let collection = Collection::new(name, revision);
            collection.load(run.iter().cloned(), revision);
            new.insert(name.into(), Arc::new(collection));
        }
        let mut wakes = Vec::new();
        let old = {
            let mut collections = self.collections.write();
            for collection in collections.values() {
                wakes.extend(collection.retire(revision));
            }
            self.published.store(revision, Ordering::Release);
            std::mem::replace(&mut *collections, new)
        };
        drop(old);
        self.progress.ring();
        for wake in wakes {
            wake.ring();
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.progress.ring();
        for collection in self.spanned("") {
            collection.wake_all();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Name and newest change of every collection, in order.
    pub(crate) fn collections(&self) -> Vec<(Box<str>, Revision)> {
        self.spanned("").into_iter().map(|collection| (collection.name.clone(), collection.last())).collect()
    }

    // ---- reading ----

    fn check_seen(&self, at: Option<Revision>) -> Result<(), Error> {
        let current = self.published();
        match at {
            Some(requested) if requested > current => Err(Error::Future { requested, current }),
            Some(requested) if requested < current => {
                let oldest = self.ages.oldest(current, Instant::now(), self.policy.past);
                // A pinned state is read for as long as that takes.
                let pinned = || self.pins.lock().held.contains_key(&requested);
                if requested < oldest && !pinned() {
                    return Err(Error::Compacted { requested, oldest });
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Result<At<Option<Arc<Record>>>, Error> {
        retrying(None, || {
            let Some(collection) = self.find(collection_of(key)) else {
                return Ok(At { revision: self.published(), value: None });
            };
            let (revision, value) = collection.get(key, || self.published())?;
            Ok(At { revision, value })
        })
    }

    pub(crate) fn get_many(
        &self,
        keys: &[String],
        at: Option<Revision>,
    ) -> Result<At<Vec<Option<Arc<Record>>>>, Error> {
        self.check_seen(at)?;
        retrying(at, || {
            let revision = at.unwrap_or_else(|| self.published());
            let one = |key: &String| match self.find(collection_of(key)) {
                Some(collection) => collection.get(key, || revision).map(|(_, record)| record),
                None => self.check_base(revision).map(|()| None),
            };
            let value = keys.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            Ok(At { revision, value })
        })
    }

    fn check_base(&self, revision: Revision) -> Result<(), Error> {
        let oldest = self.base.load(Ordering::Acquire);
        if revision < oldest { Err(Error::Compacted { requested: revision, oldest }) } else { Ok(()) }
    }

    /// One chunk of a pinned state, from within one collection.
    pub(crate) fn list_without_count(&self, query: &ListQuery) -> Result<Vec<Arc<Record>>, Error> {
        let mut records = Vec::new();
        let Some(collection) = self.find(collection_of(&query.prefix)) else { return Ok(records) };
        let revision = query.at.unwrap_or_else(|| self.published());
        let after = query.after.as_deref();
        collection.list(&Cut { prefix: &query.prefix, after, revision, limit: query.limit }, &mut records)?;
        Ok(records)
    }

    pub(crate) fn base(&self) -> Revision {
        self.base.load(Ordering::Acquire)
    }

    pub(crate) fn list(&self, query: &ListQuery) -> Result<Page, Error> {
        self.check_seen(query.at)?;
        retrying(query.at, || self.page(query, query.at.unwrap_or_else(|| self.published())))
    }

    fn page(&self, query: &ListQuery, revision: Revision) -> Result<Page, Error> {
        self.check_base(revision)?;
        let prefix = query.prefix.as_str();
        let mut page = Page { revision, records: Vec::new(), remaining: 0 };
        let spanned = self.spanned(prefix);
        let mut collections = spanned.iter();
        for collection in collections.by_ref() {
            let listed = page.records.len();
            let wanted = query.limit.saturating_sub(listed);
            let mut after = query.after.clone();
            let cut_short = loop {
                let had = page.records.len();
                let got = had - listed;
                let chunk = if query.limit == 0 { LIST_CHUNK } else { (wanted - got).min(LIST_CHUNK) };
                let cut = Cut { prefix, after: after.as_deref(), revision, limit: chunk };
                let more = collection.list(&cut, &mut page.records)?;
                let full = query.limit != 0 && page.records.len() == query.limit;
                if !more || full {
                    break more;
                }
                after = page.records.last().map(|record| record.key.to_string());
            };
            if cut_short && let Some(last) = page.records.last() {
                let key = last.key.clone();
                let cut = Cut { prefix, after: query.after.as_deref(), revision, limit: 0 };
                page.remaining = collection.remaining(&cut, page.records.len() - listed, &key)?;
            }
            if query.limit != 0 && page.records.len() == query.limit {
                break;
            }
        }
        for collection in collections {
            page.remaining += collection.count(prefix, query.after.as_deref(), revision)?;
        }
        Ok(page)
    }

    // ---- watching ----

    /// Checks and registers interest in part of one collection.
    pub(crate) fn join(
        &self,
        scope: &Scope,
        after: Revision,
    ) -> Result<(Arc<Collection>, Arc<Group>), Error> {
        let (Scope::Key(path) | Scope::Prefix(path)) = scope;
        retrying(Some(after), || {
            let collection = self.collection(collection_of(path));
            let name = GroupName::of(scope, &collection.name);
            let group = collection.join(&name, after)?;
            Ok((collection, group))
        })
    }

    /// Checks that a reader of several collections misses nothing after `after`.
    pub(crate) fn check_span(&self, prefix: &str, after: Revision) -> Result<(), Error> {
        retrying(Some(after), || {
            self.check_base(after)?;
            for collection in self.spanned(prefix) {
                let oldest = collection.floor();
                if after < oldest {
                    return Err(Error::Compacted { requested: after, oldest });
                }
            }
            Ok(())
        })
    }

    /// Events of several collections after `cursor`, in revision order.
    pub(crate) fn span_events(&self, prefix: &str, cursor: Revision) -> Result<Found, WatchEnd> {
        let published = self.published();
        let mut found = Found { events: Vec::new(), upto: published.max(cursor) };
        for collection in self.spanned(prefix) {
            let part = collection.events_of_prefix(prefix, cursor, published)?;
            found.upto = found.upto.min(part.upto);
            found.events.extend(part.events);
        }
        // Looked at last: a replacement of everything moves it before it moves anything else.
        let oldest = self.base.load(Ordering::Acquire);
        if cursor < oldest {
            return Err(WatchEnd::Compacted { oldest });
        }
        // Beyond this some collection has not been read.
        found.events.retain(|event| event.record.revision <= found.upto);
        found.events.sort_by_key(|event| event.record.revision);
        Ok(found)
    }

    /// Rung at every publication.
    pub(crate) fn progress(&self) -> &Arc<Bell> {
        &self.progress
    }

    pub(crate) async fn wait_for(&self, revision: Revision) {
        let mut listener = Listener::new(self.progress.clone());
        poll_fn(|context| {
            listener.listen(context);
            if self.published() >= revision { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Collection {
    pub(crate) fn look(
        &self,
        scope: &Scope,
        group: &Group,
        cursor: Revision,
        published: Revision,
    ) -> Result<Found, WatchEnd> {
        self.events(scope, group, cursor, published)
    }

    pub(crate) fn quit(&self, group: &Group) {
        self.leave(group);
    }
}

/// A read of "now" that history overtook is made again at a newer now, and one that found a
/// replaced collection is made again in the new one.
fn retrying<T>(at: Option<Revision>, mut read: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut attempts = 0;
    loop {
        match read() {
            Err(Error::Compacted { oldest, .. })
                if (at.is_none() || oldest == collection::RETIRED) && attempts < 100 =>
            {
                attempts += 1;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
