//! ClusterResourceSets: what clusters are given, and when again.

use std::time::Duration;

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::{
    addons::{ClusterResourceSet, ClusterResourceSetBinding},
    core::Cluster,
};
use serde_json::json;

use crate::world::{World, until};

const CNI: &str = "apiVersion: v1
kind: ConfigMap
metadata:
  name: cni
  namespace: net
  resourceVersion: '7'
data:
  mtu: '1500'
---
apiVersion: v1
kind: Namespace
metadata:
  name: net
";

async fn create_cluster(world: &World, name: &str) {
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": name, "labels": {"cni": "calico"}},
        "spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}},
    }))
    .unwrap();
    world.api::<Cluster>().create(&PostParams::default(), &cluster).await.unwrap();
}

async fn create_set(world: &World, strategy: &str, resources: serde_json::Value) {
    let set: ClusterResourceSet = serde_json::from_value(json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet",
        "metadata": {"name": "addons"},
        "spec": {
            "clusterSelector": {"matchLabels": {"cni": "calico"}}, "strategy": strategy, "resources": resources,
        },
    }))
    .unwrap();
    world.api::<ClusterResourceSet>().create(&PostParams::default(), &set).await.unwrap();
}

async fn create_map(world: &World, name: &str, text: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("objects.yaml".to_owned(), text.to_owned())].into());
    world.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
}

async fn told(world: &World) -> String {
    let set = world.api::<ClusterResourceSet>().get("addons").await.unwrap();
    let conditions = set.status.into_iter().flat_map(|status| status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == "ResourcesApplied");
    found.map_or("nothing".to_owned(), |found| {
        format!("{} {} {}", found.status, found.reason, found.message).trim_end().to_owned()
    })
}

async fn says(world: &World, expected: &str) {
    let mut last = String::new();
    for _ in 0..12_000 {
        last = told(world).await;
        if last == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("ResourcesApplied is {last:?} and not {expected:?}");
}

async fn mtu(cluster: &remuda_testkit::World) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "net");
    maps.get_opt("cni").await.unwrap()?.data?.remove("mtu")
}

