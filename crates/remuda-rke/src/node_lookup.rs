//! Nodes of machines: found by the label that names the Machine, before anything else knows them.
//!
//! Reads   RKEBootstraps, their Machines, the infrastructure of these, and nodes of workload clusters.
//! Writes  addresses and provider ID of the infrastructure; Cluster API takes them over from there.
//! Never   overwrites a provider ID.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch},
    core::GroupVersionKind,
};
use remuda_api::{
    core::{ContractReference, Machine},
    rke::RkeBootstrap,
};
use remuda_control::{Action, Controller, Enqueuer, Informer, ObjectKey, Scope, drive};
use remuda_names::rancher::{condition, group, label};
use remuda_workload::What;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    error::is_code,
    objects,
    shared::{BY_CLUSTER, BY_UID, Rke, filed},
};

/// How long the first list of a kind may take.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Nodes of workload clusters are filed by this name under the uid of their Machine.
const BY_MACHINE: &str = "rke-machine";

struct Lookup {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("machine-node-lookup", &rke.ctx, rke.bootstraps.clone()).workers(rke.options.workers);
    let enqueuer = controller.enqueuer();
    let controller = controller.watches_facts(
        &rke.machines,
        |machine: &Machine| machine.spec.clone(),
        |machine| {
            let name = objects::bootstrap_of(machine);
            name.map(|name| ObjectKey::of(&machine.metadata).sibling(name)).into_iter().collect()
        },
    );
    let (known, bootstraps, woken) = (rke.machines.clone(), rke.bootstraps.clone(), enqueuer.clone());
    let nodes = rke.workloads.subscribe(move |event| {
        let namespace = event.cluster.namespace.as_deref().unwrap_or_default();
        match &event.what {
            What::Connected => {
                let keys = bootstraps.keys_by_index(BY_CLUSTER, &filed(namespace, &event.cluster.name));
                keys.into_iter().for_each(|key| woken.enqueue(key));
            }
            What::Node { new: Some(node), .. } => {
                let uid = node.labels().get(label::MACHINE);
                for machine in uid.into_iter().flat_map(|uid| known.by_index(BY_UID, uid)) {
                    if let Some(name) = objects::bootstrap_of(&machine) {
                        woken.enqueue(ObjectKey::of(&machine.metadata).sibling(name));
                    }
                }
            }
            _ => {}
        }
    });
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, Arc::new(Lookup { rke, enqueuer }), stop).await;
    drop(nodes);
}

async fn reconcile(bootstrap: Arc<RkeBootstrap>, ctx: Arc<Lookup>) -> Result<Action, Error> {
    let key = ObjectKey::of(&bootstrap.metadata);
    let created = bootstrap.status.as_ref().and_then(|status| status.initialization.data_secret_created);
    let Some(machine) = ctx.rke.machine_of_bootstrap(&key).filter(|_| created == Some(true)) else {
        return Ok(Action::AwaitChange);
    };
    let going = objects::is_deleting(&machine.metadata) || objects::is_deleting(&bootstrap.metadata);
    let Some(resource) = infrastructure(&machine.spec.infrastructure_ref) else {
        return Ok(Action::AwaitChange);
    };
    if going || !machine.spec.provider_id.is_empty() {
        return Ok(Action::AwaitChange);
    }
    // Whatever is missing wakes us when it comes.
    let cache = ctx.follow(&resource).await?;
    let infrastructure = key.sibling(&machine.spec.infrastructure_ref.name);
    let Some(object) = cache.get(&infrastructure) else {
        return Ok(Action::AwaitChange);
    };
    let cluster = key.sibling(&machine.spec.cluster_name);
    let Some(node) = ctx.node(&cluster, &machine) else {
        return Ok(Action::AwaitChange);
    };
    if let Some(found) = decide(&object.data, &node) {
        let written = ctx.write(&object, &resource, &found).await?;
        ctx.rke.seen(&cache, written.as_ref()).await;
        tracing::info!(machine = machine.name_any(), node = node.name_any(), "node of machine found");
    }
    Ok(Action::AwaitChange)
}

/// The kind behind a reference, if its provider is told of nodes by us.
fn infrastructure(reference: &ContractReference) -> Option<ApiResource> {
    let version = match reference.api_group.as_str() {
        group::MACHINE | group::RKE => "v1",
        "elemental.cattle.io" => "v1beta1",
        _ => return None,
    };
    let kind = GroupVersionKind::gvk(&reference.api_group, version, &reference.kind);
    let plural = format!("{}s", reference.kind.to_lowercase());
    Some(ApiResource::from_gvk_with_plural(&kind, &plural))
}

