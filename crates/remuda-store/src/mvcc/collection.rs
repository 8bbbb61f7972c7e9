//! One collection: its keys, their versions and its recent events.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Instant,
};

use parking_lot::{Mutex, RwLock};

use super::{
    Policy,
    chain::{Chain, Version},
    groups::{Group, GroupName, Groups, News},
};
use crate::{Change, Error, Event, Record, Revision, Scope, WatchEnd, bell::Bell};

/// Events handed out, or looked through, under one lock.
const EVENTS_PER_READ: usize = 512;
const EVENTS_PER_SCAN: usize = 8192;
/// How much history one write may drop. More than it adds, so that the log shrinks; little
/// enough that no write pays for an hour of silence.
const TRIMS_PER_WRITE: usize = 64;
const TRIMS_PER_LOCK: usize = 1024;
const REMEMBERED_PAGES: usize = 16;
/// Encoded forms are kept for the newest events up to this many bytes of values: whoever reads
/// older ones is alone with them.
const ENCODED_BYTES: usize = 1 << 20;
/// The floor of a collection that was replaced: nothing can be read in it.
pub(super) const RETIRED: Revision = Revision::MAX;

pub(crate) struct Collection {
    pub(super) name: Box<str>,
    data: RwLock<Data>,
    /// Locked after `data`, never before.
    groups: Mutex<Groups>,
    /// Where recent pages ended and how many keys were left there.
    pages: Mutex<VecDeque<PageEnd>>,
}

#[derive(Default)]
struct Data {
    keys: BTreeMap<Arc<str>, Chain>,
    /// Keys whose newest version is not a deletion.
    live: usize,
    log: VecDeque<Logged>,
    /// The state at this revision and later, and the events after it, are known.
    floor: Revision,
    /// The newest change.
    last: Revision,
    /// Bytes of values kept only by history.
    superseded: usize,
    /// Events from the front of the log whose encoded forms were dropped…
    cold: usize,
    /// …and the bytes of values of the others.
    warm_bytes: usize,
}

struct Logged {
    at: Instant,
    event: Arc<Event>,
}

struct PageEnd {
    prefix: Box<str>,
    revision: Revision,
    key: Arc<str>,
    remaining: usize,
}

/// What part of a list is wanted.
pub(super) struct Cut<'a> {
    pub(super) prefix: &'a str,
    pub(super) after: Option<&'a str>,
    pub(super) revision: Revision,
    pub(super) limit: usize,
}

/// What a look for events found.
pub(crate) struct Found {
    pub(crate) events: Vec<Arc<Event>>,
    /// Everything up to here has been looked at.
    pub(crate) upto: Revision,
}

impl Collection {
    pub(super) fn new(name: &str, floor: Revision) -> Self {
        let data = Data { floor, last: floor, ..Data::default() };
        Self { name: name.into(), data: RwLock::new(data), groups: Mutex::default(), pages: Mutex::default() }
    }

    /// Puts a state in place that has no history: everything before `floor` is unknown.
    pub(super) fn load(&self, records: impl Iterator<Item = Arc<Record>>, floor: Revision) {
        let mut data = self.data.write();
        for record in records {
            let version = Version { revision: record.revision, record: Some(record.clone()) };
            if data.keys.insert(record.key.clone(), Chain::One(version)).is_none() {
                data.live += 1;
            }
        }
        data.floor = data.floor.max(floor);
        data.last = data.last.max(floor);
    }

    /// Another collection takes this one's place: readers that still found this one look again,
    /// watchers learn that they missed what happened up to `revision`.
    pub(super) fn retire(&self, revision: Revision) -> Vec<Arc<Bell>> {
        let mut data = self.data.write();
        let empty = Data { floor: RETIRED, ..Data::default() };
        let old = std::mem::replace(&mut *data, empty);
        let groups = self.groups.lock();
        groups.reset(revision);
        let wakes = groups.all().cloned().collect();
        drop(groups);
        drop(data);
        // Freed without a lock.
        drop(old);
        wakes
    }

    pub(super) fn newest(&self, key: &str) -> Option<Arc<Record>> {
        self.data.read().keys.get(key).and_then(|chain| chain.newest().record.clone())
    }

    pub(super) fn floor(&self) -> Revision {
        self.data.read().floor
    }

    pub(super) fn last(&self) -> Revision {
        self.data.read().last
    }

    /// The state of a key; `choose` names the revision while nothing can be trimmed.
    pub(super) fn get(
        &self,
        key: &str,
        choose: impl FnOnce() -> Revision,
    ) -> Result<(Revision, Option<Arc<Record>>), Error> {
        let data = self.data.read();
        let revision = choose();
        data.check(revision)?;
        Ok((revision, data.keys.get(key).and_then(|chain| chain.at(revision)).cloned()))
    }

