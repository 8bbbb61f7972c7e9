//! Machines that a driver makes, and clusters whose roles are on machines of their own.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::{core::Machine, rke::RkeBootstrap};
use serde_json::{Value, json};
use tar::{Builder, Header};

use crate::world::{CLUSTER, NAMESPACE, World, until};

const GROUP: &str = "rke-machine.cattle.io";

fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "FakeMachine"), "fakemachines")
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("fakemachines.{GROUP}"),
            "labels": {"cluster.x-k8s.io/v1beta1": "v1", "cluster.x-k8s.io/v1beta2": "v1"},
        },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {
                "kind": "FakeMachine", "plural": "fakemachines", "singular": "fakemachine", "listKind": "FakeMachineList",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

fn servers(world: &World) -> Api<DynamicObject> {
    Api::namespaced_with(world.client(), NAMESPACE, &resource())
}

/// What a MachineSet makes.
async fn create_machine(world: &World, name: &str, roles: &[&str]) {
    let mut labels = json!({"rke.cattle.io/cluster-name": CLUSTER, "cluster.x-k8s.io/cluster-name": CLUSTER});
    for role in roles {
        labels[format!("rke.cattle.io/{role}-role")] = json!("true");
    }
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    world.create::<RkeBootstrap>(json!({"metadata": metadata, "spec": {"clusterName": CLUSTER}})).await;
    let mut server = DynamicObject::new(name, &resource());
    server.metadata.labels = serde_json::from_value(metadata["labels"].clone()).unwrap();
    servers(world).create(&PostParams::default(), &server).await.unwrap();
    world
        .create::<Machine>(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": CLUSTER,
                "bootstrap": {"configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrap", "name": name}},
                "infrastructureRef": {"apiGroup": GROUP, "kind": "FakeMachine", "name": name},
            },
        }))
        .await;
}

async fn report(world: &World, name: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    servers(world).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The archive a driver saves.
fn archive(name: &str, address: &str) -> String {
    let file = json!({"DriverName": "fake", "Driver": {"IPAddress": address, "PrivateIPAddress": address}})
        .to_string();
    let path = format!("x/machines/{name}/config.json");
    let mut header = Header::new_gnu();
    header.set_size(file.len() as u64);
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    tar.append_data(&mut header, path, file.as_bytes()).unwrap();
    BASE64_STANDARD.encode(tar.into_inner().unwrap().finish().unwrap())
}

/// The driver is done with a server, but has not saved what it knows.
async fn made(world: &World, name: &str) {
    report(world, name, json!({"conditions": [{"type": "Ready", "status": "True"}]})).await;
}

async fn save(world: &World, name: &str, address: &str) {
    world
        .create::<Secret>(json!({
            "metadata": {"name": format!("{name}-machine-state")}, "type": "rke.cattle.io/machine-state",
            "data": {"extractedConfig": archive(name, address)},
        }))
        .await;
}

/// The provider says that a server is provisioned once its Node told where it is.
fn provide(world: &World, names: &'static [&'static str]) {
    let world = world.clone();
    tokio::spawn(async move {
        for name in names {
            while servers(&world).get(name).await.unwrap().data["spec"]["providerID"].as_str().is_none() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            report(&world, name, json!({"initialization": {"provisioned": true}})).await;
        }
    });
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_driver_wait_for_their_server_and_roles_may_be_apart() {
    let world = World::start(json!({"kubernetesVersion": "v1.35.1+rke2r1"})).await;
    world.define(definition()).await;
    world.agents.run();
    let running = world.run();
    create_machine(&world, "etcd-1", &["etcd"]).await;
    create_machine(&world, "plane-1", &["control-plane"]).await;
    create_machine(&world, "work-1", &["worker"]).await;
    for name in ["etcd-1", "plane-1", "work-1"] {
        until("there is something to boot with", async || {
            let machine = world.api::<Machine>().get(name).await.unwrap();
            machine.spec.bootstrap.data_secret_name == Some(format!("{name}-machine-bootstrap"))
        })
        .await;
    }
    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/rke-bootstrap-cleanup";
    let hooked =
        async |name: &str| world.api::<Machine>().get(name).await.unwrap().annotations().contains_key(hook);
    assert!(hooked("etcd-1").await && !hooked("plane-1").await);

    until("a server is waited for", async || {
        world.condition("Ready").await == "Unknown Waiting waiting for viable init node"
    })
    .await;
    for name in ["etcd-1", "plane-1", "work-1"] {
        made(&world, name).await;
    }
    // It runs, and nobody knows its address.
    until("its address is waited for", async || {
        world.condition("Ready").await.contains("etcd-1") && world.agents.told().is_empty()
    })
    .await;
    for (name, address) in [("etcd-1", "10.0.0.1"), ("plane-1", "10.0.0.2"), ("work-1", "10.0.0.3")] {
        save(&world, name, address).await;
    }
    provide(&world, &["etcd-1", "plane-1", "work-1"]);
    world.settle().await;

    let mut told = world.agents.told();
    told.dedup();
    let first = |name: &str| told.iter().position(|line| line.starts_with(name)).unwrap();
    assert!(first("etcd-1") < first("plane-1") && first("plane-1") < first("work-1"), "{told:?}");
    let secret = world.api::<Secret>().get("etcd-1-machine-plan").await.unwrap();
    let url = &secret.annotations()["rke.cattle.io/join-url"];
    assert!(url.starts_with("https://10.0.0.") && url.ends_with(":9345"), "{url}");
    let results = secret.data.unwrap()["applied-periodic-output"].0.clone();
    let results: remuda_plan::output::PeriodicResults = remuda_plan::output::unpack(&results).unwrap();
    assert!(results.contains_key("etcd-name") && !results.contains_key("long-gone"));
    let server = servers(&world).get("work-1").await.unwrap();
    assert_eq!(server.data["spec"]["providerID"], "k3s://work-1");
    assert_eq!(server.data["status"]["addresses"][0]["type"], "InternalIP");

    // A Secret that files come from reaches the nodes, and so does its next content.
    world
        .create::<Secret>(json!({
            "metadata": {
                "name": "files", "annotations": {"rke.cattle.io/object-authorized-for-clusters": CLUSTER},
            },
            "stringData": {"motd": "one"},
        }))
        .await;
    let source = json!({"secret": {"name": "files", "items": [{"key": "motd", "path": "/etc/motd"}]}});
    world.edit(json!({"machineSelectorFiles": [{"fileSources": [source]}]})).await;
    let has = async |text: &str| {
        let secret = world.api::<Secret>().get("work-1-machine-plan").await.unwrap();
        let plan = String::from_utf8(secret.data.unwrap()["appliedPlan"].0.clone()).unwrap();
        plan.contains(&BASE64_STANDARD.encode(text))
    };
    until("the file is there", async || has("one").await).await;
    let patch = Patch::Merge(json!({"stringData": {"motd": "two"}}));
    world.api::<Secret>().patch("files", &PatchParams::default(), &patch).await.unwrap();
    until("its next content is there", async || has("two").await).await;
    world.settle().await;
    running.stop().await;
}
