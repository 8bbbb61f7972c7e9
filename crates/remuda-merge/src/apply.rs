//! Ownership after a write, and server-side apply.
//!
//! [`update`] is for every write that brings a finished object (create, PUT, the other patches);
//! [`apply()`] merges an applied configuration. Both leave `metadata.managedFields` final: defaults
//! that the server adds to the result of an apply belong to nobody, while [`update`] is called on
//! the defaulted object, whose defaults belong to the writer.

use jiff::Timestamp;
use remuda_schema::Schema;
use serde_json::Value;

use crate::{
    fields::{PathElement, Set},
    managed::{self, Entry, Identity, Operation},
    meta,
    typed::{
        Typed,
        compare::{self, Difference},
    },
};

mod configuration;
mod conflict;
mod granular;
#[cfg(test)]
mod tests;

pub use configuration::apply;
pub use conflict::{ApplyError, Cause, Conflict, Conflicts};
pub use granular::merge_granular;

/// Turns an object into another version of its kind. `None`: the version is gone, and the
/// entries made in it with it.
pub type Convert<'a> = dyn Fn(&str, &Value) -> Option<Value> + 'a;

/// Which fields a write may change, as paths of field names. What an endpoint resets is never
/// owned through it.
#[derive(Debug, Clone, Copy, Default)]
pub enum Tracked<'a> {
    #[default]
    All,
    /// Everything but these: the main endpoint of a kind with a status subresource.
    Except(&'a [&'a [&'a str]]),
    /// Only these: the status and scale endpoints.
    Only(&'a [&'a [&'a str]]),
}

/// Who writes, through what, and when.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Name of the manager; empty counts as `unknown`.
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: Option<&'a str>,
    pub now: Timestamp,
    pub tracked: Tracked<'a>,
    /// For entries of other versions; without it all versions have the same fields.
    pub convert: Option<&'a Convert<'a>>,
}

static NULL: Value = Value::Null;

/// Records the writer of `new` in its `metadata.managedFields`. `live` is the stored object, none
/// on create.
///
/// A client may replace the list on the main endpoint: `[]` or `[{}]` forgets all managers, a
/// readable list counts, anything else keeps what is stored. An object whose managers were
/// forgotten is not tracked again before it is applied.
pub fn update(live: Option<&Value>, new: &mut Value, schema: Option<&Schema>, write: &Write<'_>) {
    let given = managed::strip(new);
    let mut entries = starting_entries(live, given, write.subresource.is_some());
    let exists =
        live.and_then(|live| live.pointer("/metadata/uid")?.as_str()).is_some_and(|uid| !uid.is_empty());
    if entries.is_empty() && exists {
        return;
    }
    track(live.unwrap_or(&NULL), new, schema, write, &mut entries);
    managed::cap(&mut entries);
    managed::store(new, entries);
}

/// The entries before the write, as the client or the stored object has them.
fn starting_entries(live: Option<&Value>, given: Option<Value>, subresource: bool) -> Vec<Entry> {
    let stored = live.and_then(managed::of);
    let keep = || stored.cloned().map(managed::entries).unwrap_or_default();
    match given {
        Some(given) if !subresource => {
            if managed::is_reset(&given) {
                Vec::new()
            } else if stored == Some(&given) {
                // The usual case: the client sent back what it read.
                managed::entries(given)
            } else {
                managed::decode(&given).ok().filter(|entries| !entries.is_empty()).unwrap_or_else(keep)
            }
        }
        Some(given) if stored == Some(&given) => managed::entries(given),
        _ => keep(),
    }
}

/// Moves ownership of what differs between `old` and `new` to the writer's update entry.
fn track(old: &Value, new: &Value, schema: Option<&Schema>, write: &Write<'_>, entries: &mut Vec<Entry>) {
    let difference = tracked_difference(old, new, Typed::Root(schema), write.tracked);
    take_from_others(old, new, schema, write, &difference, entries, None);
    if difference.changed.is_empty() {
        return;
    }
    let identity = write.identity(Operation::Update);
    match entries.iter_mut().find(|entry| entry.identity() == identity) {
        Some(entry) => {
            entry.unite(&difference.changed);
            entry.touch(write.now);
        }
        None => entries.push(Entry::new(identity, owned_map(&difference.changed), write.now)),
    }
}

/// Takes what changed or vanished from every entry but the one at `own`.
fn take_from_others(
    old: &Value,
    new: &Value,
    schema: Option<&Schema>,
    write: &Write<'_>,
    difference: &Difference<'_>,
    entries: &mut [Entry],
    own: Option<usize>,
) {
    let mut foreign: Vec<String> = Vec::new();
    for (index, entry) in entries.iter_mut().enumerate() {
        if Some(index) == own {
            continue;
        }
        if write.is_foreign(entry) {
            if !foreign.iter().any(|version| version == entry.api_version()) {
                foreign.push(entry.api_version().to_owned());
            }
            continue;
        }
        entry.subtract(&difference.changed);
        entry.subtract(&difference.removed);
    }
    for version in foreign {
        let objects =
            write.convert.and_then(|convert| Some((convert(&version, old)?, convert(&version, new)?)));
        let concerned = |index: usize, entry: &Entry| Some(index) != own && entry.api_version() == version;
        let Some((old, new)) = objects else {
            // Emptied here, dropped when the list is written; positions must not move meanwhile.
            for (index, entry) in entries.iter_mut().enumerate() {
                if concerned(index, entry) {
                    entry.set_fields(Value::Object(serde_json::Map::new()));
                }
            }
            continue;
        };
        let difference = tracked_difference(&old, &new, Typed::Root(schema), write.tracked);
        for (index, entry) in entries.iter_mut().enumerate() {
            if concerned(index, entry) {
                entry.subtract(&difference.changed);
                entry.subtract(&difference.removed);
            }
        }
    }
}

fn tracked_difference<'a>(
    old: &'a Value,
    new: &'a Value,
    typed: Typed<'a>,
    tracked: Tracked<'_>,
) -> Difference<'a> {
    let mut difference = compare::difference(old, new, typed);
    for set in [&mut difference.changed, &mut difference.removed] {
        meta::strip(set);
        tracked.filter(set);
    }
    difference
}

