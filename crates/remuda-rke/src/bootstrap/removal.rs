//! Keeps the server of an etcd machine until etcd has let go of the member.
//!
//! A hook annotation on the Machine makes Cluster API wait. What is decided about it is the planner's
//! business ([`remuda_planner::removal`]); here is what it looks at and what it asks for.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::{RkeBootstrap, RkeControlPlane},
};
use remuda_control::{Enqueuer, ObjectKey, write::conditions::ConditionUpdate};
use remuda_distro::Distro;
use remuda_names::{
    annotation::{ETCD_LEAVING, ETCD_REMOVAL_REFUSED},
    cluster_agent,
    rancher::{annotation, condition, label, name},
};
use remuda_planner::{
    input,
    removal::{self, Decision, Held},
};
use remuda_workload::{Lease, Refused, What, Workloads};
use serde_json::json;

use super::Bootstraps;
use crate::{
    Error,
    conditions::rfc3339,
    error::is_code,
    machines::{Reading, Seen},
    objects,
    shared::{BY_BOOTSTRAP, BY_UID, Rke, filed},
};

/// A cluster that is back wakes us; this is for one whose event was missed.
const UNREACHABLE: Duration = Duration::from_secs(60);
/// How soon etcd is asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// How soon it is asked again after it said no.
const REFUSED: Duration = Duration::from_secs(60);
const MOVING: &str = "waiting for the cluster agent to move to another node";

/// What is to be done about the hook.
pub(super) enum Hook {
    /// Nothing now.
    Free,
    /// The machine must stay; look again after so long.
    Held(Duration),
}

/// Wakes RKEBootstraps when the Node of their Machine changes, or the way to the cluster.
pub(super) fn connections(rke: &Rke, enqueuer: &Enqueuer) -> remuda_workload::Subscription {
    let (machines, bootstraps, enqueuer) = (rke.machines.clone(), rke.bootstraps.clone(), enqueuer.clone());
    rke.workloads.subscribe(move |event| {
        let namespace = event.cluster.namespace.as_deref().unwrap_or_default();
        match &event.what {
            What::Connected => {
                let keys = bootstraps
                    .keys_by_index(crate::shared::BY_CLUSTER, &filed(namespace, &event.cluster.name));
                keys.into_iter().for_each(|key| enqueuer.enqueue(key));
            }
            What::Node { old, new } => {
                let uids = old.iter().chain(new).filter_map(|node| node.labels().get(label::MACHINE));
                let woken = uids.flat_map(|uid| machines.by_index(BY_UID, uid));
                for machine in woken.filter(|machine| objects::is_deleting(&machine.metadata)) {
                    if let Some(name) = objects::bootstrap_of(&machine) {
                        enqueuer.enqueue(ObjectKey::of(&machine.metadata).sibling(name));
                    }
                }
            }
            _ => {}
        }
    })
}

/// A member that is to go.
struct Leaving<'a> {
    machine: &'a Machine,
    bootstrap: &'a RkeBootstrap,
    cluster: ObjectKey,
    distro: Distro,
}