    /// Appends records to `out`; true if the limit cut it short.
    pub(super) fn list(&self, cut: &Cut<'_>, out: &mut Vec<Arc<Record>>) -> Result<bool, Error> {
        let data = self.data.read();
        data.check(cut.revision)?;
        let before = out.len();
        for record in data.range(cut.prefix, cut.after, cut.revision) {
            if cut.limit != 0 && out.len() - before == cut.limit {
                return Ok(true);
            }
            out.push(record.clone());
        }
        Ok(false)
    }

    /// How many keys follow `key`, the last of the `listed` keys of a page.
    pub(super) fn remaining(&self, cut: &Cut<'_>, listed: usize, key: &Arc<str>) -> Result<usize, Error> {
        let known = match cut.after {
            None => {
                let data = self.data.read();
                (cut.prefix == &*self.name && data.last <= cut.revision)
                    .then(|| data.live.saturating_sub(listed))
            }
            // The page before this one knew.
            Some(after) => {
                let pages = self.pages.lock();
                let mut pages = pages.iter();
                pages
                    .find(|end| {
                        end.revision == cut.revision && &*end.key == after && &*end.prefix == cut.prefix
                    })
                    .map(|end| end.remaining.saturating_sub(listed))
            }
        };
        let remaining = match known {
            Some(remaining) => remaining,
            None => self.count(cut.prefix, Some(key), cut.revision)?,
        };
        let mut pages = self.pages.lock();
        if pages.len() == REMEMBERED_PAGES {
            pages.pop_front();
        }
        let (prefix, key) = (cut.prefix.into(), key.clone());
        pages.push_back(PageEnd { prefix, revision: cut.revision, key, remaining });
        Ok(remaining)
    }

    pub(super) fn count(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: Revision,
    ) -> Result<usize, Error> {
        let data = self.data.read();
        data.check(revision)?;
        Ok(data.range(prefix, after, revision).count())
    }

    /// Adds the events of one batch that belong here. They become visible when the caller
    /// publishes `batch`; until then `limit` protects what readers still need.
    pub(super) fn append(
        &self,
        events: &[Arc<Event>],
        batch: Revision,
        limit: Revision,
        policy: &Policy,
        now: Instant,
        wakes: &mut Vec<Arc<Bell>>,
    ) {
        let mut data = self.data.write();
        let groups = self.groups.lock();
        for event in events {
            data.append(event, now);
            if !groups.is_empty() {
                groups.appended(event, &self.name, batch, wakes);
            }
            for _ in 0..TRIMS_PER_WRITE {
                if !data.over(policy, now) {
                    break;
                }
                let Some(trimmed) = data.trim(limit) else { break };
                groups.trimmed(&trimmed, &self.name);
            }
        }
    }

    /// Drops events up to `revision`, a lock's worth at a time.
    pub(super) fn compact(&self, revision: Revision, limit: impl Fn() -> Revision) {
        loop {
            let mut data = self.data.write();
            let limit = limit().min(revision);
            let groups = self.groups.lock();
            for _ in 0..TRIMS_PER_LOCK {
                let Some(trimmed) = data.trim(limit) else { return };
                groups.trimmed(&trimmed, &self.name);
            }
        }
    }

    /// Registers a watcher and checks that nothing after `after` is missing, as one step.
    pub(super) fn join(&self, name: &GroupName, after: Revision) -> Result<Arc<Group>, Error> {
        let data = self.data.read();
        data.check(after)?;
        Ok(self.groups.lock().join(name, data.floor, data.last))
    }

    pub(super) fn leave(&self, group: &Group) {
        self.groups.lock().leave(group);
    }

    /// Events of the scope in `(cursor, published]`.
    pub(super) fn events(
        &self,
        scope: &Scope,
        group: &Group,
        cursor: Revision,
        published: Revision,
    ) -> Result<Found, WatchEnd> {
        let upto = published.max(cursor);
        match group.news(cursor, published) {
            News::None => return Ok(Found { events: Vec::new(), upto }),
            News::One(event) => {
                let events = if scope.holds(&event.record.key) { vec![event] } else { Vec::new() };
                return Ok(Found { events, upto });
            }
            News::Unknown => {}
        }
        let data = self.data.read();
        let state = group.state();
        if cursor < state.floor {
            return Err(WatchEnd::Compacted { oldest: state.floor });
        }
        match scope {
            Scope::Key(key) => {
                drop(state);
                Ok(data.events_of_key(key, cursor, published))
            }
            Scope::Prefix(prefix) if **prefix != *self.name && cursor >= state.recent_from => {
                let first = state.recent.partition_point(|event| event.record.revision <= cursor);
                let events = state.recent.range(first..);
                Ok(gather(events, |event| event.record.key.starts_with(prefix), cursor, published))
            }
            Scope::Prefix(prefix) => {
                drop(state);
                let whole = **prefix == *self.name;
                let wanted = |event: &Event| whole || event.record.key.starts_with(prefix);
                Ok(data.events_after(wanted, cursor, published))
            }
        }
    }

