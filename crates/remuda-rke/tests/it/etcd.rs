//! Machines with members of etcd, which go only when the others can do without.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use remuda_api::{core::Machine, rke::RkeBootstrap};
use serde_json::json;

use crate::world::{World, machine_name, until};

const HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup";

async fn delete(world: &World, id: &str) {
    world.api::<Machine>().delete(&machine_name(id), &DeleteParams::default()).await.unwrap();
}

async fn asked(world: &World, id: &str) -> bool {
    let nodes: Api<Node> = Api::all(world.workload.client());
    let node = nodes.get_opt(id).await.unwrap();
    node.is_some_and(|node| node.annotations().contains_key("etcd.k3s.cattle.io/remove"))
}

#[tokio::test(start_paused = true)]
async fn members_leave_one_at_a_time_and_never_at_the_cost_of_a_quorum() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("a:ecw b:ecw c:ecw").await;
    world.settle().await;
    for id in ["a", "b", "c"] {
        let machine = world.machine(id).await.unwrap();
        assert_eq!(machine.annotations()[HOOK], "rke-bootstrap-controller");
    }
    let init = async |ids: &[&str]| {
        for id in ids {
            if world.plan_secret(id).await.labels().contains_key("rke.cattle.io/init-node") {
                return (*id).to_owned();
            }
        }
        panic!("there is no init node");
    };
    let first = init(&["a", "b", "c"]).await;
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|id| *id != first).collect();

    // One of the others is down: two of three are up, and none can be spared for good.
    let secret = world.plan_secret(others[0]).await;
    world.agents.down(others[0], true);
    world.agents.probe(&secret, false).await;
    delete(&world, others[1]).await;
    until("it is told", async || {
        let told = world.machine_condition(others[1], "Reconciled").await;
        told.contains("waiting for etcd: 2 of 3 etcd members are up")
    })
    .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!asked(&world, others[1]).await);
    assert!(world.machine(others[1]).await.unwrap().annotations().contains_key(HOOK));

    // It is back, and the member may go.
    world.agents.down(others[0], false);
    let secret = world.plan_secret(others[0]).await;
    world.agents.probe(&secret, true).await;
    world.agents.keep_members(true);
    until("etcd is asked", async || asked(&world, others[1]).await).await;
    let secret = world.plan_secret(others[1]).await;
    assert!(secret.annotations().contains_key("remuda.io/etcd-member-leaving"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.machine(others[1]).await.unwrap().annotations().contains_key(HOOK), "etcd has not let go");
    assert_eq!(world.agents.cleaned(), [""; 0], "a member that votes is not wiped");
    world.agents.keep_members(false);
    until("the machine is gone", async || world.machine(others[1]).await.is_none()).await;
    world.settle().await;

    // The one that others joined hands over before it goes, also while all are being changed.
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    delete(&world, &first).await;
    until("the init node is gone", async || world.machine(&first).await.is_none()).await;
    assert_eq!(init(&[others[0]]).await, others[0]);
    world.settle().await;

    // The last one stays until a person says otherwise.
    delete(&world, others[0]).await;
    until("it is told", async || world.condition("Ready").await.contains("the data of the cluster")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(world.machine(others[0]).await.unwrap().annotations().contains_key(HOOK));
    let forced = json!({"metadata": {"annotations": {"rke.cattle.io/etcd-force-remove": "true"}}});
    let bootstraps = world.api::<RkeBootstrap>();
    bootstraps.patch(&machine_name(others[0]), &PatchParams::default(), &Patch::Merge(forced)).await.unwrap();
    until("the last machine is gone", async || world.machine(others[0]).await.is_none()).await;
    assert_eq!(world.agents.cleaned(), [others[1], &*first, others[0]]);
    running.stop().await;
}
