//! Draining the Node of a Machine: pods are evicted as their budgets and the rules of the namespace allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch},
    core::Status,
};
use remuda_api::core::{MachineDrainRule, MachineSelector, PodSelector};
use remuda_control::write::{controller_of, evict as evict_pod};
use remuda_rollout::{
    machine::drain::{self, Behavior, Controller, Input, Outcome, Plan, PodKey, Rule},
    selector::{Labels, Selector},
};
use remuda_workload::{
    Lease,
    budget::{self, is_budget},
};
use serde_json::json;
use tokio::time::Instant;

use super::{DrainBlocked, Machines, Pass, delete::Trouble, node::is_unreachable};
use crate::{
    error::{Error, is_code},
    view,
};

/// How long one pass evicts pods.
const EVICTING: Duration = Duration::from_secs(10);
/// Objects in one page of a list.
const PAGE: u32 = 100;

/// What keeps a drain from being over.
pub(super) struct Left {
    /// For people to read.
    pub(super) message: String,
    pub(super) blocked: DrainBlocked,
}

/// One pass of a drain; `None` when it is over.
pub(super) async fn drain(
    machines: &Machines,
    pass: &Pass,
    name: &str,
    since: Timestamp,
) -> Result<Option<Left>, Trouble> {
    let Some(node) = machines.capi.workloads.node(&pass.cluster_key, name)? else {
        // Somebody deleted it; there is nothing left to drain.
        return Ok(None);
    };
    let lease = machines.capi.workloads.lease(&pass.cluster_key, &machines.enqueuer, &pass.key)?;
    cordon(machines, &lease, &node).await?;
    let survey = survey(machines, pass, &lease, name, is_unreachable(&node)).await?;
    for (pod, warning) in &survey.plan.warnings {
        tracing::debug!(machine = %pass.key, pod, ?warning, "evicting pod all the same");
    }
    let (outcome, kept) = evict(&lease, &survey.plan).await?;
    if outcome.is_done() {
        return Ok(None);
    }
    let kept: Vec<&Pod> = survey.pods.iter().filter(|pod| kept.contains(&key(pod))).collect();
    let blocked = budget::find(&lease, &kept).await?;
    let blocked = blocked.map_err(Error::api("list", "PodDisruptionBudgets"))?;
    let blocked = match budget::told(&blocked) {
        told if told.is_empty() => DrainBlocked::No,
        told => DrainBlocked::ByBudgets(told),
    };
    Ok(Some(Left { message: outcome.message(since), blocked }))
}

fn key(pod: &Pod) -> PodKey {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

async fn cordon(machines: &Machines, lease: &Lease, node: &Node) -> Result<(), Trouble> {
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        return Ok(());
    }
    let name = node.name_any();
    let nodes: Api<Node> = Api::all(lease.client());
    let patch = Patch::Merge(json!({"metadata": {"uid": node.uid()}, "spec": {"unschedulable": true}}));
    let params = machines.params();
    match lease.call(nodes.patch(&name, &params, &patch)).await? {
        Err(error) if !is_code(&error, 404) => {
            Err(Error::api("cordon", format!("Node {name}"))(error).into())
        }
        _ => Ok(()),
    }
}

/// The pods of a Node and what is to become of them.
pub(super) struct Survey {
    pub(super) pods: Vec<Pod>,
    pub(super) plan: Plan,
}

pub(super) async fn survey(
    machines: &Machines,
    pass: &Pass,
    lease: &Lease,
    node: &str,
    unreachable: bool,
) -> Result<Survey, Trouble> {
    let api: Api<Pod> = Api::all(lease.client());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = list(lease, &api, params, "pods").await?;
    if pods.is_empty() {
        return Ok(Survey { pods, plan: Plan::default() });
    }
    let rules = rules(machines, pass)?;
    let daemon_sets = missing_daemon_sets(lease, &pods).await?;
    let namespaces = namespaces(lease, &pods, &rules).await?;
    let views: Vec<drain::Pod> = pods.iter().map(|pod| view(pod, &daemon_sets)).collect();
    let input = Input {
        pods: &views,
        rules: &rules,
        machine: pass.after.labels(),
        cluster: pass.cluster.labels(),
        namespaces: &namespaces,
        unreachable,
    };
    let plan = drain::plan(&input, pass.now);
    if !plan.blocked.is_empty() {
        let told: BTreeSet<String> = plan.blocked.iter().map(ToString::to_string).collect();
        let told: Vec<String> = told.into_iter().collect();
        return Err(Error::Invalid(told.join("; ")).into());
    }
    Ok(Survey { pods, plan })
}

/// All pages of a list.
pub(super) async fn list<K>(
    lease: &Lease,
    api: &Api<K>,
    params: ListParams,
    what: &'static str,
) -> Result<Vec<K>, Trouble>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut params = params.limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = lease.call(api.list(&params)).await?.map_err(Error::api("list", what))?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(found),
        }
    }
}

fn rules(machines: &Machines, pass: &Pass) -> Result<Vec<Rule>, Error> {
    machines.rules.in_namespace(&pass.namespace).iter().map(|known| rule(known)).collect()
}

