//! Plans that fail, clusters that are paused or wrong, and what is said about it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use remuda_api::core::Cluster;
use serde_json::json;

use crate::world::{CLUSTER, World, machine_name, until};

#[tokio::test(start_paused = true)]
async fn trouble_stops_what_it_must_and_is_told() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ecw worker-a:w worker-b:w").await;
    world.settle().await;

    // Of two workers the one with the lesser name is first.
    let mut workers = ["worker-a", "worker-b"];
    workers.sort_by_key(|id| machine_name(id));
    let [first, second] = workers;
    world.agents.fail(first, true);
    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    until("the plan failed", async || world.agents.busy().await || !world.agents.told().is_empty()).await;
    let message = format!("configuring worker node(s) {}", machine_name(first));
    until("the reason is told", async || {
        let told = world.condition("Ready").await;
        told.starts_with("Unknown Waiting")
            && told.contains(&message)
            && world.machine_condition(first, "Reconciled").await.contains("failure while applying plan")
    })
    .await;
    let applied = world.machine_condition(first, "PlanApplied").await;
    assert_eq!(
        applied,
        "False Error error applying plan -- check rancher-system-agent.service and k3s-agent.service logs on node \
         for more information"
    );
    // The other worker keeps what it has, for as long as it takes.
    let kept = world.plan_secret(second).await.resource_version();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.plan_secret(second).await.resource_version(), kept);

    // The agent tries again and again, so a cure needs nobody's help.
    world.agents.fail(first, false);
    world.settle().await;
    assert_eq!(world.machine_condition(first, "PlanApplied").await, "True PlanApplied ");
    assert_ne!(world.plan_secret(second).await.resource_version(), kept);

    // A cluster that is paused changes nothing, and says so.
    let pause = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        world.api::<Cluster>().patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    };
    pause(true).await;
    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=210"]}})).await;
    until("it is told", async || {
        world.condition("Ready").await == "Unknown Waiting CAPI cluster or RKEControlPlane is paused"
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.agents.told(), [] as [String; 0]);
    pause(false).await;
    world.settle().await;
    assert_eq!(world.agents.told().len(), 3);

    // A version nobody can read is told, and changes nothing.
    world.edit(json!({"kubernetesVersion": "latest"})).await;
    until("it is told", async || {
        world.condition("Ready").await.starts_with(
            "False Error rkecluster fleet-default/demo: error semver parsing kubernetes version latest",
        )
    })
    .await;

    // Such a cluster can be deleted, even if nobody can reach it any more.
    world.workload.down().await;
    world.api::<Cluster>().delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    until("the cluster is gone", async || world.names::<Cluster>().await.is_empty()).await;
    until("its Secrets are gone", async || world.names::<Secret>().await.is_empty()).await;
    running.stop().await;
}
