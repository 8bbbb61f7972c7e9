//! Pods of a node that is drained: asked to go, as the rules of drains say ([`remuda_workload::drain`]).

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use remuda_control::{Chain, write::evict};
use remuda_planner::spec::DrainOptions;
use remuda_workload::{
    Lease,
    budget::{self, Blocking, is_budget},
    drain::{Rules, View, daemon_set, is_temporary, plan, view},
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
    let plan = plan(&views, &rules(options), now);
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

fn rules(options: &DrainOptions) -> Rules {
    Rules {
        force: options.force,
        ignore_daemon_sets: options.ignore_daemon_sets.unwrap_or(true),
        delete_empty_dir_data: options.delete_empty_dir_data,
        overdue_seconds: options.skip_wait_for_delete_timeout_seconds,
    }
}
