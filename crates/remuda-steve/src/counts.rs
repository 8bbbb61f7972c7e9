//! Counts of all kinds a caller may list, by state and namespace.
//!
//! Of another cluster nothing is kept, so it is asked as the caller how many there are of each kind: one short page
//! says it. States and namespaces are not counted there.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::{
    index::Index,
    kind::Kind,
    show::collection,
    table::{Table, table_request},
    visit::{Source, Visit},
};

/// Kinds of a cluster that are asked for at one time.
const AT_ONCE: usize = 8;
/// How long a cluster may take. What it has not said until then is not counted.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any cluster has of a kind. It may say what it likes.
const MOST: u64 = 100_000_000;

/// What is counted of a kind, as it is shown.
#[derive(Default)]
struct Tally {
    count: usize,
    states: BTreeMap<String, usize>,
    errors: usize,
    transitioning: usize,
}

impl Tally {
    fn to_value(&self) -> Value {
        let mut value = json!({"count": self.count});
        // Zero is left out.
        if !self.states.is_empty() {
            value["states"] = json!(self.states);
        }
        if self.errors > 0 {
            value["errors"] = self.errors.into();
        }
        if self.transitioning > 0 {
            value["transitioning"] = self.transitioning.into();
        }
        value
    }
}

/// Counts of one kind; nothing if the caller may see none of it by any right.
async fn of_kind(visit: &Visit, index: &Index) -> Option<Value> {
    // A kind whose parts cannot be told now is counted the next time.
    let reach = visit.reach(&index.kind).await.ok()?;
    if reach.is_empty() {
        return None;
    }
    let (rows, _) = index.rows("");
    let mut all = Tally::default();
    let mut namespaces: BTreeMap<&str, Tally> = BTreeMap::new();
    for row in rows.iter().filter(|row| reach.shows(row)) {
        let state = row.timeline.at(visit.now);
        let own = (!row.namespace().is_empty()).then(|| namespaces.entry(row.namespace()).or_default());
        for tally in own.into_iter().chain([&mut all]) {
            tally.count += 1;
            tally.errors += usize::from(state.error);
            tally.transitioning += usize::from(state.transitioning);
            if state.error || state.transitioning {
                *tally.states.entry(state.name.clone()).or_default() += 1;
            }
        }
    }
    let namespaces: Map<String, Value> =
        namespaces.into_iter().map(|(name, tally)| (name.to_owned(), tally.to_value())).collect();
    Some(json!({"summary": all.to_value(), "namespaces": namespaces}))
}

/// Counts that go on: of kinds without changes nothing is counted again.
#[derive(Default)]
pub(crate) struct Counting {
    seen: HashMap<String, u64>,
    told: BTreeMap<String, Value>,
}

impl Counting {
    /// Counts that are not as they were told before.
    pub(crate) async fn changed(&mut self, visit: &Visit, all: bool) -> Map<String, Value> {
        let mut changed = Map::new();
        let kinds: Vec<Arc<Kind>> = visit.catalogue.all().filter(|kind| kind.is_listed()).cloned().collect();
        let Source::Indexes(indexes) = &visit.source else { return changed };
        // Started together, then waited for.
        for kind in &kinds {
            let _ = indexes.begin(kind, false);
        }
        for kind in &kinds {
            // A kind that cannot be listed now is counted the next time.
            let Ok(index) = indexes.get(kind, false).await else { continue };
            let (changes, _) = index.changes();
            let known = self.seen.insert(kind.id.clone(), changes);
            if !all && known == Some(changes) {
                continue;
            }
            let count = of_kind(visit, &index).await;
            match count {
                Some(count) if self.told.get(&kind.id) != Some(&count) => {
                    self.told.insert(kind.id.clone(), count.clone());
                    changed.insert(kind.id.clone(), count);
                }
                None if self.told.remove(&kind.id).is_some() => {
                    let nothing = json!({"summary": {"count": 0}, "namespaces": {}});
                    changed.insert(kind.id.clone(), nothing);
                }
                _ => {}
            }
        }
        changed
    }
}

pub(crate) fn shown(visit: &Visit, counts: Map<String, Value>) -> Value {
    let own = format!("{}/counts/count", visit.base.root());
    json!({"id": "count", "type": "count", "links": {"self": own}, "counts": counts})
}

/// `/v1/counts`.
pub(crate) async fn list(visit: &Visit) -> Value {
    let mut answer = collection(&visit.base, "count", "/counts");
    answer["data"] = json!([one(visit).await]);
    answer["count"] = 1.into();
    answer
}

/// `/v1/counts/count`.
pub(crate) async fn one(visit: &Visit) -> Value {
    let counts = match visit.is_management() {
        true => Counting::default().changed(visit, true).await,
        false => of_cluster(visit).await,
    };
    shown(visit, counts)
}

/// How many there are of each kind in another cluster. Kinds it does not let the caller list are not there.
async fn of_cluster(visit: &Visit) -> Map<String, Value> {
    let kinds: Vec<Arc<Kind>> = visit.catalogue.all().filter(|kind| kind.is_listed()).cloned().collect();
    let counting = stream::iter(kinds)
        .map(|kind| async move { (kind.id.clone(), count_in_cluster(visit, &kind).await) })
        .buffer_unordered(AT_ONCE);
    let mut counting = std::pin::pin!(counting);
    let mut counts = Map::new();
    let all = async {
        while let Some((id, count)) = counting.next().await {
            if let Some(count) = count {
                counts.insert(id, json!({"summary": {"count": count}, "namespaces": {}}));
            }
        }
    };
    let _ = timeout(PATIENCE, all).await;
    counts
}

async fn count_in_cluster(visit: &Visit, kind: &Kind) -> Option<u64> {
    let request = table_request(&format!("{}?limit=1&includeObject=None", kind.path("", "")))?;
    let table: Table = visit.client.request(request).await.ok()?;
    let here = table.rows.map_or(0, |rows| rows.len() as u64);
    match (table.metadata.next.is_empty(), table.metadata.remaining) {
        (true, _) => Some(here),
        (false, Some(behind)) => Some(here.saturating_add(behind).min(MOST)),
        // It does not say.
        (false, None) => None,
    }
}
