//! What every object of Cluster API has, and how a reconcile of one begins.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference},
};
use kube::{Api, Resource, ResourceExt, core::DynamicObject};
use remuda_api::{
    addons::ClusterResourceSet,
    core::{Cluster, Machine, MachineDeployment, MachineHealthCheck, MachinePool, MachineSet, OldCondition},
};
use remuda_control::{
    Informer, ObjectKey,
    write::{Finalizer, ensure_finalizer},
};
use remuda_names::capi::{annotation, condition as kind, finalizer, group, label};
use remuda_rollout::paused;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Capi, Error, save::save, view};

/// A kind of ours: it has conditions, a finalizer, and belongs to a Cluster.
pub(crate) trait Managed:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + PartialEq
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    const KIND: &'static str;
    /// Put on before anything is made that outlives the object. Health checks need none.
    const FINALIZER: Option<&'static str>;
    /// Conditions that are ours to write; others' are left as they are.
    const OWNED: &'static [&'static str];

    fn cluster_name(&self) -> &str;
    fn conditions(&self) -> &[Condition];
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
    /// Conditions as v1beta1 has them.
    fn old_conditions_mut(&mut self) -> &mut Vec<OldCondition>;
    fn set_observed_generation(&mut self, generation: i64);
}

macro_rules! managed {
    ($($type:ident $finalizer:expr, [$($owned:expr),* $(,)?], $cluster:expr;)*) => {$(
        impl Managed for $type {
            const KIND: &'static str = stringify!($type);
            const FINALIZER: Option<&'static str> = $finalizer;
            const OWNED: &'static [&'static str] = &[$($owned),*];

            fn cluster_name(&self) -> &str {
                let name: fn(&$type) -> &str = $cluster;
                name(self)
            }

            fn conditions(&self) -> &[Condition] {
                self.status.as_ref().map_or(&[], |status| &status.conditions)
            }

            fn conditions_mut(&mut self) -> &mut Vec<Condition> {
                &mut self.status.get_or_insert_default().conditions
            }

            fn old_conditions_mut(&mut self) -> &mut Vec<OldCondition> {
                let status = self.status.get_or_insert_default();
                &mut status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default().conditions
            }

            fn set_observed_generation(&mut self, generation: i64) {
                self.status.get_or_insert_default().observed_generation = generation;
            }
        }
    )*};
}

managed! {
    Cluster Some(finalizer::CLUSTER), [
        kind::PAUSED, kind::AVAILABLE, kind::REMOTE_CONNECTION_PROBE, kind::INFRASTRUCTURE_READY,
        kind::CONTROL_PLANE_INITIALIZED, kind::CONTROL_PLANE_AVAILABLE, kind::WORKERS_AVAILABLE,
        kind::CONTROL_PLANE_MACHINES_READY, kind::WORKER_MACHINES_READY,
        kind::CONTROL_PLANE_MACHINES_UP_TO_DATE, kind::WORKER_MACHINES_UP_TO_DATE, kind::REMEDIATING,
        kind::SCALING_DOWN, kind::SCALING_UP, kind::ROLLING_OUT, kind::DELETING,
    ], |cluster| cluster.metadata.name.as_deref().unwrap_or_default();
    Machine Some(finalizer::MACHINE), [
        kind::PAUSED, kind::AVAILABLE, kind::READY, kind::BOOTSTRAP_CONFIG_READY, kind::INFRASTRUCTURE_READY,
        kind::NODE_READY, kind::NODE_HEALTHY, kind::DELETING, kind::UPDATING,
    ], |machine| &machine.spec.cluster_name;
    MachineSet Some(finalizer::MACHINE_SET), [
        kind::PAUSED, kind::SCALING_UP, kind::SCALING_DOWN, kind::MACHINES_READY, kind::MACHINES_UP_TO_DATE,
        kind::REMEDIATING, kind::DELETING,
    ], |set| &set.spec.cluster_name;
    MachineDeployment Some(finalizer::MACHINE_DEPLOYMENT), [
        kind::PAUSED, kind::AVAILABLE, kind::MACHINES_READY, kind::MACHINES_UP_TO_DATE, kind::ROLLING_OUT,
        kind::SCALING_UP, kind::SCALING_DOWN, kind::REMEDIATING, kind::DELETING,
    ], |deployment| &deployment.spec.cluster_name;
    MachineHealthCheck None, [
        kind::PAUSED, kind::REMEDIATION_ALLOWED,
    ], |check| &check.spec.cluster_name;
    MachinePool Some(finalizer::MACHINE_POOL), [
        kind::PAUSED, kind::AVAILABLE, kind::READY, kind::BOOTSTRAP_CONFIG_READY, kind::INFRASTRUCTURE_READY,
        kind::SCALING_UP, kind::SCALING_DOWN, kind::DELETING,
    ], |pool| &pool.spec.cluster_name;
    ClusterResourceSet Some(finalizer::CLUSTER_RESOURCE_SET), [
        kind::PAUSED, kind::RESOURCES_APPLIED,
    ], |_| "";
}

/// Machines, sets, deployments and pools are filed by this name under [`cluster_value`] of their Cluster.
pub(crate) const BY_CLUSTER: &str = "cluster";

