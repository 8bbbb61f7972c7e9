//! Nodes whose Machine is gone.
//!
//! A Machine takes its Node along when it goes, if it knows it and the cluster answers. Otherwise the Node stays: it
//! registered late, or its Machine was replaced while the cluster was out of reach. Kubernetes keeps such a Node
//! for ever.
//!
//! Reads   Clusters, their Machines, and nodes of workload clusters.
//! Writes  nothing here; deletes Nodes of workload clusters.
//! Never   deletes a Node that is not labelled with the uid of a Machine, nor one whose Machine may still be there:
//!         see [`is_stale`].

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
};
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine};
use remuda_control::{Action, Controller, Enqueuer, Informer, ObjectKey, drive, write::delete};
use remuda_names::{capi::label as capi_label, rancher::label};
use remuda_workload::{Refused, What};
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    error::is_code,
    objects,
    shared::{BY_UID, Rke},
};

/// How many deleted Machines are remembered for each cluster.
const REMEMBERED: usize = 512;

/// Machines that were seen going, by cluster. A restart forgets them; Nodes are then believed to be without a
/// server only when they say nothing any more.
type Deleted = Arc<Mutex<HashMap<ObjectKey, VecDeque<String>>>>;

struct StaleNodes {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
    deleted: Deleted,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("stale-node", &rke.ctx, rke.clusters.clone()).workers(rke.options.workers);
    let enqueuer = controller.enqueuer();
    let deleted = Deleted::default();
    let (noted, woken) = (deleted.clone(), enqueuer.clone());
    let machines = rke.machines.subscribe(move |change| {
        if let (Some(machine), None) = (&change.old, &change.new) {
            let cluster = ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name);
            let mut noted = noted.lock();
            let known = noted.entry(cluster.clone()).or_default();
            known.extend(machine.uid());
            while known.len() > REMEMBERED {
                known.pop_front();
            }
            woken.enqueue(cluster);
        }
    });
    let (known, woken) = (rke.machines.clone(), enqueuer.clone());
    let nodes = rke.workloads.subscribe(move |event| match &event.what {
        What::Connected => woken.enqueue(event.cluster.clone()),
        What::Node { new: Some(node), .. } => {
            let uid = node.labels().get(label::MACHINE);
            if uid.is_some_and(|uid| known.keys_by_index(BY_UID, uid).is_empty()) {
                woken.enqueue(event.cluster.clone());
            }
        }
        _ => {}
    });
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, Arc::new(StaleNodes { rke, enqueuer, deleted }), stop).await;
    drop((machines, nodes));
}

async fn reconcile(cluster: Arc<Cluster>, ctx: Arc<StaleNodes>) -> Result<Action, Error> {
    let key = ObjectKey::of(&cluster.metadata);
    if objects::is_deleting(&cluster.metadata) {
        ctx.deleted.lock().remove(&key);
        return Ok(Action::AwaitChange);
    }
    if !objects::is_control_plane(&cluster.spec.control_plane_ref) {
        return Ok(Action::AwaitChange);
    }
    let Some(nodes) = ctx.rke.workloads.nodes(&key).filter(Informer::is_synced) else {
        return Ok(Action::AwaitChange);
    };
    let unknown = |node: &Arc<Node>| {
        let uid = node.labels().get(label::MACHINE);
        uid.is_some_and(|uid| ctx.rke.machines.keys_by_index(BY_UID, uid).is_empty())
    };
    let suspects: Vec<Arc<Node>> = nodes.list().into_iter().filter(unknown).collect();
    if suspects.is_empty() {
        return Ok(Action::AwaitChange);
    }
    let machines = ctx.machines(&key).await?;
    let deleted = ctx.deleted.lock().get(&key).cloned().unwrap_or_default();
    let deleted: HashSet<&str> = deleted.iter().map(String::as_str).collect();
    for node in suspects.iter().filter(|node| is_stale(node, &machines, &deleted)) {
        if !ctx.delete(&key, &node.name_any(), |node| is_stale(node, &machines, &deleted)).await? {
            // Its turn, or its connection, wakes us.
            break;
        }
    }
    Ok(Action::AwaitChange)
}