impl Bootstraps {
    /// Looks after the hook of the Machine.
    pub(super) async fn hook(&self, key: &ObjectKey, bootstrap: &RkeBootstrap) -> Result<Hook, Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let found = self.rke.machines.by_index(BY_BOOTSTRAP, &filed(namespace, &key.name));
        let Some(machine) = found.into_iter().next() else {
            return Ok(Hook::Free);
        };
        let alive = self.alive(&machine, bootstrap).await?;
        let decision = decide(&Question {
            machine: &machine,
            bootstrap,
            alive: alive.is_some(),
            distro: alive.as_ref().map_or(Distro::K3s, |(_, distro)| *distro),
            seen: None,
            node: removal::Node::Unread,
            now: self.rke.ctx.clock.now(),
        });
        match (decision, alive) {
            (Ask::Do(decision), _) => self.carry_out(&machine, None, decision).await,
            (Ask::More, Some((cluster, distro))) => {
                let leaving = Leaving { machine: &machine, bootstrap, cluster, distro };
                self.leave(key, &leaving).await
            }
            (Ask::More, None) => Ok(Hook::Free),
        }
    }

    /// The cluster of a Machine and what it runs, unless it is gone or going. That it is missing must be known
    /// from the API itself: a cache may lag, and the answer lets a server with data go.
    async fn alive(
        &self,
        machine: &Machine,
        bootstrap: &RkeBootstrap,
    ) -> Result<Option<(ObjectKey, Distro)>, Error> {
        if bootstrap.spec.cluster_name.is_empty() {
            return Ok(None);
        }
        let cluster = self.rke.cluster_of(machine);
        let control_plane = cluster.as_ref().and_then(|cluster| self.rke.control_plane_of(cluster));
        if let (Some(cluster), Some(control_plane)) = (cluster, control_plane) {
            return Ok(living(&cluster, &control_plane));
        }
        let going = objects::is_deleting(&machine.metadata) || objects::is_deleting(&bootstrap.metadata);
        if !going {
            // Nothing is decided by it.
            return Ok(None);
        }
        let namespace = machine.namespace().unwrap_or_default();
        let clusters: Api<Cluster> = self.rke.api(&namespace);
        let name = &machine.spec.cluster_name;
        let cluster = clusters.get_opt(name).await;
        let cluster = cluster.map_err(Error::api("read", format!("Cluster {namespace}/{name}")))?;
        let Some(cluster) = cluster else { return Ok(None) };
        let reference = &cluster.spec.control_plane_ref;
        if !objects::is_control_plane(reference) {
            return Ok(None);
        }
        let control_planes: Api<RkeControlPlane> = self.rke.api(&namespace);
        let found = control_planes.get_opt(&reference.name).await;
        let found =
            found.map_err(Error::api("read", format!("RKEControlPlane {namespace}/{}", reference.name)))?;
        Ok(found.and_then(|control_plane| living(&cluster, &control_plane)))
    }

    /// Asks etcd to let a member go.
    async fn leave(&self, key: &ObjectKey, leaving: &Leaving<'_>) -> Result<Hook, Error> {
        let now = self.rke.ctx.clock.now();
        let ask = |seen: &Seen, node| {
            decide(&Question {
                machine: leaving.machine,
                bootstrap: leaving.bootstrap,
                alive: true,
                distro: leaving.distro,
                seen: Some(seen),
                node,
                now,
            })
        };
        let seen = self.rke.see_machines(&leaving.cluster, Reading::Cached).await?;
        let first = ask(&seen, removal::Node::Unread);
        let (node, read) = match first {
            Ask::Do(Decision::ReadNode) => match self.read_node(key, leaving).await? {
                Ok(read) => (read.node.clone(), Some(read)),
                Err(why) => {
                    self.say(leaving.machine, &why).await?;
                    return Ok(Hook::Held(UNREACHABLE));
                }
            },
            Ask::Do(Decision::RemoveHook(_)) => (removal::Node::Unread, None),
            Ask::Do(decision) => return self.carry_out(leaving.machine, None, decision).await,
            Ask::More => return Ok(Hook::Free),
        };
        // From here on nobody else changes the members of this cluster.
        let _alone = self.rke.locks.of(&leaving.cluster).await;
        let seen = self.rke.see_machines(&leaving.cluster, Reading::Fresh).await?;
        match ask(&seen, node) {
            Ask::Do(Decision::ReadNode) => Ok(Hook::Held(AGAIN)),
            Ask::Do(decision) => {
                let target =
                    read.map(|read| Target { lease: read.lease, seen: &seen, refused: read.refused });
                self.carry_out(leaving.machine, target, decision).await
            }
            Ask::More => Ok(Hook::Free),
        }
    }

    /// The Node as the cluster has it now. The inner error is why it cannot be asked.
    async fn read_node(&self, key: &ObjectKey, leaving: &Leaving<'_>) -> Result<Result<Read, String>, Error> {
        let lease = match lease(&self.rke.workloads, &leaving.cluster, &self.enqueuer, key) {
            Ok(lease) => lease,
            Err(why) => return Ok(Err(why)),
        };
        let status = leaving.machine.status.as_ref();
        let name = status.map(|status| status.node_ref.name.clone()).unwrap_or_default();
        let nodes: Api<Node> = Api::all(lease.client());
        let node = match lease.call(nodes.get_opt(&name)).await {
            Err(down) => return Ok(Err(down.to_string())),
            Ok(answer) => answer.map_err(Error::api("read", format!("Node {name}")))?,
        };
        let answer = removal::removed_annotation(leaving.distro);
        let said = |node: &Node, key: &str| {
            node.annotations().get(key).filter(|said| !said.is_empty()).map(|said| truncated(said))
        };
        let refused = node.as_ref().and_then(|node| said(node, ETCD_REMOVAL_REFUSED));
        let node = node.map_or(removal::Node::Missing, |node| removal::Node::Present {
            removed: said(&node, &answer).is_some(),
        });
        Ok(Ok(Read { node, lease, refused }))
    }

    async fn carry_out(
        &self,
        machine: &Machine,
        target: Option<Target<'_>>,
        decision: Decision,
    ) -> Result<Hook, Error> {
        match decision {
            Decision::Nothing => Ok(Hook::Free),
            Decision::AddHook => {
                self.annotate(machine, Some(annotation::PRE_TERMINATE_OWNER)).await?;
                Ok(Hook::Free)
            }
            Decision::RemoveHook(why) => {
                tracing::info!(machine = machine.name_any(), ?why, "etcd machine may go");
                self.annotate(machine, None).await?;
                Ok(Hook::Free)
            }
            Decision::ReadNode => Ok(Hook::Held(AGAIN)),
            Decision::RemoveMember { annotation } => {
                if let Some(target) = target {
                    if target.refused.is_none() && self.move_agent(machine, &target.lease).await? {
                        self.say(machine, MOVING).await?;
                        return Ok(Hook::Held(AGAIN));
                    }
                    self.remove_member(machine, &target, &annotation).await?;
                    if let Some(why) = &target.refused {
                        self.say(machine, &format!("etcd does not let its member go: {why}")).await?;
                        return Ok(Hook::Held(REFUSED));
                    }
                }
                self.say(machine, &Held::Removing.to_string()).await?;
                Ok(Hook::Held(AGAIN))
            }
            Decision::Wait(held, seconds) => {
                self.say(machine, &held.to_string()).await?;
                Ok(Hook::Held(Duration::from_secs(seconds)))
            }
        }
    }

    /// Sends the cluster agent elsewhere, if it is on this node and there is somewhere else. We speak through it,
    /// and it through the API of its node, which ends with the member.
    async fn move_agent(&self, machine: &Machine, lease: &Lease) -> Result<bool, Error> {
        let name = machine.status.as_ref().map(|status| status.node_ref.name.clone()).unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(lease.client(), name::SYSTEM);
        let here = ListParams::default()
            .labels(&format!("app={}", cluster_agent::NAME))
            .fields(&format!("spec.nodeName={name}"));
        let listed = lease.call(pods.list(&here)).await?;
        let agents = listed.map_err(Error::api("list", "the pods of the cluster agent".to_owned()))?.items;
        let agents: Vec<String> = agents
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .map(ResourceExt::name_any)
            .collect();
        if agents.is_empty() {
            return Ok(false);
        }
        let nodes: Api<Node> = Api::all(lease.client());
        let listed = lease.call(nodes.list(&ListParams::default())).await?;
        let others = listed.map_err(Error::api("list", "the nodes".to_owned()))?.items;
        if !others.iter().any(|node| node.name_any() != name && takes_pods(node)) {
            return Ok(false);
        }
        let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
        let cordoned = lease.call(nodes.patch(&name, &self.rke.params(), &cordon)).await?;
        cordoned.map_err(Error::api("cordon", format!("Node {name}")))?;
        for agent in agents {
            tracing::info!(machine = machine.name_any(), agent, "cluster agent leaves with its node");
            let deleted = lease.call(pods.delete(&agent, &DeleteParams::default())).await?;
            match deleted {
                Err(error) if !is_code(&error, 404) => {
                    return Err(Error::api("delete", format!("Pod {agent}"))(error));
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// Marks the plan Secret first: whoever stops in between must not forget that the member is on its way out.
    async fn remove_member(
        &self,
        machine: &Machine,
        target: &Target<'_>,
        annotation: &str,
    ) -> Result<(), Error> {
        let name = machine.name_any();
        let namespace = machine.namespace().unwrap_or_default();
        let view = target.seen.machines.iter().find(|view| view.name == name);
        if let Some(secret) = view.and_then(|view| view.plan_secret.as_ref()) {
            let mut marked = secret.clone();
            let now = rfc3339(self.rke.ctx.clock.now());
            marked.annotations.entry(ETCD_LEAVING.to_owned()).or_insert(now);
            let version = target.seen.versions.get(&secret.name).map_or("", String::as_str);
            self.rke.write_plan(&namespace, version, secret, &marked).await?;
        }
        let node = machine.status.as_ref().map(|status| status.node_ref.name.clone()).unwrap_or_default();
        let nodes: Api<Node> = Api::all(target.lease.client());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation: "true"}}}));
        match target.lease.call(nodes.patch(&node, &self.rke.params(), &patch)).await? {
            Err(error) if !is_code(&error, 404) => Err(Error::api("annotate", format!("Node {node}"))(error)),
            _ => Ok(()),
        }
    }

    async fn annotate(&self, machine: &Machine, hook: Option<&str>) -> Result<(), Error> {
        let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
        let machines: Api<Machine> = self.rke.api(&namespace);
        let patch = json!({
            "metadata": {"uid": machine.uid(), "annotations": {annotation::PRE_TERMINATE: hook}},
        });
        match machines.patch(&name, &self.rke.params(), &Patch::Merge(patch)).await {
            Ok(written) => {
                self.rke.seen(&self.rke.machines, Some(&written)).await;
                Ok(())
            }
            // Gone, or another one by now.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
            Err(error) => Err(Error::api("write", format!("Machine {namespace}/{name}"))(error)),
        }
    }

    /// Says on the Machine why it is still there.
    async fn say(&self, machine: &Machine, message: &str) -> Result<(), Error> {
        if !objects::is_deleting(&machine.metadata) {
            return Ok(());
        }
        let says = ConditionUpdate {
            kind: condition::RECONCILED,
            status: None,
            reason: "Waiting",
            message,
            generation: None,
        };
        self.rke.mark(&ObjectKey::of(&machine.metadata), says).await.map(drop)
    }
}

