//! Workload clusters through their tunnels, for controllers.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use remuda_control::ObjectKey;
use remuda_workload::{Changed, Connect, Down, Following};

use crate::gateway::{BY_MANAGEMENT_CLUSTER, Gateway, Shared};

/// Connects to clusters that have a management Cluster through the session of their agent, and fails at once
/// with the reason when there is none. Clusters of others are left to another way.
pub struct TunnelConnect {
    shared: Arc<Shared>,
    other: Option<Arc<dyn Connect>>,
}

impl TunnelConnect {
    /// `other` connects to clusters that have no management Cluster.
    pub fn new(gateway: &Gateway, other: Option<Arc<dyn Connect>>) -> Self {
        Self { shared: gateway.0.clone(), other }
    }

    /// How controllers know the cluster of a management Cluster: as the Cluster of Cluster API it is, or else by the
    /// name of the management Cluster.
    pub(crate) fn key_of(shared: &Shared, cluster: &str) -> ObjectKey {
        let written = shared.provisioned.by_index(BY_MANAGEMENT_CLUSTER, cluster);
        let of_cluster_api = written.iter().find(|written| written.spec.rke_config.is_some());
        match of_cluster_api {
            Some(written) => ObjectKey::of(&written.metadata),
            None => ObjectKey::cluster_wide(cluster),
        }
    }

    /// The management Cluster of a Cluster of Cluster API: that of the provisioning Cluster of the same name.
    fn management_cluster(&self, cluster: &ObjectKey) -> Option<String> {
        let found = self.shared.provisioned.get(cluster)?;
        Some(found.status.as_ref().map(|status| status.cluster_name.clone()).unwrap_or_default())
    }
}

impl Connect for TunnelConnect {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        let down = |why: String| Down { why };
        if !self.shared.provisioned.is_synced() {
            let why = "provisioning Clusters are not known yet".to_owned();
            return Box::pin(std::future::ready(Err(down(why))));
        }
        let found = match &cluster.namespace {
            Some(_) => self.management_cluster(cluster),
            None => Some(cluster.name.to_string()),
        };
        let cluster = cluster.clone();
        Box::pin(async move {
            match found.as_deref() {
                None => match &self.other {
                    Some(other) => other.connect(&cluster).await,
                    None => Err(down(format!("there is no provisioning Cluster {cluster}"))),
                },
                Some("") => {
                    Err(down(format!("provisioning Cluster {cluster} has no management Cluster yet")))
                }
                Some(name) => {
                    let route =
                        self.shared.route(name).map_err(|why| down(format!("cluster {name} is {why}")))?;
                    Ok(Client::new(route, "default"))
                }
            }
        })
    }

    fn follow(&self, changed: Changed) -> Option<Following> {
        let (told, shared) = (changed.clone(), self.shared.clone());
        let listening = self.shared.sessions.listen(move |cluster| {
            for key in shared.provisioned.keys_by_index(BY_MANAGEMENT_CLUSTER, cluster) {
                told(&key);
            }
            let key = Self::key_of(&shared, cluster);
            if key.namespace.is_none() {
                told(&key);
            }
        });
        let other = self.other.as_ref().and_then(|other| {
            // The Secrets of clusters with a tunnel are for others: they lead through this server.
            let shared = self.shared.clone();
            let told = changed;
            other.follow(Arc::new(move |key: &ObjectKey| {
                if shared.provisioned.get(key).is_none() {
                    told(key);
                }
            }))
        });
        Some(Box::new((listening, other)))
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared.provisioned.wait_synced())
    }

    fn others(&self) -> Vec<ObjectKey> {
        let connected = self.shared.sessions.connected();
        let keys = connected.iter().map(|cluster| Self::key_of(&self.shared, cluster));
        keys.filter(|key| self.is_other(key)).collect()
    }

    fn is_other(&self, cluster: &ObjectKey) -> bool {
        // Agents have other sessions too, which stand for no cluster.
        self.shared.cluster(&cluster.name).is_some()
            && self.shared.sessions.connection(&cluster.name).is_connected()
            && Self::key_of(&self.shared, &cluster.name) == *cluster
    }
}
