//! Who works, when several processes share one API.
//!
//! The holder of a Lease leads. It renews the lease every two seconds and stops leading when it
//! could not for ten; others take the lease when they have seen it unchanged for fifteen. Clocks
//! of different hosts are never compared: what counts is how long *we* have seen no change.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    error::{Chain, is_code},
    metrics::Metrics,
};

/// Whether we lead. Clones share the answer.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<bool>);

impl Leadership {
    /// For an API that only this process works on.
    pub fn always() -> Self {
        Self(watch::channel(true).1)
    }

    pub fn is_ours(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when we lead. Never, when nobody is left who could tell.
    pub async fn gained(&self) {
        if self.0.clone().wait_for(|ours| *ours).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when we do not lead.
    pub async fn lost(&self) {
        if self.0.clone().wait_for(|ours| !*ours).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long others respect a lease that is not renewed.
    pub lease: Duration,
    /// How long we lead without being able to renew. Shorter than `lease`, by more than clocks
    /// drift and a reconcile takes to be given up.
    pub renew: Duration,
    /// How often the lease is renewed or looked at.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// Competes for one Lease.
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    identity: String,
    timing: Timing,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    leading: watch::Sender<bool>,
    /// The lease as last seen, and since when it looks like that.
    seen: Option<(Lease, Instant)>,
}

impl Elector {
    /// `identity` is unique to this process, also across its restarts.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing: Timing::default(),
            clock,
            metrics,
            leading: watch::Sender::new(false),
            seen: None,
        }
    }

    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    pub fn leadership(&self) -> Leadership {
        Leadership(self.leading.subscribe())
    }

    /// Competes until told to stop, then gives the lease back. Stop it after the controllers that
    /// work under it: the next leader starts at once.
    pub async fn run(mut self, stop: CancellationToken) {
        self.metrics.leading(&self.name, false);
        // When the last renewal that succeeded was *begun*: others count from when they saw it.
        let mut renewed: Option<Instant> = None;
        loop {
            let started = Instant::now();
            let limit = match renewed {
                Some(at) => (at + self.timing.renew).saturating_duration_since(started),
                None => self.timing.renew,
            };
            let attempt = tokio::select! {
                () = stop.cancelled() => break,
                attempt = tokio::time::timeout(limit, self.try_lead()) => attempt,
            };
            match attempt {
                Ok(Ok(true)) => renewed = Some(started),
                Ok(Ok(false)) => renewed = None,
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.name, error = %Chain(&error), "lease request failed");
                }
                Err(_) => tracing::warn!(lease = %self.name, "lease request got no answer"),
            }
            let now = Instant::now();
            if renewed.is_some_and(|at| now.duration_since(at) >= self.timing.renew) {
                renewed = None;
            }
            self.tell(renewed.is_some());
            let deadline = renewed.map(|at| at + self.timing.renew);
            let mut wake = now + self.timing.retry;
            if let Some(deadline) = deadline {
                wake = wake.min(deadline);
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        let held = *self.leading.borrow();
        self.tell(false);
        if held {
            self.release().await;
        }
    }

    fn tell(&self, leading: bool) {
        let changed = self.leading.send_if_modified(|known| std::mem::replace(known, leading) != leading);
        if changed {
            self.metrics.leading(&self.name, leading);
            let message = if leading { "we lead" } else { "we no longer lead" };
            tracing::info!(lease = %self.name, identity = %self.identity, "{message}");
        }
    }

    /// Renews or takes the lease if it may; tells whether it is ours.
    async fn try_lead(&mut self) -> Result<bool, kube::Error> {
        // A holder knows the lease's version and saves the read.
        if let Some((lease, _)) = &self.seen
            && holder(lease) == Some(&self.identity)
        {
            match self.write(&lease.clone()).await {
                Err(error) if is_code(&error, 409) || is_code(&error, 404) => self.seen = None,
                done => return done,
            }
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            return self.create().await;
        };
        self.see(lease);
        let Some((lease, since)) = &self.seen else {
            return Ok(false);
        };
        if holder(lease).is_some_and(|holder| *holder != self.identity)
            && since.elapsed() < self.patience(lease)
        {
            return Ok(false);
        }
        match self.write(&lease.clone()).await {
            Err(error) if is_code(&error, 409) => Ok(false),
            done => done,
        }
    }

    /// The holder may run with other settings than ours; its own count.
    fn patience(&self, lease: &Lease) -> Duration {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let told = seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        told.unwrap_or(self.timing.lease)
    }

    fn see(&mut self, lease: Lease) {
        let same = self.seen.as_ref().is_some_and(|(seen, _)| {
            seen.metadata.uid == lease.metadata.uid
                && seen.metadata.resource_version == lease.metadata.resource_version
        });
        if !same {
            self.seen = Some((lease, Instant::now()));
        }
    }

    async fn create(&mut self) -> Result<bool, kube::Error> {
        let now = MicroTime(self.clock.now());
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(self.seconds()),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        };
        match self.leases.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.see(lease);
                Ok(true)
            }
            Err(error) if is_code(&error, 409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the lease ours, provided that it is as we saw it.
    async fn write(&mut self, lease: &Lease) -> Result<bool, kube::Error> {
        let now = MicroTime(self.clock.now());
        let mut spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.seconds(),
            "renewTime": now,
        });
        if holder(lease) != Some(&self.identity) {
            let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
            spec["acquireTime"] = json!(now);
            spec["leaseTransitions"] = json!(transitions.saturating_add(1));
        }
        let lease = self.patch(lease, spec).await?;
        self.see(lease);
        Ok(true)
    }

    async fn release(&self) {
        let Some((lease, _)) = self.seen.as_ref().filter(|(lease, _)| holder(lease) == Some(&self.identity))
        else {
            return;
        };
        let spec = json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": MicroTime(self.clock.now()),
        });
        match tokio::time::timeout(self.timing.retry, self.patch(lease, spec)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.name, error = %Chain(&error), "lease not given back");
            }
            Err(_) => tracing::warn!(lease = %self.name, "lease not given back in time"),
        }
    }

    async fn patch(&self, seen: &Lease, spec: serde_json::Value) -> Result<Lease, kube::Error> {
        let patch = json!({
            "metadata": {"resourceVersion": seen.metadata.resource_version, "uid": seen.metadata.uid},
            "spec": spec,
        });
        self.leases.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    fn seconds(&self) -> i32 {
        // The field counts whole seconds from one.
        i32::try_from(self.timing.lease.as_secs().max(1)).unwrap_or(i32::MAX)
    }
}

/// Nobody leads by a task that is gone.
impl Drop for Elector {
    fn drop(&mut self) {
        self.tell(false);
    }
}

/// Nobody, when the lease was given back.
fn holder(lease: &Lease) -> Option<&String> {
    lease.spec.as_ref()?.holder_identity.as_ref().filter(|holder| !holder.is_empty())
}
