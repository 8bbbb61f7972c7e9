//! ClusterResourceSetBinding: what a cluster was given. It has the name of its Cluster and goes with it.

use std::{collections::BTreeSet, sync::Arc};

use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use remuda_api::{
    addons::{
        ClusterResourceSet, ClusterResourceSetBinding, ClusterResourceSetBindingSpec, ResourceBinding,
        ResourceReference, ResourceSetBinding,
    },
    core::Cluster,
};
use remuda_control::{Action, Controller, Informer, ObjectKey, Scope, drive};
use remuda_names::capi::{annotation, group};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{BY_SET, ResourceSets};
use crate::{
    Capi, Error,
    error::is_code,
    managed::{Managed, ensure_owner, group_of, plain_owner},
    save::PATIENCE,
};

/// How often others may write at the same time. There may be many sets for one cluster.
const ATTEMPTS: usize = 10;

/// What a binding remembers of a set's resource.
pub(super) fn find<'a>(
    binding: &'a ClusterResourceSetBinding,
    set: &ClusterResourceSet,
    reference: &ResourceReference,
) -> Option<&'a ResourceBinding> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let of_set = binding.spec.bindings.iter().find(|bound| bound.cluster_resource_set_name == name)?;
    of_set.resources.iter().find(|bound| bound.name == reference.name && bound.kind == reference.kind)
}

/// Sets of which less is known than before: somebody took the binding away, or a part of it.
pub(super) fn forgotten<'a>(
    old: &'a ClusterResourceSetBinding,
    new: Option<&ClusterResourceSetBinding>,
) -> BTreeSet<&'a str> {
    let applied = |binding: &ClusterResourceSetBinding, set: &str, resource: &ResourceBinding| {
        let mut known = binding.spec.bindings.iter().filter(|bound| bound.cluster_resource_set_name == set);
        known.any(|bound| {
            bound.resources.iter().any(|known| {
                known.name == resource.name && known.kind == resource.kind && known.applied == Some(true)
            })
        })
    };
    let sets = old.spec.bindings.iter().filter(|bound| {
        let name = &bound.cluster_resource_set_name;
        let lost = |resource: &ResourceBinding| {
            resource.applied == Some(true) && !new.is_some_and(|new| applied(new, name, resource))
        };
        bound.resources.iter().any(lost)
    });
    sets.map(|bound| bound.cluster_resource_set_name.as_str()).collect()
}

impl ResourceSets {
    fn binding_api(&self, namespace: &str) -> Api<ClusterResourceSetBinding> {
        Api::namespaced(self.capi.ctx.client.clone(), namespace)
    }

    /// Writes down what was applied. Other sets write into the same binding.
    pub(super) async fn record(
        &self,
        set: &ClusterResourceSet,
        cluster: &Cluster,
        results: Vec<ResourceBinding>,
    ) -> Result<(), Error> {
        let key = ObjectKey::of(&cluster.metadata);
        let namespace = cluster.namespace().unwrap_or_default();
        let api = self.binding_api(&namespace);
        let what = || format!("ClusterResourceSetBinding {key}");
        let mut current = self.bindings.get(&key).map(|binding| (*binding).clone());
        for attempt in 1.. {
            let written = match &current {
                None => self.create(&api, set, cluster, &results).await,
                Some(binding) => {
                    let mut after = binding.clone();
                    merge(&mut after, set, &results);
                    if after == *binding {
                        return Ok(());
                    }
                    self.replace(&api, binding, &after).await
                }
            };
            match written {
                Ok(binding) => {
                    if let Some(version) = binding.resource_version() {
                        self.bindings.wait_for(&version, PATIENCE).await;
                    }
                    return Ok(());
                }
                Err(error) if attempt < ATTEMPTS && (is_code(&error, 409) || is_code(&error, 404)) => {
                    current = api.get_opt(&key.name).await.map_err(Error::api("read", what()))?;
                }
                Err(error) => return Err(Error::api("write", what())(error)),
            }
        }
        Ok(())
    }

    async fn create(
        &self,
        api: &Api<ClusterResourceSetBinding>,
        set: &ClusterResourceSet,
        cluster: &Cluster,
        results: &[ResourceBinding],
    ) -> Result<ClusterResourceSetBinding, kube::Error> {
        let mut binding = ClusterResourceSetBinding {
            metadata: ObjectMeta {
                name: cluster.metadata.name.clone(),
                namespace: cluster.metadata.namespace.clone(),
                ..ObjectMeta::default()
            },
            spec: ClusterResourceSetBindingSpec { cluster_name: cluster.name_any(), bindings: Vec::new() },
        };
        merge(&mut binding, set, results);
        let manager = self.capi.ctx.field_manager.to_string();
        api.create(&PostParams { field_manager: Some(manager), ..PostParams::default() }, &binding).await
    }

