//! What clusters, and what becomes of them.

use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use remuda_names::rancher::name::FLEET_DEFAULT;
use tokio_util::sync::CancellationToken;

use super::{Door, Shape};
use crate::{
    load::{After, Progress},
    options::Options,
};

#[derive(Clone)]
pub struct ProvisionOptions {
    pub client: Client,
    /// Where machines and agents come in.
    pub door: Arc<dyn Door>,
    /// Where the clusters are made. It comes to be if it must.
    pub namespace: String,
    /// Clusters are called this, and a number.
    pub prefix: String,
    pub clusters: u32,
    /// Machines with etcd and a control plane, in each.
    pub servers: u32,
    /// Machines with workloads only, in each.
    pub workers: u32,
    /// Of Kubernetes, as a distribution calls it.
    pub version: String,
    /// How servers and agents fare.
    pub world: Options,
    /// How many clusters are being created at once.
    pub parallel: usize,
    /// How long all clusters together may take, to come, to change or to go.
    pub patience: Duration,
    /// How long to look at the settled clusters; nothing should be written in that time.
    pub idle: Duration,
    /// Then give all of them another configuration, in place.
    pub config_change: bool,
    pub after: After,
    pub progress: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Ends the run early.
    pub stop: CancellationToken,
}

impl ProvisionOptions {
    /// One cluster of 1 + 3 machines, deleted afterwards.
    pub fn new(client: Client, door: Arc<dyn Door>) -> Self {
        Self {
            client,
            door,
            namespace: FLEET_DEFAULT.to_owned(),
            prefix: "sim".to_owned(),
            clusters: 1,
            servers: 1,
            workers: 3,
            version: "v1.35.1+k3s1".to_owned(),
            world: Options::default(),
            parallel: 16,
            patience: Duration::from_secs(1800),
            idle: Duration::ZERO,
            config_change: false,
            after: After::Delete,
            progress: Arc::new(|_| ()),
            stop: CancellationToken::new(),
        }
    }

    pub(super) fn shapes(&self) -> Vec<Shape> {
        let shape = |number| Shape {
            namespace: self.namespace.clone(),
            name: format!("{}-{number}", self.prefix),
            servers: self.servers,
            workers: self.workers,
            version: self.version.clone(),
        };
        (0..self.clusters).map(shape).collect()
    }
}

impl fmt::Debug for ProvisionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProvisionOptions")
            .field("clusters", &self.clusters)
            .field("servers", &self.servers)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
