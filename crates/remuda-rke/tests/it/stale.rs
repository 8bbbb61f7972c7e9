//! Nodes of machines that are gone.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::Machine;
use serde_json::{Value, json};

use crate::world::{World, machine_name, until};

fn nodes(world: &World) -> Api<Node> {
    Api::all(world.workload.client())
}

async fn has_node(world: &World, name: &str) -> bool {
    nodes(world).get_opt(name).await.unwrap().is_some()
}

/// Deletes a Machine, whose Node is not drained.
async fn delete(world: &World, id: &str) {
    let annotations = json!({
        "metadata": {"annotations": {
            "machine.cluster.x-k8s.io/exclude-node-draining": "true",
            "machine.cluster.x-k8s.io/exclude-wait-for-node-volume-detach": "true",
        }},
        // As admission fills it in.
        "spec": {"deletion": {"nodeDeletionTimeoutSeconds": 10}},
    });
    let machines = world.api::<Machine>();
    let name = machine_name(id);
    machines.patch(&name, &PatchParams::default(), &Patch::Merge(annotations)).await.unwrap();
    machines.delete(&name, &DeleteParams::default()).await.unwrap();
}

/// A cluster of two, whose worker went while the cluster was out of reach.
async fn left_behind(world: &World) {
    world.register("server:ec worker:w").await;
    world.settle().await;
    until("the worker has its node", async || {
        let machine = world.machine("worker").await;
        machine.and_then(|machine| machine.status).is_some_and(|status| !status.node_ref.name.is_empty())
    })
    .await;
    world.agents.down("worker", true);
    world.tunnel.cut();
    delete(world, "worker").await;
    until("the machine is gone", async || world.machine("worker").await.is_none()).await;
    assert!(has_node(world, "worker").await, "nobody could delete it");
}

#[tokio::test(start_paused = true)]
async fn a_node_left_behind_goes_when_its_cluster_can_be_reached_again() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    left_behind(&world).await;
    world.tunnel.mend();
    until("the node is gone", async || !has_node(&world, "worker").await).await;
    assert!(has_node(&world, "server").await);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_node_left_behind_goes_once_nothing_answers_for_it() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    left_behind(&world).await;
    running.kill().await;
    world.tunnel.mend();
    let running = world.run();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(has_node(&world, "worker").await, "a server answers for it");
    let silent =
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Test"}]}});
    nodes(&world).patch_status("worker", &PatchParams::default(), &Patch::Merge(silent)).await.unwrap();
    until("the node is gone", async || !has_node(&world, "worker").await).await;
    assert!(has_node(&world, "server").await);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_nobody_made_here_stay() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ecw").await;
    world.settle().await;
    let make = async |name: &str, labels: Value| {
        let node = json!({"metadata": {"name": name, "labels": labels}});
        nodes(&world).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let silent =
            json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Test"}]}});
        nodes(&world).patch_status(name, &PatchParams::default(), &Patch::Merge(silent)).await.unwrap();
    };
    make("theirs", json!({"team": "a"})).await;
    make("stale", json!({"rke.cattle.io/machine": "11111111-0000-0000-0000-000000000000"})).await;
    until("the node of no machine is gone", async || !has_node(&world, "stale").await).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(has_node(&world, "theirs").await && has_node(&world, "server").await);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_never_knew_its_node_takes_it_along() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ecw").await;
    world.settle().await;
    // Its server joins, and is replaced before its Node is ready.
    world.agents.down("late", true);
    world.register("late:w").await;
    until("there is a machine", async || world.machine("late").await.is_some()).await;
    let uid = world.machine("late").await.unwrap().uid().unwrap();
    let node = json!({"metadata": {"name": "late", "labels": {"rke.cattle.io/machine": uid}}});
    nodes(&world).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    delete(&world, "late").await;
    for _ in 0..600 {
        if world.machine("late").await.is_none() {
            assert!(!has_node(&world, "late").await, "its node is still there");
            running.stop().await;
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the machine never went");
}
