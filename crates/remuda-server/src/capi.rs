//! Cluster API on this server: what its kinds are, how their versions relate, and what is refused.
//!
//! [`Kinds`] goes into the API's configuration before it starts: conversions and admission run in
//! the process, where upstream has webhooks. [`install`] then creates the definitions, before the
//! first client is served.
//!
//! `clusterctl` sees a management cluster with the core provider in it: its inventory says so, and
//! `clusterctl init --infrastructure …` adds to that without the kubeadm providers it adds to an
//! empty one. It insists on cert-manager, which nothing here needs: its CRDs are enough, or a
//! `cert-manager.url` in `clusterctl.yaml` that leads to them. Updating the core provider by
//! `clusterctl upgrade` would bring webhooks that nothing answers: [`Guard`] refuses that, and what was put
//! there before is reported at start (`strangers`) and removed by `remuda capi reclaim`.

mod admission;
mod guard;
mod inventory;
pub(crate) mod repository;
mod strangers;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, ResourceExt, core::PartialObjectMeta};
use remuda_api::{convert, crd};
use remuda_apiserver::{Hook, NativeConversion};
use remuda_control::{Informer, Informers, ObjectKey, Scope};
use remuda_rollout::contract;

pub use self::{admission::Admission, guard::Guard};
use crate::shipped;
pub use crate::shipped::InstallError;

/// The version admission speaks, and the one that is stored.
const HUB: &str = "v1beta2";

/// How long a start waits for what it can do without.
const PATIENCE: Duration = Duration::from_secs(10);

type Definition = PartialObjectMeta<CustomResourceDefinition>;

/// What the API server is told of Cluster API.
#[derive(Clone, Default)]
pub struct Kinds {
    /// The CRDs there are, once the API serves them.
    definitions: Arc<OnceLock<Informer<Definition>>>,
}

impl Kinds {
    /// In-process conversions, by the name of their CRD.
    pub fn conversions(&self) -> BTreeMap<String, NativeConversion> {
        crd::names().map(|name| (name.to_owned(), self.conversion(name))).collect()
    }

    fn conversion(&self, name: &str) -> NativeConversion {
        let kinds = self.clone();
        match convert::conversion(name, move |group, kind| kinds.version_of(group, kind)) {
            Some(conversion) => Arc::new(conversion),
            // Versions that differ in nothing but their name.
            None => Arc::new(|_, _| Ok(())),
        }
    }

    /// In-process admission.
    pub fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![Arc::new(Admission::new(|name| self.conversion(name)))]
    }

    /// Begins to follow the CRDs, by which references get their version. Until then, and for kinds
    /// that are not there, references in the old version say what the conversion makes up.
    pub async fn follow(&self, informers: &Informers) {
        let definitions = informers.metadata::<CustomResourceDefinition>(Scope::all());
        // A store that is slow now is no reason not to start.
        let _ = tokio::time::timeout(PATIENCE, definitions.wait_synced()).await;
        let _ = self.definitions.set(definitions);
    }

    fn version_of(&self, group: &str, kind: &str) -> Option<String> {
        let name = contract::crd_name(group, kind);
        let definition = self.definitions.get()?.get(&ObjectKey::cluster_wide(&name))?;
        let (_, version) = contract::choose(&name, definition.labels()).ok()?;
        Some(format!("{group}/{version}"))
    }
}

/// Creates the CRDs, or brings them up to date; returns when all of them are served.
///
/// With `inventory` it also tells `clusterctl` that the core provider is installed, so that it
/// leaves it alone.
pub async fn install(client: &Client, inventory: bool) -> Result<(), InstallError> {
    shipped::definitions(client, crd::all()).await?;
    if !inventory {
        return Ok(());
    }
    inventory::record(client).await?;
    strangers::report(client).await;
    Ok(())
}

#[cfg(test)]
mod tests;
