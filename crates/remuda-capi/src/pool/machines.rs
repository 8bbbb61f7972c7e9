//! Machines of a pool whose provider tells of its servers one by one.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use kube::{
    ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::core::{Bootstrap, ContractReference, Machine, MachinePool, MachineSpec};
use remuda_control::{ObjectKey, Scope};
use remuda_names::capi::{condition, label};
use remuda_rollout::{
    condition::{Condition, Status as Is},
    contract::{self, InfraMachinePool},
    name::as_label,
};
use serde_json::json;

use super::{BY_LABEL, Pass, Pools, Referred};
use crate::{
    Capi, Error,
    error::is_code,
    managed::{BY_CLUSTER, cluster_value, controller},
    mark::Marks,
    save::PATIENCE,
};

/// Servers are filed by this name under namespace and value of their pool's label.
const BY_POOL: &str = "pool";

/// The pool of a machine, by label.
pub(super) fn pool_of(capi: &Capi) -> impl Fn(&Machine) -> Vec<ObjectKey> + Send + Sync + 'static {
    let pools = capi.pools.clone();
    move |machine| match pool_value(&machine.metadata) {
        Some(value) => pools.keys_by_index(BY_LABEL, &value),
        None => Vec::new(),
    }
}

fn pool_value(meta: &ObjectMeta) -> Option<String> {
    let value = meta.labels.as_ref()?.get(label::POOL_NAME)?;
    Some(ObjectKey::of(meta).sibling(value).to_string())
}

/// Machines of a pool, by name.
pub(super) fn of_pool(capi: &Capi, pool: &MachinePool) -> Vec<Arc<Machine>> {
    let namespace = pool.namespace().unwrap_or_default();
    let mut machines =
        capi.machines.by_index(BY_CLUSTER, &cluster_value(&namespace, &pool.spec.cluster_name));
    let value = as_label(&pool.name_any());
    machines.retain(|machine| machine.labels().get(label::POOL_NAME) == Some(&value));
    machines
}

/// The kind of the servers' objects, if they have any.
pub(super) fn machine_kind(infrastructure: &Referred) -> Option<String> {
    let Referred::Here(provided) = infrastructure else {
        return None;
    };
    let object = InfraMachinePool { object: provided.data(), contract: provided.contract() };
    object.machine_kind().ok().flatten()
}