fn owned_map(set: &Set<'_>) -> serde_json::Map<String, Value> {
    match set.to_json() {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

impl<'a> Write<'a> {
    fn identity(&self, operation: Operation) -> Identity<'a> {
        Identity {
            manager: if self.manager.is_empty() { "unknown" } else { self.manager },
            operation,
            api_version: self.api_version,
            subresource: self.subresource.unwrap_or_default(),
        }
    }

    /// The entry's fields are those of another version.
    fn is_foreign(&self, entry: &Entry) -> bool {
        self.convert.is_some() && entry.api_version() != self.api_version
    }
}

impl Tracked<'_> {
    fn filter(self, set: &mut Set<'_>) {
        match self {
            Self::All => {}
            Self::Except(paths) => except(set, paths),
            Self::Only(paths) => only(set, paths),
        }
    }
}

/// The rest of every path that starts with `name`.
fn below<'p>(paths: &[&'p [&'p str]], name: &str) -> Vec<&'p [&'p str]> {
    let matching = paths.iter().filter_map(|path| path.split_first());
    matching.filter(|(first, _)| **first == name).map(|(_, rest)| rest).collect()
}

fn except(set: &mut Set<'_>, paths: &[&[&str]]) {
    set.retain(|node| {
        let PathElement::Field(name) = node.element else { return true };
        let rest = below(paths, name);
        if rest.iter().any(|path| path.is_empty()) {
            return false;
        }
        if !rest.is_empty() {
            except(&mut node.children, &rest);
        }
        node.member || !node.children.is_empty()
    });
}

fn only(set: &mut Set<'_>, paths: &[&[&str]]) {
    set.retain(|node| {
        let PathElement::Field(name) = node.element else { return false };
        let rest = below(paths, name);
        if rest.iter().any(|path| path.is_empty()) {
            return true;
        }
        node.member = false;
        if rest.is_empty() {
            return false;
        }
        only(&mut node.children, &rest);
        !node.children.is_empty()
    });
}
