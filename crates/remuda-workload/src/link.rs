//! The task of one cluster: connect, listen, ask, give up, try again.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};
use remuda_base::Backoff;
use remuda_control::{Chain, Informer, Informers, Scope, bounded::LimitExceeded, informer};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{
    Down, Entry, Inner, What,
    bounded::{self, Excess},
    nodes,
};

/// After so many failures in a row a connection is given up.
const FAILURES: u32 = 5;
/// Clusters that were lost together are not tried together.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// How long making a connection counts against those of other clusters. One that takes longer hangs, and costs
/// nothing but patience.
const IN_LANE: Duration = Duration::from_secs(1);

/// How long nodes may be neither watched nor listed although the cluster answers, before that is a failure like any
/// other. A list is tried again twice a minute.
const UNLISTED: Duration = Duration::from_secs(90);

/// A connection.
pub(super) struct Link {
    pub(super) client: Client,
    /// The cluster has sent more than we take.
    excess: Excess,
    /// Why nodes are not watched.
    trouble: watch::Receiver<Option<Arc<str>>>,
    /// Stops when dropped.
    _informers: Informers,
    _subscription: informer::Subscription,
}

/// How many connections are being made at once: thousands of handshakes together would hold up everything else.
/// Clusters that failed before do not stand in the way of those that did not.
pub(super) struct Lanes {
    first: Semaphore,
    again: Semaphore,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { first: Semaphore::new(64), again: Semaphore::new(32) }
    }
}

/// A failed try.
struct Failure {
    why: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unauthorized,
    /// It sends more than we take.
    Excess,
    Other,
}

impl From<Down> for Failure {
    fn from(down: Down) -> Self {
        Self { why: down.why, kind: Kind::Other }
    }
}

/// Why a connection ended.
enum End {
    /// It did not answer for too long.
    Lost,
    /// Its credentials are no longer good; others may be there.
    Unauthorized,
}

pub(super) async fn keep(inner: &Arc<Inner>, entry: &Arc<Entry>) {
    let mut tries: u32 = 0;
    loop {
        entry.renew.store(false, Ordering::Release);
        match establish(inner, entry).await {
            Ok((link, nodes)) => {
                tries = 0;
                entry.up(inner, link, nodes);
                tracing::info!(cluster = %entry.cluster, "connected to workload cluster");
                inner.tell(&entry.cluster, What::Connected);
                let since = Instant::now();
                let end = watch_over(inner, entry).await;
                entry.state.write().take_down();
                tracing::info!(cluster = %entry.cluster, "disconnected from workload cluster");
                inner.tell(&entry.cluster, What::Disconnected);
                // Not at once again and again.
                if matches!(end, End::Unauthorized) && since.elapsed() > BACKOFF.first {
                    continue;
                }
            }
            Err(failure) => {
                let failures = entry.failed(inner, &failure);
                tracing::debug!(cluster = %entry.cluster, error = failure.why, "workload cluster cannot be reached");
                // One that sends too much will do so again.
                if failures == FAILURES || (failures == 1 && failure.kind == Kind::Excess) {
                    inner.tell(&entry.cluster, What::Disconnected);
                }
            }
        }
        rest(inner, entry, BACKOFF.jittered(tries.saturating_add(1), rand::random())).await;
        tries = tries.saturating_add(1);
    }
}

