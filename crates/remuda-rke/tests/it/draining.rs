//! Drains before nodes change.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::world::{World, machine_name, until};

async fn cordoned(world: &World, id: &str) -> bool {
    let nodes: Api<Node> = Api::all(world.workload.client());
    nodes.get(id).await.unwrap().spec.and_then(|spec| spec.unschedulable) == Some(true)
}

async fn create_pod(world: &World, name: &str, node: &str) {
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    let pods: Api<Pod> = Api::namespaced(world.workload.client(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn pods(world: &World) -> Vec<String> {
    let pods: Api<Pod> = Api::namespaced(world.workload.client(), "default");
    let mut names: Vec<String> =
        pods.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_drained_when_its_hooks_allow_and_then_used_again() {
    let world = World::start(json!({"upgradeStrategy": {"workerDrainOptions": {
        "enabled": true, "timeout": 60, "gracePeriod": 0, "force": true,
        "preDrainHooks": [{"annotation": "example.com/before"}], "postDrainHooks": [{"annotation": "example.com/after"}],
    }}}))
    .await;
    world.agents.run();
    let running = world.run();
    world.register("server:ec worker:w").await;
    world.settle().await;
    create_pod(&world, "web", "worker").await;
    create_pod(&world, "elsewhere", "server").await;

    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    let secrets = world.api::<Secret>();
    let name = format!("{}-machine-plan", machine_name("worker"));
    let asked = async |key: &str| secrets.get(&name).await.unwrap().annotations().get(key).cloned();
    until("the hook is asked", async || asked("rke.cattle.io/pre-drain").await.is_some()).await;
    assert!(cordoned(&world, "worker").await);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(pods(&world).await, ["elsewhere", "web"], "the hook has not answered");
    let told = world.condition("Ready").await;
    assert!(told.contains(&format!("draining worker node(s) {}", machine_name("worker"))), "{told}");
    let allow = async |question: &str, hook: &str| {
        let question = asked(question).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {hook: question}}}));
        secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    };
    allow("rke.cattle.io/pre-drain", "example.com/before").await;
    until("the pod is evicted", async || pods(&world).await == ["elsewhere"]).await;
    until("the other hook is asked", async || asked("rke.cattle.io/post-drain").await.is_some()).await;
    assert!(cordoned(&world, "worker").await);
    assert!(world.agents.told().contains(&"worker applied".to_owned()), "its plan comes between the two");
    allow("rke.cattle.io/post-drain", "example.com/after").await;
    world.settle().await;
    assert!(!cordoned(&world, "worker").await);
    let secret = secrets.get(&name).await.unwrap();
    let left = secret.annotations().keys().find(|key| key.contains("drain") || key.contains("example.com"));
    assert_eq!(left, None);
    assert!(!cordoned(&world, "server").await);
    running.stop().await;
}
