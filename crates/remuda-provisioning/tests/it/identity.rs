//! Imported clusters, clusters from before, and names that somebody chose.

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use remuda_api::{core, management, provisioning};
use serde_json::json;

use crate::world::{NAMESPACE, World, edge, until};

#[tokio::test(start_paused = true)]
async fn an_imported_cluster_gets_an_identity_and_nothing_else() {
    let (world, running) = World::running().await;
    world.create("theirs", json!({})).await;
    let cluster = world.told("theirs", "Created", "True", "").await;
    let id = cluster.status.unwrap().cluster_name;
    world.told("theirs", "Ready", "Unknown", "waiting for cluster agent to connect").await;
    let management = world.managements().get(&id).await.unwrap();
    assert_eq!(management.annotations()["provisioning.cattle.io/administrated"], "false");
    assert!(world.api::<core::Cluster>().get_opt("theirs").await.unwrap().is_none());

    // From then on it speaks for itself.
    let patch = Patch::Merge(json!({"spec": {"description": "edited there"}}));
    world.managements().patch(&id, &PatchParams::default(), &patch).await.unwrap();
    world.edit("theirs", json!({"metadata": {"labels": {"a": "b"}}})).await;
    world.settle().await;
    let management = world.managements().get(&id).await.unwrap();
    assert_eq!(management.spec.description, "edited there");

    world.connect(&id, true).await;
    world.told("theirs", "Ready", "True", "").await;
    let cluster = world
        .eventually(&world.clusters(), "theirs", "has a kubeconfig", |cluster| {
            cluster.status.as_ref().is_some_and(|status| !status.client_secret_name.is_empty())
        })
        .await;
    assert!(cluster.status.unwrap().ready);

    world.clusters().delete("theirs", &Default::default()).await.unwrap();
    until("it is gone", async || world.clusters().get_opt("theirs").await.unwrap().is_none()).await;
    until("and its identity", async || world.managements().get_opt(&id).await.unwrap().is_none()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_from_before_is_mirrored() {
    let (world, running) = World::running().await;
    let mut old = management::Cluster::named("c-abc12");
    old.spec.display_name = "old".to_owned();
    old.metadata.labels =
        Some([("team".to_owned(), "a".to_owned()), ("x.cattle.io/y".to_owned(), "z".to_owned())].into());
    world.managements().create(&PostParams::default(), &old).await.unwrap();
    let mirrored: provisioning::Cluster = world
        .eventually(&world.clusters(), "c-abc12", "is known", |cluster| {
            cluster.status.as_ref().is_some_and(|status| status.cluster_name == "c-abc12")
        })
        .await;
    assert_eq!(mirrored.annotations()["provisioning.cattle.io/management-cluster-display-name"], "old");
    assert_eq!(mirrored.labels().len(), 1);
    world.managements().delete("c-abc12", &Default::default()).await.unwrap();
    until("both are gone", async || {
        world.clusters().get_opt("c-abc12").await.unwrap().is_none()
            && world.managements().get_opt("c-abc12").await.unwrap().is_none()
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_the_identity_of_another_cluster() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "Created", "True", "").await;
    let id = cluster.status.unwrap().cluster_name;
    let thief = |name: &str, id: &str| -> provisioning::Cluster {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": NAMESPACE,
                "annotations": {"provisioning.cattle.io/management-cluster-name": id},
            },
            "spec": edge(),
        }))
        .unwrap()
    };
    world.clusters().create(&PostParams::default(), &thief("thief", &id)).await.unwrap();
    world.told("thief", "Created", "False", "belongs to another cluster").await;
    world.clusters().create(&PostParams::default(), &thief("root", "kube-system")).await.unwrap();
    world.told("root", "Created", "False", "invalid management cluster name [kube-system]").await;
    world.clusters().create(&PostParams::default(), &thief("chosen", "c-m-chosen12")).await.unwrap();
    let chosen = world.told("chosen", "Created", "True", "").await;
    assert_eq!(chosen.status.unwrap().cluster_name, "c-m-chosen12");
    // What was refused goes without taking anything along.
    for name in ["thief", "root"] {
        world.clusters().delete(name, &Default::default()).await.unwrap();
        until("it is gone", async || world.clusters().get_opt(name).await.unwrap().is_none()).await;
    }
    assert!(world.managements().get(&id).await.unwrap().metadata.deletion_timestamp.is_none());
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client());
    assert!(namespaces.get("kube-system").await.unwrap().metadata.deletion_timestamp.is_none());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_made_under_the_names_of_a_cluster_stays_theirs() {
    let (world, running) = World::running().await;
    let theirs: remuda_api::core::Cluster = serde_json::from_value(json!({
        "metadata": {"name": "edge", "namespace": NAMESPACE, "labels": {"team": "other"}},
        "spec": {"paused": true},
    }))
    .unwrap();
    let capi = world.api::<remuda_api::core::Cluster>();
    let before = capi.create(&PostParams::default(), &theirs).await.unwrap();
    world.create("edge", edge()).await;
    world.told("edge", "RKECluster", "False", "Cluster edge exists and was not made for this cluster").await;
    assert_eq!(capi.get("edge").await.unwrap().metadata.resource_version, before.metadata.resource_version);
    world.clusters().delete("edge", &Default::default()).await.unwrap();
    until("it is gone", async || world.clusters().get_opt("edge").await.unwrap().is_none()).await;
    assert_eq!(capi.get("edge").await.unwrap().metadata.resource_version, before.metadata.resource_version);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_others_made_is_not_replaced() {
    let (world, running) = World::running().await;
    let secrets = world.api::<k8s_openapi::api::core::v1::Secret>();
    let theirs = json!({"metadata": {"name": "edge-kubeconfig", "namespace": NAMESPACE}, "stringData": {"value": "theirs"}});
    let before =
        secrets.create(&PostParams::default(), &serde_json::from_value(theirs).unwrap()).await.unwrap();
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "Created", "True", "").await;
    world.connect(&cluster.status.unwrap().cluster_name, true).await;
    world
        .eventually(&world.clusters(), "edge", "is ready", |edge| {
            edge.status.as_ref().is_some_and(|status| status.ready)
        })
        .await;
    world.settle().await;
    assert_eq!(secrets.get("edge-kubeconfig").await.unwrap(), before);
    let status = world.clusters().get("edge").await.unwrap().status.unwrap();
    assert_eq!(status.client_secret_name, "", "owners read the Secret that is named there");
    running.stop().await;
}
