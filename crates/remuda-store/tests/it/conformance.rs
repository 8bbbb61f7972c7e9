//! What every engine must do.

use std::{sync::Arc, time::Duration};

use remuda_store::{
    Change, Embedded, Error, ListQuery, Memory, Options, Record, Revision, Scope, Store, Template, WatchEnd,
    Write,
};

pub(crate) fn create(key: &str, value: &str) -> Write {
    Write::Create { key: key.into(), value: Template::plain(value.to_owned()) }
}

pub(crate) fn update(key: &str, expected: Revision, value: &str) -> Write {
    Write::Update { key: key.into(), expected, value: Template::plain(value.to_owned()) }
}

pub(crate) fn delete(key: &str, expected: Revision) -> Write {
    Write::Delete { key: key.into(), expected, last: None }
}

pub(crate) fn prefix(prefix: &str) -> ListQuery {
    ListQuery { prefix: prefix.into(), ..ListQuery::default() }
}

fn keys(records: &[Arc<Record>]) -> Vec<&str> {
    records.iter().map(|record| &*record.key).collect()
}

/// Runs every check on a store that is empty.
pub(crate) async fn all(store: &dyn Store) {
    writes_are_conditional(store).await;
    slots_hold_the_revision(store).await;
    pages_are_consistent(store).await;
    watches_see_everything(store).await;
    watches_wake_for_their_scope(store).await;
    compaction_is_told(store).await;
    wide_scopes_merge(store).await;
    limits_hold(store).await;
    closing_ends_everything(store).await;
}

async fn writes_are_conditional(store: &dyn Store) {
    let key = "/cond/things/a";
    assert_eq!(store.write(update(key, 1, "x")).await, Err(Error::Missing));
    assert_eq!(store.write(delete(key, 1)).await, Err(Error::Missing));
    let created = store.write(create(key, "1")).await.unwrap();
    assert_eq!((created.created, &created.value[..]), (created.revision, &b"1"[..]));
    let exists = Err(Error::Exists { revision: created.revision });
    assert_eq!(store.write(create(key, "2")).await, exists);
    let updated = store.write(update(key, created.revision, "2")).await.unwrap();
    assert!(updated.revision > created.revision);
    assert_eq!(updated.created, created.revision);
    let conflict = Err(Error::Conflict { actual: updated.revision });
    assert_eq!(store.write(update(key, created.revision, "3")).await, conflict);
    assert_eq!(store.write(delete(key, created.revision)).await, conflict);
    let read = store.get(key).await.unwrap();
    assert_eq!(read.value.as_deref(), Some(&*updated));
    assert!(read.revision >= updated.revision);
    let gone = store.write(delete(key, updated.revision)).await.unwrap();
    assert!(gone.revision > updated.revision);
    assert_eq!(store.get(key).await.unwrap().value, None);
    let again = store.write(create(key, "4")).await.unwrap();
    assert!(again.revision > gone.revision);
    assert_eq!(again.created, again.revision);
    assert!(store.current().await.unwrap() >= again.revision);
    assert!(store.observed() >= again.revision);
    let many = ["/cond/things/a".to_owned(), "/cond/things/none".to_owned(), "/none/at/all".to_owned()];
    let read = store.get_many(&many, None).await.unwrap();
    assert_eq!(read.value[0].as_deref(), Some(&*again));
    assert_eq!(read.value[1..], [None, None]);
    let old = store.get_many(&many, Some(updated.revision)).await.unwrap();
    assert_eq!(old.value[0].as_deref(), Some(&*updated));
    let future = store.observed() + 1_000_000;
    assert!(matches!(store.get_many(&many, Some(future)).await, Err(Error::Future { .. })));
}

