//! A whole life: from nothing to a cluster at rest, a change, a restart, and the end.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use remuda_api::{
    core::{Cluster, Machine},
    management::Setting,
    rke::{CustomMachine, RkeBootstrap, RkeCluster, RkeControlPlane},
};
use serde_json::json;

use crate::world::{CLUSTER, World, machine_name, until};

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_up_changes_rests_and_goes() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();

    // One server and two workers come up, the server first.
    world.register("server:ecw worker-a:w worker-b:w").await;
    world.settle().await;
    let told = world.agents.told();
    assert_eq!(told[0], "server applied", "{told:?}");
    let firsts = |id: &str| told.iter().position(|line| *line == format!("{id} applied")).unwrap();
    assert!(firsts("worker-a") > 0 && firsts("worker-b") > 0);
    for id in ["server", "worker-a", "worker-b"] {
        assert_eq!(world.machine_condition(id, "Reconciled").await, "True Reconciled ");
        assert_eq!(world.machine_condition(id, "PlanApplied").await, "True PlanApplied ");
        let machine = world.machine(id).await.unwrap();
        assert_eq!(machine.spec.provider_id, format!("k3s://{id}"));
        assert_eq!(machine.status.unwrap().node_ref.name, id);
    }
    // The user named no endpoint: it is the server's address.
    let infrastructure = world.api::<RkeCluster>().get(CLUSTER).await.unwrap();
    let endpoint = infrastructure.spec.control_plane_endpoint.clone();
    let addresses = world.machine("server").await.unwrap().status.unwrap().addresses;
    assert!(addresses.iter().any(|address| address.address == endpoint.host), "{endpoint:?} {addresses:?}");
    assert_eq!(infrastructure.annotations()["remuda.io/endpoint-of"], machine_name("server"));
    assert_eq!(world.api::<Cluster>().get(CLUSTER).await.unwrap().spec.control_plane_endpoint, endpoint);
    let secret = world.plan_secret("server").await;
    assert!(secret.annotations()["rke.cattle.io/join-url"].starts_with("https://10.0.0."));
    assert_eq!(secret.labels()["rke.cattle.io/init-node"], "true");
    let bootstrap = world.api::<RkeBootstrap>().get(&machine_name("server")).await.unwrap();
    let status = bootstrap.status.unwrap();
    assert_eq!(status.initialization.data_secret_created, Some(true));
    let script = world.api::<Secret>().get(&status.data_secret_name.unwrap()).await.unwrap();
    let script = String::from_utf8(script.data.unwrap()["value"].0.clone()).unwrap();
    assert!(script.contains("CATTLE_SERVER=") && script.contains("CATTLE_TOKEN="), "{script}");

    // What it booted with is good for half an hour.
    let token = format!("{}-machine-bootstrap-token", machine_name("server"));
    let ended = async || {
        let secret = world.api::<Secret>().get(&token).await.unwrap();
        secret
            .annotations()
            .get("rke.cattle.io/bootstrap-token-invalidated")
            .is_some_and(|ended| ended == "true")
    };
    assert!(!ended().await);
    tokio::time::sleep(Duration::from_secs(1_900)).await;
    assert!(ended().await);

    // Nothing is written any more, not even when everybody starts anew.
    let before = world.writes().len();
    tokio::time::sleep(Duration::from_secs(1_300)).await;
    assert_eq!(world.writes()[before..], [] as [String; 0]);
    running.stop().await;
    let before = world.writes().len();
    let running = world.run();
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(world.writes()[before..], [] as [String; 0]);

    // A change reaches the nodes in their places, one after the other.
    let uids = async || {
        let mut uids = Vec::new();
        for id in ["server", "worker-a", "worker-b"] {
            uids.push(world.machine(id).await.unwrap().uid());
        }
        uids
    };
    let before = uids().await;
    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    world.settle().await;
    let told = world.agents.told();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[0], "server applied");
    assert_eq!(uids().await, before);

    // Another address of this server reaches what machines boot with, and the agent in the cluster: no worker is
    // bothered.
    let url = json!({"value": "https://remuda.example.com"});
    let settings: Api<Setting> = Api::all(world.client());
    settings.patch("server-url", &PatchParams::default(), &Patch::Merge(url)).await.unwrap();
    until("scripts have it", async || {
        let name = format!("{}-machine-bootstrap", machine_name("worker-a"));
        let secret = world.api::<Secret>().get(&name).await.unwrap();
        String::from_utf8_lossy(&secret.data.unwrap()["value"].0).contains("https://remuda.example.com")
    })
    .await;
    until("the server has applied it", async || !world.agents.busy().await).await;
    world.settle().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.agents.told(), ["server applied"]);

    // And it goes, with everything that was made.
    world.api::<Cluster>().delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    until("the cluster is gone", async || world.api::<Cluster>().get_opt(CLUSTER).await.unwrap().is_none())
        .await;
    until("all objects are gone", async || {
        world.names::<Machine>().await.is_empty()
            && world.names::<RkeControlPlane>().await.is_empty()
            && world.names::<RkeCluster>().await.is_empty()
            && world.names::<RkeBootstrap>().await.is_empty()
            && world.names::<CustomMachine>().await.is_empty()
            && world.names::<Secret>().await.is_empty()
            && world.names::<Role>().await.is_empty()
            && world.names::<RoleBinding>().await.is_empty()
            && world.names::<ServiceAccount>().await == ["default"]
    })
    .await;
    running.stop().await;
}
