//! Indices for lists with selectors.
//!
//! A collection that was looked through in vain gets an index of the label or field it was looked through for. Writers
//! know nothing of it: whoever lists brings it up to date with the events since the last time. What it finds is a
//! candidate only, the selector has the last word. What is not used goes, and there is a limit for all together.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Bound,
    sync::Arc,
};

use parking_lot::Mutex;
use remuda_store::{Change, ListQuery, Record, Revision, Scope, Store};

use crate::{
    call::Call,
    convert::is_served_form,
    filter::{By, Filter, Reader, Term},
    read::store_error,
    registry::Resource,
    server::Inner,
    status::ApiResult,
};

/// Looking through fewer objects than this is as good as an index.
const WORTHWHILE: usize = 256;
/// An index is of use where at most one in so many is a candidate.
const SELECTIVE: usize = 4;
/// Entries of all indices together; each takes less than 100 bytes.
const ENTRIES: usize = 200_000;
/// Indices, and collections that shall get one.
const INDICES: usize = 64;

/// What an index is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    /// What is listed: a collection, or one namespace of it.
    prefix: String,
    by: By,
    /// The served form, where fields differ from version to version.
    tag: u64,
}

/// Keys by what they have under a label or field.
#[derive(Debug, Default)]
struct Index {
    values: HashMap<Box<str>, BTreeSet<Arc<str>>>,
    of_key: HashMap<Arc<str>, Box<str>>,
    /// Stored in a form that says nothing about the served one: candidates always.
    unclear: BTreeSet<Arc<str>>,
    /// Objects there are, with and without a value.
    total: usize,
    /// Everything up to here is in it…
    upto: Revision,
    /// …and the last change of these objects was at or before this one.
    changed: Revision,
}

/// What an object has under a label or field.
enum Entry {
    Nothing,
    Value(String),
    Unclear,
}

impl Index {
    fn set(&mut self, key: &Arc<str>, entry: Entry) {
        self.unclear.remove(key);
        if let Some(old) = self.of_key.remove(key)
            && let Some(keys) = self.values.get_mut(&old)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.values.remove(&old);
            }
        }
        match entry {
            Entry::Nothing => {}
            Entry::Unclear => {
                self.unclear.insert(key.clone());
            }
            Entry::Value(value) => {
                let value: Box<str> = value.into();
                self.values.entry(value.clone()).or_default().insert(key.clone());
                self.of_key.insert(key.clone(), value);
            }
        }
    }

    fn entries(&self) -> usize {
        self.of_key.len() + self.unclear.len()
    }

    fn sets<'a>(&'a self, values: Option<&'a [String]>) -> Vec<&'a BTreeSet<Arc<str>>> {
        let found: Vec<_> = match values {
            Some(values) => values.iter().filter_map(|value| self.values.get(value.as_str())).collect(),
            None => self.values.values().collect(),
        };
        found.into_iter().chain([&self.unclear]).collect()
    }

    /// Whether it leaves out enough to be worth asking.
    fn is_selective(&self, values: Option<&[String]>) -> bool {
        let candidates: usize = self.sets(values).into_iter().map(BTreeSet::len).sum();
        candidates * SELECTIVE <= self.total
    }

    /// Candidates after a key, in order.
    fn candidates(&self, values: Option<&[String]>, after: Option<&str>) -> Vec<Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut keys: Vec<Arc<str>> = Vec::new();
        for set in self.sets(values) {
            keys.extend(set.range::<str, _>((from, Bound::Unbounded)).cloned());
        }
        keys.sort_unstable();
        keys
    }

    /// Takes in what happened since; the number of objects looked at. `None` if that is no longer known.
    fn catch_up(
        &mut self,
        store: &dyn Store,
        prefix: &str,
        read: impl Fn(&Record) -> Entry,
    ) -> Option<usize> {
        let mut events = store.watch(Scope::Prefix(prefix.to_owned()), self.upto).ok()?;
        // Of each object only its last state counts.
        let mut last: HashMap<Arc<str>, Option<Arc<Record>>> = HashMap::new();
        loop {
            let news = events.pending().ok()?;
            let Some(newest) = news.last() else { break };
            self.changed = newest.revision();
            for event in &news {
                let record = match event.change {
                    Change::Created => {
                        self.total += 1;
                        Some(event.record.clone())
                    }
                    Change::Updated => Some(event.record.clone()),
                    Change::Deleted => {
                        self.total = self.total.saturating_sub(1);
                        None
                    }
                };
                last.insert(event.record.key.clone(), record);
            }
        }
        self.upto = events.position().max(self.changed);
        for (key, record) in &last {
            self.set(key, record.as_deref().map_or(Entry::Nothing, &read));
        }
        Some(last.len())
    }
}

