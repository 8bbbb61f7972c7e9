//! The Machine controller: from nothing to Running, and what stands in the way.

mod deleting;
mod failing;
mod odd;
mod seeing;

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use remuda_api::core::{Cluster, Machine};
use serde_json::{Value, json};

use crate::world::{GROUP, Running, World};

/// A reference to an object of the provider.
fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}

async fn create_cluster(world: &World, name: &str) {
    world
        .create_fake("FakeCluster", name, json!({"controlPlaneEndpoint": {"host": "h", "port": 6443}}))
        .await;
    world.create_fake("FakeControlPlane", name, json!({})).await;
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "infrastructureRef": reference("FakeCluster", name),
            "controlPlaneRef": reference("FakeControlPlane", name),
        },
    }))
    .unwrap();
    world.api::<Cluster>().create(&PostParams::default(), &cluster).await.unwrap();
}

/// The cluster's providers are done.
async fn initialize_cluster(world: &World, name: &str) {
    world.report("FakeCluster", name, json!({"initialization": {"provisioned": true}})).await;
    world
        .report("FakeControlPlane", name, json!({"initialization": {"controlPlaneInitialized": true}}))
        .await;
}

/// A world with an initialized cluster whose API server is there.
async fn demo() -> (World, remuda_testkit::World) {
    let world = World::start().await;
    let workload = world.workloads.start("c").await;
    create_cluster(&world, "c").await;
    initialize_cluster(&world, "c").await;
    (world, workload)
}

/// A Machine with everything it refers to.
async fn create_machine(world: &World, name: &str, labels: Value, spec: Value) -> Machine {
    world.create_fake("FakeConfig", name, json!({})).await;
    world.create_fake("FakeMachine", name, json!({})).await;
    create_machine_only(world, name, labels, spec).await
}

async fn create_machine_only(world: &World, name: &str, labels: Value, spec: Value) -> Machine {
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "clusterName": "c",
            "bootstrap": {"configRef": reference("FakeConfig", name)},
            "infrastructureRef": reference("FakeMachine", name),
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    let machine: Machine = serde_json::from_value(object).unwrap();
    world.api::<Machine>().create(&PostParams::default(), &machine).await.unwrap()
}

async fn report_bootstrap(world: &World, name: &str) {
    let status =
        json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": format!("{name}-data")});
    world.report("FakeConfig", name, status).await;
}

async fn report_server(world: &World, name: &str) {
    let patch = Patch::Merge(json!({"spec": {"providerID": format!("fake://{name}")}}));
    world.fake("FakeMachine").patch(name, &PatchParams::default(), &patch).await.unwrap();
    let addresses = json!([{"type": "InternalIP", "address": "10.1.2.3"}]);
    let status = json!({"initialization": {"provisioned": true}, "addresses": addresses});
    world.report("FakeMachine", name, status).await;
}

/// A node as a kubelet would register it.
async fn create_node(workload: &remuda_testkit::World, name: &str) {
    let nodes: Api<Node> = Api::all(workload.client());
    let taint = json!({"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"});
    let node: Node = serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("node-{name}"), "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"providerID": format!("fake://{name}"), "taints": [taint]},
    }))
    .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    set_ready(workload, name, "True").await;
}

async fn set_ready(workload: &remuda_testkit::World, name: &str, ready: &str) {
    let nodes: Api<Node> = Api::all(workload.client());
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Because",
            "message": ""})
    };
    let info = json!({
        "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c", "kernelVersion": "6",
        "kubeProxyVersion": "", "kubeletVersion": "v1.34.0", "machineID": "m", "operatingSystem": "linux",
        "osImage": "Linux", "systemUUID": "s",
    });
    let conditions = json!([
        condition("Ready", ready),
        condition("MemoryPressure", "False"),
        condition("DiskPressure", "False"),
        condition("PIDPressure", "False"),
    ]);
    let patch = Patch::Merge(json!({"status": {"conditions": conditions, "nodeInfo": info}}));
    nodes.patch_status(&format!("node-{name}"), &PatchParams::default(), &patch).await.unwrap();
}

/// A machine that runs.
async fn running(world: &World, workload: &remuda_testkit::World, name: &str, labels: Value, spec: Value) {
    create_machine(world, name, labels, spec).await;
    report_bootstrap(world, name).await;
    report_server(world, name).await;
    create_node(workload, name).await;
    until(&format!("{name} is available"), async || {
        condition(world, name, "Available").await.starts_with("True")
    })
    .await;
}

async fn get(world: &World, name: &str) -> Machine {
    world.api::<Machine>().get(name).await.unwrap()
}

/// `Status Reason message` of a condition.
async fn condition(world: &World, name: &str, kind: &str) -> String {
    let machine = world.api::<Machine>().get_opt(name).await.unwrap();
    let status = machine.and_then(|machine| machine.status).unwrap_or_default();
    let found = status.conditions.iter().find(|condition| condition.type_ == kind);
    let text = found.map(|found| format!("{} {} {}", found.status, found.reason, found.message));
    text.unwrap_or_default().trim().to_owned()
}