/// What the cluster says about a Node.
struct Read {
    node: removal::Node,
    lease: Lease,
    /// Why its member cannot go.
    refused: Option<String>,
}

/// What a removal writes to.
struct Target<'a> {
    lease: Lease,
    seen: &'a Seen,
    refused: Option<String>,
}

/// Of a text from a workload cluster as much as belongs into a message.
fn truncated(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

fn lease(
    workloads: &Workloads,
    cluster: &ObjectKey,
    enqueuer: &Enqueuer,
    key: &ObjectKey,
) -> Result<Lease, String> {
    workloads.lease(cluster, enqueuer, key).map_err(|refused| match refused {
        Refused::Down(down) => down.to_string(),
        Refused::Busy => "waiting for other calls to the workload cluster".to_owned(),
    })
}

fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
    ready && node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true)
}

fn living(cluster: &Cluster, control_plane: &RkeControlPlane) -> Option<(ObjectKey, Distro)> {
    let going = objects::is_deleting(&cluster.metadata) || objects::is_deleting(&control_plane.metadata);
    let distro = Distro::of(&control_plane.spec.kubernetes_version);
    (!going).then(|| (ObjectKey::of(&cluster.metadata), distro))
}

/// What is asked about one Machine.
struct Question<'a> {
    machine: &'a Machine,
    bootstrap: &'a RkeBootstrap,
    alive: bool,
    distro: Distro,
    /// `None` before anybody looked at the other machines.
    seen: Option<&'a Seen>,
    node: removal::Node,
    now: jiff::Timestamp,
}

