//! Configurations that many clusters use, and edits of them.

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::{Machine, MachineDeployment};
use remuda_names::provisioning::annotation::{APPROVED_CONFIGS, CONFIG_POLICY, PENDING_CONFIG, SHARED};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, until};

fn cluster(config: &str, pools: &[&str]) -> Value {
    let pool = |name: &&str| {
        json!({
            "name": name, "quantity": 2, "workerRole": true, "etcdRole": true, "controlPlaneRole": true,
            "machineConfigRef": {"kind": "DigitaloceanConfig", "name": config},
        })
    };
    let pools: Vec<Value> = pools.iter().map(pool).collect();
    json!({"kubernetesVersion": "v1.35.1+rke2r1", "rkeConfig": {"machinePools": pools}})
}

async fn template_of(world: &World, deployment: &str) -> String {
    let deployment = world.api::<MachineDeployment>().get(deployment).await.unwrap();
    deployment.spec.template.spec.infrastructure_ref.name
}

async fn edit(world: &World, config: &str, fields: Value) {
    let patch = Patch::Merge(fields);
    world.driver("DigitaloceanConfig").patch(config, &PatchParams::default(), &patch).await.unwrap();
}

/// A machine of a pool, which is a node.
async fn machine(world: &World, cluster: &str, pool: &str, name: &str) {
    let machines = world.api::<Machine>();
    let machine = json!({
        "metadata": {"name": name, "labels": {
            "cluster.x-k8s.io/cluster-name": cluster,
            "cluster.x-k8s.io/deployment-name": format!("{cluster}-{pool}"),
        }},
        "spec": {
            "clusterName": cluster, "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "DigitaloceanMachine", "name": name},
        },
    });
    machines.create(&PostParams::default(), &serde_json::from_value(machine).unwrap()).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"nodeRef": {"name": name}}}));
    machines.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Two clusters of one configuration; the first has two pools of it.
