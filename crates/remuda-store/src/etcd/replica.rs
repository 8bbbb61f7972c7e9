//! This process's copy of what is in etcd: loaded once, then kept up by one watch.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use remuda_base::Backoff;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    OVERDUE, Shared,
    client::{Client, EtcdError},
    layout::{Head, Layout},
    proto::{DELETE, RangeRequest, WatchCreateRequest, WatchEvent, WatchRequest},
};
use crate::{Change, Event, Record, Revision, mvcc::Mvcc, seal::SealError};

const PAGE: i64 = 500;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

pub(super) struct Replica {
    pub(super) client: Arc<Client>,
    pub(super) layout: Layout,
    pub(super) shared: Option<Arc<Shared>>,
    pub(super) mvcc: Arc<Mvcc>,
    /// Writes of this process whose event has not come by yet.
    pending: Mutex<HashMap<u64, oneshot::Sender<Arc<Event>>>>,
    /// Asks for another connection: this one delivers nothing.
    pub(super) kick: Notify,
    problem: Mutex<Option<String>>,
}

/// What is in etcd at one revision.
pub(super) struct Loaded {
    records: Vec<Arc<Record>>,
    /// The newest write.
    revision: Revision,
    /// etcd's revision, from which the watch goes on.
    at: i64,
}

enum Ended {
    Lost(String),
    /// What was missed cannot be had one by one.
    Missed(&'static str),
}

impl Replica {
    pub(super) fn new(
        client: Arc<Client>,
        layout: Layout,
        shared: Option<Arc<Shared>>,
        mvcc: Arc<Mvcc>,
    ) -> Self {
        Self {
            client,
            layout,
            shared,
            mvcc,
            pending: Mutex::default(),
            kick: Notify::new(),
            problem: Mutex::default(),
        }
    }

    /// Why the copy is not being kept up.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// The event of the write with this id, when it comes.
    pub(super) fn expect(self: &Arc<Self>, id: u64) -> Expected {
        let (sender, receiver) = oneshot::channel();
        self.pending.lock().insert(id, sender);
        Expected { replica: self.clone(), id, receiver }
    }

    /// Decodes; if that needs a key this process does not know yet, after learning it.
    pub(super) async fn known<T>(&self, decode: impl Fn() -> Result<T, EtcdError>) -> Result<T, EtcdError> {
        match (decode(), &self.shared) {
            (Err(EtcdError::Seal(SealError::MissingKey { .. })), Some(shared)) => {
                shared.refresh().await?;
                decode()
            }
            (result, _) => result,
        }
    }

    pub(super) async fn load(&self) -> Result<Loaded, EtcdError> {
        let (mut key, range_end) = self.layout.range();
        let mut loaded = Loaded { records: Vec::new(), revision: 0, at: 0 };
        loop {
            let request = RangeRequest {
                key,
                range_end: range_end.clone(),
                limit: PAGE,
                revision: loaded.at,
                keys_only: false,
            };
            let page = self.client.range(request).await;
            let page = page.map_err(|status| EtcdError::Request(status.message().to_owned()))?;
            if loaded.at == 0 {
                loaded.at = page.header.unwrap_or_default().revision;
            }
            for kv in &page.kvs {
                loaded.revision = loaded.revision.max(kv.mod_revision as Revision);
                if let Some(key) = self.layout.key(&kv.key) {
                    loaded.records.push(Arc::new(self.known(|| self.layout.record(key, kv)).await?));
                }
            }
            match page.kvs.last() {
                Some(last) if page.more => {
                    let mut next = last.key.to_vec();
                    next.push(0);
                    key = next.into();
                }
                _ => return Ok(loaded),
            }
        }
    }

    /// Takes over a loaded state. Returns where the watch goes on.
    pub(super) fn take(&self, loaded: Loaded) -> i64 {
        // Unless there was a write nothing is missing, however far etcd itself has moved.
        if loaded.revision > self.mvcc.published() {
            self.mvcc.replace(&loaded.records, loaded.revision);
            self.pending.lock().clear();
        }
        loaded.at + 1
    }

