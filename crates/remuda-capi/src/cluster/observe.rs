//! Everything a Cluster depends on, read once.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use remuda_api::core::{Cluster, ContractReference, Machine, MachineDeployment, MachinePool, MachineSet};
use remuda_control::{Chain, Informer, ObjectKey, write::controller_of};
use remuda_names::capi::{group, label};
use remuda_workload::Health;

use super::Clusters;
use crate::{
    Error,
    managed::{
        BY_CLUSTER, Managed, cluster_value, controlled, controller, ensure_owner, group_of, owned_elsewhere,
        plain_owner,
    },
    providers::{Interest, Provided},
};

pub(super) struct Observed {
    pub(super) cluster: Cluster,
    pub(super) namespace: String,
    pub(super) infrastructure: Referred,
    pub(super) control_plane: Referred,
    pub(super) machines: Vec<Arc<Machine>>,
    pub(super) sets: Vec<Arc<MachineSet>>,
    pub(super) deployments: Vec<Arc<MachineDeployment>>,
    pub(super) pools: Vec<Arc<MachinePool>>,
    /// Objects of the namespace that are there but cannot be read; one of them may be below the Cluster.
    pub(super) unreadable: Vec<String>,
    pub(super) health: Health,
    pub(super) errors: Vec<Error>,
}

/// An object the Cluster refers to.
pub(super) enum Referred {
    No,
    Missing,
    Here(Provided),
    /// Whether it is there is not known, for this reason.
    Unreadable(String),
}

impl Clusters {
    pub(super) async fn observe(&self, cluster: Cluster) -> Observed {
        let namespace = cluster.namespace().unwrap_or_default();
        let mut errors = Vec::new();
        let infrastructure = self.refer(&cluster, &cluster.spec.infrastructure_ref, &mut errors).await;
        let control_plane = self.refer(&cluster, &cluster.spec.control_plane_ref, &mut errors).await;
        let capi = &self.capi;
        let value = cluster_value(&namespace, &cluster.name_any());
        let mut unreadable = Vec::new();
        note_unreadable(&capi.machines, &namespace, &mut unreadable);
        note_unreadable(&capi.sets, &namespace, &mut unreadable);
        note_unreadable(&capi.deployments, &namespace, &mut unreadable);
        note_unreadable(&capi.pools, &namespace, &mut unreadable);
        Observed {
            machines: capi.machines.by_index(BY_CLUSTER, &value),
            sets: capi.sets.by_index(BY_CLUSTER, &value),
            deployments: capi.deployments.by_index(BY_CLUSTER, &value),
            pools: capi.pools.by_index(BY_CLUSTER, &value),
            health: capi.workloads.health(&ObjectKey::of(&cluster.metadata)),
            cluster,
            namespace,
            infrastructure,
            control_plane,
            unreadable,
            errors,
        }
    }

    /// Reads the object and makes it the Cluster's.
    async fn refer(
        &self,
        cluster: &Cluster,
        reference: &ContractReference,
        errors: &mut Vec<Error>,
    ) -> Referred {
        if !reference.is_defined() {
            return Referred::No;
        }
        let key = ObjectKey::of(&cluster.metadata);
        let interest = Interest { enqueuer: &self.enqueuer, root: &self.capi.clusters, key: &key };
        let namespace = cluster.namespace().unwrap_or_default();
        let found = match self.capi.providers.get(reference, &namespace, &interest).await {
            Ok(Some(found)) => found,
            Ok(None) => return Referred::Missing,
            Err(error) => {
                let why = Chain(&error).to_string();
                errors.push(error);
                return Referred::Unreadable(why);
            }
        };
        if let Some(owner) = self.other_owner(cluster, &found) {
            // Nothing of it is ours: its end is not ours to bring about or to wait for.
            if cluster.metadata.deletion_timestamp.is_some() {
                return Referred::Missing;
            }
            let error = controlled(&found.object, &found.kind.resource.kind, owner);
            let why = Chain(&error).to_string();
            errors.push(error);
            return Referred::Unreadable(why);
        }
        match self.own(cluster, &found).await {
            Ok(Some(owned)) => Referred::Here(owned),
            Ok(None) => Referred::Missing,
            // Somebody wrote at the same time, most likely. It is there all the same.
            Err(error) => {
                errors.push(error);
                Referred::Here(found)
            }
        }
    }

    /// Whom an object belongs to that is not the Cluster: another cluster, or an object of Cluster API.
    fn other_owner(&self, cluster: &Cluster, found: &Provided) -> Option<String> {
        owned_elsewhere(&found.object, &cluster.name_any()).or_else(|| {
            let controller = controller_of(&found.object.metadata)?;
            let part = group_of(&controller.api_version) == group::CORE && controller.kind != Cluster::KIND;
            part.then(|| format!("{} {}", controller.kind, controller.name))
        })
    }

    /// Providers wait for their owner before they do anything. It is no controller, so that other tools can be,
    /// unless a topology is all there is.
    async fn own(&self, cluster: &Cluster, found: &Provided) -> Result<Option<Provided>, Error> {
        if found.is_deleting() {
            return Ok(Some(found.clone()));
        }
        let owner = match cluster.spec.topology {
            Some(_) => controller(cluster),
            None => plain_owner(cluster),
        };
        let mut owners = found.object.owner_references().to_vec();
        // `controller: false` says the same in more words.
        let said = owners.iter().any(|known| {
            owner.controller.is_none()
                && *known == OwnerReference { controller: Some(false), ..owner.clone() }
        });
        if !said {
            ensure_owner(&mut owners, owner);
        }
        let name = cluster.name_any();
        self.capi.providers.label_and_own(found, &[(label::CLUSTER_NAME, &name)], owners).await
    }
}

fn note_unreadable<K: Managed>(cache: &Informer<K>, namespace: &str, noted: &mut Vec<String>) {
    let unreadable = cache.unreadable();
    let here = unreadable.iter().filter(|key| key.namespace.as_deref() == Some(namespace));
    noted.extend(here.map(|key| format!("{} {}", K::KIND, key.name)));
}

/// Whether the Cluster itself owns an object, by name: after a restore its uid may be another.
pub(super) fn owned<K: Managed>(object: &K, cluster: &Cluster) -> bool {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    object.owner_references().iter().any(|owner| {
        owner.kind == Cluster::KIND && group_of(&owner.api_version) == group::CORE && owner.name == name
    })
}
