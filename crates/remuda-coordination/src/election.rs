//! Who works, when several processes share one API.
//!
//! The holder of a Lease leads. It renews the Lease every few seconds and stops leading when it could not for ten;
//! others take the Lease when they have seen it unchanged for as long as it is good. Clocks of different hosts are
//! never compared: what counts is how long *this* process has seen no change, and the times in the Lease are for
//! people. A holder counts from before it asked to renew, so there are never two, as far as clocks run equally fast.
//! Controllers are safe in any case: all they write is conditional.

use std::{error::Error, fmt::Debug, future::Future, time::Duration};

use remuda_base::Chain;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

/// Giving the Lease back must not hold up the end of a process for long.
const RELEASE: Duration = Duration::from_secs(2);

/// Whether this process leads. Clones share the answer.
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

    /// Returns when this process leads. Never, when its elector is gone.
    pub async fn gained(&self) {
        if self.0.clone().wait_for(|ours| *ours).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when this process does not lead.
    pub async fn lost(&self) {
        if self.0.clone().wait_for(|ours| !*ours).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// How long others respect a Lease that is not renewed.
    pub lease: Duration,
    /// How long a holder leads without being able to renew. Shorter than `lease`, by more than clocks drift and a
    /// reconcile takes to be given up.
    pub deadline: Duration,
    /// How often a holder renews.
    pub renew: Duration,
    /// After a request that failed.
    pub retry: Duration,
    /// How often the Lease of another holder is looked at, if nothing tells of its changes.
    pub poll: Duration,
}

impl Timing {
    /// As client-go's.
    pub const DEFAULT: Self = Self {
        lease: Duration::from_secs(15),
        deadline: Duration::from_secs(10),
        renew: Duration::from_secs(2),
        retry: Duration::from_secs(2),
        poll: Duration::from_secs(2),
    };
}

/// A Lease as it is stored.
#[derive(Debug, Clone)]
pub struct Lease<V> {
    /// Empty when it was given back.
    pub holder: String,
    /// How long it is good, by its holder's own settings.
    pub seconds: Option<u64>,
    pub transitions: i64,
    pub version: V,
}

/// What is written into a Lease, together with `renewTime`, which is now.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub holder: &'a str,
    pub seconds: u64,
    /// The count of transitions, if the holder changes with this: `acquireTime` is now as well.
    pub acquired: Option<i64>,
}

/// One Lease, and the API it is kept in.
pub trait Leases: Send + Sync {
    /// Equal until the Lease is written.
    type Version: Clone + Debug + PartialEq + Send + Sync;
    type Error: Error + Send + Sync + 'static;

    fn read(&self) -> impl Future<Output = Result<Option<Lease<Self::Version>>, Self::Error>> + Send;

    /// Writes the Lease provided that it is as it was seen, or that there is none. `None` if it is not.
    fn write(
        &self,
        seen: Option<&Self::Version>,
        entry: Entry<'_>,
    ) -> impl Future<Output = Result<Option<Lease<Self::Version>>, Self::Error>> + Send;

    /// Returns when the Lease may be another than the one seen. Never, where nothing tells.
    fn changed(&self, _seen: &Self::Version) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Takes note of who leads.
    fn leads(&self, _ours: bool) {}
}

/// What came of an attempt to have the Lease.
enum Attempt {
    Held,
    /// Another holder has it, and may until then.
    Taken {
        until: Instant,
    },
    /// Another process was faster.
    Lost,
}

/// Competes for one Lease.
pub struct Elector<L: Leases> {
    leases: L,
    name: String,
    identity: String,
    timing: Timing,
    leading: watch::Sender<bool>,
    /// The Lease as last seen, and since when it looks like that.
    seen: Option<(Lease<L::Version>, Instant)>,
}

impl<L: Leases> Elector<L> {
    /// `identity` is unique to this process, also across its restarts.
    pub fn new(leases: L, name: &str, identity: &str, timing: Timing) -> Self {
        Self {
            leases,
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            leading: watch::Sender::new(false),
            seen: None,
        }
    }

    pub fn leadership(&self) -> Leadership {
        Leadership(self.leading.subscribe())
    }

