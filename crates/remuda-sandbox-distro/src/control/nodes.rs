//! Nodes: whether they are still there, and what that means for what runs on them.
//!
//! Reads   Nodes, their Leases, and Pods.
//! Writes  the condition and the taints of Nodes that are silent, deletes Pods such Nodes keep, and
//!         forgets what was kept about Nodes that are gone.
//!
//! A Node that has not renewed its Lease for a while is silent. Times of other machines are never
//! compared with ours: what counts is how long we have seen no change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition, Pod, Secret, Taint},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive_keys, write};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Error, failed, is_gone, pods, scheduler};
use crate::distribution::Distribution;

/// As kube-controller-manager's `--node-monitor-grace-period`.
pub const GRACE: Duration = Duration::from_secs(40);
const LEASES: &str = "kube-node-lease";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

struct Nodes {
    ctx: Arc<Ctx>,
    distribution: Distribution,
    leases: Informer<Lease>,
    nodes: Informer<Node>,
    /// The last sign of life of each node, and when we saw it.
    seen: Mutex<HashMap<String, (String, Instant)>>,
}

pub async fn run(ctx: Arc<Ctx>, distribution: Distribution, stop: CancellationToken) {
    let leases: Informer<Lease> = ctx.informers.of(Scope::namespace(LEASES));
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let controller = Controller::<Node>::new("node-lifecycle", &ctx)
        .watches(&leases, |lease: &Lease| vec![ObjectKey::cluster_wide(lease.name_any())])
        .watches(&pods::informer(&ctx), |pod: &Pod| {
            pods::node_of(pod).map(ObjectKey::cluster_wide).into_iter().collect()
        });
    let world = Arc::new(Nodes { ctx: ctx.clone(), distribution, leases, nodes, seen: Mutex::default() });
    let reconcile = move |key: ObjectKey, world: Arc<Nodes>| async move { world.reconcile(key).await };
    drive_keys(controller, reconcile, world, stop).await;
}

impl Nodes {
    async fn reconcile(&self, key: ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(&key) else {
            self.seen.lock().remove(&*key.name);
            self.forget(&key.name).await?;
            return Ok(Action::AwaitChange);
        };
        let silence = self.silence(&node);
        let silent = silence >= GRACE;
        if silent {
            self.mark_silent(&node).await?;
        }
        let ready = ready_status(&node);
        let taints =
            wanted_taints(&node, if silent { "Unknown" } else { ready.as_str() }, self.ctx.clock.now());
        if let Some(taints) = taints {
            self.write_taints(&node, taints).await?;
        }
        let evict = self.evict(&node).await?;
        let next = if silent { evict } else { Some(evict.unwrap_or(GRACE).min(GRACE - silence)) };
        Ok(next.map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// How long the node has given no sign of life, as far as we have seen.
    fn silence(&self, node: &Node) -> Duration {
        let name = node.name_any();
        let lease = self.leases.get(&ObjectKey::namespaced(LEASES, &name));
        let renewed =
            lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|at| at.0.to_string()));
        let heartbeat = || {
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions
                .into_iter()
                .find(|condition| condition.type_ == "Ready")
                .and_then(|ready| ready.last_heartbeat_time.as_ref().map(|at| at.0.to_string()))
        };
        let sign = renewed.or_else(heartbeat).unwrap_or_default();
        let now = Instant::now();
        let mut seen = self.seen.lock();
        let entry = seen.entry(name).or_insert_with(|| (sign.clone(), now));
        if entry.0 != sign {
            *entry = (sign, now);
        }
        now.duration_since(entry.1)
    }

    async fn mark_silent(&self, node: &Node) -> Result<(), Error> {
        if ready_status(node) == "Unknown" {
            return Ok(());
        }
        warn!(node = node.name_any(), "node is silent");
        let now = self.ctx.clock.now();
        let mut status = node.status.clone().unwrap_or_default();
        for condition in status.conditions.iter_mut().flatten() {
            *condition = NodeCondition {
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusUnknown".to_owned()),
                message: Some("Kubelet stopped posting node status.".to_owned()),
                last_transition_time: Some(Time(now)),
                ..condition.clone()
            };
        }
        let api: Api<Node> = Api::all(self.ctx.client.clone());
        write::patch_status(&self.ctx, &api, node, &(), node.status.as_ref(), &status, true).await?;
        Ok(())
    }

