//! Calls to workload clusters: few at a time per cluster, none that waits for long.
//!
//! A worker that waits for a cluster cannot look after another one. So nobody waits to be let in: who finds a
//! cluster busy is woken when it is not, and a cluster that left a call without an answer gets no more of them
//! until it has answered a probe.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::Client;
use parking_lot::Mutex;
use remuda_control::{Chain, Enqueuer, ObjectKey};

use crate::{Down, Entry, Workloads};

/// Calls under way to one cluster, and to all.
const PER_CLUSTER: usize = 8;
const IN_ALL: usize = 96;

/// Who holds leases, and who wants one.
#[derive(Default)]
pub(super) struct Budget(Mutex<Book>);

#[derive(Default)]
struct Book {
    total: usize,
    held: HashMap<ObjectKey, usize>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    cluster: ObjectKey,
    enqueuer: Enqueuer,
    key: ObjectKey,
}

impl Book {
    fn has_room(&self, cluster: &ObjectKey) -> bool {
        self.total < IN_ALL && self.held.get(cluster).is_none_or(|held| *held < PER_CLUSTER)
    }
}

/// Why there is no lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    Down(Down),
    /// Whoever asked is woken when it may ask again.
    Busy,
}

/// The right to call a workload cluster, for one piece of work.
pub struct Lease {
    client: Client,
    entry: Arc<Entry>,
    budget: Arc<Budget>,
    timeout: Duration,
}

impl Workloads {
    /// A lease, at once or not at all. If the cluster is busy, `key` is woken through `enqueuer` later.
    pub fn lease(&self, cluster: &ObjectKey, enqueuer: &Enqueuer, key: &ObjectKey) -> Result<Lease, Refused> {
        let down = || Refused::Down(Down::because("not connected yet"));
        let entry = self.entry(cluster).ok_or_else(down)?;
        let client = {
            let state = entry.state.read();
            let link = state.link.as_ref().filter(|_| state.health.failures == 0);
            link.map(|link| link.client.clone()).ok_or_else(|| Refused::Down(state.down()))?
        };
        let mut book = self.0.budget.0.lock();
        if !book.has_room(cluster) {
            if !book.waiting.iter().any(|known| known.key == *key) {
                book.waiting.push_back(Waiting {
                    cluster: cluster.clone(),
                    enqueuer: enqueuer.clone(),
                    key: key.clone(),
                });
            }
            return Err(Refused::Busy);
        }
        book.total += 1;
        *book.held.entry(cluster.clone()).or_default() += 1;
        drop(book);
        Ok(Lease { client, entry, budget: self.0.budget.clone(), timeout: self.0.options.call_timeout })
    }
}

impl Lease {
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The answer of the cluster, good or bad; or that there is none.
    pub async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<Result<T, kube::Error>, Down> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(answer @ (Ok(_) | Err(kube::Error::Api(_)))) => Ok(answer),
            Ok(Err(error)) => Err(self.doubt(Chain(&error).to_string())),
            Err(_) => Err(self.doubt(format!("no answer within {:?}", self.timeout))),
        }
    }

    /// Nobody else should wait in vain.
    fn doubt(&self, why: String) -> Down {
        {
            let mut state = self.entry.state.write();
            state.health.failures = state.health.failures.max(1);
            state.health.why = Some(why.clone());
        }
        self.entry.doubted.store(true, Ordering::Release);
        self.entry.wake.notify_one();
        Down { why }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut book = self.budget.0.lock();
        book.total -= 1;
        if let Some(held) = book.held.get_mut(&self.entry.cluster) {
            *held -= 1;
            if *held == 0 {
                book.held.remove(&self.entry.cluster);
            }
        }
        let next = (0..book.waiting.len()).find(|place| book.has_room(&book.waiting[*place].cluster));
        let next = next.and_then(|place| book.waiting.remove(place));
        drop(book);
        if let Some(next) = next {
            next.enqueuer.enqueue(next.key);
        }
    }
}