/// Whether a Node is one of a Machine that is gone for sure.
///
/// Its label names the uid of a Machine that does not exist, and no Machine of the cluster claims the Node by name
/// or by provider ID: Machines that were restored under other uids do. Then either the Machine was seen going, which
/// it does only after its server has gone, or nothing answers for the Node any more.
fn is_stale(node: &Node, machines: &[Machine], deleted: &HashSet<&str>) -> bool {
    let Some(uid) = node.labels().get(label::MACHINE).filter(|uid| !uid.is_empty()) else {
        return false;
    };
    let (name, provider_id) = (node.name_any(), remuda_workload::provider_id(node));
    let claims = |machine: &Machine| {
        let refers = machine.status.as_ref().is_some_and(|status| status.node_ref.name == name);
        let same_server = provider_id.is_some_and(|id| id == machine.spec.provider_id);
        machine.uid().as_ref() == Some(uid) || refers || same_server
    };
    !machines.iter().any(claims) && (deleted.contains(uid.as_str()) || is_silent(node))
}

/// Whether it is known that a Node is not ready. One that has said nothing yet may have just joined.
fn is_silent(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|known| known.type_ == "Ready" && known.status != "True")
}

impl StaleNodes {
    /// The Machines of a cluster, from the API itself: a cache may lag, and who deletes on an absence must be sure.
    async fn machines(&self, cluster: &ObjectKey) -> Result<Vec<Machine>, Error> {
        let api: Api<Machine> = self.rke.api(cluster.namespace.as_deref().unwrap_or_default());
        let of_cluster = format!("{}={}", capi_label::CLUSTER_NAME, cluster.name);
        let listed = api.list(&ListParams::default().labels(&of_cluster)).await;
        Ok(listed.map_err(Error::api("list", "Machines"))?.items)
    }

    /// Deletes a Node, if it is still so. False if the cluster cannot be asked now.
    async fn delete(
        &self,
        cluster: &ObjectKey,
        name: &str,
        still: impl Fn(&Node) -> bool,
    ) -> Result<bool, Error> {
        let lease = match self.rke.workloads.lease(cluster, &self.enqueuer, cluster) {
            Ok(lease) => lease,
            Err(Refused::Busy | Refused::Down(_)) => return Ok(false),
        };
        let nodes: Api<Node> = Api::all(lease.client());
        let answer = lease.call(nodes.get_opt(name)).await;
        let Ok(answer) = answer else { return Ok(false) };
        let found = answer.map_err(Error::api("read", format!("Node {name} of cluster {cluster}")))?;
        // Its server may have come back meanwhile, under another Machine.
        let Some(node) = found.filter(still) else { return Ok(true) };
        let preconditions = Preconditions { uid: node.uid(), resource_version: node.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let client = lease.client();
        match lease.call(delete(&client, nodes.resource_url(), name, &params)).await {
            Err(_) => Ok(false),
            // Gone, or it changed: then its event wakes us.
            Ok(Err(error)) if is_code(&error, 404) || is_code(&error, 409) => Ok(true),
            Ok(Err(error)) => Err(Error::api("delete", format!("Node {name} of cluster {cluster}"))(error)),
            Ok(Ok(_)) => {
                tracing::info!(%cluster, node = name, "deleted node of a machine that is gone");
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"rke.cattle.io/machine": "gone"}},
            "spec": {"providerID": "k3s://n"},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn machine(uid: &str, node: &str, provider_id: &str) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": "m", "uid": uid},
            "spec": {"clusterName": "demo", "providerID": provider_id, "bootstrap": {},
                "infrastructureRef": {"apiGroup": "a", "kind": "K", "name": "m"}},
            "status": {"nodeRef": {"name": node}},
        }))
        .unwrap()
    }

    #[test]
    fn only_nodes_of_machines_that_are_gone_for_sure_are_stale() {
        let none = HashSet::new();
        let others = [machine("other", "o", "k3s://o")];
        assert!(is_stale(&node("Unknown"), &others, &none));
        assert!(!is_stale(&node("True"), &others, &none), "a server answers for it");
        assert!(is_stale(&node("True"), &others, &HashSet::from(["gone"])));
        for claimed in [machine("gone", "", ""), machine("new", "n", ""), machine("new", "", "k3s://n")] {
            assert!(!is_stale(&node("Unknown"), &[claimed], &HashSet::from(["gone"])));
        }
        let mut new = node("Unknown");
        new.status = None;
        assert!(!is_stale(&new, &others, &none), "it has just joined");
        let mut foreign = node("Unknown");
        foreign.metadata.labels = None;
        assert!(!is_stale(&foreign, &[], &none), "nobody knows whose it is");
    }
}
