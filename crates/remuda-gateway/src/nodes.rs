//! Nodes of connected clusters, as management Nodes, and what they are together.
//!
//! Reads   management Clusters, and the nodes of every connected cluster from the one cache of them (`remuda-workload`).
//! Writes  management Nodes in the namespace of their cluster, and tells `status` what the nodes are together.
//! Never   deletes one because a cluster does not answer: those of a cluster that is away are marked. Leaves alone
//!         Nodes that others made.

mod act;
mod mirror;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::PartialObjectMeta,
};
use parking_lot::Mutex;
use remuda_api::management::{Cluster, Node};
use remuda_control::{Action, Controller, Error, Informer, ObjectKey, Scope, drive, write::difference};
use remuda_names::{
    gateway::annotation::NODE_DIGEST,
    rancher::{annotation::NODE_SYNCER, condition::CONNECTED, name::LOCAL},
};
use remuda_workload::Workloads;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::act::{DrainRefused, DrainRequest};
use self::mirror::{Known, Seen, away, steps, together, unmarked};
pub(crate) use self::{act::Drains, mirror::Drain};
use crate::{Gateway, TunnelConnect, gateway::Shared, status::capacity::Sum};

/// Between two passes over the nodes of one cluster, however often it changes them.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// And more for each write of the last one: a cluster whose nodes change all the time writes no more than so often.
const PER_WRITE: Duration = Duration::from_millis(10);

struct Ctx {
    shared: Arc<Shared>,
    workloads: Workloads,
    written: Informer<PartialObjectMeta<Node>>,
    /// When each cluster may have its next pass.
    passes: Mutex<HashMap<String, Instant>>,
}

impl Gateway {
    /// Mirrors the nodes of connected clusters until told to stop.
    pub async fn mirror_nodes(&self, workloads: Workloads, stop: CancellationToken) {
        let shared = self.0.clone();
        let written = shared.ctx.informers.metadata::<Node>(Scope::all());
        let controller = Controller::<Cluster>::on("management-node", &shared.ctx, shared.clusters.clone())
            .only_when(|change| change.old.as_deref().map(is_away) != change.new.as_deref().map(is_away))
            .watches(&written, |node| node.namespace().map(ObjectKey::cluster_wide).into_iter().collect());
        let enqueuer = controller.enqueuer();
        let (woken, known) = (enqueuer.clone(), shared.provisioned.clone());
        let events = workloads.subscribe(move |event| match &event.cluster.namespace {
            None => woken.enqueue(event.cluster.clone()),
            Some(_) => {
                let cluster = known.get(&event.cluster).and_then(|cluster| cluster.status.clone());
                if let Some(name) = cluster.map(|status| status.cluster_name).filter(|name| !name.is_empty())
                {
                    woken.enqueue(ObjectKey::cluster_wide(name));
                }
            }
        });
        shared.drains.tell(Arc::new(move |cluster| enqueuer.enqueue(ObjectKey::cluster_wide(cluster))));
        let ctx = Ctx { shared, workloads, written, passes: Mutex::default() };
        drive(controller, reconcile, Arc::new(ctx), stop).await;
        drop(events);
    }
}

/// Whether its agent is known to be away, which it is not at once after a start.
fn is_away(cluster: &Cluster) -> bool {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|known| known.kind == CONNECTED && known.status == "False")
}

async fn reconcile(cluster: Arc<Cluster>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let name = cluster.name_any();
    if cluster.metadata.deletion_timestamp.is_some() {
        ctx.passes.lock().remove(&name);
        return Ok(Action::AwaitChange);
    }
    if name == LOCAL || cluster.spec.internal {
        return Ok(Action::AwaitChange);
    }
    let key = TunnelConnect::key_of(&ctx.shared, &name);
    let health = ctx.workloads.health(&key);
    let is_connected = health.connected && ctx.shared.sessions.connection(&name).is_connected();
    let nodes = ctx.workloads.nodes(&key).filter(|nodes| is_connected && nodes.is_synced());
    let Some(nodes) = nodes else {
        ctx.shared.facts.found(&name, None, health.why.filter(|_| health.is_excessive));
        if is_away(&cluster) {
            ctx.mark(&name).await?;
        }
        return Ok(Action::AwaitChange);
    };
    if let Some(left) = ctx.pace(&name) {
        return Ok(Action::RequeueAfter(left));
    }
    let nodes = nodes.list();
    ctx.shared.facts.found(&name, Some(Sum::of(nodes.iter().map(AsRef::as_ref))), None);
    let seen = nodes.iter().take(mirror::MOST);
    let seen = seen.filter_map(|node| Seen::of(node, ctx.shared.drains.of(&name, &node.name_any())));
    let seen = together(seen.collect());
    if nodes.len() > mirror::MOST {
        tracing::warn!(
            cluster = name,
            nodes = nodes.len(),
            written = mirror::MOST,
            "not all nodes are written"
        );
    }
    ctx.write(&cluster, &seen).await?;
    Ok(Action::AwaitChange)
}

