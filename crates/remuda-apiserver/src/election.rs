//! Of several servers on one store, one runs the API's controllers: the holder of a Lease.
//!
//! A holder renews the Lease; the others watch it. Whoever sees it unchanged for as long as it is
//! good takes it over, and one that is given up is taken at once. Time is measured here and
//! monotonically: the times in the Lease are for people. A holder counts from before it asked to
//! renew and lets go well before the others may take over, so there are never two, as far as
//! clocks run equally fast. Controllers are safe in any case: all they write is conditional.

use std::{sync::Arc, time::Duration};

use remuda_store::{Record, Revision, Scope};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use remuda_auth::request_info::Verb;

use crate::{
    bootstrap::own_options,
    call::Call,
    controllers::{self, Term},
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult},
    write::{Failed, Ownership, Part},
};

const GROUP: &str = "coordination.k8s.io";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "remuda-api-controllers";

/// How long a holder that is silent is taken to live.
const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(5);
/// How long a holder goes on without having renewed.
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
/// Shutting down must not wait for long.
const RELEASE: Duration = Duration::from_secs(2);

/// Runs the controllers whenever this server is the one to do so.
pub(crate) fn start(inner: &Arc<Inner>, identity: &str) {
    let mut candidate = Candidate { server: inner.clone(), identity: identity.to_owned(), seen: None };
    inner.tasks.spawn(async move {
        let stop = candidate.server.stop.clone();
        while !stop.is_cancelled() {
            let elected = tokio::select! {
                () = stop.cancelled() => return,
                elected = candidate.elected() => elected,
            };
            candidate.serve(elected).await;
        }
    });
}

struct Candidate {
    server: Arc<Inner>,
    identity: String,
    /// The revision of the Lease as it was first seen, and when.
    seen: Option<(Revision, Instant)>,
}

/// What came of an attempt.
enum Attempt {
    Held,
    /// Somebody else has it: until then, or until something changes after the revision.
    Taken {
        until: Instant,
        after: Revision,
    },
    /// Somebody was faster.
    Lost,
}

impl Candidate {
    /// Returns when this server holds the Lease: when the winning request was begun.
    async fn elected(&mut self) -> Instant {
        loop {
            let begun = Instant::now();
            match self.attempt().await {
                Ok(Attempt::Held) => return begun,
                Ok(Attempt::Taken { until, after }) => self.changed(after, until).await,
                Ok(Attempt::Lost) => {}
                Err(error) => {
                    warn!(%error, "cannot ask to run the API's controllers");
                    sleep_until(begun + RETRY).await;
                }
            }
        }
    }

    /// Returns when the Lease changes after `revision`, but not later than `until`.
    async fn changed(&self, revision: Revision, until: Instant) {
        let key = format!("/{GROUP}/leases/{NAMESPACE}/{NAME}");
        match self.server.store.watch(Scope::Key(key), revision) {
            Ok(mut events) => {
                let _ = timeout_at(until, async {
                    while events.next().await.is_ok_and(|events| events.is_empty()) {}
                })
                .await;
            }
            // History is gone: looking again is as good.
            Err(error) => {
                debug!(%error, "looking at the lease again");
                sleep_until(until.min(Instant::now() + RETRY)).await;
            }
        }
    }

