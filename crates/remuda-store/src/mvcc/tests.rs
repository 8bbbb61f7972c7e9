//! History: what is kept, for how long, and who hears of its end.

use std::time::Duration;

use super::*;
use crate::{Template, Watch, Write};

fn policy(age: Duration, events: usize, superseded_bytes: usize) -> Policy {
    Policy { age, events, superseded_bytes, ..Policy::default() }
}

fn write(mvcc: &Mvcc, key: &str, value: &str) -> Revision {
    let current = mvcc.newest(key);
    let revision = mvcc.published() + 1;
    let (key, value) = (key.to_owned(), Template::plain(value.to_owned()));
    let write = match &current {
        None => Write::Create { key, value },
        Some(record) => Write::Update { key, expected: record.revision, value },
    };
    let event = write.event(current.as_ref(), revision).unwrap();
    mvcc.commit(&[event], revision);
    revision
}

fn readable(mvcc: &Mvcc, at: Revision) -> bool {
    let query = ListQuery { prefix: "/a/b/".into(), at: Some(at), ..ListQuery::default() };
    mvcc.list(&query).is_ok()
}

#[test]
fn collections_are_cut_after_the_third_slash() {
    for (key, name, narrow) in [
        ("/a/b/c/d", "/a/b/", true),
        ("/a/b/", "/a/b/", true),
        ("/a/b", "/a/b", false),
        ("/", "/", false),
        ("", "", false),
        ("abc", "abc", false),
        ("///", "///", true),
    ] {
        assert_eq!((collection_of(key), is_narrow(key)), (name, narrow), "{key}");
    }
}

#[test]
fn young_events_stay_however_many() {
    let mvcc = Mvcc::new(policy(Duration::from_secs(60), 2, 1 << 20));
    for _ in 0..100 {
        write(&mvcc, "/a/b/c", "x");
    }
    assert!(readable(&mvcc, 1));
}

#[test]
fn old_events_go_down_to_the_number_kept() {
    let mvcc = Mvcc::new(policy(Duration::ZERO, 10, 1 << 20));
    for _ in 0..100 {
        write(&mvcc, "/a/b/c", "x");
        std::thread::sleep(Duration::from_micros(10));
    }
    assert!(!readable(&mvcc, 88));
    assert!(readable(&mvcc, 91));
}

#[test]
fn superseded_bytes_are_capped_for_events_of_any_age() {
    let mvcc = Mvcc::new(policy(Duration::from_secs(60), 1000, 10_000));
    let value = "x".repeat(1000);
    for _ in 0..100 {
        write(&mvcc, "/a/b/c", &value);
    }
    assert!(!readable(&mvcc, 85));
    assert!(readable(&mvcc, 92));
    // Another collection has its own budget.
    write(&mvcc, "/a/c/c", &value);
    assert!(readable(&mvcc, 92));
}

#[test]
fn a_quiet_watcher_survives_the_trimming_of_others() {
    let mvcc = Mvcc::new(policy(Duration::ZERO, 1, 1 << 20));
    let scopes = [Scope::Key("/a/b/n/quiet".into()), Scope::Prefix("/a/b/n/".into())];
    let mut quiet = scopes.map(|scope| Watch::new(&mvcc, scope, 0).unwrap());
    let mut busy = Watch::new(&mvcc, Scope::Prefix("/a/b/".into()), 0).unwrap();
    for _ in 0..50 {
        write(&mvcc, "/a/b/m/busy", "x");
        std::thread::sleep(Duration::from_micros(10));
    }
    assert!(matches!(busy.pending(), Err(WatchEnd::Compacted { .. })));
    let revision = write(&mvcc, "/a/b/n/quiet", "x");
    for watch in &mut quiet {
        let events = watch.pending().unwrap();
        assert_eq!(events.iter().map(|event| event.revision()).collect::<Vec<_>>(), [revision]);
    }
}

#[test]
fn a_pin_holds_history_and_its_end_releases_it() {
    let mvcc = Mvcc::new(policy(Duration::ZERO, 1, 0));
    write(&mvcc, "/a/b/c", "old");
    let pin = mvcc.pin();
    for _ in 0..20 {
        write(&mvcc, "/a/b/c", "new");
    }
    mvcc.compact(mvcc.published()).unwrap();
    let query = ListQuery { prefix: "/a/b/".into(), at: Some(pin.revision), ..ListQuery::default() };
    assert_eq!(mvcc.list_without_count(&query).unwrap()[0].value, "old");
    drop(pin);
    assert!(!readable(&mvcc, 20));
    assert!(readable(&mvcc, 21));
    assert_eq!(mvcc.get("/a/b/c").unwrap().value.unwrap().value, "new");
}

#[test]
fn a_replacement_is_seen_whole_and_ends_watches() {
    let mvcc = Mvcc::new(Policy::default());
    write(&mvcc, "/a/b/c", "old");
    let mut watches = ["/a/b/", "/a/b/c", "/"].map(|prefix| {
        let scope = Scope::Prefix(prefix.into());
        Watch::new(&mvcc, scope, mvcc.published()).unwrap()
    });
    let record = Arc::new(Record::new("/a/b/d".into(), 7, 9, &Template::plain("new")));
    mvcc.replace(std::slice::from_ref(&record), 10);
    for watch in &mut watches {
        assert_eq!(watch.pending().unwrap_err(), WatchEnd::Compacted { oldest: 10 });
    }
    assert_eq!(mvcc.get("/a/b/c").unwrap(), At { revision: 10, value: None });
    assert_eq!(mvcc.get("/a/b/d").unwrap().value, Some(record));
    assert!(matches!(Watch::new(&mvcc, Scope::Key("/x/y/z".into()), 9), Err(Error::Compacted { .. })));
    let mut after = Watch::new(&mvcc, Scope::Prefix("/a/b/".into()), 10).unwrap();
    write(&mvcc, "/a/b/d", "newer");
    assert_eq!(after.pending().unwrap().len(), 1);
}

#[test]
fn groups_go_with_their_last_watcher() {
    let mvcc = Mvcc::new(Policy::default());
    let watch = || Watch::new(&mvcc, Scope::Key("/a/b/c".into()), 0).unwrap();
    let (one, two) = (watch(), watch());
    let collection = mvcc.collection("/a/b/");
    drop(one);
    assert_eq!(collection.groups(), 1);
    drop(two);
    assert_eq!(collection.groups(), 0);
}

#[test]
fn encoded_forms_are_kept_for_the_newest_events_only() {
    let mvcc = Mvcc::new(Policy::default());
    let mut watch = Watch::new(&mvcc, Scope::Prefix("/a/b/".into()), 0).unwrap();
    let value = "x".repeat(1 << 17);
    let mut events = Vec::new();
    for _ in 0..40 {
        write(&mvcc, "/a/b/c", &value);
        events.extend(watch.pending().unwrap());
        let newest = events.last().unwrap();
        newest.frames.get_or_insert(1, || bytes::Bytes::from_static(b"made"));
    }
    let kept = |event: &Arc<Event>| {
        let form = event.frames.get_or_insert(1, || bytes::Bytes::from_static(b"again"));
        form == "made"
    };
    let kept: Vec<_> = events.iter().map(kept).collect();
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 8);
    assert!(kept[32..].iter().all(|kept| *kept));
}