/// A rule that says what nobody knows stops the drain: it may mean that a pod must not go.
fn rule(rule: &MachineDrainRule) -> Result<Rule, Error> {
    let spec = &rule.spec;
    let name = rule.name_any();
    let selector = |read: &Option<LabelSelector>| -> Result<Option<Selector>, Error> {
        let Some(read) = read else {
            return Ok(None);
        };
        let known = ["In", "NotIn", "Exists", "DoesNotExist"];
        let mut operators = read.match_expressions.iter().flatten().map(|expression| &expression.operator);
        match operators.find(|operator| !known.contains(&operator.as_str())) {
            Some(odd) => Err(Error::Invalid(format!(
                "selector of MachineDrainRule {name} has the unknown operator {odd:?}"
            ))),
            None => Ok(Some(view::selector(read))),
        }
    };
    let machines = spec.machines.iter().map(|MachineSelector { selector: own, cluster_selector }| {
        Ok((selector(own)?, selector(cluster_selector)?))
    });
    let machines = machines.collect::<Result<_, Error>>()?;
    let pods = spec.pods.iter().map(|PodSelector { selector: own, namespace_selector }| {
        Ok((selector(own)?, selector(namespace_selector)?))
    });
    let pods = pods.collect::<Result<_, Error>>()?;
    let behavior = match spec.drain.behavior.as_str() {
        "Drain" => Behavior::Drain { order: spec.drain.order.unwrap_or(0) },
        "Skip" => Behavior::Skip,
        "WaitCompleted" => Behavior::WaitCompleted,
        odd => {
            return Err(Error::Invalid(format!("MachineDrainRule {name} has the unknown behavior {odd:?}")));
        }
    };
    Ok(Rule { name, machines, pods, behavior })
}

/// DaemonSets that pods name and that are not there, as namespace and name.
async fn missing_daemon_sets(lease: &Lease, pods: &[Pod]) -> Result<BTreeSet<(String, String)>, Trouble> {
    let named: BTreeSet<(String, String)> = pods.iter().filter_map(daemon_set).collect();
    let mut missing = BTreeSet::new();
    for (namespace, name) in named {
        let sets: Api<DaemonSet> = Api::namespaced(lease.client(), &namespace);
        let found = lease.call(sets.get_metadata_opt(&name)).await?;
        let found = found.map_err(Error::api("read", format!("DaemonSet {namespace}/{name}")))?;
        if found.is_none() {
            missing.insert((namespace, name));
        }
    }
    Ok(missing)
}

fn daemon_set(pod: &Pod) -> Option<(String, String)> {
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
    Some((pod.namespace().unwrap_or_default(), owner.name.clone()))
}

/// Labels of the pods' namespaces, which are asked for only if a rule is about them.
async fn namespaces(
    lease: &Lease,
    pods: &[Pod],
    rules: &[Rule],
) -> Result<BTreeMap<String, Labels>, Trouble> {
    let asked = rules.iter().any(|rule| rule.pods.iter().any(|(_, namespace)| namespace.is_some()));
    if !asked {
        return Ok(pods.iter().map(|pod| (pod.namespace().unwrap_or_default(), Labels::new())).collect());
    }
    let api: Api<Namespace> = Api::all(lease.client());
    let all = list(lease, &api, ListParams::default(), "namespaces").await?;
    Ok(all.into_iter().map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect())
}

fn view(pod: &Pod, missing: &BTreeSet<(String, String)>) -> drain::Pod {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    drain::Pod {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        labels: pod.labels().clone(),
        mirror: drain::Pod::is_mirror(pod.annotations()),
        controller: match (controller_of(&pod.metadata), daemon_set(pod)) {
            (None, _) => Controller::None,
            (_, Some(set)) if missing.contains(&set) => Controller::OrphanedDaemonSet,
            (_, Some(_)) => Controller::DaemonSet,
            (_, None) => Controller::Other,
        },
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        local_storage: volumes.into_iter().flatten().any(|volume| volume.empty_dir.is_some()),
        deleted: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
    }
}

/// Evicts what the plan says, for a while. Tells beside it which pods a budget keeps.
async fn evict(lease: &Lease, plan: &Plan) -> Result<(Outcome, BTreeSet<PodKey>), Trouble> {
    let mut outcome = Outcome::of(plan);
    let mut kept = BTreeSet::new();
    let until = Instant::now() + EVICTING;
    let client = lease.client();
    for pod in &plan.evict {
        if Instant::now() >= until {
            outcome.out_of_time(pod.clone());
            continue;
        }
        match lease.call(evict_one(&client, pod, plan.grace_seconds)).await? {
            Ok(()) => outcome.evicted(pod.clone()),
            Err(error) => {
                if is_budget(&error) {
                    kept.insert(pod.clone());
                }
                refused(&mut outcome, pod, &error);
            }
        }
    }
    Ok((outcome, kept))
}

async fn evict_one(client: &Client, pod: &PodKey, grace_seconds: Option<u32>) -> Result<(), kube::Error> {
    let (namespace, name) = pod.split_once('/').unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    evict_pod(&pods, namespace, name, grace_seconds).await
}

fn refused(outcome: &mut Outcome, pod: &PodKey, error: &kube::Error) {
    let kube::Error::Api(status) = error else {
        outcome.refused(pod.clone(), &error.to_string(), &[]);
        return;
    };
    let causes = |status: &Status| -> Vec<(String, String)> {
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes.map(|cause| (cause.reason.clone(), cause.message.clone())).collect()
    };
    let causes = causes(status);
    match status.code {
        404 => {}
        429 => {
            let told: Vec<String> = causes.into_iter().map(|(_, message)| message).collect();
            outcome.refused(pod.clone(), &status.message, &told);
        }
        403 if causes.iter().any(|(reason, _)| reason == "NamespaceTerminating") => {
            outcome.terminating(pod.clone());
        }
        _ => outcome.refused(pod.clone(), &status.message, &[]),
    }
}
