//! Random histories against a store simple enough to be right by inspection.

use std::collections::BTreeMap;

use proptest::prelude::*;
use remuda_store::{
    Change, Embedded, Error, ListQuery, Memory, Options, Revision, Scope, Store, Template, Write,
};

const KEYS: [&str; 7] = ["/a/x/n/1", "/a/x/n/2", "/a/x/m/1", "/a/x-y/n/1", "/a/y/1", "/a/y/10", "/b"];
const PREFIXES: [&str; 7] = ["/a/x/", "/a/x/n/", "/a/x/n/1", "/a/y/", "/a/x", "/", "/a/y/1"];

#[derive(Debug, Clone)]
enum Step {
    Create(usize, bool),
    Update(usize, bool),
    Delete(usize, bool),
    List { prefix: usize, back: u64, limit: usize },
    Watch { prefix: usize, back: u64 },
    WatchKey { key: usize, back: u64 },
    Compact { back: u64 },
    Checkpoint,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS.len();
    let prefix = 0..PREFIXES.len();
    prop_oneof![
        6 => (key.clone(), any::<bool>()).prop_map(|(key, slot)| Step::Create(key, slot)),
        6 => (key.clone(), any::<bool>()).prop_map(|(key, stale)| Step::Update(key, stale)),
        3 => (key.clone(), any::<bool>()).prop_map(|(key, last)| Step::Delete(key, last)),
        3 => (prefix.clone(), 0..30u64, 0..4usize)
            .prop_map(|(prefix, back, limit)| Step::List { prefix, back, limit }),
        2 => (prefix, 0..30u64).prop_map(|(prefix, back)| Step::Watch { prefix, back }),
        1 => (key, 0..30u64).prop_map(|(key, back)| Step::WatchKey { key, back }),
        1 => (0..20u64).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Happened {
    revision: Revision,
    key: String,
    change: Change,
    value: String,
}

/// Everything that ever happened.
#[derive(Default)]
struct Oracle {
    events: Vec<Happened>,
    /// What is at or after this must be readable.
    known_from: Revision,
    checkpoint: Revision,
    reopened: bool,
}

impl Oracle {
    fn state(&self, at: Revision) -> BTreeMap<&str, &Happened> {
        let mut state = BTreeMap::new();
        for event in self.events.iter().take_while(|event| event.revision <= at) {
            match event.change {
                Change::Deleted => state.remove(event.key.as_str()),
                _ => state.insert(event.key.as_str(), event),
            };
        }
        state
    }

    fn now(&self) -> Revision {
        self.events.last().map_or(0, |event| event.revision)
    }
}

enum Engine {
    Memory(Memory),
    Embedded(Option<Box<Embedded>>, tempfile::TempDir, Box<Options>),
}

impl Engine {
    fn store(&self) -> &dyn Store {
        match self {
            Self::Memory(store) => store,
            Self::Embedded(store, ..) => &**store.as_ref().unwrap(),
        }
    }
}

async fn run(mut engine: Engine, steps: Vec<Step>) {
    let mut oracle = Oracle::default();
    // Follows everything from the start, across reopenings.
    let mut followed: Vec<Happened> = Vec::new();
    let mut follower = engine.store().watch(Scope::Prefix("/".into()), 0).unwrap();
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Step::Create(..) | Step::Update(..) | Step::Delete(..) => {
                write(engine.store(), &mut oracle, &step, index).await;
            }
            Step::List { prefix, back, limit } => list(engine.store(), &oracle, prefix, back, limit).await,
            Step::Watch { prefix, back } => {
                let prefix = PREFIXES[prefix];
                let scope = Scope::Prefix(prefix.into());
                watch(engine.store(), &oracle, scope, back, |key| key.starts_with(prefix));
            }
            Step::WatchKey { key, back } => {
                let key = KEYS[key];
                watch(engine.store(), &oracle, Scope::Key(key.into()), back, |other| other == key);
            }
            Step::Compact { back } => {
                let at = oracle.now().saturating_sub(back);
                follow(&mut follower, &mut followed);
                engine.store().compact(at).await.unwrap();
                oracle.known_from = oracle.known_from.max(at);
            }
            Step::Checkpoint => {
                if let Engine::Embedded(Some(store), ..) = &engine {
                    store.checkpoint().await.unwrap();
                    oracle.checkpoint = oracle.now();
                }
            }
            Step::Reopen => {
                follow(&mut follower, &mut followed);
                if let Engine::Embedded(store, dir, options) = &mut engine {
                    drop(store.take());
                    *store = Some(Box::new(Embedded::open(dir.path(), (**options).clone()).unwrap()));
                    oracle.known_from = oracle.known_from.max(oracle.checkpoint);
                    oracle.reopened = true;
                    let now = store.as_ref().unwrap().observed();
                    assert_eq!(now, oracle.now());
                    follower = store.as_ref().unwrap().watch(Scope::Prefix("/".into()), now).unwrap();
                }
            }
        }
        assert_eq!(engine.store().observed(), oracle.now());
    }
    follow(&mut follower, &mut followed);
    assert_eq!(followed, oracle.events);
}