async fn settled(world: &World) {
    tokio::time::sleep(Duration::from_secs(300)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let since: Vec<_> =
        world.requests()[before..].iter().filter(|request| !request.contains(" watch ")).cloned().collect();
    assert_eq!(since, Vec::<String>::new(), "settled controllers ask nothing");
}

async fn edit_map(world: &World, text: &str) {
    let patch = Patch::Merge(json!({"data": {"objects.yaml": text}}));
    world.api::<ConfigMap>().patch("cni", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_once_and_then_left_alone() {
    let world = World::start().await;
    let running = world.run();
    create_map(&world, "cni", CNI).await;
    create_set(&world, "ApplyOnce", json!([{"kind": "ConfigMap", "name": "cni"}])).await;
    create_cluster(&world, "late").await;
    // A cluster that cannot be reached holds up nobody.
    says(&world, "False InternalError Cluster late: connection to the workload cluster is down").await;
    let near = world.workloads.start("near").await;
    create_cluster(&world, "near").await;
    until("the reachable one has its objects", async || mtu(&near).await.is_some()).await;
    says(&world, "False InternalError Cluster late: connection to the workload cluster is down").await;

    let late = world.workloads.start("late").await;
    until("the late one has them too", async || mtu(&late).await.is_some()).await;
    says(&world, "True Applied").await;
    let binding = world.api::<ClusterResourceSetBinding>().get("late").await.unwrap();
    assert_eq!(binding.spec.cluster_name, "late");
    assert_eq!(binding.owner_references()[0].kind, "ClusterResourceSet");
    let bound = &binding.spec.bindings[0];
    assert_eq!(bound.cluster_resource_set_name, "addons");
    assert_eq!(bound.resources[0].applied, Some(true));
    assert!(bound.resources[0].hash.starts_with("sha256:"));
    let map = world.api::<ConfigMap>().get("cni").await.unwrap();
    assert_eq!(map.owner_references()[0].name, "addons");
    settled(&world).await;

    edit_map(&world, &CNI.replace("1500", "9000")).await;
    settled(&world).await;
    assert_eq!(mtu(&near).await.as_deref(), Some("1500"), "what is there is left alone");

    // Starting anew changes nothing.
    running.stop().await;
    let (before, remote) = (world.writes().len(), near.writes().len());
    let running = world.run();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.writes()[before..], Vec::<String>::new());
    assert_eq!(near.writes()[remote..], Vec::<String>::new());

    // What was given stays when the set goes.
    world.api::<ClusterResourceSet>().delete("addons", &DeleteParams::default()).await.unwrap();
    until("the set is gone", async || {
        world.api::<ClusterResourceSet>().get_opt("addons").await.unwrap().is_none()
    })
    .await;
    assert!(world.api::<ClusterResourceSetBinding>().get_opt("near").await.unwrap().is_none());
    assert!(mtu(&near).await.is_some());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_follow_their_resource_if_asked_to() {
    let world = World::start().await;
    let running = world.run();
    let near = world.workloads.start("near").await;
    create_cluster(&world, "near").await;
    let resources = json!([{"kind": "ConfigMap", "name": "cni"}, {"kind": "Secret", "name": "more"}]);
    create_set(&world, "Reconcile", resources).await;
    says(&world, "False InternalError * ConfigMap cni does not exist\n* Secret more does not exist").await;
    create_map(&world, "cni", CNI).await;
    until("what is there is applied", async || mtu(&near).await.is_some()).await;
    says(&world, "False InternalError Secret more does not exist").await;

    let mut secret = Secret::default();
    secret.metadata.name = Some("more".to_owned());
    let text = r#"[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}}]"#;
    secret.data = Some([("a".to_owned(), ByteString(text.as_bytes().to_vec()))].into());
    let secrets = world.api::<Secret>();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    edit_map(&world, &CNI.replace("1500", "1400")).await;
    says(&world, "False WrongSecretType Secret type of resource more is not supported").await;
    secrets.delete("more", &DeleteParams::default()).await.unwrap();
    secret.type_ = Some("addons.cluster.x-k8s.io/resource-set".to_owned());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    says(&world, "True Applied").await;
    assert_eq!(mtu(&near).await.as_deref(), Some("1400"));
    let namespaces: Api<Namespace> = Api::all(near.client());
    assert!(namespaces.get_opt("more").await.unwrap().is_some());

    // A field that is no longer asked for goes, whatever others wrote stays.
    let maps: Api<ConfigMap> = Api::namespaced(near.client(), "net");
    let theirs = Patch::Merge(json!({"data": {"theirs": "x"}}));
    maps.patch("cni", &PatchParams::default(), &theirs).await.unwrap();
    edit_map(&world, &CNI.replace("  mtu: '1500'", "  name: calico")).await;
    until("the change arrives", async || mtu(&near).await.is_none()).await;
    let data = maps.get("cni").await.unwrap().data.unwrap();
    assert_eq!((data["name"].as_str(), data["theirs"].as_str()), ("calico", "x"));

    edit_map(&world, "kind: [").await;
    until("nonsense is named", async || {
        told(&world)
            .await
            .starts_with("False NotApplied ConfigMap cni cannot be applied: objects.yaml, document 1")
    })
    .await;
    edit_map(&world, &CNI.replace("kind: ConfigMap", "kind: Unheard")).await;
    until("what the cluster refuses is told", async || {
        told(&world).await.starts_with("False NotApplied Cluster near: ConfigMap cni: Unheard net/cni")
    })
    .await;
    edit_map(&world, CNI).await;
    says(&world, "True Applied").await;
    settled(&world).await;

    // The binding is for the Cluster's lifetime.
    world.api::<Cluster>().delete("near", &DeleteParams::default()).await.unwrap();
    until("the binding is gone", async || {
        world.api::<ClusterResourceSetBinding>().get_opt("near").await.unwrap().is_none()
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_upstream_applied_is_not_applied_again() {
    let world = World::start().await;
    let near = world.workloads.start("near").await;
    create_cluster(&world, "near").await;
    create_map(&world, "cni", CNI).await;
    create_set(&world, "Reconcile", json!([{"kind": "ConfigMap", "name": "cni"}])).await;
    let sha = "sha256:c53fdd03a90210064400cc768a21b3accff76d6ad10fe6ef52010f94b96d0373";
    let binding: ClusterResourceSetBinding = serde_json::from_value(json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSetBinding",
        "metadata": {"name": "near"},
        "spec": {"clusterName": "near", "bindings": [{"clusterResourceSetName": "addons", "resources": [{
            "kind": "ConfigMap", "name": "cni", "hash": sha, "applied": true,
            "lastAppliedTime": "2026-01-01T00:00:00Z",
        }]}]},
    }))
    .unwrap();
    world.api::<ClusterResourceSetBinding>().create(&PostParams::default(), &binding).await.unwrap();
    let running = world.run();
    says(&world, "True Applied").await;
    settled(&world).await;
    assert_eq!(near.writes(), Vec::<String>::new());
    // The set that owns it has another uid here.
    let binding = world.api::<ClusterResourceSetBinding>().get("near").await.unwrap();
    let set = world.api::<ClusterResourceSet>().get("addons").await.unwrap();
    assert_eq!(Some(&binding.owner_references()[0].uid), set.uid().as_ref());
    running.stop().await;
}
