//! MachinePools: from the first server to the last node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::{Cluster, Machine, MachinePool};
use serde_json::{Value, json};

use crate::world::{GROUP, World, until};

fn reference(kind: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": "pool"})
}

async fn create_cluster(world: &World) {
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"},
        "spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}},
    }))
    .unwrap();
    world.api::<Cluster>().create(&PostParams::default(), &cluster).await.unwrap();
}

async fn create_pool(world: &World, replicas: i32) {
    let pool: MachinePool = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "pool"},
        "spec": {
            "clusterName": "demo", "replicas": replicas,
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "clusterName": "demo",
                    "bootstrap": {"configRef": reference("FakeConfig")},
                    "infrastructureRef": reference("FakeMachinePool"),
                },
            },
        },
    }))
    .unwrap();
    world.api::<MachinePool>().create(&PostParams::default(), &pool).await.unwrap();
}

async fn get(world: &World) -> MachinePool {
    world.api::<MachinePool>().get("pool").await.unwrap()
}

fn condition(pool: &MachinePool, kind: &str) -> String {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or("absent".to_owned(), |found| {
        format!("{} {} {}", found.status, found.reason, found.message).trim_end().to_owned()
    })
}

async fn says(world: &World, kind: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..4_000 {
        last = condition(&get(world).await, kind);
        if last == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{kind} is {last:?} and not {expected:?}");
}

async fn phase(world: &World, expected: &str) {
    until(&format!("phase {expected}"), async || {
        get(world).await.status.is_some_and(|status| status.phase == expected)
    })
    .await;
}

async fn settled(world: &World) {
    tokio::time::sleep(Duration::from_secs(300)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let since: Vec<_> =
        world.requests()[before..].iter().filter(|request| !request.contains(" watch ")).cloned().collect();
    assert_eq!(since, Vec::<String>::new(), "settled controllers ask nothing");
}

async fn create_node(cluster: &remuda_testkit::World, name: &str) {
    let nodes: Api<Node> = Api::all(cluster.client());
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "providerID": format!("fake://{name}"),
            "taints": [
                {"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"},
                {"key": "theirs", "effect": "NoSchedule"},
            ],
        },
    }))
    .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = Patch::Merge(json!({"status": {
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "nodeInfo": {
            "kubeletVersion": "v1.34.1", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
            "systemUUID": "",
        },
    }}));
    nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

