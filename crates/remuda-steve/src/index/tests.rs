use serde_json::json;

use super::*;

impl Index {
    /// A change, as the API would tell it.
    pub(crate) fn changed(&self, name: &str, revision: u64) {
        self.put(table(name, revision));
    }
}

/// An index without rows, at revision 10.
pub(crate) fn index() -> Arc<Index> {
    let kind = Kind { id: "thing".to_owned(), ..Kind::default() };
    let index = Index::new(Arc::new(kind), true, CancellationToken::new());
    index.replace(BTreeMap::new(), 10);
    index.phase.send_replace(Phase::Ready);
    index
}

fn table(name: &str, revision: u64) -> Table {
    let object = json!({"metadata": {"name": name, "resourceVersion": revision.to_string(),
                                     "ownerReferences": [{"uid": "o"}]}});
    serde_json::from_value(json!({"rows": [{"cells": [], "object": object}]})).unwrap()
}

#[test]
fn a_subscriber_goes_on_where_it_was() {
    let index = index();
    index.put(table("a", 11));
    index.put(table("a", 12));
    index.remove(table("a", 13));
    let told = |after: Option<u64>| -> Vec<(Change, u64)> {
        let (missed, _) = index.subscribe(after).unwrap();
        missed.iter().map(|event| (event.change, event.revision)).collect()
    };
    assert_eq!(told(None), []);
    assert_eq!(told(Some(10)), [(Change::Create, 11), (Change::Update, 12), (Change::Remove, 13)]);
    assert_eq!(told(Some(12)), [(Change::Remove, 13)]);
    assert_eq!(index.subscribe(Some(9)).err(), Some(TooOld { asked: 9, oldest: 10 }));
    assert_eq!(index.size(), (0, 0));
    assert!(index.owned_by("o").is_empty());
}

#[test]
fn the_ring_has_an_end() {
    let index = index();
    for revision in 11..2000 {
        index.put(table("a", revision));
    }
    let content = index.content.read();
    assert_eq!(content.ring.len(), HISTORY);
    assert_eq!(content.oldest, 1999 - HISTORY as u64);
    assert_eq!(content.rows.len(), 1);
    drop(content);
    assert_eq!(index.owned_by("o").len(), 1);
}

#[test]
fn a_new_list_tells_what_is_different() {
    let index = index();
    index.put(table("a", 11));
    index.put(table("b", 12));
    let (_, mut events) = index.subscribe(None).unwrap();
    let row = |name: &str, revision| {
        let row = index.row_of(table(name, revision)).unwrap();
        (row.key.clone(), row)
    };
    index.replace([row("b", 12), row("c", 15)].into_iter().collect(), 20);
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        told.push((event.change, event.row.name().to_owned()));
    }
    assert_eq!(told, [(Change::Remove, "a".to_owned()), (Change::Create, "c".to_owned())]);
    assert_eq!(index.revision(), 20);
}
