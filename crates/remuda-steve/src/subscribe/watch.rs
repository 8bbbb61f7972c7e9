//! One subscription: from the changes of an index to messages for one caller.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::core::WatchEvent;
use remuda_objects::selector::LabelSelector;
use serde_json::Value;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Socket,
    message::Wish,
    queue::{Left, Out},
};
use crate::{
    counts::{self, Counting},
    index::{Change, Event, Index},
    kind::Kind,
    rights::Rights,
    row::Row,
    schema,
    table::{Table, table_request},
    visit::{Source, Visit},
};

/// Between two notices about counts.
const COUNTS: Duration = Duration::from_secs(5);
/// All counts are made again after so many of them: rights change without any change of a kind.
const COUNT_ALL_EVERY: u32 = 12;
/// Between two looks at schemas, while definitions or rights change.
const SCHEMAS: Duration = Duration::from_secs(2);

async fn say(out: &Out, text: String) -> Result<(), Left> {
    out.say(text).await
}

/// Runs a subscription to its end, and says why it ended.
pub(super) async fn run(socket: &Arc<Socket>, wish: &Wish, after: Option<u64>, out: &Out) {
    let ended = match wish.resource_type.to_lowercase().as_str() {
        "schema" | "schemas" => schemas(socket, wish, out).await,
        "count" | "counts" => counting(socket, wish, out).await,
        _ => of_kind(socket, wish, after, out).await,
    };
    match ended {
        Err(Left) => {}
        Ok(None) => drop(say(out, wish.stopped()).await),
        Ok(Some(error)) => {
            // The error first: without it the client would begin again at once.
            if say(out, wish.failed(&error)).await.is_ok() {
                drop(say(out, wish.stopped()).await);
            }
        }
    }
}

/// `None` for an end after which the client may begin again.
type Ended = Result<Option<SubscribeError>, Left>;

/// Why a subscription ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SubscribeError {
    /// What happened since the revision asked for is not known any more: the client lists again.
    Expired { asked: String, oldest: Option<u64> },
    /// It cannot be had, now or ever.
    Refused(String),
}

impl SubscribeError {
    /// What clients tell them apart by; the text is for people.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Expired { .. } => "Expired",
            Self::Refused(_) => "Refused",
        }
    }
}

impl fmt::Display for SubscribeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { asked, oldest: Some(oldest) } => {
                write!(f, "too old resource version: {asked} ({oldest})")
            }
            Self::Expired { asked, oldest: None } => write!(f, "too old resource version: {asked}"),
            Self::Refused(error) => f.write_str(error),
        }
    }
}

fn refused(error: impl Into<String>) -> Ended {
    Ok(Some(SubscribeError::Refused(error.into())))
}

impl Socket {
    /// The caller's context as of now.
    async fn visit(&self) -> Visit {
        let catalogue = match self.visit.source {
            Source::Indexes(_) => self.api.current_catalogue().await.ok(),
            Source::Cluster(_) => None,
        };
        let catalogue = catalogue.unwrap_or_else(|| self.visit.catalogue.clone());
        Visit { now: self.api.now(), catalogue, ..self.visit.clone() }
    }
}

async fn of_kind(socket: &Arc<Socket>, wish: &Wish, after: Option<u64>, out: &Out) -> Ended {
    let visit = socket.visit().await;
    let Some(kind) = visit.catalogue.find(&wish.resource_type).cloned() else {
        return refused(format!("failed to find schema {}", wish.resource_type));
    };
    if !kind.is_listed() {
        return refused("the server does not allow this method on the requested resource");
    }
    let labels = match wish.labels() {
        Ok(labels) => labels,
        Err(error) => return refused(error),
    };
    let Source::Indexes(indexes) = &visit.source else {
        return of_cluster(&visit, &kind, wish, &labels, after, out).await;
    };
    if !visit.methods(&visit.rights.sheet(), &kind).1.contains(&"GET") {
        return refused("watch not allowed");
    }
    let index = match indexes.get(&kind, !wish.is_without_data()).await {
        Ok(index) => index,
        Err(refusal) => return refused(refusal.message),
    };
    let told = Told { socket, visit: &visit, kind: &kind, wish, labels: &labels };
    follow(&told, &index, after, out).await
}