pub(crate) fn cluster_value(namespace: &str, cluster: &str) -> String {
    format!("{namespace}/{cluster}")
}

/// An object is its Cluster's by label as well as by reference: the label may not be there yet, and what is
/// labelled counts whatever it refers to.
pub(crate) fn cluster_values<K: Managed>(object: &K) -> Vec<String> {
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    let named = object.cluster_name();
    let labelled = object.labels().get(label::CLUSTER_NAME).filter(|labelled| *labelled != named);
    let mut values = vec![cluster_value(namespace, named)];
    values.extend(labelled.map(|labelled| cluster_value(namespace, labelled)));
    values
}

/// How a reconcile goes on.
pub(crate) enum Begun<K> {
    /// The object, with its finalizer, and its Cluster.
    Go(K, Arc<Cluster>),
    /// Nothing to do: paused, or being deleted without our finalizer, or just written, so that it comes again.
    Stop,
}

impl Capi {
    pub(crate) fn api<K: Managed>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.ctx.client.clone(), namespace)
    }

    /// The Cluster an object belongs to.
    pub(crate) fn cluster_of<K: Managed>(&self, object: &K) -> Result<Arc<Cluster>, Error> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.cluster_name();
        self.clusters
            .get(&ObjectKey::namespaced(&namespace, name))
            .ok_or_else(|| Error::NoCluster { namespace, name: name.to_owned() })
    }

    /// The steps every reconcile starts with: the Cluster must exist, the finalizer is put on, and a paused
    /// object is left alone after saying so.
    pub(crate) async fn begin<K: Managed>(&self, object: &K, cache: &Informer<K>) -> Result<Begun<K>, Error> {
        let cluster = self.cluster_of(object)?;
        let begun = self.begin_alone(object, cache, cluster.spec.paused == Some(true)).await?;
        Ok(begun.map_or(Begun::Stop, |object| Begun::Go(object, cluster)))
    }

    /// The same for an object of no particular Cluster; `None` if there is nothing to do.
    pub(crate) async fn begin_alone<K: Managed>(
        &self,
        object: &K,
        cache: &Informer<K>,
        by_cluster: bool,
    ) -> Result<Option<K>, Error> {
        let api = self.api::<K>(&object.namespace().unwrap_or_default());
        let mut object = object.clone();
        if let Some(finalizer) = K::FINALIZER {
            object = match ensure_finalizer(&api, object, &(), finalizer).await? {
                Finalizer::Active(object) | Finalizer::Deleting(object) => object,
                Finalizer::Gone => return Ok(None),
            };
        }
        let by_annotation = object.annotations().contains_key(annotation::PAUSED);
        let condition = paused::condition(K::KIND, by_cluster, by_annotation);
        let mut after = object.clone();
        view::set(&mut after, vec![condition], self.ctx.clock.now());
        let known = object.conditions().iter().find(|known| known.type_ == kind::PAUSED);
        let turned = known.is_none_or(|known| (known.status == "True") != (by_cluster || by_annotation));
        if (by_cluster || by_annotation || turned)
            && let Some(written) = save(&self.ctx, &api, cache, &object, &after).await?
        {
            object = written;
        }
        if by_cluster || by_annotation {
            return Ok(None);
        }
        Ok(Some(object))
    }
}

/// Makes sure `owner` is among the owners: found by group, kind and name, written as it is now. Tells whether
/// that changed anything.
pub(crate) fn ensure_owner(owners: &mut Vec<OwnerReference>, owner: OwnerReference) -> bool {
    let group = |reference: &OwnerReference| group_of(&reference.api_version).to_owned();
    let same = |known: &&mut OwnerReference| {
        known.kind == owner.kind && known.name == owner.name && group(known) == group(&owner)
    };
    match owners.iter_mut().find(same) {
        Some(known) if *known == owner => false,
        Some(known) => {
            *known = owner;
            true
        }
        None => {
            owners.push(owner);
            true
        }
    }
}

/// What an object of a provider belongs to, if that is not the cluster of this name: another cluster, by its label or
/// by its owners. Such an object is not taken over, and not deleted with what refers to it.
pub(crate) fn owned_elsewhere(object: &DynamicObject, cluster: &str) -> Option<String> {
    let labels = [label::CLUSTER_NAME, remuda_names::rancher::label::CLUSTER_NAME];
    let labelled = labels.iter().filter_map(|label| object.labels().get(*label));
    let owners = object.owner_references().iter();
    let owning = owners
        .filter(|owner| owner.kind == Cluster::KIND && group_of(&owner.api_version) == group::CORE)
        .map(|owner| &owner.name);
    labelled.chain(owning).find(|name| *name != cluster).map(|name| format!("Cluster {name}"))
}

/// The error of taking over an object that belongs elsewhere.
pub(crate) fn controlled(object: &DynamicObject, kind: &str, owner: String) -> Error {
    let what = format!("{kind} {}", object.name_any());
    remuda_control::Error::Controlled { what, owner }.into()
}

pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// A reference that only says who the owner is.
pub(crate) fn plain_owner<K: Managed>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::KIND.to_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// A reference of the one who controls, and whose deletion in the foreground waits.
pub(crate) fn controller<K: Managed>(owner: &K) -> OwnerReference {
    OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..plain_owner(owner) }
}
