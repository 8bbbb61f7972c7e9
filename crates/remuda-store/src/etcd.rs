//! The engine for several processes: etcd keeps the data, each process a copy of all of it.
//!
//! Writes are etcd transactions that compare the key's modification revision. Reads and watches
//! are served from the copy, which one etcd watch keeps up; a linearizable read first learns the
//! revision of the newest write (one small request, shared by concurrent readers) and waits until
//! the copy has it. A write is acknowledged when the copy has it.
//!
//! Our revisions are etcd's, but only those in which the store was written: what other users of
//! the cluster do shows neither as events nor as revisions. All processes agree on them.
//!
//! **Lost connections.** Whether a write that got no answer happened is found out: the watch
//! reports it by its id, or the same conditional transaction is sent again, of which at most one
//! can succeed. Only if etcd stays unreachable the outcome is [`Error::Unknown`].
//!
//! **Sealing.** All processes need all keys. They share them through etcd (see [`Shared`]); or
//! each has its own copy of the file, and a rotated keyring is given to every process before
//! writes with it reach the others. A key missing in memory is looked up again either way.

mod barrier;
mod client;
mod layout;
mod proto;
mod replica;
mod shared;

use std::{future::Future, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use remuda_base::Backoff;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    barrier::Barrier,
    client::{Client, Failure},
    layout::Layout,
    proto::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, Response, TxnRequest, TxnResponse,
    },
    replica::{Arrival, Expected, Replica},
};
pub use self::{
    client::{EtcdError, EtcdTls},
    shared::Shared,
};
use crate::{
    Error, ListQuery, Page, Policy, Reading, Record, Revision, Scope, Sealing, Store, Template, Watch, Write,
    mvcc::Mvcc,
};

/// How long the copy may lag before another connection is tried, and before a caller is told.
const OVERDUE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(10);
/// How long the outcome of a write is looked for.
const SETTLE: Duration = Duration::from_secs(15);
/// How often a write is sealed anew because the identity has changed meanwhile.
const RESEALS: usize = 5;
/// How many values are sealed anew at a time.
const RESEALING: usize = 16;

#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://` or `https://` addresses of the members.
    pub endpoints: Vec<String>,
    pub tls: Option<EtcdTls>,
    /// Everything is kept under this path.
    pub prefix: String,
    pub history: Policy,
    /// Must fit into etcd's own limit for requests, 1.5 MiB unless configured there.
    pub value_limit: usize,
    pub sealing: Option<Sealing>,
    /// Where the keyring of `sealing` comes from, if it is shared.
    pub shared: Option<Arc<Shared>>,
    /// etcd forgets history older than this.
    pub compact_after: Duration,
}

impl EtcdOptions {
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            prefix: "/remuda".into(),
            history: Policy::default(),
            value_limit: (1 << 20) + (450 << 10),
            sealing: None,
            shared: None,
            compact_after: Duration::from_secs(300),
        }
    }
}