/// Polls until it is so, for minutes of the timer's time.
async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..5_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened: {what}");
}

/// Waits until a condition says something, and tells what it says instead if it does not.
async fn says(world: &World, name: &str, kind: &str, expected: &str) {
    for _ in 0..1_000 {
        if condition(world, name, kind).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(condition(world, name, kind).await, expected);
}

async fn in_phase(world: &World, name: &str, phase: &str) {
    until(&format!("{name} is {phase}"), async || {
        get(world, name).await.status.is_some_and(|status| status.phase == phase)
    })
    .await;
}

/// Lets everything come to rest.
async fn settle(world: &World) {
    for _ in 0..100 {
        let before = world.writes().len();
        tokio::time::sleep(Duration::from_secs(61)).await;
        if world.writes().len() == before {
            return;
        }
    }
    panic!("never comes to rest: {:?}", world.writes().split_off(world.writes().len() - 20));
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_from_pending_to_running() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({"node.cluster.x-k8s.io/pool": "a", "x": "y"}), json!({})).await;
    in_phase(&world, "m", "Pending").await;
    report_bootstrap(&world, "m").await;
    in_phase(&world, "m", "Provisioning").await;
    assert_eq!(get(&world, "m").await.spec.bootstrap.data_secret_name.as_deref(), Some("m-data"));
    report_server(&world, "m").await;
    in_phase(&world, "m", "Provisioned").await;
    says(
        &world,
        "m",
        "NodeHealthy",
        "Unknown InspectionFailed Waiting for a Node with spec.providerID fake://m to exist",
    )
    .await;
    create_node(&workload, "m").await;
    in_phase(&world, "m", "Running").await;
    says(&world, "m", "Available", "True Available").await;
    settle(&world).await;

    let machine = get(&world, "m").await;
    let status = machine.status.clone().unwrap();
    let shown: Vec<String> = status
        .conditions
        .iter()
        .map(|found| format!("{} {} {}{}", found.type_, found.status, found.reason, found.message))
        .collect();
    assert_eq!(
        shown,
        [
            "Available True Available",
            "Ready True Ready",
            "BootstrapConfigReady True Ready",
            "InfrastructureReady True Ready",
            "NodeHealthy True NodeHealthy",
            "NodeReady True NodeReady",
            "Updating False NotUpdating",
            "Paused False NotPaused",
            "Deleting False NotDeleting",
        ]
    );
    assert_eq!(status.node_ref.name, "node-m");
    assert_eq!(status.node_info.unwrap().kubelet_version, "v1.34.0");
    assert_eq!(status.addresses[0].address, "10.1.2.3");
    assert_eq!(status.observed_generation, machine.metadata.generation.unwrap());
    assert!(status.last_updated.is_some());
    let old = status.deprecated.unwrap().v1beta1.unwrap().conditions;
    let old: Vec<String> = old.iter().map(|found| format!("{} {}", found.kind, found.status)).collect();
    assert_eq!(old, ["Ready True", "BootstrapReady True", "InfrastructureReady True", "NodeHealthy True"]);
    assert_eq!(machine.finalizers(), ["machine.cluster.x-k8s.io"]);
    assert_eq!(machine.owner_references()[0].kind, "Cluster");
    assert_eq!(machine.labels()["cluster.x-k8s.io/cluster-name"], "c");

    let server = world.fake("FakeMachine").get("m").await.unwrap();
    let owner = &server.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.uid.as_str()),
        ("Machine", Some(true), machine.uid().unwrap().as_str())
    );
    assert_eq!(server.labels()["cluster.x-k8s.io/cluster-name"], "c");

    let node = Api::<Node>::all(workload.client()).get("node-m").await.unwrap();
    assert_eq!(node.labels()["node.cluster.x-k8s.io/pool"], "a");
    assert!(!node.labels().contains_key("x"));
    assert_eq!(node.annotations()["cluster.x-k8s.io/machine"], "m");
    assert_eq!(node.annotations()["cluster.x-k8s.io/labels-from-machine"], "node.cluster.x-k8s.io/pool");
    assert!(node.spec.unwrap().taints.unwrap_or_default().is_empty());
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_over_stays() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    let patch = json!({"initialization": {"provisioned": false}, "addresses": null});
    world.report("FakeMachine", "m", patch).await;
    let patch = json!({"initialization": {"dataSecretCreated": false}, "dataSecretName": "other"});
    world.report("FakeConfig", "m", patch).await;
    settle(&world).await;
    let machine = get(&world, "m").await;
    let status = machine.status.unwrap();
    assert_eq!(status.phase, "Running");
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true));
    assert_eq!(status.initialization.bootstrap_data_secret_created, Some(true));
    assert_eq!(machine.spec.bootstrap.data_secret_name.as_deref(), Some("m-data"));
    assert_eq!(status.addresses.len(), 1);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settled_machine_asks_nothing_and_a_restart_writes_nothing() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    for name in ["m1", "m2", "m3"] {
        running(&world, &workload, name, json!({}), json!({})).await;
    }
    settle(&world).await;
    let (before, beyond) = (world.requests(), workload.writes());
    tokio::time::sleep(Duration::from_secs(200)).await;
    let asked: Vec<String> = world.requests().split_off(before.len());
    assert!(asked.iter().all(|request| request.starts_with("GET watch ")), "{asked:?}");
    assert_eq!(workload.writes(), beyond);
    controllers.stop().await;

    let before = world.writes().len();
    let controllers = world.run();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.writes().split_off(before), Vec::<String>::new());
    assert_eq!(workload.writes(), beyond);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_is_left_alone_until_its_cluster_goes_on() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    let pause = |paused: bool| Patch::Merge(json!({"spec": {"paused": paused}}));
    let clusters = world.api::<Cluster>();
    clusters.patch("c", &PatchParams::default(), &pause(true)).await.unwrap();
    create_machine(&world, "m", json!({}), json!({})).await;
    says(&world, "m", "Paused", "True Paused Cluster spec.paused is set to true").await;
    report_bootstrap(&world, "m").await;
    settle(&world).await;
    assert_eq!(get(&world, "m").await.spec.bootstrap.data_secret_name, None);
    clusters.patch("c", &PatchParams::default(), &pause(false)).await.unwrap();
    says(&world, "m", "Paused", "False NotPaused").await;
    in_phase(&world, "m", "Provisioning").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn available_waits_for_min_ready_seconds() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({"minReadySeconds": 600})).await;
    report_bootstrap(&world, "m").await;
    report_server(&world, "m").await;
    create_node(&workload, "m").await;
    says(&world, "m", "Available", "False WaitingForMinReadySeconds").await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    says(&world, "m", "Available", "True Available").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_survives_being_let_down_at_any_moment() {
    let (world, workload) = demo().await;
    create_machine(&world, "cp", json!({"cluster.x-k8s.io/control-plane": ""}), json!({})).await;
    create_machine(&world, "m", json!({}), json!({})).await;
    for name in ["cp", "m"] {
        report_bootstrap(&world, name).await;
        report_server(&world, name).await;
        create_node(&workload, name).await;
    }
    let kill_often = async |moments: std::ops::Range<usize>| {
        for moments in moments {
            let controllers = world.run();
            for _ in 0..moments * 14 {
                tokio::task::yield_now().await;
            }
            controllers.kill().await;
        }
    };
    kill_often(0..30).await;
    let controllers = world.run();
    for name in ["cp", "m"] {
        says(&world, name, "Available", "True Available").await;
    }
    controllers.kill().await;
    world.api::<Machine>().delete("m", &Default::default()).await.unwrap();
    kill_often(0..30).await;
    let controllers = world.run();
    until("it is gone", async || world.api::<Machine>().get_opt("m").await.unwrap().is_none()).await;
    settle(&world).await;
    let nodes = Api::<Node>::all(workload.client()).list(&Default::default()).await.unwrap().items;
    assert_eq!(nodes.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["node-cp"]);
    for kind in ["FakeMachine", "FakeConfig"] {
        let left = world.fake(kind).list(&Default::default()).await.unwrap().items;
        assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["cp"]);
    }
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_cluster_is_neither_adopted_nor_deleted() {
    let (world, _workload) = demo().await;
    let running = world.run();
    world.create_fake("FakeConfig", "thief", json!({})).await;
    world.create_fake("FakeMachine", "theirs", json!({})).await;
    let mark = Patch::Merge(json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "other"}}}));
    let fakes = world.fake("FakeMachine");
    fakes.patch("theirs", &PatchParams::default(), &mark).await.unwrap();
    let before = fakes.get("theirs").await.unwrap();
    let spec = json!({"infrastructureRef": reference("FakeMachine", "theirs")});
    create_machine_only(&world, "thief", json!({}), spec).await;
    let machines = world.api::<Machine>();
    until("it is told whose it is", async || {
        machines.get("thief").await.unwrap().status.is_some_and(|status| {
            status.conditions.iter().any(|condition| condition.message.contains("Cluster other"))
        })
    })
    .await;
    assert_eq!(fakes.get("theirs").await.unwrap().metadata, before.metadata);
    machines.delete("thief", &Default::default()).await.unwrap();
    until("the Machine is gone", async || machines.get_opt("thief").await.unwrap().is_none()).await;
    assert_eq!(fakes.get("theirs").await.unwrap().metadata, before.metadata);
    running.stop().await;
}
