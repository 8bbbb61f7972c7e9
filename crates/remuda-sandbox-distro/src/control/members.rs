//! Members of etcd: taken out when their Node says so or is gone, as K3s and RKE2 do it.
//!
//! Reads   Nodes.
//! Writes  etcd's list of members, and the annotations that answer a request for removal.
//! Never   takes out the last voting member: the request is taken back instead.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive_keys};
use remuda_names::annotation::ETCD_REMOVAL_REFUSED;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Error, Options, failed};
use crate::{
    distribution::Distribution,
    etcd::{Member, Members},
};

struct World {
    ctx: Arc<Ctx>,
    options: Options,
    nodes: Informer<Node>,
}

pub async fn run(ctx: Arc<Ctx>, options: Options, stop: CancellationToken) {
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let controller = Controller::<Node>::new("etcd-members", &ctx).workers(1);
    let world = Arc::new(World { ctx, options, nodes });
    let reconcile = |key: ObjectKey, world: Arc<World>| async move { world.reconcile(key).await };
    drive_keys(controller, reconcile, world, stop).await;
}

/// What a Node says about its member.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    None,
    Remove {
        member: String,
    },
    /// The node has come back as another member; what was said of the former one no longer counts.
    Forget,
}

fn request(distribution: Distribution, node: &Node) -> Request {
    let annotation =
        |name: &str| node.annotations().get(&distribution.etcd_annotation(name)).map(String::as_str);
    let member = annotation("node-name").unwrap_or_default();
    match (annotation("removed-node-name"), annotation("remove")) {
        (Some(removed), _) if !member.is_empty() && removed != member => Request::Forget,
        (Some(_), _) => Request::None,
        (None, Some(value)) if value.eq_ignore_ascii_case("true") && !member.is_empty() => {
            Request::Remove { member: member.to_owned() }
        }
        _ => Request::None,
    }
}

/// What became of a request for removal.
enum Removal {
    Done,
    Refused(&'static str),
}

const HOLDS_ALL: &str = "this server keeps all state of the cluster, because there was no etcd program when it was \
                         made; such a server cannot be replaced, only the whole cluster";
const LAST: &str = "it is the only voting member";

/// Names of members are the node's, a dash and eight digits.
fn is_of(member: &str, node: &str) -> bool {
    let rest = member.strip_prefix(node).and_then(|rest| rest.strip_prefix('-'));
    rest.is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl World {
    async fn reconcile(&self, key: ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(&key) else {
            self.node_gone(&key.name).await?;
            return Ok(Action::AwaitChange);
        };
        let distribution = self.options.distribution;
        let name = |annotation: &str| distribution.etcd_annotation(annotation);
        match request(distribution, &node) {
            Request::None => {}
            Request::Forget => {
                let patch = json!({name("removed-node-name"): null, name("remove"): null});
                self.annotate(&node, patch).await?;
            }
            Request::Remove { member } => {
                let patch = match self.remove(&member, &node.name_any()).await? {
                    Removal::Done => json!({
                        name("removed-node-name"): member, name("remove"): null,
                        name("node-name"): null, name("node-address"): null,
                        ETCD_REMOVAL_REFUSED: null,
                    }),
                    Removal::Refused(why) => {
                        warn!(node = node.name_any(), why, "member of etcd is not removed");
                        json!({name("remove"): null, ETCD_REMOVAL_REFUSED: why})
                    }
                };
                self.annotate(&node, patch).await?;
            }
        }
        Ok(Action::AwaitChange)
    }

    async fn remove(&self, member: &str, node: &str) -> Result<Removal, Error> {
        if self.options.etcd.is_empty() {
            let holds = self.options.holder.as_deref() == Some(node);
            return Ok(if holds { Removal::Refused(HOLDS_ALL) } else { Removal::Done });
        }
        let members = self.members()?;
        let listed = members.list().await?;
        let Some(found) = listed.iter().find(|known| known.name == member) else {
            return Ok(Removal::Done);
        };
        if is_last(&listed, found) {
            return Ok(Removal::Refused(LAST));
        }
        members.remove(found.id).await?;
        info!(member, node, "member of etcd removed");
        Ok(Removal::Done)
    }

    async fn node_gone(&self, node: &str) -> Result<(), Error> {
        if self.options.etcd.is_empty() {
            return Ok(());
        }
        let members = self.members()?;
        let listed = members.list().await?;
        for member in listed.iter().filter(|member| is_of(&member.name, node)) {
            if is_last(&listed, member) {
                warn!(node, "the only voting member of etcd stays, though its node is gone");
                continue;
            }
            members.remove(member.id).await?;
            info!(member = member.name, node, "member of etcd removed with its node");
        }
        Ok(())
    }

    fn members(&self) -> Result<Members, Error> {
        let mut endpoints = self.options.etcd.clone();
        if let Some(backends) = &self.options.members {
            endpoints.extend(backends.list().iter().map(|host| format!("https://{host}")));
        }
        Ok(Members::new(&self.options.paths, endpoints)?)
    }

    async fn annotate(&self, node: &Node, annotations: Value) -> Result<(), Error> {
        let api: Api<Node> = Api::all(self.ctx.client.clone());
        let patch = json!({"metadata": {"uid": node.uid(), "annotations": annotations}});
        let name = node.name_any();
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(failed("annotate", format!("node {name}")))
    }
}

fn is_last(listed: &[Member], member: &Member) -> bool {
    !member.is_learner && listed.iter().filter(|member| !member.is_learner).count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(annotations: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}})).unwrap()
    }

    #[test]
    fn a_node_asks_for_the_removal_of_its_member() {
        let ask = |annotations: Value| request(Distribution::K3s, &node(annotations));
        let name = "etcd.k3s.cattle.io/node-name";
        assert_eq!(ask(json!({name: "n-1"})), Request::None);
        assert_eq!(
            ask(json!({name: "n-1", "etcd.k3s.cattle.io/remove": "true"})),
            Request::Remove { member: "n-1".to_owned() }
        );
        assert_eq!(ask(json!({"etcd.k3s.cattle.io/removed-node-name": "n-1"})), Request::None);
        assert_eq!(ask(json!({name: "n-2", "etcd.k3s.cattle.io/removed-node-name": "n-1"})), Request::Forget);
    }

    #[test]
    fn members_are_known_by_their_nodes_name() {
        assert!(is_of("cp-1-0a1b2c3d", "cp-1"));
        assert!(!is_of("cp-1-0a1b2c3d", "cp"));
        assert!(!is_of("cp-1", "cp-1"));
    }
}
