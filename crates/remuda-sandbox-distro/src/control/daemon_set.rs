//! `DaemonSet`: one Pod on every Node that takes it.
//!
//! Reads   the DaemonSet, its Pods, and Nodes.
//! Writes  Pods, and the DaemonSet's status.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::{Node, Pod, Taint, Toleration},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, ResourceExt};
use remuda_control::{Action, Controller, Ctx, Informer, Scope, drive, write};
use tokio_util::sync::CancellationToken;

use super::{Error, pods, scheduler};

const HASH: &str = "controller-revision-hash";

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let sets: Informer<DaemonSet> = ctx.informers.of(Scope::all());
    let all = sets.clone();
    let controller = Controller::<DaemonSet>::new("daemonset", &ctx)
        .owns(&pods::informer(&ctx))
        .watches(&nodes, move |_: &Node| all.keys());
    drive(controller, reconcile, ctx, stop).await;
}

/// Daemons stay where other Pods would not.
fn tolerations() -> Vec<Toleration> {
    let any = |key: &str, effect: &str| Toleration {
        key: Some(format!("node.kubernetes.io/{key}")),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    };
    vec![
        any("not-ready", "NoExecute"),
        any("unreachable", "NoExecute"),
        any("disk-pressure", "NoSchedule"),
        any("memory-pressure", "NoSchedule"),
        any("pid-pressure", "NoSchedule"),
        any("unschedulable", "NoSchedule"),
    ]
}

/// The Pod this set would have on a node.
fn pod_for(set: &DaemonSet, node: &str, hash: &str) -> Result<Pod, Error> {
    let spec = set.spec.clone().unwrap_or_default();
    let mut pod =
        pods::from_template(&spec.template, &pods::reference(set)?, &set.namespace().unwrap_or_default());
    pod.metadata.labels.get_or_insert_default().insert(HASH.to_owned(), hash.to_owned());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node.to_owned());
    spec.tolerations.get_or_insert_default().extend(tolerations());
    Ok(pod)
}

fn takes(node: &Node, pod: &Pod) -> (bool, bool) {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let refused = |effect: &str| {
        let counts = |taint: &&Taint| taint.effect == effect && !scheduler::tolerates(tolerations, taint);
        taints.iter().any(|taint| counts(&taint))
    };
    let wanted = scheduler::wants(pod, node) && node.metadata.deletion_timestamp.is_none();
    let stays = wanted && !refused("NoExecute");
    (stays && !refused("NoSchedule"), stays)
}

async fn reconcile(set: Arc<DaemonSet>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    if set.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let informer = pods::informer(&ctx);
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let spec = set.spec.clone().unwrap_or_default();
    let hash = pods::template_hash(&spec.template);
    let uid = set.uid().unwrap_or_default();
    let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in informer.by_index(pods::OWNER, &uid) {
        by_node.entry(pods::node_of(&pod).unwrap_or_default().to_owned()).or_default().push(pod);
    }
    let mut wanted = Vec::new();
    for node in nodes.list() {
        let name = node.name_any();
        let pod = pod_for(&set, &name, &hash)?;
        let (starts, stays) = takes(&node, &pod);
        let there = by_node.remove(&name).unwrap_or_default();
        let mut living = there.iter().filter(|pod| pods::is_active(pod));
        let first = living.next();
        for surplus in living {
            pods::delete(&ctx, &informer, surplus, None).await?;
        }
        for over in there.iter().filter(|pod| pods::is_over(pod) && !pods::is_deleting(pod)) {
            pods::delete(&ctx, &informer, over, None).await?;
        }
        match first {
            Some(pod) if !stays => pods::delete(&ctx, &informer, pod, None).await?,
            Some(_) => wanted.push(name),
            None if starts => {
                // Two on one node at a time would be one too many.
                if there.iter().all(|pod| !pods::is_deleting(pod)) {
                    pods::create(&ctx, &informer, &pod).await?;
                }
                wanted.push(name);
            }
            None => {}
        }
    }
    for pod in by_node.into_values().flatten().filter(|pod| pods::is_active(pod)) {
        pods::delete(&ctx, &informer, &pod, None).await?;
    }
    let current = informer.by_index(pods::OWNER, &uid);
    update(&ctx, &set, &current, &hash).await?;
    let status = status(&set, &current, &wanted, &hash);
    let api: Api<DaemonSet> = Api::namespaced(ctx.client.clone(), &set.namespace().unwrap_or_default());
    write::patch_status(&ctx, &api, &set, &(), set.status.as_ref(), &status, false).await?;
    Ok(Action::AwaitChange)
}

/// Deletes Pods of an older template, a few at a time.
async fn update(ctx: &Ctx, set: &DaemonSet, current: &[Arc<Pod>], hash: &str) -> Result<(), Error> {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.clone()).unwrap_or_default();
    if strategy.type_.as_deref() == Some("OnDelete") {
        return Ok(());
    }
    let limit = match strategy.rolling_update.and_then(|rolling| rolling.max_unavailable) {
        Some(IntOrString::Int(number)) => usize::try_from(number).unwrap_or(1).max(1),
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            (current.len() * percent.min(100)).div_ceil(100).max(1)
        }
        None => 1,
    };
    let unavailable = current.iter().filter(|pod| !pods::is_active(pod) || !pods::is_ready(pod)).count();
    let mut room = limit.saturating_sub(unavailable);
    let old = current
        .iter()
        .filter(|pod| pods::is_active(pod) && pod.labels().get(HASH).is_none_or(|known| known != hash));
    for pod in old {
        // One that does not work costs nothing to replace.
        let broken = !pods::is_ready(pod);
        if !broken && room == 0 {
            break;
        }
        room -= usize::from(!broken);
        pods::delete(ctx, &pods::informer(ctx), pod, None).await?;
    }
    Ok(())
}

fn status(set: &DaemonSet, current: &[Arc<Pod>], wanted: &[String], hash: &str) -> DaemonSetStatus {
    let on = |pod: &&Arc<Pod>| {
        pods::is_active(pod) && pods::node_of(pod).is_some_and(|node| wanted.iter().any(|name| name == node))
    };
    let there: Vec<&Arc<Pod>> = current.iter().filter(on).collect();
    let ready = there.iter().filter(|pod| pods::is_ready(pod)).count() as i32;
    let updated =
        there.iter().filter(|pod| pod.labels().get(HASH).is_some_and(|known| known == hash)).count() as i32;
    let desired = wanted.len() as i32;
    DaemonSetStatus {
        desired_number_scheduled: desired,
        current_number_scheduled: there.len() as i32,
        number_misscheduled: current.iter().filter(|pod| pods::is_active(pod)).count() as i32
            - there.len() as i32,
        number_ready: ready,
        number_available: Some(ready),
        number_unavailable: Some(desired - ready),
        updated_number_scheduled: Some(updated),
        observed_generation: set.metadata.generation,
        ..set.status.clone().unwrap_or_default()
    }
}
