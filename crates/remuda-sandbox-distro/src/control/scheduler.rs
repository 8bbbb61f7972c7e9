//! The scheduler: gives Pods a Node that takes them, the emptiest one.
//!
//! Reads   Pods without a node, and Nodes.
//! Writes  bindings, and the condition that says why there is no Node.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{
        Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodCondition, PodStatus, Taint, Toleration,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, ResourceExt, api::PostParams};
use remuda_control::{Action, Controller, Ctx, Informer, Scope, drive, write};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Error, SEE, failed, is_gone, pods};

/// Who schedules Pods that do not say.
const NAME: &str = "default-scheduler";
const HOSTNAME: &str = "kubernetes.io/hostname";

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let waiting = pods::informer(&ctx);
    let controller = Controller::<Pod>::new("scheduler", &ctx)
        .watches(&nodes, move |_: &Node| waiting.keys_by_index(pods::NODE, ""))
        // One at a time, so that each sees where the one before went.
        .workers(1);
    drive(controller, reconcile, ctx, stop).await;
}

async fn reconcile(pod: Arc<Pod>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let spec = pod.spec.clone().unwrap_or_default();
    let ours = spec.scheduler_name.as_deref().unwrap_or(NAME) == NAME;
    let held = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    if !ours || held || pods::node_of(&pod).is_some() || !pods::is_active(&pod) {
        return Ok(Action::AwaitChange);
    }
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let informer = pods::informer(&ctx);
    let candidates: Vec<Candidate> = nodes
        .list()
        .into_iter()
        .map(|node| {
            let there = informer.by_index(pods::NODE, &node.name_any());
            Candidate { pods: there.into_iter().filter(|pod| !pods::is_over(pod)).collect(), node }
        })
        .collect();
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &pod.namespace().unwrap_or_default());
    match choose(&pod, &candidates) {
        Ok(node) => bind(&ctx, &api, &pod, &node).await?,
        Err(reason) => say(&ctx, &api, &pod, &reason).await?,
    }
    Ok(Action::AwaitChange)
}

/// A node and what is on it.
pub struct Candidate {
    pub node: Arc<Node>,
    pub pods: Vec<Arc<Pod>>,
}

/// The node for a Pod, or why there is none, in the words of kube-scheduler.
pub fn choose(pod: &Pod, candidates: &[Candidate]) -> Result<String, String> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(usize, usize, String)> = None;
    for candidate in candidates {
        match fits(pod, candidate) {
            Err(reason) => *reasons.entry(reason).or_default() += 1,
            Ok(unwelcome) => {
                let rank = (unwelcome, candidate.pods.len(), candidate.node.name_any());
                if best.as_ref().is_none_or(|best| rank < *best) {
                    best = Some(rank);
                }
            }
        }
    }
    if let Some((_, _, name)) = best {
        return Ok(name);
    }
    if candidates.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let reasons: Vec<String> =
        reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    Err(format!("0/{} nodes are available: {}.", candidates.len(), reasons.join(", ")))
}

/// Whether a node takes the Pod; if so, how many of its taints would rather it did not.
fn fits(pod: &Pod, candidate: &Candidate) -> Result<usize, String> {
    let node = &candidate.node;
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let unschedulable = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    if cordoned && !tolerates(tolerations, &unschedulable) {
        return Err("node(s) were unschedulable".to_owned());
    }
    if node.metadata.deletion_timestamp.is_some() {
        return Err("node(s) were being deleted".to_owned());
    }
    let hard = |taint: &&Taint| taint.effect != "PreferNoSchedule" && !tolerates(tolerations, taint);
    if let Some(taint) = taints.iter().find(hard) {
        let value = taint.value.as_deref().unwrap_or_default();
        return Err(format!("node(s) had untolerated taint(s) {{{}: {value}}}", taint.key));
    }
    if !wants(pod, node) {
        return Err("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    if keeps_away(pod, candidate) {
        return Err("node(s) didn't match pod anti-affinity rules".to_owned());
    }
    let limit = node.status.as_ref().and_then(|status| status.allocatable.as_ref()?.get("pods"));
    let limit = limit.and_then(|quantity| quantity.0.parse::<usize>().ok()).unwrap_or(110);
    if candidate.pods.len() >= limit {
        return Err("Too many pods".to_owned());
    }
    Ok(taints
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(tolerations, taint))
        .count())
}

pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let key = toleration.key.as_deref().unwrap_or_default();
        let exists = toleration.operator.as_deref() == Some("Exists");
        (effect.is_empty() || effect == taint.effect)
            && (key == taint.key || (key.is_empty() && exists))
            && (exists
                || toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default())
    })
}

/// What the Pod says about nodes: its node selector and its required node affinity.
pub fn wants(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.labels();
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let matched =
        required.is_none_or(|required| required.node_selector_terms.iter().any(|term| holds(term, node)));
    selected && matched
}

fn holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    let (labels, fields) = (labels.unwrap_or_default(), fields.unwrap_or_default());
    let name = node.name_any();
    // A term without requirements matches nothing.
    !(labels.is_empty() && fields.is_empty())
        && labels
            .iter()
            .all(|requirement| met(requirement, node.labels().get(&requirement.key).map(String::as_str)))
        && fields
            .iter()
            .all(|requirement| requirement.key == "metadata.name" && met(requirement, Some(&name)))
}

fn met(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|known| known == value));
    let compare = |than: fn(&i64, &i64) -> bool| {
        let left = value.and_then(|value| value.parse::<i64>().ok());
        let right = values.first().and_then(|value| value.parse::<i64>().ok());
        left.zip(right).is_some_and(|(left, right)| than(&left, &right))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

/// Required anti-affinity, for single nodes.
fn keeps_away(pod: &Pod, candidate: &Candidate) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = anti.and_then(|anti| anti.required_during_scheduling_ignored_during_execution.as_deref());
    terms.unwrap_or_default().iter().filter(|term| term.topology_key == HOSTNAME).any(|term| {
        candidate.pods.iter().any(|there| {
            let selected =
                term.label_selector.as_ref().is_some_and(|selector| pods::selects(selector, there.labels()));
            selected && there.namespace() == pod.namespace()
        })
    })
}

async fn bind(ctx: &Ctx, api: &Api<Pod>, pod: &Pod, node: &str) -> Result<(), Error> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.name_any(), "namespace": pod.namespace(), "uid": pod.uid()},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let name = pod.name_any();
    let bound: Result<serde_json::Value, _> =
        api.create_subresource("binding", &name, &PostParams::default(), &binding).await;
    match bound {
        Ok(_) => {
            // The next Pod must see this one where it went.
            let informer = pods::informer(ctx);
            let version = api.get_opt(&name).await.map_err(failed("read", format!("pod {name}")))?;
            if let Some(version) = version.and_then(|pod| pod.resource_version()) {
                informer.wait_for(&version, SEE).await;
            }
            Ok(())
        }
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(failed("bind", format!("pod {name}"))(error)),
    }
}

async fn say(ctx: &Ctx, api: &Api<Pod>, pod: &Pod, reason: &str) -> Result<(), Error> {
    let mut status: PodStatus = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter_mut().find(|condition| condition.type_ == "PodScheduled");
    match known {
        Some(condition) if condition.message.as_deref() == Some(reason) => return Ok(()),
        Some(condition) => condition.message = Some(reason.to_owned()),
        None => conditions.push(PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            message: Some(reason.to_owned()),
            last_transition_time: Some(Time(ctx.clock.now())),
            ..PodCondition::default()
        }),
    }
    write::patch_status(ctx, api, pod, &(), pod.status.as_ref(), &status, false).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
