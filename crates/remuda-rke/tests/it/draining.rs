//! Drains before nodes change.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Node, Pod, Secret},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::Machine;
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

/// The agent of the cluster, as the manifest of a control plane node has it.
async fn create_cluster_agent(world: &World, node: &str) -> String {
    let namespace = json!({"metadata": {"name": "cattle-system"}});
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.workload.client());
    namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    let pod = json!({
        "metadata": {"name": "cattle-cluster-agent-1", "labels": {"app": "cattle-cluster-agent"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
    });
    let pods: Api<Pod> = Api::namespaced(world.workload.client(), "cattle-system");
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pod.uid().unwrap()
}

fn control_plane_drain(enabled: bool, hooks: serde_json::Value) -> serde_json::Value {
    json!({"upgradeStrategy": {"controlPlaneDrainOptions": {
        "enabled": enabled, "timeout": 60, "gracePeriod": 0, "force": true, "preDrainHooks": hooks,
    }}})
}

#[tokio::test(start_paused = true)]
async fn a_drain_leaves_the_cluster_agent_where_it_is() {
    let world = World::start(control_plane_drain(true, json!([]))).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ec worker:w").await;
    world.settle().await;
    create_pod(&world, "web", "server").await;
    let agent = create_cluster_agent(&world, "server").await;
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    until("the pod is evicted", async || pods(&world).await.is_empty()).await;
    world.settle().await;
    let agents: Api<Pod> = Api::namespaced(world.workload.client(), "cattle-system");
    let found = agents.get_opt("cattle-cluster-agent-1").await.unwrap();
    let found = found.expect("without it the cluster could not be reached");
    assert_eq!(found.uid(), Some(agent));
    assert!(found.metadata.deletion_timestamp.is_none());
    assert!(!cordoned(&world, "server").await);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_a_cluster_out_of_reach_fails_in_time_and_ends_when_switched_off() {
    let hooks = json!([{"annotation": "example.com/before"}]);
    let world = World::start(control_plane_drain(true, hooks)).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ec worker:w").await;
    world.settle().await;
    create_pod(&world, "web", "server").await;
    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    let secrets = world.api::<Secret>();
    let name = format!("{}-machine-plan", machine_name("server"));
    let annotation = async |key: &str| secrets.get(&name).await.unwrap().annotations().get(key).cloned();
    until("the hook is asked", async || annotation("rke.cattle.io/pre-drain").await.is_some()).await;
    assert!(cordoned(&world, "server").await);

    world.tunnel.cut();
    let question = annotation("rke.cattle.io/pre-drain").await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"example.com/before": question}}}));
    secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    until("the drain has failed", async || annotation("rke.cattle.io/drain-error").await.is_some()).await;
    let why = annotation("rke.cattle.io/drain-error").await.unwrap();
    assert_eq!(why, "drain did not end within 60s: the cluster cannot be reached");
    let told = async || world.condition("Ready").await;
    until("people are told", async || told().await.contains("the cluster cannot be reached")).await;

    // Whoever wants no drain gets the change without one, and the node is used again.
    world.edit(control_plane_drain(false, json!([]))).await;
    until("the plan is applied", async || world.agents.told().contains(&"server applied".to_owned())).await;
    world.tunnel.mend();
    until("the node is used again", async || !cordoned(&world, "server").await).await;
    world.settle().await;
    assert_eq!(pods(&world).await, ["web"], "nothing was evicted");
    let secret = secrets.get(&name).await.unwrap();
    let left = secret.annotations().keys().find(|key| key.contains("drain") || key.contains("uncordon"));
    assert_eq!(left, None);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_holds_up_a_drain_is_named_on_the_machine_at_once() {
    let world = World::start(json!({"upgradeStrategy": {"workerDrainOptions": {
        "enabled": true, "timeout": 600, "gracePeriod": 0, "force": true,
    }}}))
    .await;
    world.agents.run();
    let running = world.run();
    world.register("server:ec worker:w").await;
    world.settle().await;
    create_pod(&world, "web", "worker").await;
    let pods_: Api<Pod> = Api::namespaced(world.workload.client(), "default");
    let ready = json!({"metadata": {"labels": {"app": "web"}}});
    pods_.patch("web", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods_.patch_status("web", &PatchParams::default(), &Patch::Merge(ready)).await.unwrap();
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(world.workload.client(), "default");
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();

    let machines = world.api::<Machine>();
    let told = async || {
        let machine = machines.get(&machine_name("worker")).await.unwrap();
        let conditions = machine.status.map(|status| status.conditions).unwrap_or_default();
        let found = conditions.into_iter().find(|known| known.type_ == "DrainBlocked");
        found.map(|found| format!("{} {} {}", found.status, found.reason, found.message))
    };
    let began = tokio::time::Instant::now();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    let expected = "True BlockedByBudget PodDisruptionBudget default/web does not let Pod default/web go";
    until("the budget is named", async || told().await.as_deref() == Some(expected)).await;
    assert!(began.elapsed() < Duration::from_secs(60), "long before the drain has failed");
    assert_eq!(pods(&world).await, ["web"]);

    budgets.delete("web", &Default::default()).await.unwrap();
    until("the pod is evicted", async || pods(&world).await.is_empty()).await;
    world.settle().await;
    assert_eq!(told().await.as_deref(), Some("False NotBlocked "));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_goes_on_after_a_drain_that_failed_if_errors_are_ignored() {
    let world = World::start(json!({"upgradeStrategy": {"workerDrainOptions": {
        "enabled": true, "timeout": 60, "gracePeriod": 0, "ignoreErrors": true,
    }}}))
    .await;
    world.agents.run();
    let running = world.run();
    world.register("server:ec worker:w").await;
    world.settle().await;
    // Nothing would create it again, so that it stops a drain.
    create_pod(&world, "web", "worker").await;
    world.agents.told();
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    until("the plan is applied", async || world.agents.told().contains(&"worker applied".to_owned())).await;
    world.settle().await;
    assert_eq!(pods(&world).await, ["web"], "what may not go is not forced");
    assert!(!cordoned(&world, "worker").await);
    running.stop().await;
}