    async fn write_taints(&self, node: &Node, taints: Vec<Taint>) -> Result<(), Error> {
        let api: Api<Node> = Api::all(self.ctx.client.clone());
        let patch = json!({
            "metadata": {"resourceVersion": node.resource_version()},
            "spec": {"taints": taints},
        });
        let name = node.name_any();
        let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).map_err(failed("taint", format!("node {name}")))
    }

    /// Deletes Pods that do not tolerate the node's NoExecute taints any longer. Returns when the
    /// next one's patience ends.
    async fn evict(&self, node: &Node) -> Result<Option<Duration>, Error> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let taints: Vec<Taint> = taints.into_iter().filter(|taint| taint.effect == "NoExecute").collect();
        if taints.is_empty() {
            return Ok(None);
        }
        let informer = pods::informer(&self.ctx);
        let now = self.ctx.clock.now();
        let mut next = None;
        for pod in informer.by_index(pods::NODE, &node.name_any()) {
            if !pods::is_active(&pod) {
                continue;
            }
            match patience(&pod, &taints, now) {
                None => {}
                Some(Duration::ZERO) => {
                    info!(
                        pod = pod.name_any(),
                        node = node.name_any(),
                        "pod does not tolerate its node's taints"
                    );
                    pods::delete(&self.ctx, &informer, &pod, None).await?;
                }
                Some(left) => next = Some(next.map_or(left, |next: Duration| next.min(left))),
            }
        }
        Ok(next)
    }

    /// A node that is gone leaves its name to others.
    async fn forget(&self, name: &str) -> Result<(), Error> {
        let secrets: Api<Secret> = Api::namespaced(self.ctx.client.clone(), "kube-system");
        let secret = format!("{name}.node-password.{}", self.distribution.name());
        match secrets.delete(&secret, &DeleteParams::default()).await {
            Err(error) if !is_gone(&error) => Err(failed("delete", format!("secret {secret}"))(error)),
            _ => Ok(()),
        }
    }
}

fn ready_status(node: &Node) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone())
}

/// The taints a node with this readiness is to have, if it has others.
fn wanted_taints(node: &Node, ready: &str, now: Timestamp) -> Option<Vec<Taint>> {
    let current = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    let wanted: Vec<(&str, &str)> = match ready {
        "True" => Vec::new(),
        "False" => vec![(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")],
        _ => vec![(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")],
    };
    let unschedulable = "node.kubernetes.io/unschedulable";
    let wanted: Vec<(&str, &str)> =
        wanted.into_iter().chain(cordoned.then_some((unschedulable, "NoSchedule"))).collect();
    let ours = |taint: &Taint| [UNREACHABLE, NOT_READY, unschedulable].contains(&taint.key.as_str());
    let is = |taint: &Taint, (key, effect): (&str, &str)| taint.key == key && taint.effect == effect;
    let mut taints: Vec<Taint> = current
        .iter()
        .filter(|taint| !ours(taint) || wanted.iter().any(|wanted| is(taint, *wanted)))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| is(taint, (key, effect))) {
            let time_added = (effect == "NoExecute").then_some(Time(now));
            taints.push(Taint { key: key.to_owned(), effect: effect.to_owned(), time_added, value: None });
        }
    }
    (taints != current).then_some(taints)
}

/// How long a Pod may stay under these taints. `None`: for ever.
fn patience(pod: &Pod, taints: &[Taint], now: Timestamp) -> Option<Duration> {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let mut left = None;
    for taint in taints {
        let fitting: Vec<_> = tolerations
            .iter()
            .filter(|toleration| scheduler::tolerates(std::slice::from_ref(toleration), taint))
            .collect();
        if fitting.is_empty() {
            return Some(Duration::ZERO);
        }
        let shortest = fitting.iter().filter_map(|toleration| toleration.toleration_seconds).min();
        let Some(seconds) = shortest else { continue };
        let since = taint.time_added.as_ref().map_or(now, |at| at.0);
        let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        let rest = Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).saturating_sub(passed);
        left = Some(left.map_or(rest, |left: Duration| left.min(rest)));
    }
    left
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node(taints: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
    }

    fn keys(taints: Option<Vec<Taint>>) -> Option<Vec<String>> {
        taints
            .map(|taints| taints.into_iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect())
    }

    #[test]
    fn a_silent_node_is_tainted_and_one_that_is_back_is_not() {
        let own = json!({"key": "dedicated", "effect": "NoSchedule"});
        let silent = wanted_taints(&node(json!([own])), "Unknown", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(
            keys(Some(silent.clone())).unwrap(),
            [
                "dedicated:NoSchedule",
                "node.kubernetes.io/unreachable:NoSchedule",
                "node.kubernetes.io/unreachable:NoExecute"
            ]
        );
        let back = node(serde_json::to_value(silent).unwrap());
        assert_eq!(keys(wanted_taints(&back, "Unknown", Timestamp::UNIX_EPOCH)), None);
        assert_eq!(
            keys(wanted_taints(&back, "True", Timestamp::UNIX_EPOCH)).unwrap(),
            ["dedicated:NoSchedule"]
        );
    }

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates() {
        let taint = Taint {
            key: UNREACHABLE.to_owned(),
            effect: "NoExecute".to_owned(),
            time_added: Some(Time(Timestamp::UNIX_EPOCH)),
            value: None,
        };
        let pod = |tolerations: Value| -> Pod {
            serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}})).unwrap()
        };
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let patient = json!([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
        let taints = [taint];
        assert_eq!(patience(&pod(patient.clone()), &taints, at(100)), Some(Duration::from_secs(200)));
        assert_eq!(patience(&pod(patient), &taints, at(400)), Some(Duration::ZERO));
        assert_eq!(patience(&pod(json!([{"operator": "Exists"}])), &taints, at(400)), None);
        assert_eq!(patience(&pod(json!([])), &taints, at(0)), Some(Duration::ZERO));
    }
}
