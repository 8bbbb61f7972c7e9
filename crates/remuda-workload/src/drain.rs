//! Pods of a node that is drained: which stay, which go, and which must not go unasked.
//!
//! The rules are those of `kubectl drain`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use remuda_control::write::controller_of;
use remuda_names::{capi::annotation::MIRROR_POD, cluster_agent, rancher::name::SYSTEM};

/// What may be done to pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Pods that nothing creates again may go.
    pub force: bool,
    /// Pods of DaemonSets stay; without it they stop the drain.
    pub ignore_daemon_sets: bool,
    /// Pods with local storage may go.
    pub delete_empty_dir_data: bool,
    /// A pod that is being deleted for longer, in seconds, is not waited for; 0 for none.
    pub overdue_seconds: i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { force: false, ignore_daemon_sets: true, delete_empty_dir_data: false, overdue_seconds: 0 }
    }
}

/// Who makes a pod again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    None,
    DaemonSet,
    /// Of a DaemonSet that is not there.
    Orphan,
    Other,
}

/// A pod as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub namespace: String,
    pub name: String,
    pub mirror: bool,
    /// The other end of our connection to the cluster.
    pub cluster_agent: bool,
    pub controller: Controller,
    pub finished: bool,
    pub local_storage: bool,
    pub deleted: Option<Timestamp>,
}

impl View {
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// `missing` are DaemonSets that pods name and that are not there, as namespace and name.
pub fn view(pod: &Pod, missing: &BTreeSet<(String, String)>) -> View {
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
pub struct Plan {
    pub evict: Vec<View>,
    /// On their way.
    pub going: Vec<View>,
    refused: Vec<(Refusal, String)>,
}

impl Plan {
    /// Pods that must be gone before the drain is over.
    pub fn left(&self) -> Vec<String> {
        self.evict.iter().chain(&self.going).map(View::key).collect()
    }

    /// Why the drain must not go on, for people.
    pub fn refused(&self) -> Option<String> {
        let kinds: BTreeSet<Refusal> = self.refused.iter().map(|(kind, _)| *kind).collect();
        let told = kinds.into_iter().map(|kind| {
            let pods = self.refused.iter().filter(|refused| refused.0 == kind).map(|refused| &*refused.1);
            format!("{}: {}", kind.text(), pods.collect::<Vec<_>>().join(", "))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// What becomes of the pods of a node.
pub fn plan(pods: &[View], rules: &Rules, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for pod in pods {
        match judge(pod, rules, now) {
            Err(refusal) => plan.refused.push((refusal, pod.key())),
            Ok(false) => {}
            Ok(true) if pod.deleted.is_some() => plan.going.push(pod.clone()),
            Ok(true) => plan.evict.push(pod.clone()),
        }
    }
    plan
}

/// Whether a pod is to go.
fn judge(pod: &View, rules: &Rules, now: Timestamp) -> Result<bool, Refusal> {
    let patience = rules.overdue_seconds;
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
        Controller::DaemonSet if rules.ignore_daemon_sets => return Ok(false),
        Controller::DaemonSet => return Err(Refusal::DaemonSet),
        Controller::None | Controller::Orphan if !rules.force => return Err(Refusal::Unmanaged),
        _ => {}
    }
    if pod.local_storage && !rules.delete_empty_dir_data {
        return Err(Refusal::LocalStorage);
    }
    Ok(true)
}

/// The DaemonSet a pod is of, as namespace and name.
pub fn daemon_set(pod: &Pod) -> Option<(String, String)> {
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
    Some((pod.namespace().unwrap_or_default(), owner.name.clone()))
}

/// Whether the same may be asked again: the pod is gone, a budget does not allow it now, or the namespace is going.
pub fn is_temporary(error: &kube::Error) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `pods` is one pod per line: `name controller [finished] [local] [mirror] [agent] [deleted=seconds]`; answers
    /// what becomes of them at second 100.
    #[track_caller]
    fn check(rules: &Rules, pods: &str, expected: &str) {
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
        let plan = plan(&views, rules, Timestamp::from_second(100).unwrap());
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
            &Rules::default(),
            PODS,
            "cannot delete pods that nothing creates again (force allows it): d/bare, d/lost; \
             cannot delete pods with local storage (deleteEmptyDirData allows it): d/cache",
        );
        let strict = Rules { ignore_daemon_sets: false, ..Rules::default() };
        check(
            &strict,
            "net daemonset",
            "cannot delete pods of DaemonSets (ignoreDaemonSets leaves them): d/net",
        );
    }

    #[test]
    fn what_may_go_goes_and_the_rest_stays() {
        let options = Rules { force: true, delete_empty_dir_data: true, ..Rules::default() };
        check(&options, PODS, "evict web,cache,job,bare,lost going old");
        let impatient = Rules { overdue_seconds: 60, ..options };
        check(&impatient, PODS, "evict web,cache,job,bare,lost going ");
        check(&Rules::default(), "", "evict  going ");
    }

    #[test]
    fn the_cluster_agent_stays_where_it_is() {
        let pods = "agent replicaset local agent
                    former replicaset agent deleted=10
                    dead replicaset agent finished";
        check(&Rules::default(), pods, "evict dead going ");
    }
}
