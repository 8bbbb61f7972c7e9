//! Servers that register themselves.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use remuda_api::{
    core::Machine,
    rke::{CustomMachine, RkeCluster},
};
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

#[tokio::test(start_paused = true)]
async fn a_removed_server_is_cleaned_unless_somebody_keeps_it_or_it_does_not_answer() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("a:ecw b:w c:w d:w e:w").await;
    world.settle().await;
    let delete = async |id: &str| {
        world.api::<Machine>().delete(&machine_name(id), &DeleteParams::default()).await.unwrap();
    };
    let notes: Api<Secret> = Api::namespaced(world.client(), MANAGED);
    let note = async |id: &str| notes.get_opt(&format!("removed-{}", machine_name(id))).await.unwrap();

    // One whose Machine goes is cleaned, and its old identity is remembered.
    delete("b").await;
    until("b is gone", async || world.machine("b").await.is_none()).await;
    assert_eq!(world.agents.cleaned(), ["b"]);
    let removed = note("b").await.unwrap();
    assert_eq!(removed.labels()["rke.cattle.io/machine-id"], "b");
    assert!(removed.annotations().contains_key("remuda.io/removed-at"));

    let keep = json!({"metadata": {"annotations": {"remuda.io/keep-host": "true"}}});
    let machines = world.api::<Machine>();
    machines.patch(&machine_name("c"), &PatchParams::default(), &Patch::Merge(keep)).await.unwrap();
    delete("c").await;
    until("c is gone", async || world.machine("c").await.is_none()).await;

    // One that does not answer is told, waited for, and let go.
    world.agents.down("d", true);
    delete("d").await;
    let custom = world.api::<CustomMachine>();
    until("it is waited for", async || {
        let object = custom.get_opt(&machine_name("d")).await.unwrap();
        let conditions = object.and_then(|object| object.status).unwrap_or_default().conditions;
        conditions.iter().any(|known| known.kind == "HostClean" && known.reason == "Cleaning")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.machine("d").await.is_some(), "it has three minutes");
    until("d is gone", async || world.machine("d").await.is_none()).await;

    // Nobody asked for this server to go, only for the object that stands for it.
    custom.delete(&machine_name("e"), &DeleteParams::default()).await.unwrap();
    until("its object is gone", async || custom.get_opt(&machine_name("e")).await.unwrap().is_none()).await;
    assert!(note("e").await.is_none());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.agents.cleaned(), ["b"]);
    running.stop().await;
}
