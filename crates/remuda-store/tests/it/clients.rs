//! Clients as they come: list, then watch, lose the connection, start again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rand::RngExt;
use remuda_store::{Change, Embedded, Error, Memory, Options, Policy, Revision, Scope, Store, WatchEnd};

use crate::conformance::{create, delete, prefix, update};

type Mirror = BTreeMap<String, (Revision, Vec<u8>)>;

async fn mirror_once(store: &dyn Store) -> Mirror {
    let page = store.list(prefix("/mirror/things/")).await.unwrap();
    page.records
        .iter()
        .map(|record| (record.key.to_string(), (record.revision, record.value.to_vec())))
        .collect()
}

/// Follows the collection until told to stop and everything has been seen. Returns its picture.
async fn client(
    store: Arc<dyn Store>,
    stop: Arc<AtomicBool>,
    last: Arc<std::sync::atomic::AtomicU64>,
) -> Mirror {
    loop {
        let page = store.list(prefix("/mirror/things/")).await.unwrap();
        let mut mirror: Mirror = page
            .records
            .iter()
            .map(|record| (record.key.to_string(), (record.revision, record.value.to_vec())))
            .collect();
        let mut position = page.revision;
        'connection: loop {
            let mut watch = match store.watch(Scope::Prefix("/mirror/things/".into()), position) {
                Ok(watch) => watch,
                Err(Error::Compacted { .. }) => break 'connection,
                Err(error) => panic!("{error}"),
            };
            // A connection lasts for some events only.
            let lasts = rand::rng().random_range(1..20);
            for _ in 0..lasts {
                let next = tokio::time::timeout(Duration::from_millis(20), watch.next()).await;
                let events = match next {
                    Ok(Ok(events)) => events,
                    Ok(Err(WatchEnd::Compacted { .. })) => break 'connection,
                    Ok(Err(WatchEnd::Closed)) => panic!("closed"),
                    Err(_) => {
                        position = watch.position();
                        if stop.load(Ordering::Acquire) && position >= last.load(Ordering::Acquire) {
                            return mirror;
                        }
                        continue;
                    }
                };
                for event in events {
                    let record = &event.record;
                    assert!(record.revision > position, "events come in order, once");
                    position = record.revision;
                    let before = mirror.get(&*record.key).map(|(revision, _)| *revision);
                    assert_eq!(before, event.previous.as_ref().map(|previous| previous.revision));
                    match event.change {
                        Change::Deleted => mirror.remove(&*record.key),
                        _ => mirror.insert(record.key.to_string(), (record.revision, record.value.to_vec())),
                    };
                }
            }
            if rand::rng().random_bool(0.1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn writer(store: Arc<dyn Store>, writes: usize) {
    for index in 0..writes {
        let key = format!("/mirror/things/{}", rand::rng().random_range(0..20));
        let write = match store.get(&key).await.unwrap().value {
            None => create(&key, &format!("new {index}")),
            Some(found) if rand::rng().random_bool(0.3) => delete(&key, found.revision),
            Some(found) => update(&key, found.revision, &format!("changed {index}")),
        };
        match store.write(write).await {
            Ok(_) | Err(Error::Exists { .. } | Error::Missing | Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        if index % 50 == 49 {
            store.compact(store.observed().saturating_sub(10)).await.unwrap();
        }
    }
}

pub(crate) async fn every_client_ends_with_the_stores_state(store: Arc<dyn Store>, writes: usize) {
    let stop = Arc::new(AtomicBool::new(false));
    let last = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        clients.spawn(client(store.clone(), stop.clone(), last.clone()));
    }
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        writers.spawn(writer(store.clone(), writes));
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    last.store(store.current().await.unwrap(), Ordering::Release);
    stop.store(true, Ordering::Release);
    let expected = mirror_once(&*store).await;
    while let Some(done) = clients.join_next().await {
        assert_eq!(done.unwrap(), expected);
    }
}

fn forgetful() -> Policy {
    Policy { age: Duration::ZERO, events: 30, superseded_bytes: 400, ..Policy::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_memory_engine_end_with_its_state() {
    every_client_ends_with_the_stores_state(Arc::new(Memory::new(forgetful())), 2000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_embedded_engine_end_with_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { history: forgetful(), checkpoint_bytes: 20_000, ..Options::default() };
    let store = Arc::new(Embedded::open(dir.path(), options.clone()).unwrap());
    every_client_ends_with_the_stores_state(store.clone(), 1000).await;
    let before = mirror_once(&*store).await;
    store.close().await;
    drop(store);
    let reopened = Embedded::open(dir.path(), options).unwrap();
    assert_eq!(mirror_once(&reopened).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watchers_of_single_keys_wake_for_their_own_only() {
    let store = Arc::new(Memory::default());
    let mut watchers = tokio::task::JoinSet::new();
    for index in 0..1000 {
        let mut watch = store.watch(Scope::Key(format!("/agents/plans/{index}")), 0).unwrap();
        watchers.spawn(async move {
            let events = watch.next().await.unwrap();
            (index, events.len(), events[0].record.key.to_string())
        });
    }
    for index in 0..1000 {
        store.write(create(&format!("/agents/plans/{index}"), "x")).await.unwrap();
    }
    while let Some(done) = watchers.join_next().await {
        let (index, count, key) = done.unwrap();
        assert_eq!((count, key), (1, format!("/agents/plans/{index}")));
    }
}
