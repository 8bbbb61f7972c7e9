//! How a cluster goes, and that nothing of it stays.

use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::{
    core::{self, Machine, MachineDeployment, MachineHealthCheck},
    rke::{RkeBootstrapTemplate, RkeCluster, RkeControlPlane},
};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, edge, until};

/// Holds an object until it is let go, as controllers of others do.
async fn hold<K>(world: &World, name: &str, finalizers: Value)
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    world.api::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn is_gone<K>(world: &World, name: &str) -> bool
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    world.api::<K>().get_opt(name).await.unwrap().is_none()
}

/// Everything that any test may have left behind.
async fn left(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    macro_rules! look {
        ($($kind:ty),*) => {$(
            for object in world.api::<$kind>().list(&Default::default()).await.unwrap().items {
                found.push(format!("{} {}", <$kind>::kind(&()), object.metadata.name.unwrap()));
            }
        )*};
    }
    look!(
        core::Cluster,
        MachineDeployment,
        MachineHealthCheck,
        Machine,
        RkeCluster,
        RkeControlPlane,
        RkeBootstrapTemplate,
        remuda_api::provisioning::Cluster
    );
    for secret in world.api::<Secret>().list(&Default::default()).await.unwrap().items {
        found.push(format!("Secret {}", secret.metadata.name.unwrap()));
    }
    for kind in ["DigitaloceanMachineTemplate", "DigitaloceanConfig"] {
        for object in world.driver(kind).list(&Default::default()).await.unwrap().items {
            found.push(format!("{kind} {}", object.metadata.name.unwrap()));
        }
    }
    for object in world.managements().list(&Default::default()).await.unwrap().items {
        found.push(format!("management {}", object.metadata.name.unwrap()));
    }
    macro_rules! look_wide {
        ($($kind:ty),*) => {$(
            let all: Api<$kind> = Api::all(world.client());
            for object in all.list(&Default::default()).await.unwrap().items {
                let name = object.metadata.name.unwrap();
                if name.starts_with("c-") {
                    found.push(format!("{} {name}", <$kind>::kind(&())));
                }
            }
        )*};
    }
    look_wide!(Namespace, ClusterRole, ClusterRoleBinding);
    found
}

