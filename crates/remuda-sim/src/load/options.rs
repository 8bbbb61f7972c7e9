//! What load, and what of it.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::options::Options;

/// What becomes of the clusters in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// They stay; their workload clusters end with this process.
    Keep,
    /// They stay, and answer for so long, or until told to stop.
    Hold(Duration),
    /// They are deleted, and what is left is counted.
    Delete,
}

#[derive(Clone)]
pub struct LoadOptions {
    pub client: Client,
    /// Where the clusters are made. It comes to be if it must.
    pub namespace: String,
    /// Clusters are called this, and a number.
    pub prefix: String,
    pub clusters: u32,
    /// Machines per control plane.
    pub control_planes: u32,
    /// Machines per MachineDeployment, of which each cluster has one.
    pub workers: u32,
    pub providers: Options,
    /// Where workload clusters are served; the server must be able to reach it.
    pub listen: SocketAddr,
    /// How many clusters are being created at once.
    pub parallel: usize,
    /// How long all clusters together may take, to come or to go.
    pub patience: Duration,
    /// How long to look at the settled population; nothing should be written in that time.
    pub idle: Duration,
    /// How many MachineDeployments get another template, one after the other.
    pub template_changes: u32,
    /// The share of workload clusters that stop to answer, from 0 to 1.
    pub unreachable: f64,
    /// How long they are left so before templates are changed again.
    pub unreachable_for: Duration,
    pub after: After,
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Ends the run early.
    pub stop: CancellationToken,
}

impl LoadOptions {
    /// One small cluster, deleted afterwards.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: "sim".to_owned(),
            prefix: "sim".to_owned(),
            clusters: 1,
            control_planes: 1,
            workers: 3,
            providers: Options::default(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            parallel: 16,
            patience: Duration::from_secs(1800),
            idle: Duration::ZERO,
            template_changes: 0,
            unreachable: 0.0,
            unreachable_for: Duration::from_secs(60),
            after: After::Delete,
            progress: Arc::new(|_| ()),
            stop: CancellationToken::new(),
        }
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("clusters", &self.clusters)
            .field("control_planes", &self.control_planes)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Install,
    /// Clusters that were created.
    Create,
    /// Machines that run.
    Provision,
    /// Clusters that are ready.
    Ready,
    Idle,
    ChangeTemplates,
    /// Clusters that have taken over another configuration.
    ChangeConfig,
    CutOff,
    Hold,
    /// Clusters that are gone.
    Delete,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    pub done: usize,
    pub total: usize,
}