    /// Lists are written as a whole, on condition that nobody wrote meanwhile.
    async fn replace(
        &self,
        api: &Api<ClusterResourceSetBinding>,
        before: &ClusterResourceSetBinding,
        after: &ClusterResourceSetBinding,
    ) -> Result<ClusterResourceSetBinding, kube::Error> {
        let patch = json!({
            "metadata": {
                "uid": before.metadata.uid,
                "resourceVersion": before.metadata.resource_version,
                "ownerReferences": after.metadata.owner_references,
            },
            "spec": {"bindings": after.spec.bindings},
        });
        let manager = self.capi.ctx.field_manager.to_string();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        api.patch(&before.name_any(), &params, &Patch::Merge(patch)).await
    }

    /// Takes a set out of all bindings, whether or not it still matches their clusters. Bindings of nobody go.
    pub(super) async fn unbind(&self, set: &ClusterResourceSet) -> Result<(), Error> {
        let key = ObjectKey::of(&set.metadata);
        let api = self.binding_api(&set.namespace().unwrap_or_default());
        for binding in self.bindings.by_index(BY_SET, &key.to_string()) {
            let mut after = (*binding).clone();
            after.spec.bindings.retain(|bound| *bound.cluster_resource_set_name != *key.name);
            after.owner_references_mut().retain(|owner| {
                let ours = owner.kind == ClusterResourceSet::KIND
                    && group_of(&owner.api_version) == group::ADDONS
                    && *owner.name == *key.name;
                !ours
            });
            let done = if after.spec.bindings.is_empty() {
                let preconditions =
                    Preconditions { uid: binding.uid(), resource_version: binding.resource_version() };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                api.delete(&binding.name_any(), &params).await.map(drop)
            } else {
                self.replace(&api, &binding, &after).await.map(drop)
            };
            match done {
                Ok(()) => {}
                Err(error) if is_code(&error, 404) => {}
                Err(error) => {
                    let what = format!("ClusterResourceSetBinding {}", ObjectKey::of(&binding.metadata));
                    return Err(Error::api("write", what)(error));
                }
            }
        }
        Ok(())
    }
}

/// Puts results into a set's part of a binding. The time of a result that is not new stays.
fn merge(binding: &mut ClusterResourceSetBinding, set: &ClusterResourceSet, results: &[ResourceBinding]) {
    ensure_owner(binding.owner_references_mut(), plain_owner(set));
    let name = set.name_any();
    let bindings = &mut binding.spec.bindings;
    let place = bindings.iter().position(|bound| bound.cluster_resource_set_name == name);
    let place = place.unwrap_or_else(|| {
        bindings.push(ResourceSetBinding { cluster_resource_set_name: name, resources: Vec::new() });
        bindings.len() - 1
    });
    let known = &mut bindings[place].resources;
    for result in results {
        match known.iter_mut().find(|known| known.name == result.name && known.kind == result.kind) {
            Some(known)
                if known.applied != Some(true)
                    && *known
                        == (ResourceBinding {
                            last_applied_time: known.last_applied_time.clone(),
                            ..result.clone()
                        }) => {}
            Some(known) => *known = result.clone(),
            None => known.push(result.clone()),
        }
    }
}

struct Bindings {
    capi: Arc<Capi>,
    clusters: Informer<Cluster>,
}

/// Takes bindings away whose Cluster is gone, or on its way.
pub(super) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    let bindings = capi.ctx.informers.of::<ClusterResourceSetBinding>(Scope::all());
    let controller =
        Controller::on("resource-set-binding", &capi.ctx, bindings).workers(capi.options.workers);
    let clusters = capi.clusters.clone();
    let controller = controller.watches_facts(
        &clusters,
        |cluster| cluster.metadata.deletion_timestamp.is_some(),
        |cluster| vec![ObjectKey::of(&cluster.metadata)],
    );
    drive(controller, reconcile, Arc::new(Bindings { capi, clusters }), stop).await;
}

async fn reconcile(binding: Arc<ClusterResourceSetBinding>, this: Arc<Bindings>) -> Result<Action, Error> {
    let dying = binding.metadata.deletion_timestamp.is_some();
    if dying || binding.annotations().contains_key(annotation::PAUSED) {
        return Ok(Action::AwaitChange);
    }
    let namespace = binding.namespace().unwrap_or_default();
    let name = &binding.spec.cluster_name;
    let leaving = match this.clusters.get(&ObjectKey::namespaced(&namespace, name)) {
        Some(cluster) => cluster.metadata.deletion_timestamp.is_some(),
        // Both may just have been created, and one be seen before the other.
        None => {
            let found = this.capi.api::<Cluster>(&namespace).get_opt(name).await;
            found.map_err(Error::api("read", format!("Cluster {namespace}/{name}")))?.is_none()
        }
    };
    if leaving {
        let preconditions = Preconditions { uid: binding.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api: Api<ClusterResourceSetBinding> = Api::namespaced(this.capi.ctx.client.clone(), &namespace);
        match api.delete(&binding.name_any(), &params).await {
            Ok(_) => {}
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => {}
            Err(error) => {
                let what = format!("ClusterResourceSetBinding {}", ObjectKey::of(&binding.metadata));
                return Err(Error::api("delete", what)(error));
            }
        }
    }
    Ok(Action::AwaitChange)
}