async fn two_clusters(world: &World) {
    world.config("nc-shared", json!({"region": "nyc3", "size": "s-1vcpu-2gb"})).await;
    for (name, pools) in [("one", ["a", "b"].as_slice()), ("two", &["a"])] {
        world.create(name, cluster("nc-shared", pools)).await;
        world.told(name, "RKECluster", "True", "").await;
    }
    for (cluster, pool, name) in
        [("one", "a", "m1"), ("one", "a", "m2"), ("one", "b", "m3"), ("two", "a", "m4")]
    {
        machine(world, cluster, pool, name).await;
    }
    // Its owner is nobody once the second uses it.
    let configs = world.driver("DigitaloceanConfig");
    let shared = |config: &DynamicObject| {
        config.annotations().get(SHARED).is_some_and(|yes| yes == "true")
            && config.owner_references().is_empty()
    };
    world.eventually(&configs, "nc-shared", "belongs to nobody", shared).await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_configuration_outlives_its_clusters_and_each_has_its_own_template() {
    let (world, running) = World::running().await;
    two_clusters(&world).await;
    let names = [
        template_of(&world, "one-a").await,
        template_of(&world, "one-b").await,
        template_of(&world, "two-a").await,
    ];
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    for name in ["m1", "m2", "m3"] {
        world.api::<Machine>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    world.clusters().delete("one", &DeleteParams::default()).await.unwrap();
    until("the cluster is gone", async || world.clusters().get_opt("one").await.unwrap().is_none()).await;
    world.settle().await;
    assert_eq!(template_of(&world, "two-a").await, names[2]);
    assert!(world.driver("DigitaloceanMachineTemplate").get_opt(&names[2]).await.unwrap().is_some());
    world.api::<Machine>().delete("m4", &DeleteParams::default()).await.unwrap();
    world.clusters().delete("two", &DeleteParams::default()).await.unwrap();
    until("the cluster is gone", async || world.clusters().get_opt("two").await.unwrap().is_none()).await;
    world.settle().await;
    assert!(world.driver("DigitaloceanConfig").get_opt("nc-shared").await.unwrap().is_some());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_asks_every_cluster_and_replaces_nothing_by_itself() {
    let (world, running) = World::running().await;
    two_clusters(&world).await;
    let deployments = world.api::<MachineDeployment>();
    let before = [template_of(&world, "one-a").await, template_of(&world, "two-a").await];
    edit(&world, "nc-shared", json!({"size": "s-8vcpu-16gb", "image": "ubuntu-22-04-x64"})).await;
    let would = "DigitaloceanConfig nc-shared was edited (size), which would replace";
    let both = format!("{would} 2 machines of machinePool [a]; {would} 1 machine of machinePool [b]");
    world.told("one", "ConfigurationApplied", "False", &both).await;
    world
        .told("two", "ConfigurationApplied", "False", &format!("{would} 1 machine of machinePool [a]"))
        .await;
    // It is no trouble.
    world.told("two", "RKECluster", "True", "").await;
    world.settle().await;
    assert_eq!([template_of(&world, "one-a").await, template_of(&world, "two-a").await], before);
    let events: Api<Event> = Api::namespaced(world.client(), NAMESPACE);
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let notes: Vec<&str> = events
        .iter()
        .filter(|event| event.regarding.as_ref().is_some_and(|of| of.name.as_deref() == Some("nc-shared")))
        .filter_map(|event| event.note.as_deref())
        .collect();
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes.iter().any(|note| note.starts_with("cluster two: ")), "{notes:?}");

    // One pool of one cluster is let go on.
    let pending = deployments.get("one-a").await.unwrap().annotations()[PENDING_CONFIG].clone();
    let pending: Value = serde_json::from_str(&pending).unwrap();
    assert_eq!(
        (&pending["config"], &pending["policy"]),
        (&json!("DigitaloceanConfig/nc-shared"), &json!("Ask"))
    );
    let approval = format!("a={}", pending["revision"].as_str().unwrap());
    world.edit("one", json!({"metadata": {"annotations": {(APPROVED_CONFIGS): approval}}})).await;
    let changed = |found: &MachineDeployment| {
        found.spec.template.spec.infrastructure_ref.name != before[0]
            && !found.annotations().contains_key(PENDING_CONFIG)
    };
    world.eventually(&deployments, "one-a", "has another template", changed).await;
    world
        .told("one", "ConfigurationApplied", "False", &format!("{would} 1 machine of machinePool [b]"))
        .await;
    assert_eq!(template_of(&world, "two-a").await, before[1]);

    // The approval was for that edit and no other.
    let approved = template_of(&world, "one-a").await;
    edit(&world, "nc-shared", json!({"size": "s-2vcpu"})).await;
    world.told("one", "ConfigurationApplied", "False", "2 machines of machinePool [a]").await;
    world.settle().await;
    assert_eq!(template_of(&world, "one-a").await, approved);
    edit(&world, "nc-shared", json!({"size": "s-8vcpu-16gb"})).await;
    world
        .told("one", "ConfigurationApplied", "False", &format!("{would} 1 machine of machinePool [b]"))
        .await;
    // What is taken back never was.
    edit(&world, "nc-shared", json!({"size": "s-1vcpu-2gb", "image": null})).await;
    world.told("two", "ConfigurationApplied", "True", "").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_may_let_all_edits_through_or_none() {
    let (world, running) = World::running().await;
    two_clusters(&world).await;
    let deployments = world.api::<MachineDeployment>();
    let before = [template_of(&world, "one-a").await, template_of(&world, "one-b").await];
    let found = world.clusters().get("one").await.unwrap();
    let mut pools = serde_json::to_value(&found.spec.rke_config.unwrap().machine_pools).unwrap();
    pools[1]["machineDeploymentAnnotations"] = json!({(CONFIG_POLICY): "Never"});
    let annotations = json!({(CONFIG_POLICY): "Auto"});
    world
        .edit(
            "one",
            json!({"metadata": {"annotations": annotations}, "spec": {"rkeConfig": {"machinePools": pools}}}),
        )
        .await;
    world
        .eventually(&deployments, "one-b", "has the policy", |found| {
            found.annotations().contains_key(CONFIG_POLICY)
        })
        .await;
    edit(&world, "nc-shared", json!({"size": "s-8vcpu-16gb"})).await;
    let changed = |found: &MachineDeployment| found.spec.template.spec.infrastructure_ref.name != before[0];
    world.eventually(&deployments, "one-a", "has another template", changed).await;
    let told =
        world.told("one", "ConfigurationApplied", "False", "machinePool [b], whose policy is Never").await;
    let conditions = told.status.unwrap().conditions;
    assert!(conditions.iter().any(|condition| condition.reason == "NeverReplaced"), "{conditions:?}");
    world.settle().await;
    assert_eq!(template_of(&world, "one-b").await, before[1]);

    // A pool that is told to use another configuration does.
    world.config("nc-other", json!({"region": "nyc3", "size": "s-4vcpu"})).await;
    let found = world.clusters().get("one").await.unwrap();
    let mut pools = serde_json::to_value(&found.spec.rke_config.unwrap().machine_pools).unwrap();
    pools[1]["machineConfigRef"]["name"] = "nc-other".into();
    world.edit("one", json!({"spec": {"rkeConfig": {"machinePools": pools}}})).await;
    let changed = |found: &MachineDeployment| found.spec.template.spec.infrastructure_ref.name != before[1];
    world.eventually(&deployments, "one-b", "has another template", changed).await;
    world.told("one", "ConfigurationApplied", "True", "").await;
    running.stop().await;
}
