//! `metadata.managedFields`: the list of managers and what each of them owns.
//!
//! Entries stay in their JSON form. A write changes few of them, and those that it does not touch
//! should cost nothing.

use std::cmp::Ordering;

use jiff::Timestamp;
use remuda_schema::Schema;
use serde_json::{Map, Value};

use crate::{
    fields::{Set, json, raw},
    gotext, order,
    typed::{Typed, prune},
};

/// Most entries of updates; beyond that the oldest are combined.
pub const MAX_UPDATE_ENTRIES: usize = 10;
/// Most entries a client may write; more is nobody's honest list.
const MAX_ENTRIES: usize = 1000;
/// Longest name of a manager.
const MAX_MANAGER_BYTES: usize = 128;
/// Manager of combined old entries.
const ANCIENT: &str = "ancient-changes";
/// Manager of what existed before an object was first applied.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// What tells entries apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) manager: &'a str,
    pub(crate) operation: Operation,
    /// Part of the identity of updates only.
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
}

impl PartialEq for Identity<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Identity<'_> {
    /// The order of managers in conflict messages.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        fn version<'i>(identity: &Identity<'i>) -> &'i str {
            if identity.operation == Operation::Update { identity.api_version } else { "" }
        }
        (self.manager, self.operation, version(self), self.subresource).cmp(&(
            other.manager,
            other.operation,
            version(other),
            other.subresource,
        ))
    }

    /// `"name" with subresource "status" using v1`: how conflict messages name a manager.
    pub(crate) fn text(&self) -> String {
        let mut text = gotext::quoted(self.manager);
        if !self.subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&gotext::quoted(self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(self.api_version);
        }
        text
    }
}

/// Why entries cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("managedFields must be a list of objects")]
    Shape,
    #[error("too many managedFields entries: {0}")]
    TooMany(usize),
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, String),
    #[error("invalid time in managed fields entry {0}")]
    Time(usize),
    #[error("error decoding set: {0}")]
    Fields(#[from] json::FieldsError),
}

/// One manager's entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry(Map<String, Value>);

impl Entry {
    pub(crate) fn new(identity: Identity<'_>, fields: Map<String, Value>, now: Timestamp) -> Self {
        let mut map = Map::new();
        map.insert("manager".to_owned(), identity.manager.into());
        map.insert("operation".to_owned(), identity.operation.as_str().into());
        map.insert("apiVersion".to_owned(), identity.api_version.into());
        map.insert("fieldsType".to_owned(), "FieldsV1".into());
        map.insert("fieldsV1".to_owned(), Value::Object(fields));
        if !identity.subresource.is_empty() {
            map.insert("subresource".to_owned(), identity.subresource.into());
        }
        let mut entry = Self(map);
        entry.touch(now);
        entry
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(crate) fn operation(&self) -> Operation {
        if self.text("operation") == "Apply" { Operation::Apply } else { Operation::Update }
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            manager: self.text("manager"),
            operation: self.operation(),
            api_version: self.api_version(),
            subresource: self.text("subresource"),
        }
    }

    fn seconds(&self) -> i64 {
        self.text("time").parse::<Timestamp>().map_or(0, Timestamp::as_second)
    }

    pub(crate) fn touch(&mut self, now: Timestamp) {
        self.0.insert("time".to_owned(), time_text(now).into());
    }

    pub(crate) fn set_api_version(&mut self, version: &str) {
        self.0.insert("apiVersion".to_owned(), version.into());
    }

    pub(crate) fn fields(&self) -> Option<&Map<String, Value>> {
        self.0.get("fieldsV1").and_then(Value::as_object)
    }

    pub(crate) fn set_fields(&mut self, fields: Value) {
        self.0.insert("fieldsV1".to_owned(), fields);
    }

