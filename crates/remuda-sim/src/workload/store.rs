//! Objects of one workload cluster, as bytes: a thousand clusters are kept at once.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// Events kept for watches that come back. A watch from before gets the whole list again.
const HISTORY: usize = 16;
/// Events a watch may lag behind before it is ended.
const LAG: usize = 4096;

/// An object as it is served.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) body: Bytes,
}

impl Stored {
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Added,
    Modified,
    Deleted,
}

impl Verb {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) verb: Verb,
    pub(super) object: Arc<Stored>,
    kind: usize,
    version: u64,
}

#[derive(Debug)]
struct Watcher {
    kind: usize,
    namespace: Option<Box<str>>,
    events: mpsc::Sender<Arc<Event>>,
}

impl Watcher {
    fn wants(&self, event: &Event) -> bool {
        let here = self.namespace.as_ref().is_none_or(|namespace| *namespace == event.object.namespace);
        self.kind == event.kind && here
    }
}

/// What happened since, and what happens from now on.
pub(super) struct Watch {
    pub(super) missed: VecDeque<Arc<Event>>,
    pub(super) events: mpsc::Receiver<Arc<Event>>,
}

/// The version a watch asks for is no longer known.
#[derive(Debug)]
pub(super) struct Gone;

#[derive(Debug, Default)]
pub(super) struct Store {
    version: u64,
    /// By kind, namespace and name.
    objects: BTreeMap<(usize, Box<str>, Box<str>), Arc<Stored>>,
    history: VecDeque<Arc<Event>>,
    /// The newest version that is not in the history any more.
    forgotten: u64,
    watchers: Vec<Watcher>,
}

impl Store {
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, kind: usize, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.objects.get(&(kind, namespace.into(), name.into()))
    }

    /// Objects of a kind, of all namespaces or of one, ordered by namespace and name.
    pub(super) fn list(&self, kind: usize, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Stored>> {
        let first: (usize, Box<str>, Box<str>) = (kind, namespace.unwrap_or_default().into(), "".into());
        let namespace = namespace.map(str::to_owned);
        self.objects
            .range(first..)
            .take_while(move |((known, place, _), _)| {
                *known == kind && namespace.as_ref().is_none_or(|namespace| **place == **namespace)
            })
            .map(|(_, object)| object)
    }

    /// Stores an object under the next version.
    pub(super) fn put(&mut self, kind: usize, namespace: &str, name: &str, mut object: Value) -> Arc<Stored> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let stored = stored(namespace, name, &object);
        let before = self.objects.insert((kind, namespace.into(), name.into()), stored.clone());
        let verb = if before.is_some() { Verb::Modified } else { Verb::Added };
        self.tell(verb, kind, stored.clone());
        stored
    }

    pub(super) fn remove(&mut self, kind: usize, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        let before = self.objects.remove(&(kind, namespace.into(), name.into()))?;
        self.version += 1;
        let mut object = before.value();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = stored(namespace, name, &object);
        self.tell(Verb::Deleted, kind, last.clone());
        Some(last)
    }

    fn tell(&mut self, verb: Verb, kind: usize, object: Arc<Stored>) {
        let event = Arc::new(Event { verb, object, kind, version: self.version });
        // One that lags too far is dropped, which ends its stream.
        self.watchers
            .retain(|watcher| !watcher.wants(&event) || watcher.events.try_send(event.clone()).is_ok());
        self.watchers.retain(|watcher| !watcher.events.is_closed());
        self.history.push_back(event);
        while self.history.len() > HISTORY {
            self.forgotten = self.history.pop_front().map_or(self.forgotten, |event| event.version);
        }
    }

    pub(super) fn watch(&mut self, kind: usize, namespace: Option<&str>, since: u64) -> Result<Watch, Gone> {
        if since < self.forgotten || since > self.version {
            return Err(Gone);
        }
        let (sender, events) = mpsc::channel(LAG);
        let watcher = Watcher { kind, namespace: namespace.map(Into::into), events: sender };
        let missed = self.history.iter().filter(|event| event.version > since && watcher.wants(event));
        let missed = missed.cloned().collect();
        self.watchers.retain(|watcher| !watcher.events.is_closed());
        self.watchers.push(watcher);
        Ok(Watch { missed, events })
    }

    /// Ends all watches.
    pub(super) fn end_watches(&mut self) {
        self.watchers.clear();
    }

    /// Bytes of everything kept, without the maps around it.
    pub(super) fn bytes(&self) -> usize {
        let objects = self.objects.values().map(|object| object.body.len()).sum::<usize>();
        let history = self.history.iter().map(|event| event.object.body.len()).sum::<usize>();
        objects + history
    }
}

fn stored(namespace: &str, name: &str, object: &Value) -> Arc<Stored> {
    // A `Value` always has a textual form.
    let body = serde_json::to_vec(object).unwrap_or_default().into_boxed_slice();
    Arc::new(Stored { namespace: namespace.into(), name: name.into(), body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut Store, name: &str) -> u64 {
        store.put(1, "ns", name, json!({"metadata": {"name": name}}));
        store.version()
    }

    #[test]
    fn a_watch_hears_what_it_missed_and_what_comes() {
        let mut store = Store::default();
        let first = put(&mut store, "a");
        put(&mut store, "b");
        store.put(2, "ns", "other", json!({"metadata": {}}));
        let mut watch = store.watch(1, None, first).unwrap();
        assert_eq!(watch.missed.len(), 1);
        put(&mut store, "b");
        store.remove(1, "ns", "a");
        let verbs: Vec<Verb> =
            std::iter::from_fn(|| watch.events.try_recv().ok().map(|event| event.verb)).collect();
        assert_eq!(verbs, [Verb::Modified, Verb::Deleted]);
    }

    #[test]
    fn a_watch_from_too_long_ago_or_from_the_future_is_refused() {
        let mut store = Store::default();
        for _ in 0..=HISTORY {
            put(&mut store, "a");
        }
        assert!(store.watch(1, None, 0).is_err());
        assert!(store.watch(1, None, 1).is_ok());
        assert!(store.watch(1, None, 1000).is_err());
    }

    #[test]
    fn a_list_is_of_its_kind_and_namespace_only() {
        let mut store = Store::default();
        for (kind, namespace, name) in
            [(0, "", "z"), (1, "a", "x"), (1, "a-b", "y"), (1, "b", "x"), (2, "a", "w")]
        {
            store.put(kind, namespace, name, json!({"metadata": {}}));
        }
        let names = |namespace: Option<&str>| {
            let found = store.list(1, namespace);
            found.map(|object| format!("{}/{}", object.namespace, object.name)).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["a/x", "a-b/y", "b/x"]);
        assert_eq!(names(Some("a")), ["a/x"]);
        assert_eq!(names(Some("c")), Vec::<String>::new());
    }
}
