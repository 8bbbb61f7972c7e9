//! Who is woken by what.
//!
//! Watchers with the same interest form a group: of one key, or of a prefix that ends at a
//! segment boundary. A write looks up the few groups its key belongs to, so ten thousand
//! watchers of other keys cost it nothing. A group exists while it has watchers.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use tokio::sync::Notify;

use crate::{Event, Revision, Scope};

/// Segment boundaries of a key that can be groups of their own. Deeper prefixes share the group
/// above them, so that a key made of slashes does not cost a lookup for each.
const BOUNDARIES: usize = 6;

/// The group a scope belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupName {
    Prefix(Box<str>),
    Key(Box<str>),
}

pub(super) struct Group {
    pub(super) wake: Arc<Notify>,
    watchers: usize,
    /// Every event of the group after this revision is still in the log.
    pub(super) floor: Revision,
    /// No event of the group is newer than this.
    pub(super) last: Revision,
    /// For a proper part of the collection: all events of the group after `recent_from`, so
    /// that a watcher of one namespace does not read through everybody else's events.
    pub(super) recent: VecDeque<Arc<Event>>,
    pub(super) recent_from: Revision,
    /// The last batch for which `wake` was handed out.
    queued: Revision,
}

#[derive(Default)]
pub(super) struct Groups {
    prefixes: HashMap<Box<str>, Group>,
    keys: HashMap<Box<str>, Group>,
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

impl Groups {
    pub(super) fn join(&mut self, name: &GroupName, floor: Revision, applied: Revision) -> Arc<Notify> {
        let (map, name) = match name {
            GroupName::Prefix(prefix) => (&mut self.prefixes, prefix),
            GroupName::Key(key) => (&mut self.keys, key),
        };
        let group = map.entry(name.clone()).or_insert_with(|| Group {
            wake: Arc::new(Notify::new()),
            watchers: 0,
            floor,
            last: applied,
            recent: VecDeque::new(),
            recent_from: applied,
            queued: 0,
        });
        group.watchers += 1;
        group.wake.clone()
    }

    pub(super) fn leave(&mut self, name: &GroupName) {
        let (map, name) = match name {
            GroupName::Prefix(prefix) => (&mut self.prefixes, prefix),
            GroupName::Key(key) => (&mut self.keys, key),
        };
        let Some(group) = map.get_mut(name) else { return };
        group.watchers -= 1;
        if group.watchers == 0 {
            map.remove(name);
        }
    }

    pub(super) fn get(&self, name: &GroupName) -> Option<&Group> {
        match name {
            GroupName::Prefix(prefix) => self.prefixes.get(prefix),
            GroupName::Key(key) => self.keys.get(key),
        }
    }

    fn of_key(&mut self, key: &str, collection: &str, mut each: impl FnMut(&mut Group, bool)) {
        if !self.prefixes.is_empty() {
            for end in boundaries(key, collection) {
                if let Some(group) = self.prefixes.get_mut(&key[..end]) {
                    each(group, end > collection.len());
                }
            }
        }
        if !self.keys.is_empty()
            && let Some(group) = self.keys.get_mut(key)
        {
            each(group, false);
        }
    }

    /// An event was added to the log. Whom to wake once the batch is published goes to `wakes`.
    pub(super) fn appended(
        &mut self,
        event: &Arc<Event>,
        collection: &str,
        batch: Revision,
        wakes: &mut Vec<Arc<Notify>>,
    ) {
        self.of_key(&event.record.key, collection, |group, part| {
            group.last = event.record.revision;
            if part {
                group.recent.push_back(event.clone());
            }
            if group.queued != batch {
                group.queued = batch;
                wakes.push(group.wake.clone());
            }
        });
    }

    /// An event was dropped from the log.
    pub(super) fn trimmed(&mut self, event: &Event, collection: &str) {
        let revision = event.record.revision;
        self.of_key(&event.record.key, collection, |group, _| {
            group.floor = revision;
            while group.recent.front().is_some_and(|oldest| oldest.record.revision <= revision) {
                group.recent.pop_front();
            }
        });
    }

    /// All history up to `revision` is gone.
    pub(super) fn reset(&mut self, revision: Revision) {
        for group in self.prefixes.values_mut().chain(self.keys.values_mut()) {
            group.floor = revision;
            group.last = revision;
            group.recent_from = revision;
            group.recent.clear();
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Notify>> {
        self.prefixes.values().chain(self.keys.values()).map(|group| &group.wake)
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
