//! The index of one kind: its objects as rows, kept by a watch and shared by all who ask.
//!
//! It is filled by a list in pages and followed by a watch, both as Tables, so rows have the cells of the kind's
//! columns. What happened lately is kept in a ring: a subscriber can go on from a revision it has seen, and one that is
//! too slow is told so instead of being waited for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use http::StatusCode;
use kube::{
    Client,
    core::{Status, WatchEvent},
};
use parking_lot::{Mutex, RwLock};
use remuda_control::Chain;
use remuda_door::Refusal;
use tokio::{
    sync::{broadcast, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    kind::Kind,
    query::encoded,
    row::{Key, Row},
    table::{Table, table_request},
};

/// Objects asked for at one time.
const PAGE: usize = 500;
/// Objects of one kind. More are not listed here but through the Kubernetes API.
const MOST_ROWS: usize = 250_000;
/// Changes that are kept for subscribers that come back or are slow.
const HISTORY: usize = 1024;
/// For the first list.
const PATIENCE: Duration = Duration::from_secs(30);
/// For changes the caller has made or seen elsewhere.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Between attempts to reach the API.
const RETRY: Duration = Duration::from_secs(1);
/// Attempts before whoever waits for the first list is told.
const ATTEMPTS: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Create,
    Update,
    Remove,
}

/// Events that were missed, and those that come.
pub(crate) type Subscribed = (Vec<Arc<Event>>, broadcast::Receiver<Arc<Event>>);

/// Something happened to a row.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) row: Arc<Row>,
    /// What it was before, which selectors need to know.
    pub(crate) before: Option<Arc<Row>>,
    pub(crate) revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Filling,
    Ready,
    /// It will not be ready any more, because of this.
    Gone(Refusal),
}

/// The revision a subscriber has seen is not in the ring any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    pub(crate) asked: u64,
    pub(crate) oldest: u64,
}

pub(crate) struct Index {
    pub(crate) kind: Arc<Kind>,
    /// Whether rows have their objects.
    pub(crate) keeps: bool,
    content: RwLock<Content>,
    phase: watch::Sender<Phase>,
    revision: watch::Sender<u64>,
    events: broadcast::Sender<Arc<Event>>,
    /// What was written through this server: lists are not older.
    expected: AtomicU64,
    used: Mutex<Instant>,
    pub(crate) stop: CancellationToken,
}

#[derive(Default)]
struct Content {
    rows: BTreeMap<Key, Arc<Row>>,
    /// Rows by the uid of who owns them.
    owned: HashMap<Box<str>, BTreeSet<Key>>,
    /// Changes after this one are in the ring.
    oldest: u64,
    ring: VecDeque<Arc<Event>>,
    bytes: usize,
    changes: u64,
    changed: Option<Instant>,
}

impl Content {
    fn put(&mut self, row: Arc<Row>) -> Option<Arc<Row>> {
        let before = self.take(&row.key);
        for owner in &row.owners {
            self.owned.entry(owner.uid.clone()).or_default().insert(row.key.clone());
        }
        self.bytes += row.size();
        self.rows.insert(row.key.clone(), row);
        before
    }

    fn take(&mut self, key: &Key) -> Option<Arc<Row>> {
        let before = self.rows.remove(key)?;
        self.bytes -= before.size();
        for owner in &before.owners {
            if let Some(keys) = self.owned.get_mut(&owner.uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(&owner.uid);
                }
            }
        }
        Some(before)
    }
}

/// Why following ended.
enum End {
    /// By the server, in time.
    Over,
    /// The revision is too old: list again.
    Expired,
    NotServed(Refusal),
    Failed(String),
}