async fn slots_hold_the_revision(store: &dyn Store) {
    let key = "/slots/things/a";
    let value = Template::with_slot(r#"{"rv":""}"#, 7);
    let made = store.write(Write::Create { key: key.into(), value: value.clone() }).await.unwrap();
    assert_eq!(made.value, format!(r#"{{"rv":"{}"}}"#, made.revision));
    let watch = &mut store.watch(Scope::Key(key.into()), made.revision).unwrap();
    let gone = store.write(delete(key, made.revision)).await.unwrap();
    assert_eq!(gone.value, format!(r#"{{"rv":"{}"}}"#, gone.revision));
    let slot = gone.slot.clone().unwrap();
    assert_eq!(gone.value[slot.start as usize..slot.end as usize], *gone.revision.to_string().as_bytes());
    let again = store.write(Write::Create { key: key.into(), value }).await.unwrap();
    let last = Some(Template::with_slot("last:!", 5));
    let end = Write::Delete { key: key.into(), expected: again.revision, last };
    let end = store.write(end).await.unwrap();
    assert_eq!(end.value, format!("last:{}!", end.revision));
    let mut events = Vec::new();
    while events.len() < 3 {
        events.extend(watch.next().await.unwrap());
    }
    let seen: Vec<_> = events.iter().map(|event| (event.change, event.record.clone())).collect();
    assert_eq!(seen, [(Change::Deleted, gone), (Change::Created, again.clone()), (Change::Deleted, end)]);
    assert_eq!(events[0].previous, Some(made));
    assert_eq!(events[1].previous, None);
    assert_eq!(events[2].previous, Some(again));
}

async fn pages_are_consistent(store: &dyn Store) {
    for index in 0..10 {
        store.write(create(&format!("/pages/things/ns/{index}"), "x")).await.unwrap();
        store.write(create(&format!("/pages/things/other/{index}"), "x")).await.unwrap();
    }
    store.write(create("/pages/things2/ns/0", "not ours")).await.unwrap();
    let all = store.list(prefix("/pages/things/")).await.unwrap();
    assert_eq!((all.records.len(), all.remaining), (20, 0));
    for (scope, total) in [("/pages/things/", 20), ("/pages/things/ns/", 10)] {
        let mut query = ListQuery { limit: 3, ..prefix(scope) };
        let mut seen = Vec::new();
        let mut round = 0;
        loop {
            let page = store.list(query.clone()).await.unwrap();
            assert_eq!(page.revision, query.at.unwrap_or(page.revision));
            seen.extend(page.records.iter().map(|record| record.key.to_string()));
            assert_eq!(page.remaining, total - seen.len());
            if page.remaining == 0 {
                break;
            }
            // What happens between pages does not show.
            store.write(create(&format!("{scope}0-{round}"), "late")).await.unwrap();
            round += 1;
            query.at = Some(page.revision);
            query.after = seen.last().cloned();
        }
        assert_eq!(seen.len(), total);
        let (mut sorted, late) = (seen.clone(), seen.iter().filter(|key| key.contains("0-")).count());
        sorted.sort();
        sorted.dedup();
        assert_eq!((sorted, late), (seen, 0));
        for late in 0..round {
            let key = format!("{scope}0-{late}");
            let found = store.get(&key).await.unwrap().value.unwrap();
            store.write(delete(&key, found.revision)).await.unwrap();
        }
    }
    let exact = store.list(ListQuery { limit: 20, ..prefix("/pages/things/") }).await.unwrap();
    assert_eq!((exact.records.len(), exact.remaining), (20, 0));
    let none = store.list(prefix("/pages/none/")).await.unwrap();
    assert_eq!((none.records.len(), none.remaining), (0, 0));
    let part = store.list(prefix("/pages/things/ns/1")).await.unwrap();
    assert_eq!(keys(&part.records), ["/pages/things/ns/1"]);
}

async fn watches_see_everything(store: &dyn Store) {
    let start = store.current().await.unwrap();
    let mut early = store.watch(Scope::Prefix("/watch/things/".into()), start).unwrap();
    let mut expected = Vec::new();
    for index in 0..700 {
        let key = format!("/watch/things/{}", index % 7);
        let write = match store.get(&key).await.unwrap().value {
            None => create(&key, "new"),
            Some(record) if index % 3 == 0 => delete(&key, record.revision),
            Some(record) => update(&key, record.revision, "changed"),
        };
        expected.push(store.write(write).await.unwrap());
    }
    let mut late = store.watch(Scope::Prefix("/watch/things/".into()), start).unwrap();
    for watch in [&mut early, &mut late] {
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let events = watch.next().await.unwrap();
            assert!(!events.is_empty());
            seen.extend(events.iter().map(|event| event.record.clone()));
        }
        assert_eq!(seen, expected);
        assert!(watch.position() >= seen.last().unwrap().revision);
    }
    let middle = expected[350].revision;
    let mut rest = store.watch(Scope::Prefix("/watch/things/".into()), middle).unwrap();
    assert_eq!(rest.next().await.unwrap()[0].record, expected[351]);
    let future = store.observed() + 1_000_000;
    assert!(matches!(store.watch(Scope::Prefix("/watch/things/".into()), future), Err(Error::Future { .. })));
}

async fn watches_wake_for_their_scope(store: &dyn Store) {
    let start = store.current().await.unwrap();
    let scopes = [
        Scope::Prefix("/scope/things/".into()),
        Scope::Prefix("/scope/things/ns/".into()),
        Scope::Key("/scope/things/ns/a".into()),
        Scope::Prefix("/scope/things/ns/a".into()),
    ];
    let mut watches: Vec<_> = scopes.iter().map(|scope| store.watch(scope.clone(), start).unwrap()).collect();
    let outside = store.write(create("/scope/others/ns/a", "x")).await.unwrap();
    for watch in &mut watches {
        let none = tokio::time::timeout(Duration::from_millis(5), watch.next()).await;
        assert!(none.is_err(), "woken by another collection");
        assert!(watch.position() >= outside.revision, "bookmarks move on");
    }
    let other = store.write(create("/scope/things/other/a", "x")).await.unwrap();
    assert_eq!(watches[0].next().await.unwrap()[0].record, other);
    for watch in &watches[1..] {
        assert!(watch.position() >= other.revision);
    }
    let b = store.write(create("/scope/things/ns/b", "x")).await.unwrap();
    let a = store.write(create("/scope/things/ns/a", "x")).await.unwrap();
    for (watch, expected) in
        watches.iter_mut().zip([vec![b.clone(), a.clone()], vec![b, a.clone()], vec![a.clone()], vec![a]])
    {
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.extend(watch.next().await.unwrap().iter().map(|event| event.record.clone()));
        }
        assert_eq!(seen, expected);
    }
}

async fn compaction_is_told(store: &dyn Store) {
    let key = "/compact/things/a";
    let first = store.write(create(key, "1")).await.unwrap();
    let mut behind = store.watch(Scope::Key(key.into()), first.revision).unwrap();
    let mut elsewhere = store.watch(Scope::Key("/compact/things/z".into()), first.revision).unwrap();
    let quiet = store.write(create("/quiet/things/a", "1")).await.unwrap();
    let second = store.write(update(key, first.revision, "2")).await.unwrap();
    let third = store.write(update(key, second.revision, "3")).await.unwrap();
    let now = store.current().await.unwrap();
    assert!(matches!(store.compact(now + 1_000_000).await, Err(Error::Future { .. })));
    store.compact(second.revision).await.unwrap();
    let at = |at| ListQuery { at: Some(at), ..prefix("/compact/things/") };
    assert!(matches!(store.list(at(first.revision)).await, Err(Error::Compacted { .. })));
    assert_eq!(store.list(at(second.revision)).await.unwrap().records, std::slice::from_ref(&second));
    assert_eq!(store.get(key).await.unwrap().value, Some(third.clone()));
    let old = store.watch(Scope::Key(key.into()), first.revision);
    assert!(matches!(old, Err(Error::Compacted { .. })));
    assert!(matches!(behind.next().await, Err(WatchEnd::Compacted { .. })));
    let mut exact = store.watch(Scope::Key(key.into()), second.revision).unwrap();
    assert_eq!(exact.next().await.unwrap()[0].record, third);
    // Nothing of theirs was forgotten.
    let z = store.write(create("/compact/things/z", "1")).await.unwrap();
    assert_eq!(elsewhere.next().await.unwrap()[0].record, z);
    store.watch(Scope::Prefix("/quiet/things/".into()), quiet.revision).unwrap();
}

async fn wide_scopes_merge(store: &dyn Store) {
    let start = store.current().await.unwrap();
    let mut watch = store.watch(Scope::Prefix("/wide".into()), start).unwrap();
    let mut expected = Vec::new();
    for index in 0..5 {
        for collection in ["/wide/b-c", "/wide/b", "/wide2/a"] {
            expected.push(store.write(create(&format!("{collection}/{index}"), "x")).await.unwrap());
        }
    }
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        seen.extend(watch.next().await.unwrap().iter().map(|event| event.record.clone()));
    }
    assert_eq!(seen, expected);
    let mut sorted: Vec<String> = expected.iter().map(|record| record.key.to_string()).collect();
    sorted.sort();
    let page = store.list(prefix("/wide")).await.unwrap();
    assert_eq!(keys(&page.records), sorted);
    let mut after = None;
    let mut paged = Vec::new();
    loop {
        let page = store.list(ListQuery { after, limit: 4, ..prefix("/wide") }).await.unwrap();
        paged.extend(page.records.iter().map(|record| record.key.to_string()));
        assert_eq!(page.remaining, sorted.len() - paged.len());
        if page.remaining == 0 {
            break;
        }
        after = paged.last().cloned();
    }
    assert_eq!(paged, sorted);
}

async fn limits_hold(store: &dyn Store) {
    let big = "x".repeat(8 << 20);
    let result = store.write(create("/limits/things/a", &big)).await;
    assert!(matches!(result, Err(Error::TooLarge { .. })), "{result:?}");
    assert!(store.get("/limits/things/a").await.unwrap().value.is_none());
    store.health().await.unwrap();
}

async fn closing_ends_everything(store: &dyn Store) {
    let now = store.current().await.unwrap();
    let mut watch = store.watch(Scope::Prefix("/close/things/".into()), now).unwrap();
    let last = store.write(create("/close/things/a", "x")).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(watch.next().await.unwrap()[0].record, last);
    assert!(matches!(watch.next().await, Err(WatchEnd::Closed)));
    assert_eq!(store.write(create("/close/things/b", "x")).await, Err(Error::Closed));
    assert!(store.health().await.is_err());
}

#[tokio::test]
async fn the_memory_engine_conforms() {
    all(&Memory::default()).await;
}

#[tokio::test]
async fn the_embedded_engine_conforms() {
    let dir = tempfile::tempdir().unwrap();
    all(&Embedded::open(dir.path(), Options::default()).unwrap()).await;
}