/// Whom changes are told to, and which.
struct Told<'a> {
    socket: &'a Socket,
    visit: &'a Visit,
    kind: &'a Arc<Kind>,
    wish: &'a Wish,
    labels: &'a LabelSelector,
}

impl Told<'_> {
    /// What a change is to this subscription; nothing if it is not concerned or may not know.
    async fn name(&self, event: &Event) -> Option<&'static str> {
        let row = &event.row;
        if !self.wish.is_about(&row.id(), row.namespace()) {
            return None;
        }
        let is = |row: &Row| self.labels.is_everything() || row.is_selected(self.labels);
        let before = event.before.as_ref().is_some_and(|before| is(before));
        let after = event.change != Change::Remove && is(row);
        let name = match (before, after, event.change) {
            (true, true, _) => "resource.change",
            (false, true, _) => "resource.create",
            (true, false, _) => "resource.remove",
            // It went before it was known here.
            (false, false, Change::Remove) if is(row) => "resource.remove",
            (false, false, _) => return None,
        };
        self.visit.may_see(self.kind, row).await.then_some(name)
    }

    fn data(&self, row: &Row) -> Value {
        let visit = Visit { now: self.socket.api.now(), ..self.visit.clone() };
        visit.shown_row(self.kind, row)
    }
}

async fn follow(told: &Told<'_>, index: &Arc<Index>, after: Option<u64>, out: &Out) -> Ended {
    let wish = told.wish;
    let (missed, mut events) = match index.subscribe(wish.after(after)) {
        Ok(subscribed) => subscribed,
        Err(old) => {
            let (asked, oldest) = (old.asked.to_string(), Some(old.oldest));
            return Ok(Some(SubscribeError::Expired { asked, oldest }));
        }
    };
    say(out, wish.started()).await?;
    let mut notices = Notices::new(wish);
    if wish.is_without_data() {
        notices.tell(index.revision(), out).await?;
    }
    for event in missed {
        if let Some(name) = told.name(&event).await.filter(|_| !wish.is_without_data()) {
            say(out, wish.data(name, event.revision, told.data(&event.row))).await?;
        }
    }
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = notices.due() => {
                notices.tell(index.revision(), out).await?;
                continue;
            }
            () = index.stop.cancelled() => return Ok(None),
            () = out.closed() => return Err(Left),
        };
        match event {
            Ok(event) => {
                let Some(name) = told.name(&event).await else { continue };
                if wish.is_without_data() {
                    notices.note();
                    continue;
                }
                say(out, wish.data(name, event.revision, told.data(&event.row))).await?;
            }
            // Behind by more than the ring: where it was is not known any more.
            Err(RecvError::Lagged(_)) if wish.is_without_data() => notices.note(),
            Err(RecvError::Lagged(_)) => {
                let asked = after.unwrap_or_default();
                let (asked, oldest) = (asked.to_string(), Some(index.revision()));
                return Ok(Some(SubscribeError::Expired { asked, oldest }));
            }
            Err(RecvError::Closed) => return Ok(None),
        }
    }
}

/// Notices without data: the first at once, others not more often than is asked for.
struct Notices<'a> {
    wish: &'a Wish,
    last: Instant,
    is_due: bool,
}

impl<'a> Notices<'a> {
    fn new(wish: &'a Wish) -> Self {
        Self { wish, last: Instant::now(), is_due: false }
    }

    fn note(&mut self) {
        self.is_due = true;
    }

    async fn due(&self) {
        match self.is_due {
            true => sleep_until(self.last + self.wish.debounce()).await,
            false => std::future::pending().await,
        }
    }

    async fn tell(&mut self, revision: u64, out: &Out) -> Result<(), Left> {
        self.is_due = false;
        self.last = Instant::now();
        say(out, self.wish.changes(revision)).await
    }
}

