//! What a Machine says about its Node, also when it cannot be seen.

use kube::api::DeleteParams;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cluster_out_of_sight_keeps_its_conditions_for_a_while() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    settle(&world).await;
    workload.down().await;
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert_eq!(condition(&world, "m", "NodeHealthy").await, "True NodeHealthy");
    tokio::time::sleep(Duration::from_secs(100)).await;
    let told = condition(&world, "m", "NodeHealthy").await;
    assert!(told.starts_with("Unknown ConnectionDown Last successful probe at "), "{told}");
    assert_eq!(get(&world, "m").await.status.unwrap().node_ref.name, "node-m");
    workload.up().await;
    says(&world, "m", "NodeHealthy", "True NodeHealthy").await;
    says(&world, "m", "Available", "True Available").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_is_out_of_sight_too() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    workload.hang(true);
    tokio::time::sleep(Duration::from_secs(340)).await;
    let told = condition(&world, "m", "NodeReady").await;
    assert!(told.starts_with("Unknown ConnectionDown Last successful probe at "), "{told}");
    workload.hang(false);
    says(&world, "m", "NodeReady", "True NodeReady").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_well_shows_on_its_machine_at_once() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    set_ready(&workload, "m", "False").await;
    says(&world, "m", "NodeReady", "False NodeNotReady").await;
    says(&world, "m", "NodeHealthy", "False NodeNotHealthy * Node.Ready: Condition is False").await;
    says(&world, "m", "Ready", "False NotReady * NodeHealthy:\n  * Node.Ready: Condition is False").await;
    set_ready(&workload, "m", "True").await;
    says(&world, "m", "Ready", "True Ready").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_told_only_by_a_cluster_that_can_be_seen() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    Api::<Node>::all(workload.client()).delete("node-m", &DeleteParams::default()).await.unwrap();
    says(
        &world,
        "m",
        "NodeHealthy",
        "False NodeDeleted Node node-m has been deleted while the Machine still exists",
    )
    .await;
    create_node(&workload, "m").await;
    says(&world, "m", "NodeHealthy", "True NodeHealthy").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn labels_follow_the_machine_and_foreign_ones_stay() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({"node-role.kubernetes.io/worker": ""}), json!({})).await;
    world.report("FakeMachine", "m", json!({"interruptible": true})).await;
    let labels = json!({"node-role.kubernetes.io/worker": null, "a.node.cluster.x-k8s.io/b": "c"});
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    world.api::<Machine>().patch("m", &PatchParams::default(), &patch).await.unwrap();
    let nodes: Api<Node> = Api::all(workload.client());
    until("the node is labelled", async || {
        let node = nodes.get("node-m").await.unwrap();
        let labels: Vec<&str> = node.labels().keys().map(String::as_str).collect();
        labels == ["a.node.cluster.x-k8s.io/b", "cluster.x-k8s.io/interruptible", "kubernetes.io/os"]
    })
    .await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_provider_id_are_an_error_that_is_told() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    let nodes: Api<Node> = Api::all(workload.client());
    let twin = json!({"metadata": {"name": "twin"}, "spec": {"providerID": "fake://m"}});
    nodes.create(&PostParams::default(), &serde_json::from_value(twin).unwrap()).await.unwrap();
    says(&world, "m", "NodeReady", "Unknown InternalError Please check controller logs for errors").await;
    nodes.delete("twin", &DeleteParams::default()).await.unwrap();
    says(&world, "m", "NodeReady", "True NodeReady").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn certificates_of_control_plane_machines_have_an_expiry() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({"cluster.x-k8s.io/control-plane": ""}), json!({})).await;
    let expiry = |time: Value| {
        Patch::Merge(
            json!({"metadata": {"annotations": {"machine.cluster.x-k8s.io/certificates-expiry": time}}}),
        )
    };
    let at = async || {
        let status = get(&world, "m").await.status.unwrap_or_default();
        status.certificates_expiry_date.map(|time| time.0.to_string())
    };
    let (configs, machines) = (world.fake("FakeConfig"), world.api::<Machine>());
    configs.patch("m", &PatchParams::default(), &expiry(json!("2030-01-01T00:00:00Z"))).await.unwrap();
    until("the config's is told", async || at().await.as_deref() == Some("2030-01-01T00:00:00Z")).await;
    machines.patch("m", &PatchParams::default(), &expiry(json!("2031-01-01T00:00:00Z"))).await.unwrap();
    until("its own is told", async || at().await.as_deref() == Some("2031-01-01T00:00:00Z")).await;
    machines.patch("m", &PatchParams::default(), &expiry(json!(null))).await.unwrap();
    configs.patch("m", &PatchParams::default(), &expiry(json!(null))).await.unwrap();
    until("nothing is told", async || at().await.is_none()).await;
    controllers.stop().await;
}
