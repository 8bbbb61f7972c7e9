//! Servers that register themselves.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::{core::Machine, rke::RkeCluster};
use serde_json::json;

use crate::world::{CLUSTER, MANAGED, World, machine_name, until};

/// The Machine that answered a request, once one did.
async fn answer(world: &World, managed: &str, id: &str) -> Option<String> {
    let secrets: Api<Secret> = Api::namespaced(world.client(), managed);
    let secret = secrets.get_opt(&machine_name(id)).await.unwrap()?;
    secret.labels().get("rke.cattle.io/machine-name").cloned()
}

#[tokio::test(start_paused = true)]
async fn a_server_has_one_machine_however_often_it_registers() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.create_cluster("other", "c-m-other000", json!({})).await;

    world.request(MANAGED, "server", "ecw").await;
    until("it is answered", async || answer(&world, MANAGED, "server").await.is_some()).await;
    assert_eq!(answer(&world, MANAGED, "server").await, Some(machine_name("server")));
    let machine = world.machine("server").await.unwrap();
    assert_eq!(machine.labels()["rke.cattle.io/machine-id"], "server");
    world.settle().await;

    // A request that was not taken goes by itself, and the next one finds the same machine.
    let secrets: Api<Secret> = Api::namespaced(world.client(), MANAGED);
    until("the request is gone", async || secrets.get_opt(&machine_name("server")).await.unwrap().is_none())
        .await;
    world.request(MANAGED, "server", "w").await;
    until("it is answered again", async || answer(&world, MANAGED, "server").await.is_some()).await;
    assert_eq!(world.machine("server").await.unwrap().uid(), machine.uid());
    assert_eq!(world.names::<Machine>().await, [machine_name("server")]);

    // What another cluster's token is good for is not this cluster's machine.
    world.request("c-m-other000", "server", "ecw").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(answer(&world, "c-m-other000", "server").await, None);

    // A worker whose Node somebody deleted goes after the time the cluster gives it, and not before.
    world.request(MANAGED, "worker", "w").await;
    until("the worker runs", async || {
        let machine = world.machine("worker").await;
        machine.and_then(|machine| machine.status).is_some_and(|status| !status.node_ref.name.is_empty())
    })
    .await;
    world.settle().await;
    let after =
        json!({"metadata": {"annotations": {"rke.cattle.io/delete-missing-custom-machines-after": "10m"}}});
    let clusters = world.api::<RkeCluster>();
    clusters.patch(CLUSTER, &PatchParams::default(), &Patch::Merge(after)).await.unwrap();
    world.agents.forget("worker").await;
    tokio::time::sleep(Duration::from_secs(500)).await;
    assert!(world.machine("worker").await.is_some());
    until("the worker is gone", async || world.machine("worker").await.is_none()).await;
    running.stop().await;
}