#[derive(Clone)]
enum State {
    /// Next time.
    Wanted,
    Built(Arc<Mutex<Index>>),
}

struct Kept {
    state: State,
    entries: usize,
    /// When it was asked last, in lists.
    used: u64,
}

/// All indices of a server.
#[derive(Default)]
pub(crate) struct Indices {
    /// And how often they were asked.
    kept: Mutex<(HashMap<Name, Kept>, u64)>,
}

impl Indices {
    fn find(&self, name: &Name) -> Option<State> {
        let mut all = self.kept.lock();
        all.1 += 1;
        let now = all.1;
        let kept = all.0.get_mut(name)?;
        kept.used = now;
        Some(kept.state.clone())
    }

    fn resize(&self, name: &Name, entries: usize) {
        if let Some(kept) = self.kept.lock().0.get_mut(name) {
            kept.entries = entries;
        }
    }

    fn put(&self, name: Name, state: State, entries: usize) {
        let mut kept = self.kept.lock();
        kept.1 += 1;
        let used = kept.1;
        let all = &mut kept.0;
        all.insert(name, Kept { state, entries, used });
        while all.len() > INDICES || all.values().map(|kept| kept.entries).sum::<usize>() > ENTRIES {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.used).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            all.remove(&oldest);
        }
    }

    fn drop(&self, name: &Name) {
        self.kept.lock().0.remove(name);
    }

    fn is_known(&self, name: &Name) -> bool {
        self.kept.lock().0.contains_key(name)
    }
}

/// Where and how exactly is listed.
pub(crate) struct Asked<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) at: Option<Revision>,
    /// No other revision will do, not even a newer one.
    pub(crate) exact: bool,
    pub(crate) after: Option<&'a str>,
}

fn name_of(resource: &Resource, prefix: &str, by: &By) -> Name {
    let tag = if resource.is_custom() && matches!(by, By::Field(_)) { resource.tag } else { 0 };
    Name { prefix: prefix.to_owned(), by: by.clone(), tag }
}

/// What a stored object has in an index.
fn entry_of(resource: &Resource, reader: &Reader<'_>, by: &By, record: &Record) -> Entry {
    if resource.is_custom() && matches!(by, By::Field(_)) && !is_served_form(resource, record) {
        return Entry::Unclear;
    }
    reader.read(&record.value).map_or(Entry::Nothing, Entry::Value)
}