async fn until_nothing_is_left(world: &World) {
    for _ in 0..2_000 {
        if left(world).await.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("left behind: {:?}", left(world).await);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_goes_in_order_and_nothing_stays() {
    let (world, running) = World::running().await;
    let cluster = world.create_demo().await;
    let id = cluster.status.unwrap().cluster_name;
    world.connect(&id, true).await;
    world.eventually(&world.api::<Secret>(), "demo-kubeconfig", "is there", |_| true).await;
    let machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {
            "name": "demo-pool1-a", "namespace": NAMESPACE, "finalizers": ["test/machine"],
            "labels": {"cluster.x-k8s.io/cluster-name": "demo"},
        },
        "spec": {
            "clusterName": "demo",
            "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": "a.b", "kind": "K", "name": "n"},
        },
    });
    world
        .api::<Machine>()
        .create(&PostParams::default(), &serde_json::from_value(machine).unwrap())
        .await
        .unwrap();
    hold::<core::Cluster>(&world, "demo", json!(["cluster.cluster.x-k8s.io"])).await;
    hold::<RkeControlPlane>(&world, "demo", json!(["wrangler.cattle.io/rke-control-plane-remove"])).await;

    world.clusters().delete("demo", &DeleteParams::default()).await.unwrap();
    world.told("demo", "Removed", "Unknown", "waiting for control plane to delete").await;
    for kind in ["Provisioned", "Waiting", "Pending", "Updated"] {
        world.told("demo", kind, "True", "").await;
    }
    let capi = world.api::<core::Cluster>();
    world.eventually(&capi, "demo", "is going", |found| found.metadata.deletion_timestamp.is_some()).await;
    let going = |found: &remuda_api::management::Cluster| found.metadata.deletion_timestamp.is_some();
    world.eventually(&world.managements(), &id, "is going", going).await;
    let removed = json!([{"type": "Removed", "status": "Unknown", "reason": "Waiting", "message": "waiting for machine x"}]);
    world.report("demo", removed).await;
    world.told("demo", "Removed", "Unknown", "waiting for machine x").await;
    let told = |found: &remuda_api::management::Cluster| {
        let conditions = found.status.iter().flat_map(|status| &status.conditions);
        let mut removed = conditions.filter(|condition| condition.kind == "Removed");
        removed.any(|condition| condition.message == "waiting for machine x")
    };
    world.eventually(&world.managements(), &id, "tells it too", told).await;

    // Cluster API takes the control plane down, then machines end.
    hold::<RkeControlPlane>(&world, "demo", Value::Null).await;
    world.api::<RkeControlPlane>().delete("demo", &DeleteParams::default()).await.unwrap();
    world.told("demo", "Removed", "Unknown", "waiting for machine [demo-pool1-a] to delete").await;
    world.api::<Machine>().delete("demo-pool1-a", &DeleteParams::default()).await.unwrap();
    hold::<Machine>(&world, "demo-pool1-a", Value::Null).await;
    world.told("demo", "Removed", "Unknown", "waiting for cluster-api cluster [demo] to delete").await;
    assert!(!is_gone::<Secret>(&world, "demo-kubeconfig").await, "until the end the cluster can be reached");
    hold::<core::Cluster>(&world, "demo", Value::Null).await;
    until_nothing_is_left(&world).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_deletes_the_management_cluster_deletes_both() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "RKECluster", "True", "").await;
    world
        .managements()
        .delete(&cluster.status.unwrap().cluster_name, &DeleteParams::default())
        .await
        .unwrap();
    until_nothing_is_left(&world).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whenever_a_deletion_begins_nothing_stays() {
    let (world, running) = World::running().await;
    world.credential("cc-do1").await;
    running.stop().await;
    for moment in 0..18 {
        for name in ["nc-demo-pool1", "nc-demo-workers"] {
            world.config(name, json!({"region": "nyc3"})).await;
        }
        let running = world.run();
        let before = world.writes().len();
        world.create("demo", crate::world::demo()).await;
        for _ in 0..300 {
            if world.writes().len() > before + moment {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        if moment % 3 == 0 {
            running.kill().await;
            world.clusters().delete("demo", &DeleteParams::default()).await.unwrap();
        } else {
            world.clusters().delete("demo", &DeleteParams::default()).await.unwrap();
            running.kill().await;
        }
        let running = world.run();
        until("the cluster is gone", async || world.clusters().get_opt("demo").await.unwrap().is_none())
            .await;
        // Those that the cluster never came to own are still its maker's.
        for name in ["nc-demo-pool1", "nc-demo-workers"] {
            let _ = world.driver("DigitaloceanConfig").delete(name, &DeleteParams::default()).await;
        }
        until_nothing_is_left(&world).await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_the_same_name_that_others_made_stays() {
    let (world, running) = World::running().await;
    let theirs = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "shared", "namespace": NAMESPACE},
        "spec": {
            "infrastructureRef": {"apiGroup": "a.b", "kind": "K", "name": "n"},
            "controlPlaneRef": {"apiGroup": "a.b", "kind": "K", "name": "n"},
        },
    });
    let capi = world.api::<core::Cluster>();
    capi.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    world.create("shared", json!({})).await;
    world.told("shared", "Created", "True", "").await;
    world.clusters().delete("shared", &DeleteParams::default()).await.unwrap();
    until("ours is gone", async || world.clusters().get_opt("shared").await.unwrap().is_none()).await;
    assert!(capi.get("shared").await.unwrap().metadata.deletion_timestamp.is_none());
    running.stop().await;
}