/// A store in etcd.
pub struct Etcd {
    replica: Arc<Replica>,
    mvcc: Arc<Mvcc>,
    barrier: Barrier,
    value_limit: usize,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Etcd {
    /// Connects and loads everything.
    pub async fn connect(options: EtcdOptions) -> Result<Self, EtcdError> {
        let client = match &options.shared {
            Some(shared) => shared.client.clone(),
            None => Arc::new(Client::new(&options.endpoints, options.tls.as_ref())?),
        };
        let layout = Layout::new(&options.prefix, options.sealing.clone());
        let mvcc = Mvcc::new(options.history.clone());
        let replica = Arc::new(Replica::new(client, layout, options.shared.clone(), mvcc.clone()));
        let next = replica.take(replica.load().await?);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(replica.clone().run(next, stop.clone()));
        tasks.spawn(forget(replica.clone(), options.compact_after, stop.clone()));
        tasks.close();
        let value_limit = options.value_limit;
        Ok(Self { replica, mvcc, barrier: Barrier::default(), value_limit, tasks, stop })
    }

    /// Makes a new key for all processes that share the keyring, seals everything with it and
    /// drops the others. Returns the new key's id and how many were dropped.
    pub async fn rotate_keys(&self) -> Result<(u64, usize), Error> {
        let Some(shared) = &self.replica.shared else {
            return Err(Error::Unavailable("the keyring is not shared".to_owned()));
        };
        let failed = |error: EtcdError| Error::Unavailable(error.to_string());
        let old = shared.add_key().await.map_err(failed)?;
        loop {
            let revision = shared.revision();
            self.reseal().await?;
            if shared.retire_keys(revision).await.map_err(failed)? {
                let active = shared.keyring().ids().first().copied();
                return Ok((active.unwrap_or_default(), old));
            }
            // Somebody else rotates as well: what was sealed may be with yet another key.
        }
    }

    /// Seals everything that is sealed with another key than the active one again. Afterwards
    /// the other keys are not needed, except for backups. Returns how many values were rewritten.
    pub async fn reseal(&self) -> Result<usize, Error> {
        let layout = &self.replica.layout;
        let Some(sealing) = &layout.sealing else { return Ok(0) };
        let active = sealing.keyring.ids().first().copied();
        let mut rewritten = 0;
        for prefix in &sealing.prefixes {
            let page = self.list(ListQuery { prefix: prefix.clone(), ..ListQuery::default() }).await?;
            let each = page.records.into_iter().map(|record| self.reseal_one(record, active));
            let mut under_way = futures::stream::iter(each).buffer_unordered(RESEALING);
            while let Some(done) = under_way.next().await {
                rewritten += usize::from(done?);
            }
        }
        Ok(rewritten)
    }

    async fn reseal_one(&self, record: Arc<Record>, active: Option<u64>) -> Result<bool, Error> {
        let layout = &self.replica.layout;
        let request = RangeRequest { key: layout.object(&record.key), limit: 1, ..RangeRequest::default() };
        let found = self.replica.client.range(request).await.map_err(unavailable)?;
        let Some(kv) = found.kvs.first() else { return Ok(false) };
        if layout.sealed_with(&kv.value).is_some_and(|with| Some(with) == active) {
            return Ok(false);
        }
        let value = self.replica.known(|| layout.decode(&record.key, &kv.value)).await;
        let value = value.map_err(|error| Error::Unavailable(error.to_string()))?;
        let (key, expected) = (record.key.to_string(), kv.mod_revision as Revision);
        match self.write_through(Write::Update { key, expected, value }).await {
            Ok(_) => Ok(true),
            // Whoever was faster used the active key.
            Err(Error::Missing | Error::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The revision of the newest write of any process.
    async fn head(&self) -> Result<Revision, Error> {
        self.barrier
            .ask(|| async {
                let key = self.replica.layout.head();
                let request = RangeRequest { key, limit: 1, keys_only: true, ..RangeRequest::default() };
                let response = self.replica.client.range(request).await.map_err(unavailable)?;
                Ok(response.kvs.first().map_or(0, |kv| kv.mod_revision as Revision))
            })
            .await
    }

    /// Brings the copy up to now. Returns the newest write's revision.
    async fn catch_up(&self) -> Result<Revision, Error> {
        if self.mvcc.is_closed() {
            return Err(Error::Closed);
        }
        let head = self.head().await?;
        match self.patiently(self.mvcc.wait_for(head)).await {
            Some(()) => Ok(head),
            None => Err(Error::Unavailable(format!("this process has not seen revision {head} yet"))),
        }
    }

    /// Waits for the copy, trying another connection if it takes long.
    async fn patiently<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = std::pin::pin!(wait);
        let deadline = Instant::now() + GIVE_UP;
        loop {
            if let Ok(done) = timeout(OVERDUE, &mut wait).await {
                return Some(done);
            }
            if Instant::now() >= deadline {
                return None;
            }
            self.replica.kick.notify_one();
        }
    }

    fn txn(&self, write: &Write, id: u64, head_at: Option<Revision>) -> TxnRequest {
        let layout = &self.replica.layout;
        let key = layout.object(write.key());
        let (expected, last) = match write {
            Write::Create { .. } => (0, None),
            Write::Update { expected, .. } => (*expected, None),
            Write::Delete { expected, last, .. } => (*expected, last.as_ref()),
        };
        let mut compare = vec![Compare::unchanged(key.clone(), expected as i64)];
        if let Some(at) = head_at {
            compare.push(Compare::unchanged(layout.head(), at as i64));
        }
        if self.seals(write) {
            // Before the value is sealed below.
            let revision = self.replica.shared.as_ref().map_or(0, |shared| shared.revision());
            compare.push(Compare::unchanged(layout.identity(), revision));
        }
        let head = layout.encode_head(id, last.map(|last| (write.key(), last)));
        let put = |value: &Template| {
            let mut out = Vec::with_capacity(value.bytes.len() + 64);
            layout.encode(write.key(), value, &mut out);
            Request::Put(PutRequest { key: key.clone(), value: out.into() })
        };
        let change = match write {
            Write::Create { value, .. } | Write::Update { value, .. } => put(value),
            Write::Delete { .. } => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        };
        let head = Request::Put(PutRequest { key: layout.head(), value: head });
        let found =
            Request::Range(RangeRequest { key, limit: 1, keys_only: true, ..RangeRequest::default() });
        TxnRequest { compare, success: vec![head.into(), change.into()], failure: vec![found.into()] }
    }

    /// Whether something sealed gets to etcd.
    fn seals(&self, write: &Write) -> bool {
        let value = match write {
            Write::Delete { last, .. } => last.as_ref(),
            _ => write.value(),
        };
        value.is_some() && self.replica.layout.seals(write.key())
    }

    /// Learns why the state speaks not against a write that was refused: the keys have changed.
    async fn learn_keys(&self) -> Result<(), Error> {
        match &self.replica.shared {
            Some(shared) => shared.refresh().await.map_err(|error| Error::Unavailable(error.to_string())),
            None => Err(Error::Unavailable(
                "the servers on this etcd share an identity now, this one needs the secret".to_owned(),
            )),
        }
    }

    async fn write_through(&self, write: Write) -> Result<Arc<Record>, Error> {
        write.check_size(self.value_limit)?;
        if self.mvcc.is_closed() {
            return Err(Error::Closed);
        }
        let id = rand::random();
        let mut expected = self.replica.expect(id);
        let before = self.mvcc.newest(write.key());
        for _ in 0..RESEALS {
            match self.replica.client.txn(self.txn(&write, id, None)).await {
                Ok(response) if response.succeeded => {
                    return self.arrive(&write, &response, expected, before).await;
                }
                Ok(response) => match refusal(&write, &response) {
                    Some(error) => return Err(error),
                    None => self.learn_keys().await?,
                },
                Err(failure) if failure.is_definite() => {
                    return Err(refused(&write, &failure, self.value_limit));
                }
                Err(failure) => return self.settle(&write, id, &mut expected, before, &failure).await,
            }
        }
        Err(Error::Unavailable("the encryption keys keep changing".to_owned()))
    }

    /// A write that happened, as the copy has it.
    async fn arrive(
        &self,
        write: &Write,
        response: &TxnResponse,
        mut expected: Expected,
        before: Option<Arc<Record>>,
    ) -> Result<Arc<Record>, Error> {
        let revision = response.header.unwrap_or_default().revision as Revision;
        match self.patiently(expected.wait()).await {
            Some(Some(record)) => Ok(record),
            Some(None) => Ok(reconstructed(write, revision, before)),
            None => Err(Error::Unknown(format!("written at revision {revision}, but not visible here yet"))),
        }
    }

    /// Finds out what became of a write that got no answer.
    async fn settle(
        &self,
        write: &Write,
        id: u64,
        expected: &mut Expected,
        before: Option<Arc<Record>>,
        failure: &Failure,
    ) -> Result<Arc<Record>, Error> {
        let deadline = Instant::now() + SETTLE;
        let unknown = Error::Unknown(failure.status.message().to_owned());
        tracing::warn!(key = write.key(), reason = failure.status.message(), "a write got no answer");
        let mut row = Backoff::new(Duration::from_millis(20), Duration::from_millis(500)).begin();
        while Instant::now() < deadline {
            match timeout(row.delay(), expected.wait()).await {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => return Err(unknown),
                Err(_) => {}
            }
            let Ok(Ok(head)) = timeout_at(deadline, self.catch_up()).await else { continue };
            match expected.arrived() {
                Arrival::Here(record) => return Ok(record),
                Arrival::Skipped => return Err(unknown),
                Arrival::NotYet => {}
            }
            // It has not happened, but may yet. The same condition holds for the original and the
            // repetition, so one of them at most succeeds. "Does not exist" may become true
            // again, so there the repetition also demands that nothing happened since.
            let fence = matches!(write, Write::Create { .. }).then_some(head);
            match self.replica.client.txn(self.txn(write, id, fence)).await {
                Ok(response) if response.succeeded => {
                    let revision = response.header.unwrap_or_default().revision as Revision;
                    return match self.patiently(expected.wait()).await {
                        Some(Some(record)) => Ok(record),
                        Some(None) => Ok(reconstructed(write, revision, before)),
                        None => Err(unknown),
                    };
                }
                Ok(response) => {
                    let Some(error) = refusal(write, &response) else {
                        if self.seals(write) {
                            let _ = self.learn_keys().await;
                        }
                        continue;
                    };
                    // The key has moved on: by the original, or without it for good.
                    if timeout_at(deadline, self.catch_up()).await.is_ok_and(|caught| caught.is_ok()) {
                        return match expected.arrived() {
                            Arrival::Here(record) => Ok(record),
                            Arrival::NotYet => Err(error),
                            Arrival::Skipped => Err(unknown),
                        };
                    }
                }
                Err(_) => {}
            }
        }
        Err(unknown)
    }

    async fn fresh(&self, at: Option<Revision>) -> Result<(), Error> {
        if at.is_none_or(|at| at > self.mvcc.published()) {
            self.catch_up().await?;
        }
        Ok(())
    }
}

/// What the state says against the write; `None` if nothing does.
fn refusal(write: &Write, response: &TxnResponse) -> Option<Error> {
    let found = match response.responses.first().and_then(|op| op.response.as_ref()) {
        Some(Response::Range(range)) => range.kvs.first().map(|kv| kv.mod_revision as Revision),
        _ => None,
    };
    match (write, found) {
        (Write::Create { .. }, Some(revision)) => Some(Error::Exists { revision }),
        (Write::Create { .. }, None) => None,
        (_, None) => Some(Error::Missing),
        (Write::Update { expected, .. } | Write::Delete { expected, .. }, Some(actual)) => {
            (*expected != actual).then_some(Error::Conflict { actual })
        }
    }
}

fn refused(write: &Write, failure: &Failure, limit: usize) -> Error {
    let message = failure.status.message();
    if message.contains("too large") {
        let size = write.value().map_or(0, |value| value.bytes.len());
        return Error::TooLarge { size, limit: limit.min(size.saturating_sub(1)) };
    }
    Error::Unavailable(message.to_owned())
}

/// The result of a write whose event the copy skipped by loading everything anew.
fn reconstructed(write: &Write, revision: Revision, before: Option<Arc<Record>>) -> Arc<Record> {
    let created = match write {
        Write::Create { .. } => revision,
        _ => before.as_ref().map_or(revision, |record| record.created),
    };
    Arc::new(match (write.value(), before) {
        (Some(value), _) => Record::new(write.key().into(), created, revision, value),
        (None, Some(before)) => before.moved_to(revision),
        (None, None) => Record::new(write.key().into(), created, revision, &Template::plain("")),
    })
}

fn unavailable(status: tonic::Status) -> Error {
    Error::Unavailable(format!("etcd: {}", status.message()))
}

/// Keeps etcd's history bounded. Every process does it; whoever comes second changes nothing.
async fn forget(replica: Arc<Replica>, after: Duration, stop: CancellationToken) {
    let mut previous = replica.mvcc.published();
    loop {
        tokio::select! {
            () = tokio::time::sleep(after) => {}
            () = stop.cancelled() => return,
        }
        if previous > 0
            && let Err(status) = replica.client.compact(previous as i64).await
        {
            tracing::warn!(reason = status.message(), "cannot compact etcd");
        }
        previous = replica.mvcc.published();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop.cancel();
        self.mvcc.close();
    }
}

impl Store for Etcd {
    fn get<'a>(&'a self, key: &'a str) -> Reading<'a, Option<Arc<Record>>> {
        async move {
            self.catch_up().await?;
            self.mvcc.get(key)
        }
        .boxed()
    }

    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> Reading<'a, Vec<Option<Arc<Record>>>> {
        async move {
            self.fresh(at).await?;
            self.mvcc.get_many(keys, at)
        }
        .boxed()
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>> {
        async move {
            self.fresh(query.at).await?;
            self.mvcc.list(&query)
        }
        .boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        self.write_through(write).boxed()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error> {
        Watch::new(&self.mvcc, scope, after)
    }

    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async {
            self.catch_up().await?;
            Ok(self.mvcc.published())
        }
        .boxed()
    }

    fn observed(&self) -> Revision {
        self.mvcc.published()
    }

    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.mvcc.wait_for(revision).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            self.fresh(Some(revision)).await?;
            self.mvcc.compact(revision)?;
            self.replica.client.compact(revision as i64).await.map_err(unavailable)
        }
        .boxed()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        async {
            self.catch_up().await?;
            self.replica.problem().map_or(Ok(()), |reason| Err(Error::Unavailable(reason)))
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            self.stop.cancel();
            self.tasks.wait().await;
            self.mvcc.close();
        }
        .boxed()
    }
}
