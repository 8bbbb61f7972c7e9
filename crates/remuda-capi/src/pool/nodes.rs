//! Nodes of a pool.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Taint};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use remuda_api::core::MachinePool;
use remuda_control::ObjectKey;
use remuda_names::capi::{annotation, taint};
use remuda_rollout::pool::nodes::{self, members, retired};
use remuda_workload::{Lease, Refused, provider_id};
use serde_json::{Map, Value, json};

use super::{Pass, Pools};
use crate::{Capi, Error, error::is_code, managed::Managed};

/// Names of nodes that exist, of those referred to; `None` if the cluster cannot be asked.
pub(super) fn still_there(capi: &Capi, cluster: &ObjectKey, refs: &[ObjectReference]) -> Option<Vec<String>> {
    let mut there = Vec::new();
    for reference in refs {
        let name = reference.name.clone().unwrap_or_default();
        let node = capi.workloads.node(cluster, &name).ok()?;
        // Another one of the same name is not ours.
        if node.is_some_and(|node| reference.uid.is_none() || node.uid() == reference.uid) {
            there.push(name);
        }
    }
    Some(there)
}

fn view(node: &Node) -> nodes::Node {
    let status = node.status.as_ref();
    let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True");
    let info = status.and_then(|status| status.node_info.as_ref());
    nodes::Node {
        name: node.name_any(),
        uid: node.uid().unwrap_or_default(),
        provider_id: provider_id(node).unwrap_or_default().to_owned(),
        ready_since: ready
            .map(|ready| ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
        kubelet_version: info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
    }
}

impl Pools {
    /// Finds the nodes of the pool, marks them, and takes those away whose servers are gone. A cluster that
    /// cannot be asked leaves what is known.
    pub(super) async fn find_nodes(&self, pass: &mut Pass, now: Timestamp) {
        let cluster = pass.cluster_key();
        let workloads = &self.capi.workloads;
        let mut found: BTreeMap<String, Arc<Node>> = BTreeMap::new();
        for id in &pass.after.spec.provider_id_list {
            let Ok(nodes) = workloads.nodes_by_provider_id(&cluster, id) else {
                return;
            };
            found.extend(nodes.into_iter().next().map(|node| (id.clone(), node)));
        }
        let mut had = Vec::new();
        let refs = pass.before.status.as_ref().map(|status| status.node_refs.clone()).unwrap_or_default();
        for reference in &refs {
            let Ok(node) = workloads.node(&cluster, reference.name.as_deref().unwrap_or_default()) else {
                return;
            };
            had.extend(node.map(|node| view(&node)));
        }
        let gone = retired(&had, &pass.after.spec.provider_id_list);
        let unmarked: Vec<&Arc<Node>> =
            found.values().filter(|node| mark(&pass.after, node).is_some()).collect();
        if (!gone.is_empty() || !unmarked.is_empty())
            && let Err(error) = self.keep_nodes(pass, &gone, &unmarked).await
        {
            pass.errors.push(error);
        }
        let views = found.iter().map(|(id, node)| (id.clone(), view(node))).collect();
        let min_ready = i64::from(pass.after.spec.template.spec.min_ready_seconds.unwrap_or(0));
        let members = members(&pass.after.spec.provider_id_list, &views, min_ready, now);
        let references: Vec<ObjectReference> = members
            .references
            .iter()
            .map(|(name, uid)| ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(name.clone()),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            })
            .collect();
        let status = pass.after.status.get_or_insert_default();
        if status.node_refs != references {
            let names: Vec<_> = members.references.iter().map(|(name, _)| name.as_str()).collect();
            let note = names.join(", ");
            self.capi.ctx.recorder.normal(&pass.before, "SuccessfulSetNodeRefs", "Reconcile", note);
            status.node_refs = references;
        }
        pass.members = Some(members);
    }

    fn lease(&self, pass: &Pass) -> Result<Option<Lease>, Error> {
        let key = ObjectKey::of(&pass.before.metadata);
        match self.capi.workloads.lease(&pass.cluster_key(), &self.enqueuer, &key) {
            Ok(lease) => Ok(Some(lease)),
            // We are woken.
            Err(Refused::Busy) => Ok(None),
            Err(Refused::Down(down)) => Err(down.into()),
        }
    }

    async fn keep_nodes(&self, pass: &Pass, gone: &[String], unmarked: &[&Arc<Node>]) -> Result<(), Error> {
        let Some(lease) = self.lease(pass)? else {
            return Ok(());
        };
        let nodes: Api<Node> = Api::all(lease.client());
        for name in gone {
            delete(&lease, &nodes, name, None).await?;
        }
        let manager = self.capi.ctx.field_manager.to_string();
        let params = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
        for node in unmarked {
            let Some(patch) = mark(&pass.after, node) else {
                continue;
            };
            let name = node.name_any();
            match lease.call(nodes.patch(&name, &params, &Patch::Merge(patch))).await? {
                Ok(_) => {}
                Err(error) if is_code(&error, 404) => {}
                Err(error) => return Err(Error::api("write", format!("Node {name}"))(error)),
            }
        }
        Ok(())
    }

    pub(super) async fn delete_nodes(&self, pass: &Pass, names: &[String]) -> Result<(), Error> {
        let Some(lease) = self.lease(pass)? else {
            return Ok(());
        };
        let nodes: Api<Node> = Api::all(lease.client());
        let refs = pass.before.status.iter().flat_map(|status| &status.node_refs);
        for reference in
            refs.filter(|reference| names.iter().any(|name| reference.name.as_ref() == Some(name)))
        {
            let name = reference.name.as_deref().unwrap_or_default();
            delete(&lease, &nodes, name, reference.uid.clone()).await?;
        }
        Ok(())
    }
}

async fn delete(lease: &Lease, nodes: &Api<Node>, name: &str, uid: Option<String>) -> Result<(), Error> {
    let preconditions = uid.map(|uid| Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match lease.call(nodes.delete(name, &params)).await? {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
        Err(error) => Err(Error::api("delete", format!("Node {name}"))(error)),
    }
}

/// What a node of the pool lacks: who it belongs to. Its first taint goes once that is known.
fn mark(pool: &MachinePool, node: &Node) -> Option<Value> {
    let namespace = pool.namespace().unwrap_or_default();
    let name = pool.name_any();
    let wanted = [
        (annotation::NODE_CLUSTER_NAME, pool.spec.cluster_name.as_str()),
        (annotation::NODE_CLUSTER_NAMESPACE, namespace.as_str()),
        (annotation::NODE_OWNER_KIND, MachinePool::KIND),
        (annotation::NODE_OWNER_NAME, name.as_str()),
    ];
    let missing: Map<String, Value> = wanted
        .into_iter()
        .filter(|(key, value)| node.annotations().get(*key).map(String::as_str) != Some(*value))
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let kept: Vec<&Taint> = taints.iter().filter(|known| known.key != taint::UNINITIALIZED).collect();
    if missing.is_empty() && kept.len() == taints.len() {
        return None;
    }
    let mut patch = json!({"metadata": {"uid": node.uid()}});
    if !missing.is_empty() {
        patch["metadata"]["annotations"] = Value::Object(missing);
    }
    if kept.len() != taints.len() {
        // A list is replaced as a whole, so nobody may have changed it meanwhile.
        patch["metadata"]["resourceVersion"] = json!(node.resource_version());
        patch["spec"] = json!({"taints": kept});
    }
    Some(patch)
}