    /// Competes until told to stop, then gives the Lease back. Stop it after the controllers that work under it: the
    /// next leader starts at once.
    pub async fn run(mut self, stop: CancellationToken) {
        self.leases.leads(false);
        // When the last renewal that succeeded was *begun*: others count from when they saw it.
        let mut renewed: Option<Instant> = None;
        loop {
            let begun = Instant::now();
            let limit = renewed.map_or(begun, |at| at) + self.timing.deadline;
            let attempt = tokio::select! {
                () = stop.cancelled() => break,
                attempt = tokio::time::timeout_at(limit, self.attempt()) => attempt,
            };
            let mut wake = begun + self.timing.retry;
            let mut taken = None;
            match attempt {
                Ok(Ok(Attempt::Held)) => {
                    renewed = Some(begun);
                    wake = begun + self.timing.renew;
                }
                Ok(Ok(Attempt::Taken { until })) => {
                    renewed = None;
                    wake = until.min(begun + self.timing.poll);
                    taken = self.seen.as_ref().map(|(lease, _)| lease.version.clone());
                }
                Ok(Ok(Attempt::Lost)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.name, error = %Chain(&error), "lease request failed");
                }
                Err(_) => tracing::warn!(lease = %self.name, "lease request got no answer"),
            }
            let deadline = renewed.map(|at| at + self.timing.deadline);
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                renewed = None;
            }
            self.tell(renewed.is_some());
            if let Some(deadline) = deadline {
                wake = wake.min(deadline);
            }
            let changed = async {
                match &taken {
                    Some(version) => self.leases.changed(version).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep_until(wake) => {}
                () = changed => {}
            }
        }
        self.tell(false);
        match tokio::time::timeout(RELEASE, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.name, error = %Chain(&error), "lease not given back");
            }
            Err(_) => tracing::warn!(lease = %self.name, "lease not given back in time"),
        }
    }

    fn tell(&self, leading: bool) {
        let changed = self.leading.send_if_modified(|known| std::mem::replace(known, leading) != leading);
        if changed {
            self.leases.leads(leading);
            let message = if leading { "we lead" } else { "we no longer lead" };
            tracing::info!(lease = %self.name, identity = %self.identity, "{message}");
        }
    }

    /// Renews or takes the Lease if it may.
    async fn attempt(&mut self) -> Result<Attempt, L::Error> {
        // A holder knows the Lease's version and saves the read.
        if let Some((lease, _)) = self.seen.clone()
            && lease.holder == self.identity
        {
            match self.take(Some(&lease)).await? {
                Attempt::Lost => self.seen = None,
                done => return Ok(done),
            }
        }
        let Some(lease) = self.leases.read().await? else {
            return self.take(None).await;
        };
        let since = self.see(lease.clone());
        let until = since + self.patience(&lease);
        if !lease.holder.is_empty() && lease.holder != self.identity && Instant::now() < until {
            return Ok(Attempt::Taken { until });
        }
        self.take(Some(&lease)).await
    }

    /// What the holder promised, as it may run with other settings; within reason, as everyone with the right may write
    /// anything there.
    fn patience(&self, lease: &Lease<L::Version>) -> Duration {
        let most = 4 * self.timing.lease;
        lease.seconds.map_or(self.timing.lease, Duration::from_secs).min(most)
    }

    /// Since when the Lease looks like that.
    fn see(&mut self, lease: Lease<L::Version>) -> Instant {
        match &self.seen {
            Some((seen, since)) if seen.version == lease.version => *since,
            _ => {
                let now = Instant::now();
                self.seen = Some((lease, now));
                now
            }
        }
    }

    /// Makes the Lease ours, provided that it is as it was seen.
    async fn take(&mut self, seen: Option<&Lease<L::Version>>) -> Result<Attempt, L::Error> {
        let acquired = match seen {
            None => Some(0),
            Some(lease) if lease.holder == self.identity => None,
            Some(lease) => Some(lease.transitions.saturating_add(1)),
        };
        let seconds = self.timing.lease.as_secs().max(1);
        let entry = Entry { holder: &self.identity, seconds, acquired };
        let Some(lease) = self.leases.write(seen.map(|lease| &lease.version), entry).await? else {
            return Ok(Attempt::Lost);
        };
        let ours = lease.holder == self.identity;
        self.see(lease);
        Ok(if ours { Attempt::Held } else { Attempt::Lost })
    }

    /// Also after a loss: it may still be ours in the eyes of the others.
    async fn release(&self) -> Result<(), L::Error> {
        if self.seen.is_none() {
            return Ok(());
        }
        // Read again: a renewal that was cut off may have arrived.
        if let Some(lease) = self.leases.read().await?
            && lease.holder == self.identity
        {
            let entry = Entry { holder: "", seconds: 1, acquired: None };
            self.leases.write(Some(&lease.version), entry).await?;
        }
        Ok(())
    }
}

/// A task that is gone leads nothing.
impl<L: Leases> Drop for Elector<L> {
    fn drop(&mut self) {
        self.tell(false);
    }
}

#[cfg(test)]
mod tests;