    /// The set; unreadable fields own nothing.
    pub(crate) fn set(&self) -> Set<'_> {
        self.0.get("fieldsV1").and_then(|fields| json::parse(fields).ok()).unwrap_or_default()
    }

    pub(crate) fn owns_nothing(&self) -> bool {
        self.fields().is_none_or(Map::is_empty)
    }

    pub(crate) fn subtract(&mut self, set: &Set<'_>) {
        if let Some(Value::Object(fields)) = self.0.get_mut("fieldsV1") {
            raw::subtract(fields, set);
        }
    }

    pub(crate) fn unite(&mut self, set: &Set<'_>) {
        if let Some(Value::Object(fields)) = self.0.get_mut("fieldsV1") {
            raw::unite(fields, set);
        }
    }

    pub(crate) fn intersect<'a>(&self, set: &Set<'a>) -> Set<'a> {
        self.fields().map(|fields| raw::intersect(fields, set)).unwrap_or_default()
    }
}

/// A time as objects carry it: whole seconds, UTC.
fn time_text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// The name a writer has who did not give one: the product of its user agent.
pub fn default_manager(user_agent: &str) -> String {
    let product = user_agent.split('/').next().unwrap_or_default();
    let mut name = String::new();
    for char in product.chars().filter(|char| !char.is_control()) {
        if name.len() + char.len_utf8() > MAX_MANAGER_BYTES {
            break;
        }
        name.push(char);
    }
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// Adapts the list of an object to a type that came to own as a whole what it used to own by
/// parts. To be called on objects written before their schema changed that way; tells whether
/// anything did change.
pub fn reconcile(object: &mut Value, schema: &Schema) -> bool {
    let Some(list) = strip(object) else { return false };
    let mut entries = entries(list);
    let mut changed = false;
    for entry in &mut entries {
        let set = entry.set();
        let folded = prune::fold(&set, Typed::Root(Some(schema)));
        if folded != set {
            let fields = folded.to_json();
            entry.set_fields(fields);
            changed = true;
        }
    }
    store(object, entries);
    changed
}

/// The list of an object.
pub fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Removes the list from an object and returns it.
pub fn strip(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Checks a list as a client may have written it.
pub fn check(list: &Value) -> Result<(), EntryError> {
    decode(list).map(drop)
}

/// Whether a client asks to forget all managers: `[]` or `[{}]`.
pub(crate) fn is_reset(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Reads a list from a client and makes it canonical.
pub(crate) fn decode(list: &Value) -> Result<Vec<Entry>, EntryError> {
    let list = list.as_array().ok_or(EntryError::Shape)?;
    if list.len() > MAX_ENTRIES {
        return Err(EntryError::TooMany(list.len()));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let Value::Object(map) = value else { return Err(EntryError::Shape) };
        let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
        if !matches!(text("operation"), "Apply" | "Update") {
            return Err(EntryError::Operation);
        }
        if text("apiVersion").is_empty() {
            return Err(EntryError::ApiVersion);
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(EntryError::NoFieldsType(index)),
            other => return Err(EntryError::FieldsType(index, other.to_owned())),
        }
        let time = map.get("time").filter(|time| !time.is_null());
        if time.is_some_and(|time| time.as_str().is_none_or(|time| time.parse::<Timestamp>().is_err())) {
            return Err(EntryError::Time(index));
        }
        let fields = match map.get("fieldsV1") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(fields) => json::parse(fields)?.to_json(),
        };
        let known = ["manager", "operation", "apiVersion", "time", "fieldsType", "subresource"];
        let kept = known.into_iter().filter_map(|key| {
            let value = map.get(key).filter(|value| value.as_str().is_some_and(|text| !text.is_empty()));
            value.map(|value| (key.to_owned(), value.clone()))
        });
        let mut entry = Entry(kept.collect());
        entry.set_fields(fields);
        // Of two entries of one manager the later counts.
        entries.retain(|earlier| earlier.identity() != entry.identity());
        entries.push(entry);
    }
    Ok(entries)
}

/// Takes over a list this crate wrote. Anything else in its place owns nothing.
pub(crate) fn entries(list: Value) -> Vec<Entry> {
    let Value::Array(items) = list else { return Vec::new() };
    let entry = |item| match item {
        Value::Object(map) => Some(Entry(map)),
        _ => None,
    };
    items.into_iter().map(entry).collect::<Option<_>>().unwrap_or_default()
}

/// Writes the list, without entries that own nothing, in its order.
pub(crate) fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.owns_nothing());
    sort(&mut entries);
    let Some(Value::Object(meta)) = object.get_mut("metadata") else { return };
    if entries.is_empty() {
        meta.remove("managedFields");
    } else {
        let list = entries.into_iter().map(|entry| Value::Object(entry.0)).collect();
        meta.insert("managedFields".to_owned(), Value::Array(list));
    }
}

