//! Pods of a node that is drained: which stay, which go, and which must not go unasked.
//!
//! The rules are those of `kubectl drain`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use remuda_control::{
    Chain,
    write::{controller_of, evict},
};
use remuda_names::{capi::annotation::MIRROR_POD, cluster_agent, rancher::name::SYSTEM};
use remuda_planner::spec::DrainOptions;
use remuda_workload::{
    Lease,
    budget::{self, Blocking, is_budget},
};

use super::Trouble;

/// Pods in one page of a list.
const PAGE: u32 = 100;

/// Pods that must be gone before a drain is over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) pods: Vec<String>,
    /// Budgets that keep some of them.
    pub(super) blocking: Vec<Blocking>,
}

/// Evicts what may go, and tells what is left.
pub(super) async fn drain(
    lease: &Lease,
    node: &str,
    options: &DrainOptions,
    now: Timestamp,
) -> Result<Left, Trouble> {
    let pods = list(lease, node).await?;
    let missing = missing_daemon_sets(lease, &pods).await?;
    let views: Vec<View> = pods.iter().map(|pod| view(pod, &missing)).collect();
    let plan = plan(&views, options, now);
    // Who ignores errors gets moved what can be.
    if let Some(refused) = plan.refused().filter(|_| !options.ignore_errors || plan.left().is_empty()) {
        return Err(Trouble::Failed(refused));
    }
    let client = lease.client();
    let mut kept = BTreeSet::new();
    for pod in &plan.evict {
        match lease.call(remove(&client, pod, options)).await? {
            Ok(()) => {}
            Err(error) if is_budget(&error) => {
                kept.insert((pod.namespace.as_str(), pod.name.as_str()));
            }
            Err(error) if is_temporary(&error) || options.ignore_errors => {}
            Err(error) => {
                return Err(Trouble::Failed(format!("evict pod {}: {}", pod.key(), Chain(&error))));
            }
        }
    }
    let kept = |pod: &&Pod| {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        kept.contains(&(namespace.as_str(), name.as_str()))
    };
    let kept: Vec<&Pod> = pods.iter().filter(kept).collect();
    let blocking = budget::find(lease, &kept).await?;
    let blocking =
        blocking.map_err(|error| Trouble::Failed(format!("list PodDisruptionBudgets: {}", Chain(&error))))?;
    Ok(Left { pods: plan.left(), blocking })
}

async fn list(lease: &Lease, node: &str) -> Result<Vec<Pod>, Trouble> {
    let api: Api<Pod> = Api::all(lease.client());
    let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = lease.call(api.list(&params)).await?;
        let page = page.map_err(|error| Trouble::Failed(format!("list pods: {}", Chain(&error))))?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(found),
        }
    }
}

/// DaemonSets that pods name and that are not there, as namespace and name.
async fn missing_daemon_sets(lease: &Lease, pods: &[Pod]) -> Result<BTreeSet<(String, String)>, Trouble> {
    let named: BTreeSet<(String, String)> = pods.iter().filter_map(daemon_set).collect();
    let mut missing = BTreeSet::new();
    for (namespace, name) in named {
        let sets: Api<DaemonSet> = Api::namespaced(lease.client(), &namespace);
        let found = lease.call(sets.get_metadata_opt(&name)).await?;
        let found = found.map_err(|error| {
            Trouble::Failed(format!("read DaemonSet {namespace}/{name}: {}", Chain(&error)))
        })?;
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

async fn remove(client: &Client, pod: &View, options: &DrainOptions) -> Result<(), kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let delete = DeleteParams {
        grace_period_seconds: u32::try_from(options.grace_period).ok(),
        ..DeleteParams::default()
    };
    if options.disable_eviction {
        return pods.delete(&pod.name, &delete).await.map(drop);
    }
    evict(&pods, &pod.namespace, &pod.name, delete.grace_period_seconds).await
}

/// Whether the same may be asked again: the pod is gone, a budget does not allow it now, or the namespace is going.
fn is_temporary(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        404 | 429 => true,
        403 => causes.any(|cause| cause.reason == "NamespaceTerminating"),
        _ => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    None,
    DaemonSet,
    /// Of a DaemonSet that is not there.
    Orphan,
    Other,
}

/// A pod as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    namespace: String,
    name: String,
    mirror: bool,
    /// The other end of our connection to the cluster.
    cluster_agent: bool,
    controller: Controller,
    finished: bool,
    local_storage: bool,
    deleted: Option<Timestamp>,
}

impl View {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn view(pod: &Pod, missing: &BTreeSet<(String, String)>) -> View {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    View {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        mirror: pod.annotations().contains_key(MIRROR_POD),
        cluster_agent: pod.namespace().as_deref() == Some(SYSTEM)
            && pod.labels().get("app").is_some_and(|app| app == cluster_agent::NAME),
        controller: match (controller_of(&pod.metadata), daemon_set(pod)) {
            (None, _) => Controller::None,
            (_, Some(set)) if missing.contains(&set) => Controller::Orphan,
            (_, Some(_)) => Controller::DaemonSet,
            (_, None) => Controller::Other,
        },
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        local_storage: volumes.into_iter().flatten().any(|volume| volume.empty_dir.is_some()),
        deleted: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
    }
}

/// Why a pod must not go unless somebody says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    Unmanaged,
    DaemonSet,
    LocalStorage,
}

