//! The way to workload clusters: one connection each, and an answer at once whether or not they do.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use remuda_control::{Ctx, Informer, ObjectKey};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone)]
pub struct Options {
    /// How often a connection that says nothing is asked whether it is alive.
    pub probe_every: Duration,
    pub probe_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { probe_every: Duration::from_secs(30), probe_timeout: Duration::from_secs(5) }
    }
}

/// Why a workload cluster cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection to the workload cluster is down: {why}")]
pub struct Down {
    pub why: String,
}

/// Makes clients of workload clusters: from their kubeconfig secrets, or through a tunnel.
pub trait Connect: Send + Sync + 'static {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>>;
}

/// What is known of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    pub connected: bool,
    /// When the cluster last answered.
    pub last_success: Option<Timestamp>,
    pub last_probe: Option<Timestamp>,
    /// Failures since then.
    pub failures: u32,
    /// The last failure.
    pub why: Option<String>,
}

/// All connections. Clones share them.
#[derive(Clone)]
pub struct Workloads(Arc<Inner>);

struct Inner {
    _ctx: Arc<Ctx>,
    _options: Options,
    _connect: Arc<dyn Connect>,
}

impl Workloads {
    pub fn new(ctx: Arc<Ctx>, options: Options, connect: Arc<dyn Connect>) -> Self {
        Self(Arc::new(Inner { _ctx: ctx, _options: options, _connect: connect }))
    }

    /// What is known, at once.
    pub fn health(&self, _cluster: &ObjectKey) -> Health {
        Health::default()
    }

    /// A client, if there is a connection.
    pub fn client(&self, _cluster: &ObjectKey) -> Result<Client, Down> {
        Err(Down { why: "not connected yet".to_owned() })
    }

    /// The nodes as last seen, once they have been; [`Informer::stale_since`] tells how old that is.
    pub fn nodes(&self, _cluster: &ObjectKey) -> Option<Informer<Node>> {
        None
    }
}

/// Keeps connections until told to stop.
pub async fn run(_workloads: Workloads, stop: CancellationToken) {
    stop.cancelled().await;
}