fn sort(entries: &mut Vec<Entry>) {
    if entries.len() < 2 {
        return;
    }
    let mut timed: Vec<(i64, Entry)> = entries.drain(..).map(|entry| (entry.seconds(), entry)).collect();
    timed.sort_by(|(left_time, left), (right_time, right)| {
        let key =
            |entry: &Entry| ["manager", "apiVersion", "subresource"].map(|key| entry.text(key).to_owned());
        (left.operation(), left_time)
            .cmp(&(right.operation(), right_time))
            .then_with(|| key(left).cmp(&key(right)))
    });
    entries.extend(timed.into_iter().map(|(_, entry)| entry));
}

/// Combines the oldest entries of updates, by version, until there are no more than allowed.
pub(crate) fn cap(entries: &mut Vec<Entry>) {
    let is_update = |entry: &Entry| entry.operation() == Operation::Update;
    let mut excess =
        entries.iter().filter(|entry| is_update(entry)).count().saturating_sub(MAX_UPDATE_ENTRIES);
    if excess == 0 {
        return;
    }
    let (mut updates, mut kept): (Vec<Entry>, Vec<Entry>) =
        std::mem::take(entries).into_iter().partition(is_update);
    updates.sort_by_cached_key(|entry| {
        let identity = entry.identity();
        let texts = [identity.manager, identity.api_version, identity.subresource].map(str::to_owned);
        (entry.seconds(), texts)
    });
    // The first old entry of a version waits: it is combined only if a second one follows.
    let mut buckets: Vec<Entry> = Vec::new();
    for entry in updates {
        let bucket = buckets.iter_mut().find(|bucket| bucket.api_version() == entry.api_version());
        match bucket {
            Some(bucket) if excess > 0 => {
                bucket.unite(&entry.set());
                bucket.0.insert("manager".to_owned(), ANCIENT.into());
                bucket.0.remove("subresource");
                if let Some(time) = entry.0.get("time") {
                    bucket.0.insert("time".to_owned(), time.clone());
                }
                excess -= 1;
            }
            None if excess > 0 => buckets.push(entry),
            _ => kept.push(entry),
        }
    }
    kept.append(&mut buckets);
    *entries = kept;
}

/// Whether nothing but times of managers differs. Such a write is not worth storing.
pub fn is_noop(live: &Value, new: &Value) -> bool {
    same_except_managed(live, new) && same_managed(of(live), of(new))
}

/// Equality of two objects, their lists of managers aside.
pub(crate) fn same_except_managed(live: &Value, new: &Value) -> bool {
    let (Value::Object(live), Value::Object(new)) = (live, new) else { return order::equal(live, new) };
    live.len() == new.len()
        && live.iter().all(|(key, left)| match (left, new.get(key)) {
            (Value::Object(left), Some(Value::Object(right))) if key == "metadata" => {
                let count =
                    |map: &Map<String, Value>| map.len() - usize::from(map.contains_key("managedFields"));
                count(left) == count(right)
                    && left
                        .iter()
                        .filter(|(name, _)| *name != "managedFields")
                        .all(|(name, left)| right.get(name).is_some_and(|right| order::equal(left, right)))
            }
            (left, Some(right)) => order::equal(left, right),
            (_, None) => false,
        })
}

fn same_managed(live: Option<&Value>, new: Option<&Value>) -> bool {
    let list = |list: Option<&Value>| -> Vec<Map<String, Value>> {
        let items = list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
        let timeless = items.map(|item| {
            let kept = item.iter().filter(|(key, _)| *key != "time");
            kept.map(|(key, value)| (key.clone(), value.clone())).collect()
        });
        let mut entries: Vec<Map<String, Value>> = timeless.collect();
        entries.sort_by_cached_key(|entry| {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            ["manager", "operation", "apiVersion", "subresource"].map(text)
        });
        entries
    };
    live == new || list(live) == list(new)
}