/// Waits between tries, and tells when a grace is over meanwhile.
async fn rest(inner: &Inner, entry: &Entry, pause: Duration) {
    let until = Instant::now() + pause;
    loop {
        let grace = entry.next_grace(inner);
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = entry.wake.notified() => return,
            () = sleep_until(grace.map(|(at, _)| at)) => tell_grace(inner, entry, grace),
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn tell_grace(inner: &Inner, entry: &Entry, grace: Option<(Instant, Duration)>) {
    if let Some((_, grace)) = grace {
        entry.state.write().told_grace = Some(grace);
        inner.tell(&entry.cluster, What::Silent(grace));
    }
}

async fn establish(inner: &Arc<Inner>, entry: &Arc<Entry>) -> Result<(Link, Informer<Node>), Failure> {
    let failed_before = entry.state.read().health.failures > 0;
    let lane = if failed_before { &inner.lanes.again } else { &inner.lanes.first };
    // The lanes are never closed.
    let permit = lane.acquire().await.ok();
    let making = make(inner, entry);
    tokio::pin!(making);
    tokio::select! {
        made = &mut making => return made,
        () = tokio::time::sleep(IN_LANE) => {}
    }
    drop(permit);
    making.await
}

async fn make(inner: &Arc<Inner>, entry: &Arc<Entry>) -> Result<(Link, Informer<Node>), Failure> {
    let patience = inner.options.connect_timeout;
    let late =
        |what: &str| Failure { why: format!("{what} took longer than {patience:?}"), kind: Kind::Other };
    let client = tokio::time::timeout(patience, inner.connect.connect(&entry.cluster)).await;
    let client = client.map_err(|_| late("connecting"))??;
    let excess = Excess::default();
    let client = bounded::client(client, excess.clone());
    probe(&client, inner.options.probe_timeout).await?;
    let informers = Informers::new(
        client.clone(),
        informer::Options { quiet: true, ..Default::default() },
        inner.metrics.clone(),
    );
    informers.trim(nodes::trim);
    let noting = excess.clone();
    informers.bound(nodes::BOUND, move |why| noting.note(why));
    let nodes: Informer<Node> = informers.of(Scope::all());
    nodes::index(&nodes);
    let synced = tokio::select! {
        synced = tokio::time::timeout(patience, nodes.wait_synced()) => synced,
        why = excess.noted() => return Err(Failure { why, kind: Kind::Excess }),
    };
    if synced.is_err() {
        // The cache does not say what is wrong; the same question does.
        let (api, params) = (Api::<Node>::all(client), ListParams::default().limit(1));
        let list = api.list_metadata(&params);
        return Err(match tokio::time::timeout(inner.options.probe_timeout, list).await {
            Ok(Err(error)) => failure(&error),
            _ => late("the list of Nodes"),
        });
    }
    let (telling, told) = (inner.clone(), entry.clone());
    let subscription = nodes.subscribe(move |change| {
        if change.initial {
            return;
        }
        told.heard(&telling);
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && !nodes::differ(old, new)
        {
            return;
        }
        let what = What::Node { old: change.old.clone(), new: change.new.clone() };
        telling.tell(&told.cluster, what);
    });
    let trouble = nodes.trouble();
    Ok((Link { client, excess, trouble, _informers: informers, _subscription: subscription }, nodes))
}

/// Asks whether anybody is there. Only a good answer is one: what sits between us and the cluster may answer too.
async fn probe(client: &Client, timeout: Duration) -> Result<(), Failure> {
    let request = http::Request::get("/").body(Vec::new());
    let request = request.map_err(|error| Failure { why: error.to_string(), kind: Kind::Other })?;
    match tokio::time::timeout(timeout, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failure(&error)),
        Err(_) => Err(Failure { why: format!("no answer within {timeout:?}"), kind: Kind::Other }),
    }
}

fn failure(error: &kube::Error) -> Failure {
    let kind = match error {
        kube::Error::Api(status) if status.code == 401 => Kind::Unauthorized,
        error if LimitExceeded::of(error).is_some() => Kind::Excess,
        _ => Kind::Other,
    };
    Failure { why: Chain(error).to_string(), kind }
}

/// Returns when the connection is no longer good.
async fn watch_over(inner: &Arc<Inner>, entry: &Arc<Entry>) -> End {
    loop {
        let (due, grace) = (entry.next_probe(inner), entry.next_grace(inner));
        let link = entry.state.read().link.as_ref().map(|link| (link.excess.clone(), link.trouble.clone()));
        let Some((excess, mut trouble)) = link else {
            return End::Lost;
        };
        let unwatched = entry.state.read().health.unwatched.is_some();
        tokio::select! {
            // That its words change is no news.
            Ok(now) = trouble.wait_for(|now| now.is_some() != unwatched) => {
                entry.state.write().health.unwatched = now.as_deref().map(str::to_owned);
                inner.tell(&entry.cluster, What::Watch);
                continue;
            }
            why = excess.noted() => {
                tracing::warn!(cluster = %entry.cluster, error = why, "workload cluster sends too much");
                entry.failed(inner, &Failure { why, kind: Kind::Excess });
                return End::Lost;
            }
            () = tokio::time::sleep_until(due) => {}
            () = entry.wake.notified() => {}
            () = sleep_until(grace.map(|(at, _)| at)) => tell_grace(inner, entry, grace),
        }
        if entry.renew.swap(false, Ordering::AcqRel) {
            // What worked so far goes on until the new one does.
            match establish(inner, entry).await {
                Ok((link, nodes)) => {
                    entry.up(inner, link, nodes);
                    inner.tell(&entry.cluster, What::Connected);
                }
                // The old one is probed as before: if it is lost too, that is told.
                Err(failure) => {
                    tracing::info!(cluster = %entry.cluster, error = failure.why, "new connection cannot be made");
                }
            }
            continue;
        }
        let doubted = entry.doubted.swap(false, Ordering::AcqRel);
        if !doubted && entry.next_probe(inner) > Instant::now() {
            continue;
        }
        let client = entry.state.read().link.as_ref().map(|link| link.client.clone());
        let Some(client) = client else {
            return End::Lost;
        };
        match probe(&client, inner.options.probe_timeout).await {
            Ok(()) if entry.unlisted().is_none() => {
                if entry.answered(inner) {
                    // Those who were turned away meanwhile.
                    inner.tell(&entry.cluster, What::Connected);
                }
            }
            answer => {
                let failure = match answer {
                    Err(failure) => failure,
                    // The cluster answers, and its nodes can be neither watched nor listed.
                    Ok(()) => Failure { why: entry.unlisted().unwrap_or_default(), kind: Kind::Other },
                };
                let failures = entry.failed(inner, &failure);
                tracing::debug!(cluster = %entry.cluster, failures, error = failure.why, "probe failed");
                if failure.kind == Kind::Unauthorized {
                    return End::Unauthorized;
                }
                if failures >= FAILURES {
                    return End::Lost;
                }
            }
        }
    }
}

impl crate::State {
    fn take_down(&mut self) {
        self.link = None;
        self.health.connected = false;
        self.health.unwatched = None;
    }
}

impl Entry {
    fn up(&self, inner: &Inner, link: Link, nodes: Informer<Node>) {
        let old = {
            let mut state = self.state.write();
            state.nodes = Some(nodes);
            state.health.connected = true;
            state.health.unwatched = None;
            state.link.replace(link)
        };
        // Outside of the lock: ending it may take locks of its own.
        drop(old);
        self.answered(inner);
    }

    /// Why nodes have not been heard of for too long, if so.
    fn unlisted(&self) -> Option<String> {
        let state = self.state.read();
        let stale = state.nodes.as_ref()?.stale_since()?;
        let why = state.health.unwatched.as_deref().unwrap_or("no answer");
        (stale.elapsed() > UNLISTED).then(|| format!("nodes can neither be watched nor listed: {why}"))
    }

    /// The cluster answered. Tells whether it had not before.
    fn answered(&self, inner: &Inner) -> bool {
        let now = inner.ctx.clock.now();
        let mut state = self.state.write();
        let before = state.health.failures;
        state.health.last_success = Some(now);
        state.health.last_probe = Some(now);
        state.health.failures = 0;
        state.health.why = None;
        state.health.is_excessive = false;
        state.heard = Some(Instant::now());
        state.probed = Instant::now();
        state.told_grace = None;
        before > 0
    }

    /// Something came through the watch, which is as good as an answer. Failures stay until a probe says
    /// otherwise: what comes may have been on its way for long.
    fn heard(&self, inner: &Inner) {
        let now = inner.ctx.clock.now();
        let mut state = self.state.write();
        if state.health.failures == 0 {
            state.health.last_success = Some(now);
            state.heard = Some(Instant::now());
        }
    }

    fn failed(&self, inner: &Inner, failure: &Failure) -> u32 {
        let now = inner.ctx.clock.now();
        let mut state = self.state.write();
        state.health.last_probe = Some(now);
        state.health.failures = state.health.failures.saturating_add(1);
        state.health.why = Some(failure.why.clone());
        state.health.is_excessive = failure.kind == Kind::Excess;
        state.probed = Instant::now();
        state.health.failures
    }

    fn next_probe(&self, inner: &Inner) -> Instant {
        let state = self.state.read();
        if state.health.failures > 0 {
            return state.probed + inner.options.retry_every;
        }
        state.heard.unwrap_or(state.probed) + inner.options.probe_every.mul_f64(self.spread)
    }

    /// The next grace that passes since the last answer, if it is not coming.
    fn next_grace(&self, inner: &Inner) -> Option<(Instant, Duration)> {
        let state = self.state.read();
        let heard = state.heard.filter(|_| state.health.failures > 0 || state.link.is_none())?;
        let graces = inner.options.graces.iter().copied();
        let next = graces.filter(|grace| state.told_grace.is_none_or(|told| told < *grace)).min()?;
        // What depends on a grace asks whether more than that has passed.
        Some((heard + next + Duration::from_secs(1), next))
    }
}
