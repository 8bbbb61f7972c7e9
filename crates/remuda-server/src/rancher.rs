//! Rancher's kinds on this server: the clusters people write, what they are made of, and what is refused.
//!
//! As with Cluster API, [`Kinds`] goes into the API's configuration before it starts, and [`install`]
//! creates the definitions before the first client is served.

mod admission;

use std::sync::{Arc, OnceLock};

use kube::{Client, core::PartialObjectMeta};
use remuda_api::{crd, management};
use remuda_apiserver::Hook;
use remuda_control::{Informer, Informers, ObjectKey, Scope};

pub use self::admission::Admission;
use crate::shipped::{self, InstallError};

type Clusters = Informer<PartialObjectMeta<management::Cluster>>;

/// What the API server is told of Rancher's kinds.
#[derive(Clone, Default)]
pub struct Kinds {
    /// The management Clusters there are, once the API serves them.
    clusters: Arc<OnceLock<Clusters>>,
}

impl Kinds {
    /// In-process admission.
    pub fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![Arc::new(Admission::new(self.clone()))]
    }

    /// Begins to follow the management Clusters. Until they are known, nothing is refused for their sake.
    pub fn follow(&self, informers: &Informers) {
        let _ = self.clusters.set(informers.metadata(Scope::all()));
    }

    /// Whether a management Cluster is there, if that is known.
    fn has_cluster(&self, name: &str) -> Option<bool> {
        let clusters = self.clusters.get().filter(|clusters| clusters.is_synced())?;
        Some(clusters.get(&ObjectKey::cluster_wide(name)).is_some())
    }
}

/// Creates the CRDs, or brings them up to date; returns when all of them are served.
pub async fn install(client: &Client) -> Result<(), InstallError> {
    shipped::definitions(client, crd::rancher()).await
}

#[cfg(test)]
mod tests;