enum Ask {
    Do(Decision),
    /// The other machines have to be looked at first.
    More,
}

fn decide(question: &Question<'_>) -> Ask {
    let Question { machine, bootstrap, alive, distro, seen, ref node, now } = *question;
    let hooked = objects::has_annotation(&machine.metadata, annotation::PRE_TERMINATE);
    let etcd_label = machine.labels().contains_key(label::ETCD_ROLE);
    let force =
        bootstrap.annotations().get(annotation::ETCD_FORCE_REMOVE).is_some_and(|force| force == "true");
    let bootstrap_deleting = objects::is_deleting(&bootstrap.metadata);
    let going = objects::is_deleting(&machine.metadata) || bootstrap_deleting;
    if seen.is_none() && going && hooked && etcd_label && !force && alive {
        return Ask::More;
    }
    let nobody = input::Machine::default();
    let name = machine.name_any();
    let machines = seen.map_or(&[][..], |seen| &seen.machines);
    let view = machines.iter().find(|view| view.name == name).unwrap_or(&nobody);
    let decision = removal::decide(&removal::Input {
        now,
        machine: view,
        deleted_at: machine.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        etcd_label,
        hooked,
        bootstrap_deleting,
        force,
        cluster: if alive { removal::Cluster::Alive } else { removal::Cluster::Gone },
        distro,
        machines,
        node: node.clone(),
    });
    Ask::Do(decision)
}