async fn servers(world: &World, names: &[&str]) {
    let ids: Vec<_> = names.iter().map(|name| format!("fake://{name}")).collect();
    let patch = Patch::Merge(json!({"spec": {"providerIDList": ids}}));
    world.fake("FakeMachinePool").patch("pool", &PatchParams::default(), &patch).await.unwrap();
    world.report("FakeMachinePool", "pool", json!({"ready": true, "replicas": names.len()})).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_takes_over_its_servers_and_lets_them_go() {
    let world = World::start().await;
    let remote = world.workloads.start("demo").await;
    let running = world.run();
    create_cluster(&world).await;
    create_pool(&world, 2).await;
    phase(&world, "Pending").await;
    says(&world, "InfrastructureReady", "False ObjectDoesNotExist FakeMachinePool does not exist").await;
    world.create_fake("FakeConfig", "pool", json!({})).await;
    world.create_fake("FakeMachinePool", "pool", json!({})).await;
    until("the objects are the pool's", async || {
        let mut owned = true;
        for kind in ["FakeConfig", "FakeMachinePool"] {
            let object = world.fake(kind).get("pool").await.unwrap();
            owned &= object.owner_references().iter().any(|owner| owner.controller == Some(true));
            owned &= object.labels().contains_key("cluster.x-k8s.io/cluster-name");
        }
        owned
    })
    .await;
    assert_eq!(get(&world).await.owner_references()[0].kind, "Cluster");
    let created = json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": "boot-1"});
    world.report("FakeConfig", "pool", created).await;
    phase(&world, "Provisioning").await;
    assert_eq!(get(&world).await.spec.template.spec.bootstrap.data_secret_name.as_deref(), Some("boot-1"));

    servers(&world, &["a", "b"]).await;
    phase(&world, "ScalingUp").await;
    create_node(&remote, "a").await;
    create_node(&remote, "b").await;
    phase(&world, "Running").await;
    says(&world, "InfrastructureReady", "True Ready").await;
    let pool = get(&world).await;
    assert_eq!(pool.spec.provider_id_list, ["fake://a", "fake://b"]);
    let status = pool.status.unwrap();
    assert_eq!(
        (status.replicas, status.ready_replicas, status.up_to_date_replicas),
        (Some(2), Some(2), Some(2))
    );
    assert_eq!(status.node_refs[1].name.as_deref(), Some("b"));
    assert_eq!(status.versions[0].version, "v1.34.1");
    let old = status.deprecated.unwrap().v1beta1.unwrap();
    assert_eq!(
        (old.ready_replicas, old.available_replicas, old.unavailable_replicas),
        (Some(2), Some(2), Some(0))
    );
    let nodes: Api<Node> = Api::all(remote.client());
    until("nodes say whose they are", async || {
        let node = nodes.get("a").await.unwrap();
        let taints = node.spec.clone().unwrap().taints.unwrap_or_default();
        let owner = node.annotations().get("cluster.x-k8s.io/owner-name").cloned();
        owner.as_deref() == Some("pool") && taints.len() == 1 && taints[0].key == "theirs"
    })
    .await;
    // A pool follows its config: there will be more servers to boot.
    world.report("FakeConfig", "pool", json!({"dataSecretName": "boot-2"})).await;
    until("the new secret is taken over", async || {
        get(&world).await.spec.template.spec.bootstrap.data_secret_name.as_deref() == Some("boot-2")
    })
    .await;
    settled(&world).await;

    // Somebody else scales.
    let annotate =
        Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": "x"}}}));
    world.api::<MachinePool>().patch("pool", &PatchParams::default(), &annotate).await.unwrap();
    servers(&world, &["b"]).await;
    phase(&world, "Scaling").await;
    until("the node without a server is gone", async || nodes.get_opt("a").await.unwrap().is_none()).await;
    let one = Patch::Merge(json!({"spec": {"replicas": 1}}));
    world.api::<MachinePool>().patch("pool", &PatchParams::default(), &one).await.unwrap();
    phase(&world, "Running").await;

    // Starting anew changes nothing.
    settled(&world).await;
    running.stop().await;
    let (before, at_remote) = (world.writes().len(), remote.writes().len());
    let running = world.run();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.writes()[before..], Vec::<String>::new());
    assert_eq!(remote.writes()[at_remote..], Vec::<String>::new());

    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["infrastructure.cluster.x-k8s.io/hold"]}}));
    world.fake("FakeMachinePool").patch("pool", &PatchParams::default(), &hold).await.unwrap();
    world.api::<MachinePool>().delete("pool", &DeleteParams::default()).await.unwrap();
    let waiting = "True WaitingForInfrastructureDeletion Waiting for FakeMachinePool to be deleted";
    says(&world, "Deleting", waiting).await;
    phase(&world, "Deleting").await;
    assert!(nodes.get_opt("b").await.unwrap().is_some(), "servers go first");
    let let_go = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.fake("FakeMachinePool").patch("pool", &PatchParams::default(), &let_go).await.unwrap();
    until("the pool is gone", async || world.api::<MachinePool>().get_opt("pool").await.unwrap().is_none())
        .await;
    assert!(nodes.get_opt("b").await.unwrap().is_none());
    assert!(world.fake("FakeConfig").get_opt("pool").await.unwrap().is_none());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn servers_that_are_told_one_by_one_have_machines() {
    let world = World::start().await;
    world.workloads.start("demo").await;
    let running = world.run();
    create_cluster(&world).await;
    create_pool(&world, 1).await;
    world.create_fake("FakeConfig", "pool", json!({})).await;
    world.create_fake("FakeMachinePool", "pool", json!({})).await;
    world
        .report(
            "FakeMachinePool",
            "pool",
            json!({"ready": true, "replicas": 1, "infrastructureMachineKind": "FakeMachine"}),
        )
        .await;
    world.create_fake("FakeMachine", "pool-1", json!({})).await;
    let labels = Patch::Merge(json!({"metadata": {"labels": {
        "cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/pool-name": "pool",
    }}}));
    world.fake("FakeMachine").patch("pool-1", &PatchParams::default(), &labels).await.unwrap();
    until("the server has a Machine", async || {
        world.api::<Machine>().get_opt("pool-1").await.unwrap().is_some()
    })
    .await;
    let machine = world.api::<Machine>().get("pool-1").await.unwrap();
    assert_eq!(machine.owner_references()[0].kind, "MachinePool");
    assert_eq!(machine.labels()["team"], "a");
    assert_eq!(machine.spec.infrastructure_ref.kind, "FakeMachine");
    until("it counts as up to date", async || {
        get(&world).await.status.is_some_and(|status| status.up_to_date_replicas == Some(1))
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_its_definition_says_what_is_missing() {
    let world = World::start().await;
    let running = world.run();
    create_cluster(&world).await;
    let pool: MachinePool = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "metadata": {"name": "pool"},
        "spec": {
            "clusterName": "demo", "replicas": 1,
            "template": {"spec": {
                "clusterName": "demo",
                "bootstrap": {"dataSecretName": "boot"},
                "infrastructureRef": reference("LatePool"),
            }},
        },
    }))
    .unwrap();
    world.api::<MachinePool>().create(&PostParams::default(), &pool).await.unwrap();
    let missing = "CRD latepools.infrastructure.cluster.x-k8s.io for kind LatePool in group infrastructure.cluster.x-k8s.io does not exist";
    says(&world, "InfrastructureReady", &format!("Unknown InternalError {missing}")).await;
    says(&world, "BootstrapConfigReady", "True DataSecretProvided").await;
    world.api::<MachinePool>().delete("pool", &DeleteParams::default()).await.unwrap();
    says(&world, "Deleting", &format!("True InternalError Cannot read LatePool: {missing}")).await;
    running.stop().await;
}
