//! `ReplicaSet`: as many Pods as it says.
//!
//! Reads   the ReplicaSet and its Pods.
//! Writes  Pods, and the ReplicaSet's status.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetStatus},
        core::v1::{Pod, PodTemplateSpec},
    },
    jiff::Timestamp,
};
use kube::{Api, ResourceExt};
use remuda_control::{Action, Controller, Ctx, drive, write};
use tokio_util::sync::CancellationToken;

use super::{Error, pods};

/// Pods made or removed in one pass.
const BURST: usize = 50;

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let controller = Controller::<ReplicaSet>::new("replicaset", &ctx).owns(&pods::informer(&ctx));
    drive(controller, reconcile, ctx, stop).await;
}

async fn reconcile(set: Arc<ReplicaSet>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let informer = pods::informer(&ctx);
    let owned = informer.by_index(pods::OWNER, &set.uid().unwrap_or_default());
    let spec = set.spec.clone().unwrap_or_default();
    if set.metadata.deletion_timestamp.is_none() {
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let template = spec.template.clone().unwrap_or_default();
        scale(&ctx, &set, &template, &owned, wanted).await?;
    }
    let owned = informer.by_index(pods::OWNER, &set.uid().unwrap_or_default());
    let status = status(&set, &owned);
    let api: Api<ReplicaSet> = Api::namespaced(ctx.client.clone(), &set.namespace().unwrap_or_default());
    write::patch_status(&ctx, &api, &set, &(), set.status.as_ref(), &status, false).await?;
    Ok(Action::AwaitChange)
}

async fn scale(
    ctx: &Ctx,
    set: &ReplicaSet,
    template: &PodTemplateSpec,
    owned: &[Arc<Pod>],
    wanted: usize,
) -> Result<(), Error> {
    let informer = pods::informer(ctx);
    let active: Vec<&Arc<Pod>> = owned.iter().filter(|pod| pods::is_active(pod)).collect();
    for _ in active.len()..wanted.min(active.len() + BURST) {
        let owner = pods::reference(set)?;
        let pod = pods::from_template(template, &owner, &set.namespace().unwrap_or_default());
        pods::create(ctx, &informer, &pod).await?;
    }
    for pod in surplus(active, wanted).into_iter().take(BURST) {
        pods::delete(ctx, &informer, pod, None).await?;
    }
    Ok(())
}

/// Which Pods go when there are too many: those that do the least, then the youngest.
fn surplus(mut active: Vec<&Arc<Pod>>, wanted: usize) -> Vec<&Arc<Pod>> {
    let value = |pod: &Arc<Pod>| {
        let age = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |at| at.0);
        (
            pods::node_of(pod).is_some(),
            pods::phase(pod) == "Running",
            pods::is_ready(pod),
            Reverse(age),
            pod.name_any(),
        )
    };
    active.sort_by_key(|pod| value(pod));
    let count = active.len().saturating_sub(wanted);
    active.truncate(count);
    active
}

fn status(set: &ReplicaSet, owned: &[Arc<Pod>]) -> ReplicaSetStatus {
    let count = |so: &dyn Fn(&Arc<Pod>) -> bool| owned.iter().filter(|pod| so(pod)).count() as i32;
    let ready = |pod: &Arc<Pod>| pods::is_active(pod) && pods::is_ready(pod);
    ReplicaSetStatus {
        replicas: count(&|pod| pods::is_active(pod)),
        fully_labeled_replicas: Some(count(&|pod| pods::is_active(pod))),
        ready_replicas: Some(count(&ready)),
        available_replicas: Some(count(&ready)),
        observed_generation: set.metadata.generation,
        ..set.status.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;

    fn pod(name: &str, node: bool, phase: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.spec = Some(Default::default());
        if let Some(spec) = pod.spec.as_mut().filter(|_| node) {
            spec.node_name = Some("n".to_owned());
        }
        pod.status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
        Arc::new(pod)
    }

    #[test]
    fn pods_that_do_nothing_go_first() {
        let pods = [pod("a", true, "Running"), pod("b", false, "Pending"), pod("c", true, "Pending")];
        let names = |wanted| {
            surplus(pods.iter().collect(), wanted).iter().map(|pod| pod.name_any()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["b", "c"]);
        assert_eq!(names(2), ["b"]);
        assert!(names(3).is_empty());
    }
}