    /// As `events`, for readers of several collections, who have no group here.
    pub(super) fn events_of_prefix(
        &self,
        prefix: &str,
        cursor: Revision,
        published: Revision,
    ) -> Result<Found, WatchEnd> {
        let data = self.data.read();
        if data.last <= cursor {
            return Ok(Found { events: Vec::new(), upto: published.max(cursor) });
        }
        if cursor < data.floor {
            return Err(WatchEnd::Compacted { oldest: data.floor });
        }
        Ok(data.events_after(|event| event.record.key.starts_with(prefix), cursor, published))
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> usize {
        self.groups.lock().all().count()
    }

    pub(super) fn wake_all(&self) {
        let bells: Vec<_> = self.groups.lock().all().cloned().collect();
        for bell in bells {
            bell.ring();
        }
    }
}

impl Data {
    fn check(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.floor {
            return Err(Error::Compacted { requested: revision, oldest: self.floor });
        }
        Ok(())
    }

    fn range<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        revision: Revision,
    ) -> impl Iterator<Item = &'a Arc<Record>> + 'a {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.keys
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter_map(move |(_, chain)| chain.at(revision))
    }

    fn append(&mut self, event: &Arc<Event>, now: Instant) {
        let record = &event.record;
        let revision = record.revision;
        let state = (event.change != Change::Deleted).then(|| record.clone());
        match event.change {
            Change::Created => self.live += 1,
            Change::Updated => {}
            Change::Deleted => self.live -= 1,
        }
        let version = Version { revision, record: state };
        if let Some(chain) = self.keys.get_mut(&*record.key) {
            chain.push(version);
        } else {
            self.keys.insert(record.key.clone(), Chain::One(version));
        }
        self.last = revision;
        self.superseded += event.superseded();
        self.log.push_back(Logged { at: now, event: event.clone() });
        self.warm_bytes += record.value.len();
        while self.warm_bytes > ENCODED_BYTES && self.cold + 1 < self.log.len() {
            let event = &self.log[self.cold].event;
            event.frames.clear();
            self.warm_bytes -= event.record.value.len();
            self.cold += 1;
        }
    }

    fn over(&self, policy: &Policy, now: Instant) -> bool {
        if self.superseded > policy.superseded_bytes {
            return true;
        }
        self.log.len() > policy.events
            && self.log.front().is_some_and(|oldest| now.saturating_duration_since(oldest.at) > policy.age)
    }

    /// Drops the oldest event, if it is not newer than `limit`.
    fn trim(&mut self, limit: Revision) -> Option<Arc<Event>> {
        if self.log.front()?.event.record.revision > limit {
            return None;
        }
        let Logged { event, .. } = self.log.pop_front()?;
        let record = &event.record;
        self.floor = record.revision;
        self.superseded -= event.superseded();
        match self.cold.checked_sub(1) {
            Some(cold) => self.cold = cold,
            None => self.warm_bytes -= record.value.len(),
        }
        let empty = self.keys.get_mut(&*record.key).is_some_and(|chain| chain.forget_before(record.revision));
        if empty {
            self.keys.remove(&*record.key);
        }
        Some(event)
    }

    fn position(&self, after: Revision) -> usize {
        // Readers are nearly always close to the end.
        let near = self.log.len().saturating_sub(32);
        match self.log.get(near) {
            Some(logged) if logged.event.record.revision <= after => {
                let tail = self.log.range(near..);
                near + tail.take_while(|logged| logged.event.record.revision <= after).count()
            }
            _ => self.log.partition_point(|logged| logged.event.record.revision <= after),
        }
    }

    fn events_after(&self, wanted: impl Fn(&Event) -> bool, cursor: Revision, published: Revision) -> Found {
        let first = self.position(cursor);
        gather(self.log.range(first..).map(|logged| &logged.event), wanted, cursor, published)
    }

    fn events_of_key(&self, key: &str, cursor: Revision, published: Revision) -> Found {
        let mut events = Vec::new();
        if let Some(chain) = self.keys.get(key) {
            for revision in chain.revisions_after(cursor) {
                if revision > published {
                    break;
                }
                if events.len() == EVENTS_PER_READ {
                    let upto = events.last().map_or(cursor, |event: &Arc<Event>| event.record.revision);
                    return Found { events, upto };
                }
                let index = self.position(revision - 1);
                events.extend(self.log.get(index).map(|logged| logged.event.clone()));
            }
        }
        Found { events, upto: published.max(cursor) }
    }
}

fn gather<'a>(
    source: impl Iterator<Item = &'a Arc<Event>>,
    wanted: impl Fn(&Event) -> bool,
    cursor: Revision,
    published: Revision,
) -> Found {
    let mut found = Found { events: Vec::new(), upto: cursor };
    for (seen, event) in source.enumerate() {
        let revision = event.record.revision;
        if revision > published {
            break;
        }
        if seen == EVENTS_PER_SCAN || found.events.len() == EVENTS_PER_READ {
            return found;
        }
        if wanted(event) {
            found.events.push(event.clone());
        }
        found.upto = revision;
    }
    found.upto = published.max(cursor);
    found
}