    async fn attempt(&mut self) -> ApiResult<Attempt> {
        let call = self.call(Verb::Update)?;
        let found = self.server.store.get(&call.key()).await.map_err(store_error)?;
        let Some(record) = found.value else {
            let created = self.server.ensure(GROUP, "leases", self.lease()).await?;
            return Ok(if created { Attempt::Held } else { Attempt::Lost });
        };
        let lease = self.server.decode(&call.resource, &record).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && holder != self.identity {
            let now = Instant::now();
            let since = match self.seen {
                Some((revision, since)) if revision == record.revision => since,
                _ => now,
            };
            self.seen = Some((record.revision, since));
            let until = since + good_for(&lease);
            if now < until {
                return Ok(Attempt::Taken { until, after: found.revision });
            }
            info!(holder, "the server that ran the API's controllers is silent");
        }
        let (now, transitions) = (self.now(), lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0));
        let taken = self.write(&call, &record, lease, |spec| {
            spec["holderIdentity"] = self.identity.as_str().into();
            spec["leaseDurationSeconds"] = LEASE.as_secs().into();
            spec["acquireTime"] = now.as_str().into();
            spec["renewTime"] = now.as_str().into();
            spec["leaseTransitions"] = transitions.saturating_add(1).into();
        });
        Ok(if taken.await? { Attempt::Held } else { Attempt::Lost })
    }

    /// Runs the controllers until the server stops or the Lease is lost.
    async fn serve(&mut self, renewed: Instant) {
        info!("this server runs the API's controllers");
        let term = Term { stop: self.server.stop.child_token(), tasks: TaskTracker::new() };
        match controllers::start(&self.server, &term).await {
            Ok(()) => self.hold(renewed).await,
            Err(error) => {
                warn!(%error, "cannot start the API's controllers");
                tokio::select! {
                    () = self.server.stop.cancelled() => {}
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
        term.stop.cancel();
        term.tasks.close();
        term.tasks.wait().await;
        self.seen = None;
        // Also after a loss: it may still be ours in the eyes of the others.
        match timeout(RELEASE, self.release()).await {
            Ok(Ok(())) => info!("this server no longer runs the API's controllers"),
            Ok(Err(error)) => warn!(%error, "cannot give up the lease, others have to wait for its end"),
            Err(_) => warn!("giving up the lease takes too long, others have to wait for its end"),
        }
    }

    /// Returns when the server stops, or when this one can no longer be sure to be the holder.
    async fn hold(&self, mut renewed: Instant) {
        let mut next = renewed + RENEW;
        loop {
            tokio::select! {
                () = self.server.stop.cancelled() => return,
                () = sleep_until(next.min(renewed + DEADLINE)) => {}
            }
            let begun = Instant::now();
            match timeout_at(renewed + DEADLINE, self.renew()).await {
                Ok(Ok(true)) => {
                    renewed = begun;
                    next = begun + RENEW;
                    continue;
                }
                Ok(Ok(false)) => {
                    warn!("another server runs the API's controllers now");
                    return;
                }
                Ok(Err(error)) => warn!(%error, "cannot renew the lease"),
                Err(_) => {}
            }
            if Instant::now() >= renewed + DEADLINE {
                warn!("the lease could not be renewed in time");
                return;
            }
            next = begun + RETRY;
        }
    }

    /// Says whether this server is still the holder.
    async fn renew(&self) -> ApiResult<bool> {
        let now = self.now();
        self.change(|spec| spec["renewTime"] = now.as_str().into()).await
    }

    async fn release(&self) -> ApiResult<()> {
        let now = self.now();
        let released = self.change(|spec| {
            spec["holderIdentity"] = "".into();
            spec["leaseDurationSeconds"] = 1.into();
            spec["renewTime"] = now.as_str().into();
        });
        released.await.map(drop)
    }

    /// Changes the Lease while this server is its holder.
    async fn change(&self, change: impl Fn(&mut Value)) -> ApiResult<bool> {
        let call = self.call(Verb::Update)?;
        loop {
            let found = self.server.store.get(&call.key()).await.map_err(store_error)?;
            let Some(record) = found.value else { return Ok(false) };
            let lease = self.server.decode(&call.resource, &record).await?;
            if lease["spec"]["holderIdentity"] != self.identity.as_str() {
                return Ok(false);
            }
            if self.write(&call, &record, lease, &change).await? {
                return Ok(true);
            }
        }
    }

    /// Says whether the Lease still was what it is changed from.
    async fn write(
        &self,
        call: &Call,
        record: &Arc<Record>,
        mut lease: Value,
        change: impl Fn(&mut Value),
    ) -> ApiResult<bool> {
        change(&mut lease["spec"]);
        let options = own_options();
        let written =
            self.server.update_object(call, record, lease, &options, Ownership::Compute, Part::Main).await;
        match written {
            Ok(_) => Ok(true),
            Err(Failed::Conflict) => Ok(false),
            Err(Failed::Api(error)) if error.code == 404 => Ok(false),
            Err(Failed::Api(error)) => Err(error),
        }
    }

    fn call(&self, verb: Verb) -> Result<Call, ApiError> {
        self.server.own_call(GROUP, "leases", verb, Some(NAMESPACE), Some(NAME))
    }

    fn lease(&self) -> Value {
        let now = self.now();
        json!({
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": LEASE.as_secs(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        })
    }

    /// As `metav1.MicroTime` is written.
    fn now(&self) -> String {
        self.server.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

/// What the holder promised, within reason: anybody with the right may write anything there.
fn good_for(lease: &Value) -> Duration {
    let seconds = lease["spec"]["leaseDurationSeconds"].as_u64();
    seconds.map_or(LEASE, Duration::from_secs).min(4 * LEASE)
}