#[cfg(test)]
mod tests {
    use remuda_names::capi::annotation as capi_annotation;
    use remuda_planner::removal::Gone;

    use super::*;

    fn asked(change: impl FnOnce(&mut Machine, &mut RkeBootstrap)) -> String {
        let mut machine = Machine::default();
        machine.metadata.name = Some("m".into());
        machine.metadata.labels = Some([(label::ETCD_ROLE.into(), "true".into())].into());
        let mut bootstrap = RkeBootstrap::named("m");
        change(&mut machine, &mut bootstrap);
        let question = Question {
            machine: &machine,
            bootstrap: &bootstrap,
            alive: true,
            distro: Distro::K3s,
            seen: None,
            node: removal::Node::Unread,
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        match decide(&question) {
            Ask::More => "look at the others".to_owned(),
            Ask::Do(decision) => format!("{decision:?}"),
        }
    }

    fn hook(machine: &mut Machine) {
        machine.metadata.annotations = Some([(annotation::PRE_TERMINATE.into(), "x".into())].into());
    }

    fn delete(machine: &mut Machine) {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
        machine.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn other_machines_are_looked_at_only_when_a_member_is_to_go() {
        assert_eq!(asked(|_, _| {}), "AddHook");
        assert_eq!(asked(|machine, _| hook(machine)), "Nothing");
        let leaving = asked(|machine, _| {
            hook(machine);
            delete(machine);
        });
        assert_eq!(leaving, "look at the others");
        let forced = asked(|machine, bootstrap| {
            hook(machine);
            delete(machine);
            bootstrap.metadata.annotations =
                Some([(annotation::ETCD_FORCE_REMOVE.into(), "true".into())].into());
        });
        assert_eq!(forced, format!("RemoveHook({:?})", Gone::Forced));
        let worker = asked(|machine, _| {
            hook(machine);
            machine.metadata.labels = None;
        });
        assert_eq!(worker, format!("RemoveHook({:?})", Gone::NotEtcd));
    }

    #[test]
    fn the_hook_is_one_that_machines_wait_for() {
        assert!(annotation::PRE_TERMINATE.starts_with(capi_annotation::PRE_TERMINATE_HOOK));
    }
}
