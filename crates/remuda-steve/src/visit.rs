//! One request: whose it is, at which API, and what is known of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::StatusCode;
use kube::Client;
use remuda_control::bounded::{LimitExceeded, Room, Share};
use remuda_door::Refusal;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    answer::{excessive, refused},
    indexes::Indexes,
    kind::{Catalogue, Kind},
    parts::{self, PartOfCluster},
    query::encoded,
    relationship::{self, Relationship},
    rights::{Reach, Rights, Sheet},
    row::Row,
    show::{Added, Base, shown},
    state::State,
    table::{Table, table_request},
};

/// Objects asked for at one time, of a cluster.
const PAGE: usize = 500;
/// Objects of a cluster in one list.
const MOST_ROWS: usize = 50_000;
/// Pages of them. A cluster may send less than it was asked for, but not without end.
const MOST_PAGES: usize = 4 * MOST_ROWS / PAGE;
/// What one list may hold of a cluster.
const MOST_BYTES: usize = 160 << 20;
/// And how long it may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where rows come from.
#[derive(Clone)]
pub(crate) enum Source {
    /// Of the management API: indexes that all callers share.
    Indexes(Arc<Indexes>),
    /// Of another cluster: it is asked as the caller. What is held of its answers has this much room, with those of
    /// all others.
    Cluster(Arc<Room>),
}

#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) base: Base,
    pub(crate) rights: Rights,
    /// Acts as the caller.
    pub(crate) client: Client,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) source: Source,
    /// Which kinds are parts of clusters.
    pub(crate) part_of: PartOfCluster,
    pub(crate) user: String,
    /// Seconds.
    pub(crate) now: i64,
}

/// Rows of a kind that the caller may see.
pub(crate) struct Snapshot {
    pub(crate) rows: Vec<Arc<Row>>,
    pub(crate) revision: u64,
    /// The room of rows that are held for this list only.
    pub(crate) _held: Option<Share>,
}

impl Visit {
    pub(crate) fn kind(&self, name: &str) -> Result<Arc<Kind>, Refusal> {
        self.catalogue.find(name).cloned().ok_or_else(|| unknown(name))
    }

