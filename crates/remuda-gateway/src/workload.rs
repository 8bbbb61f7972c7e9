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
        let found = self.management_cluster(cluster);
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
}
