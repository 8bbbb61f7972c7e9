//! Workload clusters in memory: a small, honest part of the Kubernetes API for each.
//!
//! A cluster keeps objects of the usual kinds, answers reads, watches, writes, patches and evictions, and knows
//! what Nodes, Pods and PodDisruptionBudgets mean. It answers once a control plane server has booted, and can be
//! told to refuse or to hang. Clients reach it in process ([`WorkloadCluster::client`]) or over TCP ([`listen`]).
//!
//! What it is not: there is no validation, no admission, no scheduler and no workload controller. Server-side
//! apply merges without remembering who owns a field.

mod api;
mod cluster;
mod evict;
mod kinds;
mod kubelet;
pub mod listen;
mod patch;
mod select;
mod servers;
mod status;
mod store;
mod wire;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use remuda_control::{ObjectKey, clock::Clock};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    cluster::{Reach, WorkloadCluster},
    kubelet::Kubelet,
    servers::{Progress, ServerPlan},
};
use crate::dice::Dice;

/// All workload clusters. Clones share them; what runs in them ends with the last clone.
#[derive(Clone)]
pub struct Workloads(Arc<Inner>);

struct Inner {
    clusters: RwLock<HashMap<ObjectKey, Arc<WorkloadCluster>>>,
    seed: u64,
    world: World,
    address: OnceLock<SocketAddr>,
}

/// What clusters share.
#[derive(Clone)]
struct World {
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    stop: CancellationToken,
    requests: Arc<AtomicU64>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.world.stop.cancel();
    }
}

impl Workloads {
    pub fn new(seed: u64, clock: Arc<dyn Clock>) -> Self {
        let world = World {
            clock,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            requests: Arc::default(),
        };
        Self(Arc::new(Inner { clusters: RwLock::default(), seed, world, address: OnceLock::new() }))
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<WorkloadCluster>> {
        self.0.clusters.read().get(key).cloned()
    }

    pub fn list(&self) -> Vec<Arc<WorkloadCluster>> {
        self.0.clusters.read().values().cloned().collect()
    }

    /// The cluster of that name, which comes to be if it is not there. It does not answer yet.
    pub fn ensure(&self, key: &ObjectKey) -> Arc<WorkloadCluster> {
        if let Some(known) = self.get(key) {
            return known;
        }
        let mut clusters = self.0.clusters.write();
        let make = || {
            let token = self.token(key);
            Arc::new(WorkloadCluster::new(key.clone(), token, self.0.world.clone()))
        };
        clusters.entry(key.clone()).or_insert_with(make).clone()
    }

    /// The cluster is no more. Who still talks to it is refused.
    pub fn remove(&self, key: &ObjectKey) {
        let removed = self.0.clusters.write().remove(key);
        if let Some(cluster) = removed {
            cluster.end();
        }
    }

    /// How many requests all clusters have answered.
    pub fn requests(&self) -> u64 {
        self.0.world.requests.load(Ordering::Relaxed)
    }

    /// Where [`listen`] serves the clusters, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address.get().copied()
    }

    /// What a control plane calls its endpoint.
    pub(crate) fn endpoint(&self, key: &ObjectKey) -> (String, i32) {
        match self.address() {
            Some(address) => (address.ip().to_string(), i32::from(address.port())),
            None => (format!("{}.{}.sim", key.name, key.namespace.as_deref().unwrap_or_default()), 6443),
        }
    }

    /// A kubeconfig for the cluster.
    pub fn kubeconfig(&self, key: &ObjectKey) -> String {
        let (host, port) = self.endpoint(key);
        let (namespace, name) = (key.namespace.as_deref().unwrap_or_default(), &key.name);
        let token = self.token(key);
        // All of these are names or numbers: nothing in them needs quotes.
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {name}\n  cluster:\n    server: http://{host}:{port}/clusters/{namespace}/{name}\n\
             users:\n\
             - name: {name}-admin\n  user:\n    token: {token}\n\
             contexts:\n\
             - name: {name}-admin@{name}\n  context:\n    cluster: {name}\n    user: {name}-admin\n\
             current-context: {name}-admin@{name}\n"
        )
    }

    /// The same for a cluster as long as the seed is: a kubeconfig outlives the process that made it.
    fn token(&self, key: &ObjectKey) -> String {
        let mut dice = Dice::new(self.0.seed, &["token", &key.to_string()]);
        (0..4).map(|_| format!("{:08x}", dice.below(1 << 32))).collect()
    }
}

impl std::fmt::Debug for Workloads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workloads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