impl Index {
    pub(crate) fn new(kind: Arc<Kind>, keeps: bool, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            kind,
            keeps,
            content: RwLock::default(),
            phase: watch::Sender::new(Phase::Filling),
            revision: watch::Sender::new(0),
            events: broadcast::Sender::new(HISTORY),
            expected: AtomicU64::new(0),
            used: Mutex::new(Instant::now()),
            stop,
        })
    }

    /// Is kept for a while from now on.
    pub(crate) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    pub(crate) fn used(&self) -> Instant {
        if self.events.receiver_count() > 0 { Instant::now() } else { *self.used.lock() }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.stop.is_cancelled() || matches!(*self.phase.borrow(), Phase::Gone(_))
    }

    /// A change at this revision was made through this server.
    pub(crate) fn expect(&self, revision: u64) {
        self.expected.fetch_max(revision, Ordering::Relaxed);
    }

    /// Waits for the first list, and for what was written before.
    pub(crate) async fn ready(&self) -> Result<(), Refusal> {
        let mut phase = self.phase.subscribe();
        let settled = timeout(PATIENCE, phase.wait_for(|phase| *phase != Phase::Filling)).await;
        let settled = settled.ok().and_then(|phase| phase.ok().map(|phase| phase.clone()));
        match settled {
            Some(Phase::Gone(refusal)) => return Err(refusal),
            Some(_) => {}
            None => {
                return Err(Refusal::not_yet(format!("the list of {} is not ready yet", self.kind.plural)));
            }
        }
        let expected = self.expected.load(Ordering::Relaxed);
        if *self.revision.borrow() < expected {
            // A deletion is no event of its own if the object went before; do not wait for it again.
            self.reaches(expected).await;
            self.expected.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits until changes up to a revision are in the rows. Not for ever: the revision may be of another kind.
    pub(crate) async fn reaches(&self, revision: u64) -> bool {
        let mut seen = self.revision.subscribe();
        matches!(timeout(CATCH_UP, seen.wait_for(|seen| *seen >= revision)).await, Ok(Ok(_)))
    }

    /// All rows, of one namespace or of all, and the revision they are of.
    pub(crate) fn rows(&self, namespace: &str) -> (Vec<Arc<Row>>, u64) {
        self.touch();
        let content = self.content.read();
        let revision = *self.revision.borrow();
        let rows = match namespace {
            "" => content.rows.values().cloned().collect(),
            namespace => {
                let from: Key = (namespace.into(), "".into());
                let rows = content.rows.range(from..).take_while(|(key, _)| &*key.0 == namespace);
                rows.map(|(_, row)| row.clone()).collect()
            }
        };
        (rows, revision)
    }

    pub(crate) fn row(&self, namespace: &str, name: &str) -> Option<Arc<Row>> {
        let key: Key = (namespace.into(), name.into());
        self.content.read().rows.get(&key).cloned()
    }

    /// Rows that name this uid as an owner.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<Row>> {
        let content = self.content.read();
        let keys = content.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| content.rows.get(key).cloned()).collect()
    }

    /// How many objects there are, and how large they are.
    pub(crate) fn size(&self) -> (usize, usize) {
        let content = self.content.read();
        (content.rows.len(), content.bytes)
    }

    /// How many changes there were, and when the last one was.
    pub(crate) fn changes(&self) -> (u64, Option<Instant>) {
        let content = self.content.read();
        (content.changes, content.changed)
    }

    pub(crate) fn revision(&self) -> u64 {
        *self.revision.borrow()
    }

    /// Changes from now on, or those after a revision and then those from now on.
    pub(crate) fn subscribe(&self, after: Option<u64>) -> Result<Subscribed, TooOld> {
        // Events are sent under the write lock: none is missed and none comes twice.
        let content = self.content.read();
        let receiver = self.events.subscribe();
        let Some(after) = after else { return Ok((Vec::new(), receiver)) };
        if after < content.oldest {
            return Err(TooOld { asked: after, oldest: content.oldest });
        }
        let missed = content.ring.iter().filter(|event| event.revision > after).cloned().collect();
        Ok((missed, receiver))
    }

    /// Fills the index and follows the API until told to stop, or there is no such kind any more.
    pub(crate) async fn run(&self, client: Client) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.follow_for_ever(&client) => {}
        }
        self.stop.cancel();
        // Whoever waits must not wait longer.
        self.phase.send_if_modified(|phase| {
            let open = *phase == Phase::Filling;
            if open {
                *phase = Phase::Gone(Refusal::not_yet("the list is made again"));
            }
            open
        });
    }

    async fn follow_for_ever(&self, client: &Client) {
        let mut failures = 0;
        loop {
            match self.fill(client).await {
                Ok(()) => {
                    failures = 0;
                    self.phase.send_replace(Phase::Ready);
                }
                Err(End::NotServed(refusal)) => return drop(self.phase.send_replace(Phase::Gone(refusal))),
                Err(End::Expired | End::Over) => continue,
                Err(End::Failed(error)) => {
                    failures += 1;
                    tracing::warn!(kind = self.kind.id, error, "list for the index failed");
                    if failures >= ATTEMPTS && *self.phase.borrow() == Phase::Filling {
                        let refusal = Refusal::not_yet(format!("{} cannot be listed now", self.kind.plural));
                        return drop(self.phase.send_replace(Phase::Gone(refusal)));
                    }
                    sleep(RETRY).await;
                    continue;
                }
            }
            loop {
                let began = Instant::now();
                match self.follow(client).await {
                    End::Over => {}
                    End::Expired => break,
                    End::NotServed(refusal) => {
                        return drop(self.phase.send_replace(Phase::Gone(refusal)));
                    }
                    End::Failed(error) => {
                        tracing::debug!(kind = self.kind.id, error, "watch for the index ended");
                    }
                }
                if began.elapsed() < RETRY {
                    sleep(RETRY).await;
                }
            }
        }
    }

    async fn fill(&self, client: &Client) -> Result<(), End> {
        let mut next = String::new();
        let mut rows: BTreeMap<Key, Arc<Row>> = BTreeMap::new();
        let revision = loop {
            let mut uri = format!("{}?limit={PAGE}&includeObject=Object", self.kind.path("", ""));
            if !next.is_empty() {
                uri.push_str(&format!("&continue={}", encoded(&next)));
            }
            let request = table_request(&uri).ok_or_else(|| End::NotServed(Refusal::not_found()))?;
            let page: Table = client.request(request).await.map_err(|error| ended(&error))?;
            for row in page.rows.into_iter().flatten() {
                if let Some(row) = Row::new(&self.kind, row.object, row.cells, self.keeps) {
                    rows.insert(row.key.clone(), Arc::new(row));
                }
            }
            if rows.len() > MOST_ROWS {
                let message = format!("there are more than {MOST_ROWS} {}", self.kind.plural);
                return Err(End::NotServed(Refusal::not_yet(message)));
            }
            if page.metadata.next.is_empty() {
                break page.metadata.resource_version.parse().unwrap_or_default();
            }
            next = page.metadata.next;
        };
        self.replace(rows, revision);
        Ok(())
    }

    /// Takes over a whole list. What is different from before is told to subscribers.
    fn replace(&self, rows: BTreeMap<Key, Arc<Row>>, revision: u64) {
        let mut content = self.content.write();
        let first = *self.phase.borrow() == Phase::Filling;
        if first {
            content.oldest = revision;
            for row in rows.into_values() {
                content.put(row);
            }
        } else {
            let left: Vec<Key> =
                content.rows.keys().filter(|key| !rows.contains_key(*key)).cloned().collect();
            for key in left {
                if let Some(row) = content.take(&key) {
                    self.tell(&mut content, Change::Remove, row, None, revision);
                }
            }
            for row in rows.into_values() {
                let known = content.rows.get(&row.key).map(|known| known.revision);
                if known == Some(row.revision) {
                    continue;
                }
                let change = if known.is_some() { Change::Update } else { Change::Create };
                let before = content.put(row.clone());
                self.tell(&mut content, change, row, before, revision);
            }
        }
        self.revision.send_replace(revision);
    }

    fn tell(
        &self,
        content: &mut Content,
        change: Change,
        row: Arc<Row>,
        before: Option<Arc<Row>>,
        revision: u64,
    ) {
        let event = Arc::new(Event { change, row, before, revision });
        content.changes += 1;
        content.changed = Some(Instant::now());
        if content.ring.len() >= HISTORY
            && let Some(oldest) = content.ring.pop_front()
        {
            content.oldest = oldest.revision;
        }
        content.ring.push_back(event.clone());
        // Without subscribers there is none to tell.
        let _ = self.events.send(event);
    }

    async fn follow(&self, client: &Client) -> End {
        let path = self.kind.path("", "");
        let revision = self.revision();
        let uri = format!(
            "{path}?watch=1&allowWatchBookmarks=true&includeObject=Object&resourceVersion={revision}"
        );
        let Some(request) = table_request(&uri) else { return End::NotServed(Refusal::not_found()) };
        let stream = match client.request_events::<Table>(request).await {
            Ok(stream) => stream,
            Err(error) => return ended(&error),
        };
        let mut stream = std::pin::pin!(stream);
        loop {
            match stream.next().await {
                None => return End::Over,
                Some(Err(error)) => return ended(&error),
                Some(Ok(WatchEvent::Error(status))) => return refused(&status),
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    if let Ok(revision) = bookmark.metadata.resource_version.parse::<u64>() {
                        self.advance(revision);
                    }
                }
                Some(Ok(WatchEvent::Added(table) | WatchEvent::Modified(table))) => self.put(table),
                Some(Ok(WatchEvent::Deleted(table))) => self.remove(table),
            }
        }
    }

    fn advance(&self, revision: u64) {
        self.revision.send_if_modified(|known| {
            let newer = revision > *known;
            *known = revision.max(*known);
            newer
        });
    }

    fn row_of(&self, table: Table) -> Option<Arc<Row>> {
        let row = table.rows?.into_iter().next()?;
        Row::new(&self.kind, row.object, row.cells, self.keeps).map(Arc::new)
    }

    fn put(&self, table: Table) {
        let Some(row) = self.row_of(table) else { return };
        let revision = row.revision;
        {
            let mut content = self.content.write();
            let before = content.put(row.clone());
            let change = if before.is_some() { Change::Update } else { Change::Create };
            self.tell(&mut content, change, row, before, revision);
            self.advance(revision);
        }
    }

    fn remove(&self, table: Table) {
        let Some(row) = self.row_of(table) else { return };
        let revision = row.revision;
        let mut content = self.content.write();
        let before = content.take(&row.key);
        self.tell(&mut content, Change::Remove, row, before, revision);
        self.advance(revision);
    }
}

fn ended(error: &kube::Error) -> End {
    match error {
        kube::Error::Api(status) => refused(status),
        error => End::Failed(Chain(error).to_string()),
    }
}

fn refused(status: &Status) -> End {
    match status.code {
        410 => End::Expired,
        404 | 405 => End::NotServed(Refusal::new(StatusCode::NOT_FOUND, status.message.clone())),
        _ => End::Failed(status.message.clone()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
