//! Nodes that stop giving signs of life, in a world whose time is ours.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use remuda_control::Ctx;
use remuda_sandbox_distro::{Distribution, control};
use remuda_testkit::{World, until};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_not_ready_and_loses_its_pods() {
    let world = World::bare().await;
    let client = world.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let node = json!({"metadata": {"name": "n"}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::default_namespaced(client.clone());
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "n", "containers": [{"name": "c", "image": "x"}],
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 0}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    let stop = CancellationToken::new();
    let ctx = Arc::new(Ctx::new(client.clone(), "test"));
    control::pods::index(&ctx);
    let mut running = tokio::task::JoinSet::new();
    running.spawn(control::nodes::run(ctx.clone(), Distribution::K3s, stop.clone()));
    let status = async || {
        let node = nodes.get("n").await.unwrap();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        (conditions[0].status.clone(), taints.len())
    };
    // Signs of life, even late ones, keep it ready.
    for second in 1..5 {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let renewed = json!({"spec": {"renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}});
        leases.patch("n", &PatchParams::default(), &Patch::Merge(renewed)).await.unwrap();
    }
    assert_eq!(status().await, ("True".to_owned(), 0));
    let asked = tokio::time::Instant::now();
    until("the node is not ready", async || status().await == ("Unknown".to_owned(), 2)).await;
    let passed = asked.elapsed();
    assert!(passed >= Duration::from_secs(30) && passed < Duration::from_secs(50), "{passed:?}");
    until("its pod is to go", async || pods.get("p").await.unwrap().metadata.deletion_timestamp.is_some())
        .await;
    let renewed = json!({"spec": {"renewTime": "2026-01-01T00:01:00.000000Z"}});
    leases.patch("n", &PatchParams::default(), &Patch::Merge(renewed)).await.unwrap();
    until("the node is back", async || {
        // As a kubelet does that finds itself called silent.
        if status().await.0 != "True" {
            nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
        }
        status().await == ("True".to_owned(), 0)
    })
    .await;
    stop.cancel();
    while running.join_next().await.is_some() {}
    ctx.stop().await;
}
