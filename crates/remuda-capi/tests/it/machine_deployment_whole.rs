//! A MachineDeployment with all controllers at work; only providers and kubelets are played.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineSet};
use serde_json::json;

use crate::{
    fleet::{CLUSTER, Witness, condition, create, deployment, template, use_template, with_kind},
    world::{GROUP, World, until},
};

/// Is the provider of everything, and the kubelets.
async fn provide(world: World, workload: remuda_testkit::World) {
    let nodes: Api<Node> = Api::all(workload.client());
    let params = PatchParams::default();
    loop {
        for config in world.fake("FakeConfig").list(&ListParams::default()).await.unwrap() {
            if config.data["status"]["initialization"]["dataSecretCreated"] != true {
                let status = json!({"initialization": {"dataSecretCreated": true}, "dataSecretName": "s"});
                let patch = Patch::Merge(json!({"status": status}));
                let _ = world.fake("FakeConfig").patch_status(&config.name_any(), &params, &patch).await;
            }
        }
        for infra in world.fake("FakeMachine").list(&ListParams::default()).await.unwrap() {
            let name = infra.name_any();
            let owned = infra.owner_references().iter().any(|owner| owner.kind == "Machine");
            if infra.data["status"]["initialization"]["provisioned"] == true || !owned {
                continue;
            }
            let id = format!("fake://{name}");
            let patch = Patch::Merge(json!({"spec": {"providerID": id}}));
            let _ = world.fake("FakeMachine").patch(&name, &params, &patch).await;
            let patch = Patch::Merge(json!({"status": {"initialization": {"provisioned": true}}}));
            let _ = world.fake("FakeMachine").patch_status(&name, &params, &patch).await;
            let conditions: Vec<_> =
                [("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False")]
                    .into_iter()
                    .chain([("PIDPressure", "False")])
                    .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "Played"}))
                    .collect();
            let node = json!({
                "metadata": {"name": name},
                "spec": {"providerID": id},
                "status": {"conditions": conditions, "nodeInfo": {
                    "kubeletVersion": "v1.33.0", "architecture": "", "bootID": "", "containerRuntimeVersion": "",
                    "kernelVersion": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": "",
                }},
            });
            let node: Node = serde_json::from_value(node).unwrap();
            let _ = nodes.create(&PostParams::default(), &node).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn rolled_out(world: &World, count: i32) {
    until(&format!("{count} machines are as wanted"), async || {
        let status = world.api::<MachineDeployment>().get("web").await.unwrap().status.unwrap_or_default();
        let sets = world.api::<MachineSet>().list(&ListParams::default()).await.unwrap().items;
        let count = Some(count);
        (status.replicas, status.available_replicas, status.up_to_date_replicas) == (count, count, count)
            && sets.len() == 1
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn machines_come_roll_over_and_go_with_every_controller_at_work() {
    let world = World::start().await;
    let workload = world.workloads.start(CLUSTER).await;
    let infra = json!({"apiGroup": GROUP, "kind": "FakeCluster", "name": CLUSTER});
    let spec =
        json!({"infrastructureRef": infra, "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443}});
    create::<Cluster>(&world, with_kind(json!({"metadata": {"name": CLUSTER}, "spec": spec}), "Cluster"))
        .await;
    world.create_fake("FakeCluster", CLUSTER, json!({})).await;
    world.report("FakeCluster", CLUSTER, json!({"initialization": {"provisioned": true}})).await;
    for name in ["small", "large"] {
        template(&world, "FakeMachineTemplate", name).await;
        template(&world, "FakeConfigTemplate", name).await;
    }
    let provider = tokio::spawn(provide(world.clone(), workload.clone()));
    let running = world.run();
    // Without a control plane provider, one Machine with a Node makes a control plane.
    let control_plane = json!({
        "metadata": {"name": "cp", "labels": {"cluster.x-k8s.io/control-plane": ""}},
        "spec": {
            "clusterName": CLUSTER,
            "bootstrap": {"dataSecretName": "given"},
            "infrastructureRef": {"apiGroup": GROUP, "kind": "FakeMachine", "name": "cp"},
        },
    });
    world.create_fake("FakeMachine", "cp", json!({})).await;
    create::<Machine>(&world, with_kind(control_plane, "Machine")).await;
    until("the control plane is up", async || {
        let cluster = world.api::<Cluster>().get(CLUSTER).await.unwrap();
        condition(&cluster, "ControlPlaneInitialized").starts_with("True")
    })
    .await;

    let witness = Witness::new(&world).await;
    create::<MachineDeployment>(&world, deployment("web", 3, json!({}))).await;
    rolled_out(&world, 3).await;
    for machine in world.api::<Machine>().list(&ListParams::default()).await.unwrap() {
        let infra = world.fake("FakeMachine").get(&machine.name_any()).await.unwrap();
        let owners: Vec<&str> = infra.owner_references().iter().map(|owner| owner.kind.as_str()).collect();
        assert_eq!(owners, ["Machine"], "the Machine took over");
    }
    witness.start_counting();
    let patch = Patch::Merge(use_template("large"));
    world.api::<MachineDeployment>().patch("web", &PatchParams::default(), &patch).await.unwrap();
    until("all are large", async || {
        let infra = world.fake("FakeMachine").list(&ListParams::default()).await.unwrap().items;
        infra.iter().filter(|infra| infra.data["spec"]["size"] == "large").count() == 3 && infra.len() == 4
    })
    .await;
    rolled_out(&world, 3).await;
    {
        let seen = witness.seen.lock();
        assert_eq!(seen.created.len(), 7, "three, three more, and the control plane");
        assert!(seen.most <= 5, "{} at once", seen.most);
        assert!(seen.fewest_available >= Some(4), "{:?} available", seen.fewest_available);
    }
    witness.stop().await;

    // Nothing is written when nothing happens.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = world.writes().len();
    tokio::time::sleep(Duration::from_secs(200)).await;
    let written: Vec<String> = world.writes().split_off(before);
    assert_eq!(written, Vec::<String>::new());

    world.api::<MachineDeployment>().delete("web", &DeleteParams::default()).await.unwrap();
    until("only the control plane is left", async || {
        let machines = world.api::<Machine>().list(&ListParams::default()).await.unwrap().items;
        let sets = world.api::<MachineSet>().list(&ListParams::default()).await.unwrap().items;
        let deployments = world.api::<MachineDeployment>().list(&ListParams::default()).await.unwrap().items;
        let infra = world.fake("FakeMachine").list(&ListParams::default()).await.unwrap().items;
        let configs = world.fake("FakeConfig").list(&ListParams::default()).await.unwrap().items;
        machines.len() == 1
            && sets.is_empty()
            && deployments.is_empty()
            && infra.len() == 1
            && configs.is_empty()
    })
    .await;
    running.stop().await;
    provider.abort();
}