impl Refusal {
    fn text(self) -> &'static str {
        match self {
            Refusal::Unmanaged => "cannot delete pods that nothing creates again (force allows it)",
            Refusal::DaemonSet => "cannot delete pods of DaemonSets (ignoreDaemonSets leaves them)",
            Refusal::LocalStorage => "cannot delete pods with local storage (deleteEmptyDirData allows it)",
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    evict: Vec<View>,
    /// On their way.
    going: Vec<View>,
    refused: Vec<(Refusal, String)>,
}

impl Plan {
    fn left(&self) -> Vec<String> {
        self.evict.iter().chain(&self.going).map(View::key).collect()
    }

    fn refused(&self) -> Option<String> {
        let kinds: BTreeSet<Refusal> = self.refused.iter().map(|(kind, _)| *kind).collect();
        let told = kinds.into_iter().map(|kind| {
            let pods = self.refused.iter().filter(|refused| refused.0 == kind).map(|refused| &*refused.1);
            format!("{}: {}", kind.text(), pods.collect::<Vec<_>>().join(", "))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

fn plan(pods: &[View], options: &DrainOptions, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in pods {
        match judge(pod, options, now) {
            Err(refusal) => plan.refused.push((refusal, pod.key())),
            Ok(false) => {}
            Ok(true) if pod.deleted.is_some() => plan.going.push(pod.clone()),
            Ok(true) => plan.evict.push(pod.clone()),
        }
    }
    plan
}

/// Whether a pod is to go.
fn judge(pod: &View, options: &DrainOptions, now: Timestamp) -> Result<bool, Refusal> {
    let patience = options.skip_wait_for_delete_timeout_seconds;
    let overdue = pod.deleted.is_some_and(|since| now.duration_since(since).as_secs() > patience);
    if pod.mirror || (patience > 0 && overdue) {
        return Ok(false);
    }
    if pod.finished {
        return Ok(true);
    }
    // Without it the controller could not end the drain, nor uncordon the node that it may have nowhere else to be but on.
    // It outlives the restart of its node's distribution as every pod does.
    if pod.cluster_agent {
        return Ok(false);
    }
    match pod.controller {
        Controller::DaemonSet if options.ignore_daemon_sets.unwrap_or(true) => return Ok(false),
        Controller::DaemonSet => return Err(Refusal::DaemonSet),
        Controller::None | Controller::Orphan if !options.force => return Err(Refusal::Unmanaged),
        _ => {}
    }
    if pod.local_storage && !options.delete_empty_dir_data {
        return Err(Refusal::LocalStorage);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pods` is one pod per line: `name controller [finished] [local] [mirror] [agent] [deleted=seconds]`; answers
    /// what becomes of them at second 100.
    #[track_caller]
    fn check(options: &DrainOptions, pods: &str, expected: &str) {
        let views: Vec<View> = pods
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let deleted = words.iter().find_map(|word| word.strip_prefix("deleted="));
                View {
                    namespace: "d".into(),
                    name: words[0].into(),
                    controller: match words[1] {
                        "none" => Controller::None,
                        "daemonset" => Controller::DaemonSet,
                        "orphan" => Controller::Orphan,
                        _ => Controller::Other,
                    },
                    finished: words.contains(&"finished"),
                    local_storage: words.contains(&"local"),
                    mirror: words.contains(&"mirror"),
                    cluster_agent: words.contains(&"agent"),
                    deleted: deleted.map(|at| Timestamp::from_second(at.parse().unwrap()).unwrap()),
                }
            })
            .collect();
        let plan = plan(&views, options, Timestamp::from_second(100).unwrap());
        let names = |views: &[View]| views.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>().join(",");
        let told = match plan.refused() {
            Some(refused) => refused,
            None => format!("evict {} going {}", names(&plan.evict), names(&plan.going)),
        };
        assert_eq!(told, expected);
    }

    const PODS: &str = "web replicaset
                        cache replicaset local
                        job none finished
                        bare none
                        net daemonset
                        lost orphan
                        static none mirror
                        old replicaset deleted=10";

    #[test]
    fn pods_that_would_be_lost_stop_a_drain() {
        check(
            &DrainOptions::default(),
            PODS,
            "cannot delete pods that nothing creates again (force allows it): d/bare, d/lost; \
             cannot delete pods with local storage (deleteEmptyDirData allows it): d/cache",
        );
        let strict = DrainOptions { ignore_daemon_sets: Some(false), ..DrainOptions::default() };
        check(
            &strict,
            "net daemonset",
            "cannot delete pods of DaemonSets (ignoreDaemonSets leaves them): d/net",
        );
    }

    #[test]
    fn what_may_go_goes_and_the_rest_stays() {
        let options = DrainOptions { force: true, delete_empty_dir_data: true, ..DrainOptions::default() };
        check(&options, PODS, "evict web,cache,job,bare,lost going old");
        let impatient = DrainOptions { skip_wait_for_delete_timeout_seconds: 60, ..options };
        check(&impatient, PODS, "evict web,cache,job,bare,lost going ");
        check(&DrainOptions::default(), "", "evict  going ");
    }

    #[test]
    fn the_cluster_agent_stays_where_it_is() {
        let pods = "agent replicaset local agent
                    former replicaset agent deleted=10
                    dead replicaset agent finished";
        check(&DrainOptions::default(), pods, "evict dead going ");
    }
}
