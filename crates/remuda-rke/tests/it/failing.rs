//! Plans that fail, and what is said about it.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::json;

use crate::world::{World, machine_name, until};

#[tokio::test(start_paused = true)]
async fn a_plan_that_fails_stops_its_tier_and_says_why() {
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

    // A version nobody can read is told, and changes nothing.
    world.edit(json!({"kubernetesVersion": "latest"})).await;
    until("it is told", async || {
        world.condition("Ready").await.starts_with(
            "False Error rkecluster fleet-default/demo: error semver parsing kubernetes version latest",
        )
    })
    .await;
    running.stop().await;
}
