use std::time::Duration;

use remuda_cli::{
    Code,
    cluster::delete_all,
    progress::{ClusterKey, Goal, wait},
};
use serde_json::json;

use crate::world::World;

fn demo() -> ClusterKey {
    ClusterKey { namespace: "fleet-default".to_owned(), name: "demo".to_owned() }
}

async fn become_ready(world: &World) {
    let managed = json!({"metadata": {"name": "c-m-1"}, "spec": {}, "status": {"conditions": [
        {"type": "Connected", "status": "True"}]}});
    world.put("management.cattle.io/v3", "Cluster", managed).await;
    let machine = json!({
        "metadata": {"name": "demo-servers-a", "namespace": "fleet-default", "labels": {
            "cluster.x-k8s.io/cluster-name": "demo", "rke.cattle.io/rke-machine-pool-name": "servers"}},
        "spec": {"clusterName": "demo", "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": "x.io", "kind": "Foreign", "name": "a"}},
        "status": {"nodeRef": {"name": "a"}, "conditions": [
            {"type": "InfrastructureReady", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    });
    world.put("cluster.x-k8s.io/v1beta2", "Machine", machine).await;
    let status = json!({"ready": true, "clusterName": "c-m-1", "observedGeneration": 1, "conditions": [
        {"type": "Ready", "status": "True"}, {"type": "Provisioned", "status": "True"}]});
    world.status("provisioning.cattle.io/v1", "Cluster", Some("fleet-default"), "demo", status).await;
}

#[tokio::test]
async fn waiting_ends_when_the_cluster_is_ready() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    let waiting = async {
        let clusters = [demo()];
        Box::pin(wait(&world.session, &clusters, Goal::Ready, Duration::from_secs(30))).await
    };
    let (result, ()) = futures::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        become_ready(&world).await;
    });
    result.unwrap();
    assert_eq!(world.run("why demo").await.lines().next(), Some("cluster fleet-default/demo is ready"));
}

#[tokio::test]
async fn waiting_gives_up_and_says_what_it_waited_for() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    let (said, result) = world.try_run("cluster create demo2 --wait --timeout 1s").await;
    let failure = result.unwrap_err();
    assert_eq!(failure.code, Code::TimedOut);
    assert_eq!(failure.message, "demo2 not ready after 1s; cluster demo2: not taken up yet");
    assert_eq!(failure.hint.as_deref(), Some("remuda why demo2 -n fleet-default"));
    assert_eq!(said, "cluster demo2 created\n    0s  demo2: not taken up yet\n");
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    let world = World::new().await;
    world.run("cluster create demo").await;
    become_ready(&world).await;
    world.api.down().await;
    let waiting = async {
        let clusters = [demo()];
        Box::pin(wait(&world.session, &clusters, Goal::Ready, Duration::from_secs(30))).await
    };
    let (result, ()) = futures::join!(waiting, async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        world.api.up().await;
    });
    result.unwrap();
}

#[tokio::test]
async fn everything_is_deleted_before_a_server_goes() {
    let world = World::new().await;
    for name in ["demo", "other"] {
        world.run(&format!("cluster create {name}")).await;
    }
    let deleted = Box::pin(delete_all(&world.session, Duration::from_secs(20))).await;
    assert_eq!(deleted, Ok(2));
    assert!(world.names("provisioning.cattle.io/v1", "Cluster").await.is_empty());
    assert_eq!(Box::pin(delete_all(&world.session, Duration::from_secs(20))).await, Ok(0));
}

#[tokio::test]
async fn a_demo_cluster_is_made_once() {
    let world = World::new().await;
    let shape =
        remuda_cli::generate::ClusterShape { servers: Some(1), workers: Some(2), ..Default::default() };
    let objects = shape.manifest("demo", "fleet-default").unwrap();
    assert_eq!(Box::pin(remuda_cli::cluster::ensure(&world.session, &objects)).await, Ok(true));
    assert_eq!(Box::pin(remuda_cli::cluster::ensure(&world.session, &objects)).await, Ok(false));
}

#[tokio::test]
async fn nobody_waits_for_a_cluster_that_was_deleted() {
    let world = World::new().await;
    let result = Box::pin(wait(&world.session, &[demo()], Goal::Ready, Duration::from_secs(30))).await;
    assert_eq!(result.unwrap_err().code, Code::NotFound);
}