impl Inner {
    /// The keys among which all matches are, and the revision at which that is so, if an index can tell.
    pub(crate) async fn candidates(
        &self,
        call: &Call,
        filter: &Filter,
        asked: &Asked<'_>,
    ) -> ApiResult<Option<(Revision, Vec<Arc<str>>)>> {
        let mut current = None;
        for term in filter.terms() {
            let name = name_of(&call.resource, asked.prefix, &term.by);
            let index = match self.indices.find(&name) {
                None => continue,
                Some(State::Built(index)) => index,
                Some(State::Wanted) => {
                    // One of those who come at once makes it.
                    self.indices.drop(&name);
                    self.build(call, filter, &name).await?
                }
            };
            // What others acknowledged before this request is in the answer.
            let least = match (asked.at, current) {
                (Some(at), _) => at,
                (None, Some(current)) => current,
                (None, None) => *current.insert(self.store.current().await.map_err(store_error)?),
            };
            if let Some(found) = self.ask_index(call, filter, (&name, &term, &index), asked, least) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn ask_index(
        &self,
        call: &Call,
        filter: &Filter,
        (name, term, index): (&Name, &Term, &Mutex<Index>),
        asked: &Asked<'_>,
        least: Revision,
    ) -> Option<(Revision, Vec<Arc<str>>)> {
        let mut index = index.lock();
        let values = term.values.as_deref();
        // Who would not be helped does not pay for what happened meanwhile.
        if !index.is_selective(values) {
            return None;
        }
        let resource = &*call.resource;
        let reader = filter.reader(&term.by);
        let read = |record: &Record| entry_of(resource, &reader, &term.by, record);
        let Some(seen) = index.catch_up(&*self.store, &name.prefix, read) else {
            self.indices.drop(name);
            return None;
        };
        self.metrics.evaluated(&resource.group, &resource.plural, seen);
        self.indices.resize(name, index.entries());
        let revision = if asked.exact { least } else { index.upto };
        let is_known = index.upto >= least && (index.changed..=index.upto).contains(&revision);
        if !is_known || !index.is_selective(values) {
            return None;
        }
        Some((revision, index.candidates(values, asked.after)))
    }

    async fn build(&self, call: &Call, filter: &Filter, name: &Name) -> ApiResult<Arc<Mutex<Index>>> {
        let query = ListQuery { prefix: name.prefix.clone(), ..Default::default() };
        let page = self.store.list(query).await.map_err(store_error)?;
        let mut index = Index {
            total: page.records.len(),
            upto: page.revision,
            changed: page.revision,
            ..Index::default()
        };
        let reader = filter.reader(&name.by);
        for record in &page.records {
            index.set(&record.key, entry_of(&call.resource, &reader, &name.by, record));
        }
        self.metrics.evaluated(&call.resource.group, &call.resource.plural, page.records.len());
        let entries = index.entries();
        let index = Arc::new(Mutex::new(index));
        self.indices.put(name.clone(), State::Built(index.clone()), entries);
        Ok(index)
    }

    /// A list looked through so many objects for so few matches: next time an index shall tell.
    pub(crate) fn looked_through(
        &self,
        call: &Call,
        filter: &Filter,
        prefix: &str,
        seen: usize,
        found: usize,
    ) {
        let resource = &*call.resource;
        self.metrics.evaluated(&resource.group, &resource.plural, seen);
        if !(WORTHWHILE..=ENTRIES).contains(&seen) || found * SELECTIVE > seen {
            return;
        }
        for term in filter.terms() {
            let name = name_of(resource, prefix, &term.by);
            if !self.indices.is_known(&name) {
                self.indices.put(name, State::Wanted, 0);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Arc<str> {
        name.into()
    }

    fn value(text: &str) -> Entry {
        Entry::Value(text.to_owned())
    }

    fn names(index: &Index, values: Option<&[&str]>, after: Option<&str>) -> Vec<String> {
        let values: Option<Vec<String>> =
            values.map(|values| values.iter().map(|value| (*value).to_owned()).collect());
        index.candidates(values.as_deref(), after).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn candidates_are_those_with_a_value_and_those_nobody_can_tell_of() {
        let mut index = Index::default();
        for (name, entry) in [("/c", value("x")), ("/a", value("x")), ("/b", value("y"))] {
            index.set(&key(name), entry);
        }
        index.set(&key("/d"), Entry::Unclear);
        index.set(&key("/e"), Entry::Nothing);
        assert_eq!(names(&index, Some(&["x"]), None), ["/a", "/c", "/d"]);
        assert_eq!(names(&index, Some(&["x", "y"]), Some("/a")), ["/b", "/c", "/d"]);
        assert_eq!(names(&index, None, None), ["/a", "/b", "/c", "/d"]);
        index.set(&key("/a"), value("z"));
        index.set(&key("/c"), Entry::Nothing);
        index.set(&key("/d"), Entry::Nothing);
        assert_eq!(names(&index, Some(&["x"]), None), [""; 0]);
        assert_eq!((index.entries(), index.values.len()), (2, 2));
    }

    #[test]
    fn what_was_not_used_goes_first_when_there_is_too_much() {
        let indices = Indices::default();
        let name = |number: usize| Name {
            prefix: format!("/core/pods/{number}/"),
            by: By::Label("a".to_owned()),
            tag: 0,
        };
        for number in 0..INDICES {
            indices.put(name(number), State::Wanted, 0);
        }
        indices.find(&name(0));
        indices.put(name(INDICES), State::Wanted, ENTRIES);
        assert!(indices.is_known(&name(0)) && !indices.is_known(&name(1)));
        indices.put(name(INDICES + 1), State::Wanted, 1);
        assert!(!indices.is_known(&name(INDICES)) && indices.is_known(&name(INDICES + 1)));
    }
}
