//! What an edit changes, and what it leaves alone.

use std::collections::BTreeSet;

use base64::Engine;
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use remuda_api::{
    core::{self, MachineDeployment},
    rke::{EtcdSnapshot, RkeControlPlane},
};
use serde_json::{Value, json};

use crate::world::{World, demo, edge, until};

async fn template_of(world: &World, deployment: &str) -> String {
    let deployment = world.api::<MachineDeployment>().get(deployment).await.unwrap();
    deployment.spec.template.spec.infrastructure_ref.name
}

async fn config(world: &World, name: &str, fields: Value) {
    let patch = Patch::Merge(fields);
    world.driver("DigitaloceanConfig").patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// The pools of the cluster with some fields of one replaced.
async fn edit_pool(world: &World, index: usize, fields: Value) {
    let cluster = world.clusters().get("demo").await.unwrap();
    let mut pools = serde_json::to_value(&cluster.spec.rke_config.unwrap().machine_pools).unwrap();
    pools[index].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    world.edit("demo", json!({"spec": {"rkeConfig": {"machinePools": pools}}})).await;
}

#[tokio::test(start_paused = true)]
async fn numbers_labels_and_taints_change_in_place() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let before = template_of(&world, "demo-workers").await;
    edit_pool(&world, 1, json!({"quantity": 5, "labels": {"tier": "web"}, "taints": []})).await;
    let deployments = world.api::<MachineDeployment>();
    let after = world
        .eventually(&deployments, "demo-workers", "has five", |deployment| {
            deployment.spec.replicas == Some(5)
        })
        .await;
    assert_eq!(after.labels()["tier"], "web");
    let meta = &after.spec.template.metadata;
    assert_eq!(meta.labels["tier"], "web");
    assert_eq!(meta.annotations["rke.cattle.io/labels"], "{\"tier\":\"web\"}");
    assert!(!meta.annotations.contains_key("rke.cattle.io/taints"));
    assert_eq!(after.spec.template.spec.infrastructure_ref.name, before);
    let has = |template: &DynamicObject| {
        template.data.pointer("/spec/template/spec/common/labels/tier") == Some(&json!("web"))
            && template.data.pointer("/spec/template/spec/common/taints").is_none()
    };
    world.eventually(&world.driver("DigitaloceanMachineTemplate"), &before, "has the labels", has).await;
    assert_eq!(world.templates().await.len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_another_content_is_another_template() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let before = template_of(&world, "demo-workers").await;
    // Said, though meant anyway.
    let said = json!({"backups": false, "tags": "", "image": "ubuntu-22-04-x64", "unknown": "field"});
    config(&world, "nc-demo-workers", said).await;
    world.settle().await;
    assert_eq!(template_of(&world, "demo-workers").await, before);
    assert_eq!(world.templates().await.len(), 2);
    config(&world, "nc-demo-workers", json!({"size": "s-8vcpu-16gb"})).await;
    let deployments = world.api::<MachineDeployment>();
    let changed =
        |deployment: &MachineDeployment| deployment.spec.template.spec.infrastructure_ref.name != before;
    world.eventually(&deployments, "demo-workers", "has another template", changed).await;
    // Machines may still be made from the former one.
    assert_eq!(world.templates().await.len(), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_scales_a_deployment_scales_the_pool() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let deployments = world.api::<MachineDeployment>();
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    deployments.patch("demo-workers", &PatchParams::default(), &patch).await.unwrap();
    world
        .eventually(&world.clusters(), "demo", "has seven", |cluster| {
            cluster.spec.rke_config.as_ref().unwrap().machine_pools[1].quantity == Some(7)
        })
        .await;
    world.settle().await;
    assert_eq!(deployments.get("demo-workers").await.unwrap().spec.replicas, Some(7));
    edit_pool(&world, 1, json!({"quantity": 1})).await;
    world.eventually(&deployments, "demo-workers", "has one", |found| found.spec.replicas == Some(1)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_gone_takes_its_deployment_with_it() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let pools = demo()["rkeConfig"]["machinePools"][0].clone();
    world.edit("demo", json!({"spec": {"rkeConfig": {"machinePools": [pools]}}})).await;
    until("the deployment is gone", async || {
        world.api::<MachineDeployment>().get_opt("demo-workers").await.unwrap().is_none()
    })
    .await;
    assert!(world.api::<MachineDeployment>().get_opt("demo-pool1").await.unwrap().is_some());
    // Not before the cluster: a pool may come back.
    assert_eq!(world.templates().await.len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_write_is_left_to_them() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let capi = world.api::<core::Cluster>();
    let patch = Patch::Merge(json!({"spec": {"paused": true}, "metadata": {"labels": {"theirs": "x"}}}));
    capi.patch("demo", &PatchParams::default(), &patch).await.unwrap();
    world.edit("demo", json!({"spec": {"kubernetesVersion": "v1.35.2+rke2r1"}})).await;
    let control_planes = world.api::<RkeControlPlane>();
    world
        .eventually(&control_planes, "demo", "has the version", |found| {
            found.spec.kubernetes_version == "v1.35.2+rke2r1"
        })
        .await;
    world.settle().await;
    let found = capi.get("demo").await.unwrap();
    assert_eq!(found.spec.paused, Some(true));
    assert_eq!(found.labels()["theirs"], "x");
    // What is ours is put right.
    let patch = Patch::Merge(json!({"spec": {"kubernetesVersion": "v0"}}));
    control_planes.patch("demo", &PatchParams::default(), &patch).await.unwrap();
    world
        .eventually(&control_planes, "demo", "has the version again", |found| {
            found.spec.kubernetes_version == "v1.35.2+rke2r1"
        })
        .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restore_brings_back_what_the_cluster_was() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    world.told("edge", "RKECluster", "True", "").await;
    let control_planes = world.api::<RkeControlPlane>();
    let packed =
        control_planes.get("edge").await.unwrap().annotations()["rke.cattle.io/cluster-spec"].clone();
    let metadata = base64::engine::general_purpose::STANDARD
        .encode(json!({"provisioning-cluster-spec": packed}).to_string());
    let snapshot = json!({"metadata": {"name": "s1"}, "snapshotFile": {"name": "s1", "metadata": metadata}});
    let snapshots = world.api::<EtcdSnapshot>();
    snapshots.create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await.unwrap();
    let later =
        json!({"kubernetesVersion": "v1.35.9+k3s1", "rkeConfig": {"machineGlobalConfig": {"disable": null}}});
    world.edit("edge", json!({"spec": later})).await;
    let has = |version: &'static str| move |found: &RkeControlPlane| found.spec.kubernetes_version == version;
    world.eventually(&control_planes, "edge", "is newer", has("v1.35.9+k3s1")).await;
    let restore = json!({"name": "s1", "generation": 1, "restoreRKEConfig": "all"});
    world.edit("edge", json!({"spec": {"rkeConfig": {"etcdSnapshotRestore": restore}}})).await;
    let found = world.eventually(&control_planes, "edge", "is as it was", has("v1.35.1+k3s1")).await;
    assert_eq!(found.spec.config.machine_global_config["disable"], json!(["servicelb"]));
    assert_eq!(found.spec.etcd_snapshot_restore.unwrap().name, "s1");
    // Once the control plane has taken it up, the spec may be edited again.
    let patch = Patch::Merge(json!({"status": {"etcdSnapshotRestore": restore}}));
    control_planes.patch_status("edge", &PatchParams::default(), &patch).await.unwrap();
    world.settle().await;
    world.edit("edge", json!({"spec": {"kubernetesVersion": "v1.35.9+k3s1"}})).await;
    world.eventually(&control_planes, "edge", "is newer again", has("v1.35.9+k3s1")).await;
    let restore = json!({"name": "none", "generation": 2, "restoreRKEConfig": "all"});
    world.edit("edge", json!({"spec": {"rkeConfig": {"etcdSnapshotRestore": restore}}})).await;
    world
        .told("edge", "RKECluster", "False", "etcd snapshot fleet-default/none to be restored does not exist")
        .await;
    running.stop().await;
}

/// A small generator, so that a run can be told by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick(&mut self, [one, other]: [Value; 2]) -> Value {
        if self.roll(2) == 0 { one } else { other }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_edited_templates_follow_the_content_only() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    let mut dice = Dice(20_261_116);
    let mut size = "s-1vcpu-2gb".to_owned();
    let mut seen = BTreeSet::new();
    seen.insert((size.clone(), template_of(&world, "demo-workers").await));
    for round in 0..24 {
        match dice.roll(8) {
            0 => edit_pool(&world, 1, json!({"quantity": dice.roll(6)})).await,
            1 => edit_pool(&world, 1, json!({"labels": {"tier": format!("t{}", dice.roll(3))}})).await,
            2 => edit_pool(&world, 1, json!({"drainBeforeDelete": dice.roll(2) == 0})).await,
            3 => {
                let backups = dice.pick([Value::Null, json!(false)]);
                config(&world, "nc-demo-workers", json!({"backups": backups})).await;
            }
            4 => {
                let image = dice.pick([json!("ubuntu-22-04-x64"), Value::Null]);
                config(&world, "nc-demo-workers", json!({"image": image})).await;
            }
            5 => world.edit("demo", json!({"spec": {"rkeConfig": {"provisionGeneration": round}}})).await,
            6 => edit_pool(&world, 1, json!({"unhealthyNodeTimeout": format!("{}m", dice.roll(3))})).await,
            _ => {
                size = format!("s-{}vcpu", dice.roll(3));
                config(&world, "nc-demo-workers", json!({"size": size})).await;
            }
        }
        world.settle().await;
        seen.insert((size.clone(), template_of(&world, "demo-workers").await));
    }
    let sizes: BTreeSet<&String> = seen.iter().map(|(size, _)| size).collect();
    for size in sizes {
        let names: BTreeSet<&String> =
            seen.iter().filter(|(of, _)| of == size).map(|(_, name)| name).collect();
        // One content may come back under the name of one that means the same, but nothing is replaced in between.
        assert!(names.len() <= 2, "{size}: {names:?}");
    }
    running.stop().await;
}