impl Lookup {
    /// The cache of a kind, whose changes wake us from now on.
    async fn follow(&self, resource: &ApiResource) -> Result<Informer<DynamicObject>, Error> {
        let cache = self.rke.ctx.informers.dynamic(resource, Scope::all());
        let machines = self.rke.machines.clone();
        self.enqueuer.follow(&cache, move |object: &DynamicObject| {
            let key = ObjectKey::of(&object.metadata);
            let owner = objects::owner(&object.metadata, "Machine");
            let machine = owner.and_then(|owner| machines.get(&key.sibling(&owner.name)));
            let name = machine.as_ref().and_then(|machine| objects::bootstrap_of(machine));
            name.map(|name| key.sibling(name)).into_iter().collect()
        });
        if tokio::time::timeout(FIRST_LIST, cache.wait_synced()).await.is_err() {
            return Err(Error::NotServed { kind: resource.kind.clone(), group: resource.group.clone() });
        }
        Ok(cache)
    }

    fn node(&self, cluster: &ObjectKey, machine: &Machine) -> Option<Arc<Node>> {
        let nodes = self.rke.workloads.nodes(cluster)?;
        nodes.add_index(BY_MACHINE, |node| node.labels().get(label::MACHINE).cloned().into_iter().collect());
        nodes.by_index(BY_MACHINE, &machine.uid()?).into_iter().find(|node| is_ready(node))
    }

    /// `None` when the infrastructure is gone.
    async fn write(
        &self,
        object: &DynamicObject,
        resource: &ApiResource,
        found: &Found,
    ) -> Result<Option<DynamicObject>, Error> {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let api: Api<DynamicObject> = Api::namespaced_with(self.rke.ctx.client.clone(), &namespace, resource);
        let params = self.rke.params();
        let metadata = json!({"uid": object.uid()});
        let here = |answer: Result<DynamicObject, kube::Error>| match answer {
            Ok(written) => Ok(Some(written)),
            Err(error) if is_code(&error, 404) => Ok(None),
            Err(error) => Err(Error::api("write", format!("{} {namespace}/{name}", resource.kind))(error)),
        };
        // The provider ID is what others wait for; addresses must be there by then.
        let addresses = json!({"metadata": metadata, "status": {"addresses": found.addresses}});
        here(api.patch_status(&name, &params, &Patch::Merge(addresses)).await)?;
        let id = json!({"metadata": metadata, "spec": {"providerID": found.provider_id}});
        here(api.patch(&name, &params, &Patch::Merge(id)).await)
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status == "True")
}

/// What a Node tells about its machine.
#[derive(Debug, PartialEq)]
struct Found {
    provider_id: String,
    addresses: Value,
}

/// `None` while infrastructure or Node are not ready, or when it is told already.
fn decide(infrastructure: &Value, node: &Node) -> Option<Found> {
    let told = infrastructure.pointer("/spec/providerID").and_then(Value::as_str).unwrap_or_default();
    let conditions = infrastructure.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|known| known["type"] == condition::READY && known["status"] == "True");
    let provider_id = remuda_workload::provider_id(node)?.to_owned();
    if !told.is_empty() || !ready || !is_ready(node) {
        return None;
    }
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let addresses: Vec<Value> = addresses
        .into_iter()
        .flatten()
        .map(|address| json!({"type": address.type_, "address": address.address}))
        .collect();
    Some(Found { provider_id, addresses: Value::Array(addresses) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_believed_once_it_and_the_server_are_ready() {
        let node = |ready: &str, id: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "n"}, "spec": {"providerID": id},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                },
            }))
            .unwrap()
        };
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let found = decide(&ready, &node("True", "k3s://n")).unwrap();
        assert_eq!(found.provider_id, "k3s://n");
        assert_eq!(found.addresses, json!([{"type": "InternalIP", "address": "10.0.0.1"}]));
        assert_eq!(decide(&ready, &node("False", "k3s://n")), None);
        assert_eq!(decide(&ready, &node("True", "")), None);
        assert_eq!(decide(&json!({}), &node("True", "k3s://n")), None);
        let mut told = ready;
        told["spec"] = json!({"providerID": "k3s://other"});
        assert_eq!(decide(&told, &node("True", "k3s://n")), None);
    }
}