    /// Rows of a namespace, or of all of them.
    pub(crate) async fn rows(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        revision: Option<u64>,
    ) -> Result<Snapshot, Refusal> {
        if !kind.has_verb("list") {
            return Err(Refusal::method_not_allowed(&["POST"]));
        }
        let indexes = match &self.source {
            Source::Indexes(indexes) => indexes,
            Source::Cluster(room) => {
                let listed = timeout(PATIENCE, self.listed(kind, namespace, room.share(MOST_BYTES))).await;
                return listed.unwrap_or_else(|_| {
                    let message = format!("the cluster did not list its {} in {PATIENCE:?}", kind.plural);
                    Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, message))
                });
            }
        };
        let reach = self.reach(kind).await?;
        let index = indexes.get(kind, true).await?;
        if let Some(revision) = revision
            && !index.reaches(revision).await
        {
            return Err(Refusal::bad("unknown revision").because("unknown revision"));
        }
        let (mut rows, revision) = index.rows(namespace);
        rows.retain(|row| reach.shows(row));
        Ok(Snapshot { rows, revision, _held: None })
    }

    /// A list of a cluster, which decides what the caller may see.
    async fn listed(&self, kind: &Arc<Kind>, namespace: &str, mut held: Share) -> Result<Snapshot, Refusal> {
        let (mut rows, mut next, mut limit) = (Vec::new(), String::new(), PAGE);
        for _ in 0..MOST_PAGES {
            let mut uri = format!("{}?limit={limit}&includeObject=Object", kind.path(namespace, ""));
            if !next.is_empty() {
                uri.push_str(&format!("&continue={}", encoded(&next)));
            }
            let request = table_request(&uri).ok_or_else(Refusal::not_found)?;
            let page: Table = match self.client.request(request).await {
                Ok(page) => page,
                // Large objects: fewer of them fit.
                Err(error)
                    if limit > 1
                        && matches!(LimitExceeded::of(&error), Some(LimitExceeded::Answer { .. })) =>
                {
                    limit = (limit / 5).max(1);
                    continue;
                }
                Err(error) => return Err(refused(error)),
            };
            for row in page.rows.into_iter().flatten() {
                let Some(row) = Row::new(kind, row.object, row.cells, true) else { continue };
                held.take(row.weight()).map_err(|too_much| excessive(&too_much))?;
                rows.push(Arc::new(row));
            }
            if rows.len() > MOST_ROWS {
                return Err(Refusal::not_yet(format!("there are more than {MOST_ROWS} {}", kind.plural)));
            }
            if page.metadata.next.is_empty() {
                let revision = page.metadata.resource_version.parse().unwrap_or_default();
                return Ok(Snapshot { rows, revision, _held: Some(held) });
            }
            next = page.metadata.next;
        }
        let message = format!("the cluster did not end its list of {}", kind.plural);
        Err(Refusal::new(StatusCode::BAD_GATEWAY, message))
    }

    /// Whether it is at the management API, and not in another cluster.
    pub(crate) fn is_management(&self) -> bool {
        matches!(self.source, Source::Indexes(_))
    }

    /// What the caller may read of a kind: by a right to it, or to the clusters its objects are parts of.
    pub(crate) async fn reach(&self, kind: &Kind) -> Result<Reach, Refusal> {
        let mut reach = self.rights.reach(kind);
        if !reach.is_all() {
            reach.parts = parts::parts(self, kind).await?;
        }
        Ok(reach)
    }

    /// Methods of a kind: of its objects and of its collection.
    pub(crate) fn methods(&self, sheet: &Sheet, kind: &Kind) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut object, mut collection) = sheet.methods(kind);
        if !collection.contains(&"GET") && parts::may_ask(self, sheet, kind) {
            object.insert(0, "GET");
            collection.insert(0, "GET");
        }
        (object, collection)
    }

    /// Whether the caller may see an object, by the rights of this moment.
    pub(crate) async fn may_see(&self, kind: &Kind, row: &Row) -> bool {
        self.rights.may_read(kind, row.namespace(), row.name()) || parts::is_part(self, kind, row).await
    }

    /// One object the caller may see: by the API's own decision, or as a part of a cluster.
    pub(crate) async fn seen(
        &self,
        kind: &Arc<Kind>,
        namespace: &str,
        name: &str,
    ) -> Result<Arc<Row>, Refusal> {
        let refusal = match self.one(kind, namespace, name).await {
            Ok(row) => return Ok(Arc::new(row)),
            Err(refusal) if refusal.code == StatusCode::FORBIDDEN => refusal,
            Err(refusal) => return Err(refusal),
        };
        let Source::Indexes(indexes) = &self.source else { return Err(refusal) };
        if (self.part_of)(&kind.group, &kind.resource).is_none() {
            return Err(refusal);
        }
        let row = indexes.get(kind, true).await?.row(namespace, name);
        match row {
            Some(row) if self.may_see(kind, &row).await => Ok(row),
            // Whether there is one is told to those who would see it.
            _ => Err(refusal),
        }
    }

    /// One object, by the API's own decision.
    pub(crate) async fn one(&self, kind: &Arc<Kind>, namespace: &str, name: &str) -> Result<Row, Refusal> {
        if !kind.has_verb("get") {
            return Err(Refusal::method_not_allowed(&["POST"]));
        }
        let uri = format!("{}?includeObject=Object", kind.path(namespace, name));
        let request = table_request(&uri).ok_or_else(Refusal::not_found)?;
        let table: Table = self.client.request(request).await.map_err(refused)?;
        let row = table.rows.into_iter().flatten().next();
        row.and_then(|row| Row::new(kind, row.object, row.cells, true)).ok_or_else(Refusal::not_found)
    }

    /// An object the API answered a write with.
    pub(crate) fn written(&self, kind: &Arc<Kind>, object: Value) -> Option<Row> {
        Row::new(kind, object, Vec::new(), true)
    }

    /// Rows as they are shown.
    pub(crate) fn shown(&self, kind: &Arc<Kind>, rows: &[Arc<Row>]) -> Vec<Value> {
        let mut reaches = Reaches { visit: self, known: HashMap::new() };
        rows.iter().map(|row| self.shown_one(kind, row, &mut reaches)).collect()
    }

    fn shown_one(&self, kind: &Arc<Kind>, row: &Row, reaches: &mut Reaches<'_>) -> Value {
        let object = row.object();
        let related = self.related(kind, row, &object);
        let related = related.iter().filter(|other| reaches.includes(other));
        let relationships = related.map(|other| other.to_value(self.state_of(other).as_ref())).collect();
        let added = Added { state: row.timeline.at(self.now), fields: row.fields(self.now), relationships };
        shown(&self.base, kind, &self.rights, object, added)
    }

    pub(crate) fn shown_row(&self, kind: &Arc<Kind>, row: &Row) -> Value {
        self.shown_one(kind, row, &mut Reaches { visit: self, known: HashMap::new() })
    }

    /// Both ends of what an object has to do with others, whether the caller may see them or not.
    fn related(&self, kind: &Arc<Kind>, row: &Row, object: &Value) -> Vec<Relationship> {
        let mut found = relationship::of_object(&self.catalogue, kind, row.namespace(), &row.owners, object);
        if let Source::Indexes(indexes) = &self.source {
            for owned in relationship::owned_kinds(&self.catalogue, kind) {
                let Some(index) = indexes.peek(&owned.id) else { continue };
                let rows = index.owned_by(&row.uid);
                found.extend(rows.iter().map(|row| relationship::owned(owned, row.namespace(), row.name())));
            }
        }
        found
    }

    fn state_of(&self, other: &Relationship) -> Option<State> {
        let Source::Indexes(indexes) = &self.source else { return None };
        let row = indexes.peek(&other.kind)?.row(&other.namespace, &other.name)?;
        Some(row.timeline.at(self.now).clone())
    }

    /// Has the indexes of kinds that objects of this kind own, so that both ends can be shown.
    pub(crate) async fn with_owned(&self, kind: &Kind) {
        if let Source::Indexes(indexes) = &self.source {
            for owned in relationship::owned_kinds(&self.catalogue, kind) {
                // One that cannot be had is missing in relationships, and no reason to answer nothing.
                let _ = indexes.get(owned, false).await;
            }
        }
    }
}

/// What the caller may see of several kinds, each read once.
struct Reaches<'a> {
    visit: &'a Visit,
    known: HashMap<String, Option<Reach>>,
}

impl Reaches<'_> {
    fn includes(&mut self, other: &Relationship) -> bool {
        let visit = self.visit;
        let reach = self
            .known
            .entry(other.kind.clone())
            .or_insert_with(|| visit.catalogue.find(&other.kind).map(|kind| visit.rights.reach(kind)));
        reach.as_ref().is_some_and(|reach| reach.includes(&other.namespace, &other.name))
    }
}

pub(crate) fn unknown(name: &str) -> Refusal {
    let shown: String = name.chars().take(128).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("failed to find schema {shown}"))
}