    /// Follows etcd until told to stop.
    pub(super) async fn run(self: Arc<Self>, mut next: i64, stop: CancellationToken) {
        let mut row = BACKOFF.begin();
        loop {
            let mut connected = false;
            let ended = tokio::select! {
                ended = self.follow(&mut next, &mut connected) => ended,
                () = stop.cancelled() => return,
            };
            if connected {
                row.reset();
            }
            match ended {
                Ended::Lost(reason) => {
                    tracing::warn!(%reason, "lost the watch on etcd");
                    *self.problem.lock() = Some(reason);
                }
                Ended::Missed(reason) => {
                    tracing::warn!(revision = next, reason, "loading everything anew");
                    match self.load().await {
                        Ok(loaded) => {
                            next = self.take(loaded);
                            continue;
                        }
                        Err(error) => *self.problem.lock() = Some(error.to_string()),
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(row.delay()) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn follow(&self, next: &mut i64, connected: &mut bool) -> Ended {
        let (key, range_end) = self.layout.range();
        let create = WatchCreateRequest { key, range_end, start_revision: *next };
        let opened = self.client.watch(WatchRequest { create: Some(create) }).await;
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(status) => return Ended::Lost(status.message().to_owned()),
        };
        let mut heard = Instant::now();
        loop {
            let message = tokio::select! {
                message = stream.message() => message,
                () = self.kick.notified() => {
                    // Meant for the connection before this one, or already answered.
                    if heard.elapsed() < OVERDUE {
                        continue;
                    }
                    self.client.avoid_current();
                    return Ended::Lost("events are overdue".to_owned());
                }
            };
            let response = match message {
                Ok(Some(response)) => response,
                Ok(None) => return Ended::Lost("etcd ended the stream".to_owned()),
                Err(status) => {
                    self.client.avoid_current();
                    return Ended::Lost(status.message().to_owned());
                }
            };
            heard = Instant::now();
            if response.compact_revision > 0 {
                return Ended::Missed("etcd has forgotten what was missed");
            }
            if response.canceled {
                return Ended::Lost(response.cancel_reason);
            }
            if response.created {
                *self.problem.lock() = None;
                *connected = true;
            }
            let revision = |event: &WatchEvent| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            for group in response.events.chunk_by(|one, other| revision(one) == revision(other)) {
                let at = revision(&group[0]);
                if at < *next {
                    continue;
                }
                let applied = self.known(|| self.apply(group, at as Revision)).await;
                if let (Err(EtcdError::Seal(SealError::MissingKey { .. })), Some(_)) =
                    (&applied, &self.shared)
                {
                    // Sealed with a key that came and went since; it is sealed with another by now.
                    return Ended::Missed("what was missed is sealed with a key that is gone");
                }
                if let Err(error) = applied {
                    tracing::error!(%error, revision = at, "cannot take over a change from etcd");
                    return Ended::Lost(error.to_string());
                }
                *next = at + 1;
            }
        }
    }

    /// Takes over one revision.
    fn apply(&self, group: &[WatchEvent], revision: Revision) -> Result<(), EtcdError> {
        if revision <= self.mvcc.published() {
            return Ok(());
        }
        let mut head: Option<Head> = None;
        for kv in group.iter().filter_map(|event| event.kv.as_ref()) {
            if self.layout.is_head(&kv.key) && !kv.value.is_empty() {
                head = Some(self.layout.decode_head(&kv.value)?);
            }
        }
        let mut events = Vec::with_capacity(1);
        for event in group {
            let Some(kv) = &event.kv else { continue };
            let Some(key) = self.layout.key(&kv.key) else { continue };
            let previous = self.mvcc.newest(key);
            let (change, record) = match (&previous, event.kind == DELETE) {
                (None, true) => continue,
                (Some(previous), true) => {
                    let last = head.as_ref().and_then(|head| head.last.as_ref());
                    let record = match last.filter(|(of, _)| of == key) {
                        Some((_, last)) => {
                            Record::new(previous.key.clone(), previous.created, revision, last)
                        }
                        None => previous.moved_to(revision),
                    };
                    (Change::Deleted, record)
                }
                (None, false) => (Change::Created, self.layout.record(key, kv)?),
                (Some(_), false) => (Change::Updated, self.layout.record(key, kv)?),
            };
            events.push(Event::new(change, Arc::new(record), previous));
        }
        self.mvcc.commit(&events, revision);
        if let (Some(head), Some(event)) = (head, events.into_iter().next())
            && let Some(waiting) = self.pending.lock().remove(&head.id)
        {
            let _ = waiting.send(event);
        }
        Ok(())
    }
}

/// A write under way.
pub(super) struct Expected {
    replica: Arc<Replica>,
    id: u64,
    receiver: oneshot::Receiver<Arc<Event>>,
}

pub(super) enum Arrival {
    /// It happened.
    Here(Arc<Record>),
    NotYet,
    /// The copy was loaded anew and skipped events: whether this one was among them is unknown.
    Skipped,
}

impl Expected {
    pub(super) fn arrived(&mut self) -> Arrival {
        match self.receiver.try_recv() {
            Ok(event) => Arrival::Here(event.record.clone()),
            Err(oneshot::error::TryRecvError::Empty) => Arrival::NotYet,
            Err(oneshot::error::TryRecvError::Closed) => Arrival::Skipped,
        }
    }

    /// `None`: skipped.
    pub(super) async fn wait(&mut self) -> Option<Arc<Record>> {
        (&mut self.receiver).await.ok().map(|event| event.record.clone())
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.replica.pending.lock().remove(&self.id);
    }
}