fn follow(watch: &mut remuda_store::Watch, followed: &mut Vec<Happened>) {
    loop {
        let events = watch.pending().unwrap();
        if events.is_empty() {
            return;
        }
        followed.extend(events.iter().map(|event| happened(event)));
    }
}

fn happened(event: &remuda_store::Event) -> Happened {
    Happened {
        revision: event.record.revision,
        key: event.record.key.to_string(),
        change: event.change,
        value: String::from_utf8(event.record.value.to_vec()).unwrap(),
    }
}

async fn write(store: &dyn Store, oracle: &mut Oracle, step: &Step, index: usize) {
    let state = oracle.state(Revision::MAX);
    let revision = oracle.now() + 1;
    let plain = Template::plain(format!("value {index}"));
    let slotted = Template::with_slot(format!("<> {index}"), 1);
    let (key, change, write, value) = match *step {
        Step::Create(key, slot) => {
            let key = KEYS[key];
            let value = if slot { slotted } else { plain };
            let text = if slot { format!("<{revision}> {index}") } else { format!("value {index}") };
            (key, Change::Created, Write::Create { key: key.into(), value }, text)
        }
        Step::Update(key, stale) => {
            let key = KEYS[key];
            let expected = state.get(key).map_or(1, |found| found.revision)
                - u64::from(stale && index.is_multiple_of(3));
            let write = Write::Update { key: key.into(), expected, value: slotted };
            (key, Change::Updated, write, format!("<{revision}> {index}"))
        }
        Step::Delete(key, last) => {
            let key = KEYS[key];
            let expected = state.get(key).map_or(1, |found| found.revision);
            let text = match state.get(key) {
                _ if last => format!("<{revision}> {index}"),
                Some(found) => {
                    found.value.replace(&format!("<{}>", found.revision), &format!("<{revision}>"))
                }
                None => String::new(),
            };
            let write = Write::Delete { key: key.into(), expected, last: last.then_some(slotted) };
            (key, Change::Deleted, write, text)
        }
        _ => unreachable!(),
    };
    let expect = match (&write, state.get(key)) {
        (Write::Create { .. }, Some(found)) => Err(Error::Exists { revision: found.revision }),
        (Write::Create { .. }, None) => Ok(()),
        (_, None) => Err(Error::Missing),
        (Write::Update { expected, .. } | Write::Delete { expected, .. }, Some(found)) => {
            if *expected == found.revision { Ok(()) } else { Err(Error::Conflict { actual: found.revision }) }
        }
    };
    match store.write(write).await {
        Ok(record) => {
            assert_eq!(expect, Ok(()));
            assert_eq!(record.revision, revision);
            assert_eq!(record.value, value.as_bytes());
            oracle.events.push(Happened { revision, key: key.into(), change, value });
        }
        Err(error) => assert_eq!(expect, Err(error)),
    }
}

async fn list(store: &dyn Store, oracle: &Oracle, prefix: usize, back: u64, limit: usize) {
    let prefix = PREFIXES[prefix];
    let at = oracle.now().saturating_sub(back);
    let state = oracle.state(at);
    let mut expected: Vec<_> = state.values().filter(|found| found.key.starts_with(prefix)).collect();
    let mut after = None;
    loop {
        let query = ListQuery { prefix: prefix.into(), at: Some(at), after: after.clone(), limit };
        let page = match store.list(query).await {
            Ok(page) => page,
            Err(Error::Compacted { .. }) => {
                assert!(at < oracle.known_from, "{at} is still needed");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let rest = expected.split_off(page.records.len().min(expected.len()));
        assert_eq!(page.records.len(), expected.len());
        for (record, expected) in page.records.iter().zip(&expected) {
            assert_eq!((&*record.key, record.revision), (expected.key.as_str(), expected.revision));
            assert_eq!(record.value, expected.value.as_bytes());
        }
        assert_eq!(page.remaining, rest.len());
        if rest.is_empty() {
            return;
        }
        after = page.records.last().map(|record| record.key.to_string());
        expected = rest;
    }
}

fn watch(store: &dyn Store, oracle: &Oracle, scope: Scope, back: u64, wanted: impl Fn(&str) -> bool) {
    let after = oracle.now().saturating_sub(back);
    let mut watch = match store.watch(scope, after) {
        Ok(watch) => watch,
        Err(Error::Compacted { .. }) => {
            assert!(after < oracle.known_from, "{after} is still needed");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let expected: Vec<_> =
        oracle.events.iter().filter(|event| event.revision > after && wanted(&event.key)).cloned().collect();
    let mut seen = Vec::new();
    follow(&mut watch, &mut seen);
    assert_eq!(seen, expected);
    assert_eq!(watch.position(), oracle.now());
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_engine_agrees_with_the_oracle(steps in proptest::collection::vec(step(), 1..80)) {
        block_on(run(Engine::Memory(Memory::default()), steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_embedded_engine_agrees_with_the_oracle(
        steps in proptest::collection::vec(step(), 1..60),
        tiny in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options { preallocate: 4096, ..Options::default() };
        if tiny {
            options.segment_bytes = 400;
        }
        let store = Embedded::open(dir.path(), options.clone()).unwrap();
        block_on(run(Engine::Embedded(Some(Box::new(store)), dir, Box::new(options)), steps));
    }
}
