//! Events of the cluster people wrote: what `kubectl describe` shows of its life.
//!
//! They follow from how its status changes, so that each is told once, whichever server looks at it.

use remuda_api::provisioning::{Cluster, ClusterStatus};
use remuda_control::{Ctx, events::Recorder};
use remuda_names::{
    provisioning::condition::{EXPIRING, HIBERNATED},
    rancher::condition,
};

use crate::condition::{get, is_true};

const ACTION: &str = "Reconcile";

/// What happened, and whether it is good.
#[derive(Debug, PartialEq, Eq)]
struct Happened {
    reason: &'static str,
    note: String,
    good: bool,
}

pub(super) fn tell(ctx: &Ctx, cluster: &Cluster, after: &ClusterStatus) {
    let recorder = &ctx.recorder;
    let was_ready = cluster.status.as_ref().is_some_and(|status| status.ready);
    if let Some(created) = &cluster.metadata.creation_timestamp
        && after.ready
        && !was_ready
        && cluster.spec.rke_config.is_some()
    {
        let taken = ctx.clock.now().duration_since(created.0);
        ctx.metrics.provisioned(taken.as_secs_f64().max(0.0));
    }
    for happened in between(cluster, after) {
        match happened.good {
            true => recorder.normal(cluster, happened.reason, ACTION, happened.note),
            false => recorder.warning(cluster, happened.reason, ACTION, happened.note),
        }
    }
}

/// Its end began; told by the pass that finds no note of it yet.
pub(super) fn tell_removal(recorder: &Recorder, cluster: &Cluster) {
    let before = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    if get(before, condition::REMOVED).is_none() {
        recorder.normal(cluster, "Deleting", ACTION, "the cluster and its machines are being deleted");
    }
}

fn between(cluster: &Cluster, after: &ClusterStatus) -> Vec<Happened> {
    let none = ClusterStatus::default();
    let before = cluster.status.as_ref().unwrap_or(&none);
    let mut happened = Vec::new();
    let mut add =
        |good: bool, reason: &'static str, note: String| happened.push(Happened { reason, note, good });
    match (before.observed_generation, after.observed_generation) {
        (0, _) if cluster.spec.rke_config.is_none() => {
            add(true, "Importing", "waiting for the cluster's agent".to_owned());
        }
        (0, _) => add(true, "Provisioning", wanted(cluster)),
        (seen, now) if seen < now => add(true, "SpecChanged", wanted(cluster)),
        _ => {}
    }
    let said = |status: &ClusterStatus, kind: &str| {
        get(&status.conditions, kind).map(|found| (found.status.clone(), found.message.clone()))
    };
    for (kind, reason, is) in [
        (HIBERNATED, "Hibernated", "True"),
        (HIBERNATED, "HibernationFailed", "False"),
        (EXPIRING, "Expiring", "True"),
    ] {
        let told = said(after, kind).filter(|(status, message)| status == is && !message.is_empty());
        if let Some((_, message)) = told.clone().filter(|_| told != said(before, kind)) {
            add(reason == "Hibernated", reason, message);
        }
    }
    for kind in [condition::CREATED, condition::RKE_CLUSTER, condition::READY] {
        let text = |status: &ClusterStatus| {
            let found = get(&status.conditions, kind).filter(|found| found.status == "False");
            found.map(|found| found.message.clone())
        };
        if let Some(message) = text(after).filter(|message| Some(message) != text(before).as_ref()) {
            add(false, "Failed", message);
        }
    }
    let ready = |status: &ClusterStatus| status.ready && is_true(&status.conditions, condition::READY);
    match (ready(before), ready(after)) {
        (false, true) => add(true, "Ready", "the cluster is as it is wanted".to_owned()),
        (true, false) => {
            let why = get(&after.conditions, condition::READY).map(|found| found.message.clone());
            let why = why.filter(|why| !why.is_empty()).unwrap_or_else(|| "its machines change".to_owned());
            add(true, "Updating", why);
        }
        _ => {}
    }
    happened
}

/// What was asked for, in a line.
fn wanted(cluster: &Cluster) -> String {
    let pools = cluster.spec.rke_config.iter().flat_map(|config| &config.machine_pools);
    let pools: Vec<String> =
        pools.map(|pool| format!("{} ×{}", pool.name, pool.quantity.unwrap_or(1))).collect();
    match pools.as_slice() {
        [] => cluster.spec.kubernetes_version.clone(),
        pools => format!("{}, pools {}", cluster.spec.kubernetes_version, pools.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(before: serde_json::Value, after: serde_json::Value, expected: &[&str]) {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "demo", "generation": 2},
            "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machinePools": [
                {"name": "servers", "quantity": 3}, {"name": "workers"},
            ]}},
            "status": before,
        }))
        .unwrap();
        let after: ClusterStatus = serde_json::from_value(after).unwrap();
        let told: Vec<String> = between(&cluster, &after)
            .iter()
            .map(|happened| {
                format!("{}{}: {}", if happened.good { "" } else { "!" }, happened.reason, happened.note)
            })
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_life_is_told_once() {
        let ready =
            |status: &str, message: &str| json!([{"type": "Ready", "status": status, "message": message}]);
        let young = json!({"observedGeneration": 1, "conditions": ready("Unknown", "waiting")});
        check(json!(null), young.clone(), &["Provisioning: v1.35.1+k3s1, pools servers ×3, workers ×1"]);
        check(young.clone(), young.clone(), &[]);
        let up = json!({"observedGeneration": 1, "ready": true, "conditions": ready("True", "")});
        check(young.clone(), up.clone(), &["Ready: the cluster is as it is wanted"]);
        check(up.clone(), up.clone(), &[]);
        let changing =
            json!({"observedGeneration": 2, "ready": true, "conditions": ready("Unknown", "one by one")});
        check(
            up,
            changing,
            &["SpecChanged: v1.35.1+k3s1, pools servers ×3, workers ×1", "Updating: one by one"],
        );
        let broken = json!({"observedGeneration": 1, "conditions": ready("False", "no such driver")});
        check(young, broken.clone(), &["!Failed: no such driver"]);
        check(broken.clone(), broken, &[]);
    }
}
