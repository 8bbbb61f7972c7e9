//! Workload clusters whose answers are unusual, and good enough.

use kube::api::DeleteParams;

use super::*;
use crate::fleet::events;

/// What the Cluster says of its connection.
async fn connection(world: &World) -> String {
    let cluster = world.api::<Cluster>().get("c").await.unwrap();
    let conditions = cluster.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|condition| condition.type_ == "RemoteConnectionProbe");
    found.map(|found| format!("{} {}", found.status, found.message)).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn events_of_a_watch_need_not_be_lines() {
    let (world, workload) = demo().await;
    world.workloads.manners.lock().unsplit = true;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    for ready in ["False", "True", "False"] {
        set_ready(&workload, "m", ready).await;
        until("it is seen", async || condition(&world, "m", "NodeReady").await.starts_with(ready)).await;
    }
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_may_not_be_watched_are_listed_and_the_cluster_says_so() {
    let (world, workload) = demo().await;
    world.workloads.manners.lock().forbidden = true;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    until("it is said", async || {
        let told = connection(&world).await;
        told.starts_with("True Nodes cannot be watched") && told.contains("nodes is forbidden: cannot watch")
    })
    .await;
    let told = events(&world, "Cluster").await;
    assert!(
        told.iter().any(|event| event.starts_with("NodeWatchFailed Nodes cannot be watched")),
        "{told:?}"
    );
    // What happens to a node is seen all the same.
    set_ready(&workload, "m", "False").await;
    says(&world, "m", "NodeReady", "False NodeNotReady").await;
    world.workloads.manners.lock().forbidden = false;
    until("it is good again", async || connection(&world).await == "True ").await;
    set_ready(&workload, "m", "True").await;
    says(&world, "m", "NodeReady", "True NodeReady").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_gone_however_its_deletion_is_answered() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "cp", json!({"cluster.x-k8s.io/control-plane": ""}), json!({})).await;
    for (place, answer) in
        [(200, ""), (202, "accepted"), (200, "{\"kind\":\"Status\"}"), (204, "")].iter().enumerate()
    {
        let name = format!("m{place}");
        running(&world, &workload, &name, json!({}), json!({})).await;
        world.workloads.manners.lock().deleted = Some(*answer);
        world.api::<Machine>().delete(&name, &DeleteParams::default()).await.unwrap();
        until("it is gone", async || world.api::<Machine>().get_opt(&name).await.unwrap().is_none()).await;
        let nodes: Api<Node> = Api::all(workload.client());
        assert!(nodes.get_opt(&format!("node-{name}")).await.unwrap().is_none());
        world.workloads.manners.lock().deleted = None;
    }
    let told = events(&world, "Machine").await;
    assert!(!told.iter().any(|event| event.starts_with("FailedDeleteNode")), "{told:?}");
    controllers.stop().await;
}