impl Ctx {
    /// How long the next pass over a cluster must wait.
    fn pace(&self, cluster: &str) -> Option<Duration> {
        let mut passes = self.passes.lock();
        let now = Instant::now();
        match passes.get(cluster).map(|next| next.saturating_duration_since(now)) {
            Some(left) if !left.is_zero() => Some(left),
            _ => {
                passes.insert(cluster.to_owned(), now + DEBOUNCE);
                None
            }
        }
    }

    /// Puts off the next pass over a cluster by what this one writes.
    fn wrote(&self, cluster: &str, writes: usize) {
        let writes = u32::try_from(writes).unwrap_or(u32::MAX);
        if let Some(next) = self.passes.lock().get_mut(cluster) {
            *next += PER_WRITE.saturating_mul(writes);
        }
    }

    /// What is written for nodes of a cluster.
    fn known(&self, cluster: &str) -> Vec<Known> {
        let written = self.written.in_namespace(cluster);
        let ours = written.iter().filter(|node| node.annotations().contains_key(NODE_SYNCER));
        ours.map(|node| Known {
            name: node.name_any(),
            digest: node.annotations().get(NODE_DIGEST).cloned().unwrap_or_default(),
        })
        .collect()
    }

    fn api(&self, cluster: &str) -> Api<Node> {
        Api::namespaced(self.shared.ctx.client.clone(), cluster)
    }

    async fn write(&self, cluster: &Cluster, seen: &[Seen]) -> Result<(), Error> {
        let name = cluster.name_any();
        let (known, now) = (self.known(&name), self.shared.ctx.clock.now());
        let steps = steps(&known, seen);
        self.wrote(&name, steps.create.len() + steps.update.len() + steps.delete.len());
        let api = self.api(&name);
        for seen in steps.create {
            let mut node = seen.onto(Node::named(&seen.name), now);
            // They go when the cluster does.
            node.metadata.owner_references = Some(cluster.owner_ref(&()).into_iter().collect());
            let params = PostParams { field_manager: Some(self.manager()), ..PostParams::default() };
            match api.create(&params, &node).await {
                Ok(_) => {}
                // One that this cache has not seen yet, or that is somebody else's.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(source) => return Err(failed("create", &name, &seen.name, source)),
            }
        }
        for seen in steps.update {
            self.change(&api, &name, &seen.name, |node| seen.onto(node, now)).await?;
        }
        for node in steps.delete {
            match api.delete(node, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(source) => return Err(failed("delete", &name, node, source)),
            }
        }
        Ok(())
    }

    /// Marks what is written of a cluster that is away.
    async fn mark(&self, cluster: &str) -> Result<(), Error> {
        let (known, now, api) = (self.known(cluster), self.shared.ctx.clock.now(), self.api(cluster));
        for known in unmarked(&known) {
            self.change(&api, cluster, &known.name, |node| away(node, now)).await?;
        }
        Ok(())
    }

    /// Writes what differs. Only the metadata is cached, so what is there is read first.
    async fn change(
        &self,
        api: &Api<Node>,
        cluster: &str,
        name: &str,
        change: impl FnOnce(Node) -> Node,
    ) -> Result<(), Error> {
        let found = api.get_opt(name).await.map_err(|source| failed("read", cluster, name, source))?;
        let Some(found) = found else { return Ok(()) };
        let value = |node: &Node| json!({"metadata": {"labels": node.metadata.labels, "annotations": node.metadata.annotations}, "spec": node.spec, "status": node.status});
        let (before, version) = (value(&found), found.resource_version());
        let Some(Value::Object(mut patch)) = difference(&before, &value(&change(found))) else {
            return Ok(());
        };
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        metadata["resourceVersion"] = version.into();
        let params = PatchParams { field_manager: Some(self.manager()), ..PatchParams::default() };
        let written = api.patch(name, &params, &Patch::Merge(Value::Object(patch))).await;
        written.map(drop).map_err(|source| failed("write", cluster, name, source))
    }

    fn manager(&self) -> String {
        self.shared.ctx.field_manager.to_string()
    }
}

fn failed(verb: &'static str, cluster: &str, name: &str, source: kube::Error) -> Error {
    Error::Api { verb, what: format!("nodes.management.cattle.io {cluster}/{name}"), source }
}