/// Changes in another cluster, which is watched as the caller.
async fn of_cluster(
    visit: &Visit,
    kind: &Arc<Kind>,
    wish: &Wish,
    labels: &LabelSelector,
    after: Option<u64>,
    out: &Out,
) -> Ended {
    let path = kind.path(&wish.namespace, "");
    let after = match wish.after(after) {
        Some(after) => after.to_string(),
        None => {
            let Some(request) = table_request(&format!("{path}?limit=1&includeObject=None")) else {
                return refused("watch not allowed");
            };
            match visit.client.request::<Table>(request).await {
                Ok(table) => table.metadata.resource_version,
                Err(error) => return refused(error.to_string()),
            }
        }
    };
    let uri = format!("{path}?watch=1&includeObject=Object&resourceVersion={after}");
    let Some(request) = table_request(&uri) else { return refused("watch not allowed") };
    let stream = match visit.client.request_events::<Table>(request).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if status.code == 410 => {
            return Ok(Some(SubscribeError::Expired { asked: after, oldest: None }));
        }
        Err(error) => return refused(error.to_string()),
    };
    say(out, wish.started()).await?;
    let mut notices = Notices::new(wish);
    if wish.is_without_data() {
        notices.tell(after.parse().unwrap_or_default(), out).await?;
    }
    let (mut stream, mut revision) = (std::pin::pin!(stream), 0);
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = notices.due() => {
                notices.tell(revision, out).await?;
                continue;
            }
            () = out.closed() => return Err(Left),
        };
        let (name, table) = match event {
            Some(Ok(WatchEvent::Added(table))) => ("resource.create", table),
            Some(Ok(WatchEvent::Modified(table))) => ("resource.change", table),
            Some(Ok(WatchEvent::Deleted(table))) => ("resource.remove", table),
            Some(Ok(WatchEvent::Bookmark(_))) => continue,
            Some(Ok(WatchEvent::Error(status))) if status.code == 410 => {
                return Ok(Some(SubscribeError::Expired { asked: after, oldest: None }));
            }
            _ => return Ok(None),
        };
        let row = table.rows.into_iter().flatten().next();
        let Some(row) = row.and_then(|row| Row::new(kind, row.object, row.cells, true)) else { continue };
        let selected = labels.is_everything() || row.is_selected(labels);
        if !selected || !wish.is_about(&row.id(), row.namespace()) {
            continue;
        }
        revision = row.revision;
        match wish.is_without_data() {
            true => notices.note(),
            false => say(out, wish.data(name, revision, visit.shown_row(kind, &row))).await?,
        }
    }
}

async fn counting(socket: &Arc<Socket>, wish: &Wish, out: &Out) -> Ended {
    say(out, wish.started()).await?;
    let mut counting = Counting::default();
    // What the client knows already is what it has asked for before.
    let mut round = 0_u32;
    counting.changed(&socket.visit().await, true).await;
    loop {
        tokio::select! {
            () = sleep(COUNTS) => {}
            () = out.closed() => return Err(Left),
        }
        round += 1;
        let visit = socket.visit().await;
        let changed = counting.changed(&visit, round.is_multiple_of(COUNT_ALL_EVERY)).await;
        if !changed.is_empty() {
            say(out, wish.data("resource.change", 0, counts::shown(&visit, changed))).await?;
        }
    }
}

async fn schemas(socket: &Arc<Socket>, wish: &Wish, out: &Out) -> Ended {
    say(out, wish.started()).await?;
    let mut known = schema::all(&socket.visit().await);
    let mut seen = None;
    loop {
        tokio::select! {
            () = sleep(SCHEMAS) => {}
            () = out.closed() => return Err(Left),
        }
        let visit = socket.visit().await;
        let Rights::Policy(policy, _) = &visit.rights else { continue };
        // The same catalogue and no change of any role: the same schemas.
        let now = (Arc::as_ptr(&visit.catalogue) as usize, policy.changes());
        if seen.as_ref() == Some(&now) {
            continue;
        }
        seen = Some(now);
        let current = schema::all(&visit);
        for (name, schema) in differences(&known, &current) {
            say(out, wish.data(name, 0, schema)).await?;
        }
        known = current;
    }
}

fn differences(
    before: &BTreeMap<String, Value>,
    after: &BTreeMap<String, Value>,
) -> Vec<(&'static str, Value)> {
    let gone = before.iter().filter(|(id, _)| !after.contains_key(*id));
    let gone = gone.map(|(_, schema)| ("resource.remove", schema.clone()));
    let other = after.iter().filter_map(|(id, schema)| match before.get(id) {
        None => Some(("resource.create", schema.clone())),
        Some(known) if known != schema => Some(("resource.change", schema.clone())),
        Some(_) => None,
    });
    gone.chain(other).collect()
}

#[cfg(test)]
mod tests;
