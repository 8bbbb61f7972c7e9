//! Gives one workload cluster the objects of a set.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use remuda_api::{
    addons::{ClusterResourceSet, ResourceBinding},
    core::Cluster,
};
use remuda_control::{Chain, ObjectKey};
use remuda_rollout::resource_set::{Bound, Outcome, Strategy, needs_apply};
use remuda_workload::{Down, Lease, Refused};
use serde_json::Value;

use super::{ResourceSets, binding, resource::Resource};
use crate::{Error, error::is_code};

/// What the API fills in, and nobody may send.
const FILLED_IN: &[&str] =
    &["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"];

/// Kinds of a workload cluster, as far as they were needed.
type Kinds = HashMap<GroupVersionKind, (ApiResource, Scope)>;

/// Why an object was not taken.
enum Refusal {
    Down,
    Failed(String),
}

impl From<Down> for Refusal {
    fn from(_: Down) -> Self {
        Refusal::Down
    }
}

impl ResourceSets {
    /// How it went; `None` if the cluster was too busy to be asked. An error is one of our own API.
    pub(super) async fn apply(
        &self,
        set: &ClusterResourceSet,
        strategy: Strategy,
        cluster: &Cluster,
        resources: &[Resource],
    ) -> Result<Option<Outcome>, Error> {
        let key = ObjectKey::of(&cluster.metadata);
        let known = self.bindings.get(&key);
        let lacking: Vec<&Resource> = resources
            .iter()
            .filter(|resource| {
                let bound = known.as_deref().and_then(|known| binding::find(known, set, &resource.reference));
                let bound =
                    bound.map(|bound| Bound { hash: &bound.hash, applied: bound.applied == Some(true) });
                needs_apply(strategy, bound, &resource.hash)
            })
            .collect();
        if lacking.is_empty() {
            if known.is_some() {
                // The set may be another one of the same name by now.
                self.record(set, cluster, Vec::new()).await?;
            }
            return Ok(Some(Outcome::Applied));
        }
        // Nobody lacked it a moment ago; whoever took the binding away has woken us.
        if lacking.iter().any(|resource| resource.objects.is_none()) {
            return Ok(None);
        }
        let lease = match self.capi.workloads.lease(&key, &self.enqueuer, &ObjectKey::of(&set.metadata)) {
            Ok(lease) => lease,
            Err(Refused::Busy) => return Ok(None),
            Err(Refused::Down(_)) => return Ok(Some(Outcome::Unreachable)),
        };
        let mut kinds = Kinds::new();
        let mut results = Vec::new();
        let mut outcome = Outcome::Applied;
        for resource in lacking {
            let refusal = self.apply_one(&lease, &mut kinds, strategy, resource).await.err();
            results.push(result(resource, refusal.is_none(), self.capi.ctx.clock.now()));
            match refusal {
                None => {}
                Some(Refusal::Down) => {
                    outcome = Outcome::Unreachable;
                    break;
                }
                Some(Refusal::Failed(why)) => {
                    let (kind, name) = (&resource.reference.kind, &resource.reference.name);
                    outcome = Outcome::Failed { why: format!("{kind} {name}: {why}") };
                }
            }
        }
        self.record(set, cluster, results).await?;
        Ok(Some(outcome))
    }

    /// All objects are tried; the first refusal is told.
    async fn apply_one(
        &self,
        lease: &Lease,
        kinds: &mut Kinds,
        strategy: Strategy,
        resource: &Resource,
    ) -> Result<(), Refusal> {
        let mut refused = None;
        for object in resource.objects.iter().flatten() {
            match self.apply_object(lease, kinds, strategy, object).await {
                Ok(()) => {}
                Err(Refusal::Down) => return Err(Refusal::Down),
                Err(Refusal::Failed(why)) => {
                    refused.get_or_insert(why);
                }
            }
        }
        refused.map_or(Ok(()), |why| Err(Refusal::Failed(why)))
    }

    async fn apply_object(
        &self,
        lease: &Lease,
        kinds: &mut Kinds,
        strategy: Strategy,
        object: &Value,
    ) -> Result<(), Refusal> {
        let mut object: DynamicObject =
            serde_json::from_value(cleaned(object)).map_err(|error| Refusal::Failed(error.to_string()))?;
        let types = object.types.clone().unwrap_or_default();
        let gvk = GroupVersionKind::try_from(&types).map_err(|error| Refusal::Failed(error.to_string()))?;
        let name = name_of(&object);
        let failed =
            |error: kube::Error| Refusal::Failed(format!("{} {name}: {}", types.kind, Chain(&error)));
        let (kind, scope) = match kinds.get(&gvk) {
            Some(known) => known.clone(),
            None => {
                let client = lease.client();
                let find = async {
                    match discovery::pinned_kind(&client, &gvk).await {
                        // The cluster answered; it has no such kind.
                        Err(error @ kube::Error::Discovery(_)) => Ok(Err(error)),
                        found => found.map(Ok),
                    }
                };
                let (kind, capabilities) = lease.call(find).await?.and_then(|found| found).map_err(failed)?;
                kinds.insert(gvk, (kind.clone(), capabilities.scope.clone()));
                (kind, capabilities.scope)
            }
        };
        let api: Api<DynamicObject> = match scope {
            Scope::Cluster => Api::all_with(lease.client(), &kind),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
                Api::namespaced_with(lease.client(), &namespace, &kind)
            }
        };
        let manager = self.capi.ctx.field_manager.to_string();
        let done = match strategy {
            Strategy::ApplyOnce => {
                let params = PostParams { field_manager: Some(manager), ..PostParams::default() };
                match lease.call(api.create(&params, &object)).await? {
                    Err(error) if is_code(&error, 409) => Ok(()),
                    created => created.map(drop),
                }
            }
            Strategy::Reconcile => {
                let Some(name) = object.metadata.name.clone() else {
                    let why = format!("{} without a name cannot be applied again", types.kind);
                    return Err(Refusal::Failed(why));
                };
                object.metadata.generate_name = None;
                let params = PatchParams::apply(&manager).force();
                lease.call(api.patch(&name, &params, &Patch::Apply(&object))).await?.map(drop)
            }
        };
        done.map_err(failed)
    }
}

fn name_of(object: &DynamicObject) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Manifests are often made from objects that exist.
fn cleaned(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !FILLED_IN.contains(&key.as_str()));
    }
    object
}

fn result(resource: &Resource, applied: bool, now: Timestamp) -> ResourceBinding {
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    ResourceBinding {
        name: resource.reference.name.clone(),
        kind: resource.reference.kind.clone(),
        hash: resource.hash.clone(),
        last_applied_time: Some(Time(second)),
        applied: Some(applied),
    }
}