impl Pools {
    /// Makes a Machine for each server and says of all that they are up to date: pools replace servers on
    /// their own.
    pub(super) async fn mirror_machines(&self, pass: &mut Pass, now: Timestamp) {
        let (Some(kind), Referred::Here(provided)) =
            (machine_kind(&pass.infrastructure), &pass.infrastructure)
        else {
            return;
        };
        if provided.is_deleting() {
            return;
        }
        let of_pool = &provided.kind.resource;
        let crd = contract::crd_name(&of_pool.group, &kind);
        let plural = crd.split('.').next().unwrap_or_default();
        let gvk = GroupVersionKind::gvk(&of_pool.group, &of_pool.version, &kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let cache = self.capi.ctx.informers.dynamic(&resource, Scope::all());
        cache.add_index(BY_POOL, |object: &DynamicObject| pool_value(&object.metadata).into_iter().collect());
        let pools = self.capi.pools.clone();
        self.enqueuer.follow(&cache, move |object: &DynamicObject| match pool_value(&object.metadata) {
            Some(value) => pools.keys_by_index(BY_LABEL, &value),
            None => Vec::new(),
        });
        if tokio::time::timeout(PATIENCE, cache.wait_synced()).await.is_err() {
            let group = resource.group.clone();
            pass.errors.push(Error::NotServed { kind, group });
            return;
        }
        let key = ObjectKey::of(&pass.before.metadata).sibling(as_label(&pass.before.name_any()));
        let machines = of_machines(&self.capi, &pass.before);
        for server in cache.by_index(BY_POOL, &key.to_string()) {
            let cluster = server.labels().get(label::CLUSTER_NAME);
            if cluster != Some(&pass.before.spec.cluster_name) || server.metadata.deletion_timestamp.is_some()
            {
                continue;
            }
            let known = machines.get(&server.name_any());
            if let Err(error) =
                self.mirror_machine(pass, &resource, &server, known.map(|machine| &**machine)).await
            {
                pass.errors.push(error);
            }
        }
        for machine in machines.values() {
            let up_to_date = match machine.metadata.deletion_timestamp {
                None => Condition::new(condition::UP_TO_DATE, Is::True, condition::UP_TO_DATE, ""),
                Some(_) => Condition::new(
                    condition::UP_TO_DATE,
                    Is::False,
                    "NotUpToDate",
                    "Machine is being deleted",
                ),
            };
            let marks = Marks { set: vec![up_to_date], ..Marks::default() };
            let manager = &self.capi.ctx.field_manager;
            if let Err(error) = self.capi.mark(machine, &marks, manager, now).await {
                pass.errors.push(error);
            }
        }
    }

    async fn mirror_machine(
        &self,
        pass: &Pass,
        resource: &ApiResource,
        server: &DynamicObject,
        known: Option<&Machine>,
    ) -> Result<(), Error> {
        let wanted = desired(pass, &self.capi, resource, server);
        let namespace = pass.before.namespace().unwrap_or_default();
        let api = self.capi.api::<Machine>(&namespace);
        let manager = Some(self.capi.ctx.field_manager.to_string());
        let name = wanted.name_any();
        let what = format!("Machine {namespace}/{name}");
        let Some(known) = known else {
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            return match api.create(&params, &wanted).await {
                Ok(created) => {
                    if let Some(version) = created.resource_version() {
                        self.capi.machines.wait_for(&version, PATIENCE).await;
                    }
                    Ok(())
                }
                Err(error) if is_code(&error, 409) => Ok(()),
                Err(error) => Err(Error::api("create", what)(error)),
            };
        };
        let lacks = |have: &BTreeMap<String, String>, want: &BTreeMap<String, String>| {
            want.iter().any(|(key, value)| have.get(key) != Some(value))
        };
        let version = (wanted.spec.version != known.spec.version && !wanted.spec.version.is_empty())
            .then(|| wanted.spec.version.clone());
        if !lacks(known.labels(), wanted.labels())
            && !lacks(known.annotations(), wanted.annotations())
            && version.is_none()
        {
            return Ok(());
        }
        let mut patch = json!({"metadata": {
            "uid": known.uid(), "labels": wanted.labels(), "annotations": wanted.annotations(),
        }});
        if let Some(version) = version {
            patch["spec"] = json!({"version": version});
        }
        let params = PatchParams { field_manager: manager, ..PatchParams::default() };
        match api.patch(&known.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(error) if is_code(&error, 404) => Ok(()),
            Err(error) => Err(Error::api("write", what)(error)),
        }
    }
}

/// Machines of the pool by the name of their server.
fn of_machines(capi: &Capi, pool: &MachinePool) -> BTreeMap<String, Arc<Machine>> {
    let machines = of_pool(capi, pool).into_iter();
    machines.map(|machine| (machine.spec.infrastructure_ref.name.clone(), machine)).collect()
}

fn desired(pass: &Pass, capi: &Capi, resource: &ApiResource, server: &DynamicObject) -> Machine {
    let pool = &pass.before;
    let template = &pool.spec.template.metadata;
    let mut labels = template.labels.clone();
    labels.insert(label::POOL_NAME.to_owned(), as_label(&pool.name_any()));
    labels.insert(label::CLUSTER_NAME.to_owned(), pool.spec.cluster_name.clone());
    let id = server.data.pointer("/spec/providerID").and_then(|id| id.as_str()).unwrap_or_default();
    let nodes = match id {
        "" => Vec::new(),
        id => capi.workloads.nodes_by_provider_id(&pass.cluster_key(), id).unwrap_or_default(),
    };
    let info = nodes.first().and_then(|node| node.status.as_ref()?.node_info.as_ref());
    Machine {
        metadata: ObjectMeta {
            name: Some(server.name_any()),
            namespace: pool.namespace(),
            labels: Some(labels),
            annotations: Some(template.annotations.clone()).filter(|annotations| !annotations.is_empty()),
            // It is nobody else's, and not the Cluster's own.
            owner_references: Some(vec![controller(pool)]),
            ..ObjectMeta::default()
        },
        spec: MachineSpec {
            cluster_name: pool.spec.cluster_name.clone(),
            bootstrap: Bootstrap { data_secret_name: Some(String::new()), ..Bootstrap::default() },
            infrastructure_ref: ContractReference {
                api_group: resource.group.clone(),
                kind: resource.kind.clone(),
                name: server.name_any(),
            },
            version: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
            ..MachineSpec::default()
        },
        status: None,
    }
}
