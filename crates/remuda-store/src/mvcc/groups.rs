//! Who is woken by what.
//!
//! Watchers with the same interest form a group: of one key, or of a prefix that ends at a
//! segment boundary. A write looks up the few groups its key belongs to, so ten thousand
//! watchers of other keys cost it nothing. A group exists while it has watchers.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
};

use parking_lot::{Mutex, MutexGuard};

use crate::{Event, Revision, Scope, bell::Bell};

/// Segment boundaries of a key that can be groups of their own. Deeper prefixes share the group
/// above them, so that a key made of slashes does not cost a lookup for each.
const BOUNDARIES: usize = 6;

/// The group a scope belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupName {
    Prefix(Box<str>),
    Key(Box<str>),
}

pub(crate) struct Group {
    name: GroupName,
    bell: Arc<Bell>,
    /// No event of the group is newer than this.
    last: AtomicU64,
    state: Mutex<State>,
}

pub(super) struct State {
    watchers: usize,
    /// Every event of the group after this revision is still in the log.
    pub(super) floor: Revision,
    /// The newest event: all that a watcher who keeps up needs to see.
    newest: Option<Newest>,
    /// For a proper part of the collection: all events of the group after `recent_from`, so
    /// that a watcher of one namespace does not read through everybody else's events.
    pub(super) recent: VecDeque<Arc<Event>>,
    pub(super) recent_from: Revision,
    /// The last batch for which the group was handed out to be woken.
    queued: Revision,
}

struct Newest {
    event: Arc<Event>,
    /// The group has no events between this and `event`.
    after: Revision,
}

/// What a group knows of its events after a cursor, without a look into the log.
pub(super) enum News {
    None,
    One(Arc<Event>),
    Unknown,
}

#[derive(Default)]
pub(super) struct Groups {
    prefixes: HashMap<Box<str>, Arc<Group>>,
    keys: HashMap<Box<str>, Arc<Group>>,
}

impl GroupName {
    /// `collection` is the name of the collection the scope lies in.
    pub(super) fn of(scope: &Scope, collection: &str) -> Self {
        match scope {
            Scope::Key(key) => Self::Key(key.as_str().into()),
            Scope::Prefix(prefix) => {
                let end = boundaries(prefix, collection).last().unwrap_or(collection.len());
                Self::Prefix(prefix.get(..end).unwrap_or(prefix).into())
            }
        }
    }
}

/// Ends of the prefixes of `key` that may be groups, the collection's own first.
fn boundaries<'a>(key: &'a str, collection: &str) -> impl Iterator<Item = usize> + 'a {
    let start = collection.len();
    let below = key.as_bytes().get(start..).unwrap_or_default().iter().enumerate();
    let below = below.filter(|(_, byte)| **byte == b'/').map(move |(index, _)| start + index + 1);
    std::iter::once(start).chain(below).take(BOUNDARIES)
}

impl Group {
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Whether an event of the group may lie after `cursor`.
    pub(crate) fn is_pending(&self, cursor: Revision) -> bool {
        self.last.load(Acquire) > cursor
    }

    /// Of events up to `published`, which was read before this is asked.
    pub(super) fn news(&self, cursor: Revision, published: Revision) -> News {
        if !self.is_pending(cursor) {
            return News::None;
        }
        match &self.state.lock().newest {
            Some(newest) if newest.after <= cursor && newest.event.record.revision <= published => {
                News::One(newest.event.clone())
            }
            _ => News::Unknown,
        }
    }

    /// Locked after everything else of its collection.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Groups {
    pub(super) fn join(&mut self, name: &GroupName, floor: Revision, applied: Revision) -> Arc<Group> {
        let (map, key) = match name {
            GroupName::Prefix(prefix) => (&mut self.prefixes, prefix),
            GroupName::Key(key) => (&mut self.keys, key),
        };
        let group = map.entry(key.clone()).or_insert_with(|| {
            let state = State {
                watchers: 0,
                floor,
                newest: None,
                recent: VecDeque::new(),
                recent_from: applied,
                queued: 0,
            };
            let (name, last) = (name.clone(), AtomicU64::new(applied));
            Arc::new(Group { name, bell: Arc::default(), last, state: Mutex::new(state) })
        });
        group.state.lock().watchers += 1;
        group.clone()
    }

    pub(super) fn leave(&mut self, group: &Group) {
        {
            let mut state = group.state.lock();
            state.watchers -= 1;
            if state.watchers > 0 {
                return;
            }
        }
        match &group.name {
            GroupName::Prefix(prefix) => self.prefixes.remove(prefix),
            GroupName::Key(key) => self.keys.remove(key),
        };
    }

    fn of_key(&self, key: &str, collection: &str, mut each: impl FnMut(&Arc<Group>, bool)) {
        if !self.prefixes.is_empty() {
            for end in boundaries(key, collection) {
                if let Some(group) = self.prefixes.get(&key[..end]) {
                    each(group, end > collection.len());
                }
            }
        }
        if !self.keys.is_empty()
            && let Some(group) = self.keys.get(key)
        {
            each(group, false);
        }
    }

    /// An event was added to the log. Whom to wake once the batch is published goes to `wakes`.
    pub(super) fn appended(
        &self,
        event: &Arc<Event>,
        collection: &str,
        batch: Revision,
        wakes: &mut Vec<Arc<Bell>>,
    ) {
        self.of_key(&event.record.key, collection, |group, part| {
            let mut state = group.state.lock();
            let after = group.last.swap(event.record.revision, AcqRel);
            state.newest = Some(Newest { event: event.clone(), after });
            if part {
                state.recent.push_back(event.clone());
            }
            if state.queued != batch {
                state.queued = batch;
                wakes.push(group.bell.clone());
            }
        });
    }

    /// An event was dropped from the log.
    pub(super) fn trimmed(&self, event: &Event, collection: &str) {
        let revision = event.record.revision;
        self.of_key(&event.record.key, collection, |group, _| {
            let mut state = group.state.lock();
            state.floor = revision;
            while state.recent.front().is_some_and(|oldest| oldest.record.revision <= revision) {
                state.recent.pop_front();
            }
            if state.newest.as_ref().is_some_and(|newest| newest.event.record.revision <= revision) {
                state.newest = None;
            }
        });
    }

    /// All history up to `revision` is gone.
    pub(super) fn reset(&self, revision: Revision) {
        for group in self.prefixes.values().chain(self.keys.values()) {
            let mut state = group.state.lock();
            state.floor = revision;
            state.newest = None;
            state.recent_from = revision;
            state.recent.clear();
            group.last.store(revision, Release);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Bell>> {
        self.prefixes.values().chain(self.keys.values()).map(|group| &group.bell)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_joins_the_group_of_its_last_whole_segment() {
        for (prefix, group) in
            [("/a/b/", "/a/b/"), ("/a/b/ns/", "/a/b/ns/"), ("/a/b/ns/pod", "/a/b/ns/"), ("/a/b/n", "/a/b/")]
        {
            let name = GroupName::of(&Scope::Prefix(prefix.into()), "/a/b/");
            assert_eq!(name, GroupName::Prefix(group.into()), "{prefix}");
        }
        let deep = format!("/a/b/{}", "/".repeat(1000));
        let name = GroupName::of(&Scope::Prefix(deep), "/a/b/");
        assert_eq!(name, GroupName::Prefix("/a/b//////".into()));
    }
}
