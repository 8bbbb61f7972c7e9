//! Clusters, from the first reference to the last finalizer.

use std::time::Duration;

use k8s_openapi::{ByteString, api::core::v1::Secret, api::events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachinePool, MachineSet};
use serde_json::{Value, json};

use crate::world::{GROUP, World, fake_crd, until};

async fn create(world: &World, name: &str, spec: Value) -> Cluster {
    let cluster = json!({"metadata": {"name": name}, "spec": spec});
    let cluster: Cluster = serde_json::from_value(with_kind(cluster, "Cluster")).unwrap();
    world.api::<Cluster>().create(&PostParams::default(), &cluster).await.unwrap()
}

fn with_kind(mut object: Value, kind: &str) -> Value {
    object["apiVersion"] = json!("cluster.x-k8s.io/v1beta2");
    object["kind"] = json!(kind);
    object
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}

fn both() -> Value {
    json!({
        "infrastructureRef": reference("FakeCluster", "infra"),
        "controlPlaneRef": reference("FakeControlPlane", "plane"),
    })
}

/// `Status Reason message` of a condition.
fn condition(cluster: &Cluster, kind: &str) -> String {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.into_iter().find(|condition| condition.type_ == kind);
    found.map_or("absent".to_owned(), |found| {
        format!("{} {} {}", found.status, found.reason, found.message).trim_end().to_owned()
    })
}

async fn get(world: &World, name: &str) -> Cluster {
    world.api::<Cluster>().get(name).await.unwrap()
}

async fn says(world: &World, name: &str, kind: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..12_000 {
        last = condition(&get(world, name).await, kind);
        if last == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{kind} is {last:?} and not {expected:?}");
}

async fn phase(world: &World, name: &str, expected: &str) {
    until(&format!("phase {expected}"), async || {
        get(world, name).await.status.is_some_and(|status| status.phase == expected)
    })
    .await;
}

/// Puts a finalizer on, as providers do.
async fn hold(world: &World, kind: &str, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": ["infrastructure.cluster.x-k8s.io/hold"]}}));
    world.fake(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn let_go(world: &World, kind: &str, name: &str) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.fake(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Nothing is asked while nothing happens. Until it is told that a cluster cannot be reached takes a while.
async fn settled(world: &World) {
    tokio::time::sleep(Duration::from_secs(300)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let since: Vec<_> =
        world.requests()[before..].iter().filter(|request| !request.contains(" watch ")).cloned().collect();
    assert_eq!(since, Vec::<String>::new(), "settled controllers ask nothing");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_takes_over_what_its_providers_report() {
    let world = World::start().await;
    let running = world.run();
    create(&world, "demo", both()).await;
    phase(&world, "demo", "Provisioning").await;
    says(&world, "demo", "InfrastructureReady", "False ObjectDoesNotExist FakeCluster does not exist").await;
    says(
        &world,
        "demo",
        "ControlPlaneInitialized",
        "Unknown ObjectDoesNotExist FakeControlPlane does not exist",
    )
    .await;

    let endpoint = json!({"controlPlaneEndpoint": {"host": "api.demo", "port": 6443}});
    world.create_fake("FakeCluster", "infra", endpoint).await;
    world.create_fake("FakeControlPlane", "plane", json!({"replicas": 3})).await;
    until("the objects are the Cluster's", async || {
        let mut owned = true;
        for (kind, name) in [("FakeCluster", "infra"), ("FakeControlPlane", "plane")] {
            let object = world.fake(kind).get(name).await.unwrap();
            let owners = object.owner_references();
            owned &= owners.iter().any(|owner| owner.kind == "Cluster" && owner.controller.is_none());
            owned &= object.labels().get("cluster.x-k8s.io/cluster-name").is_some_and(|name| name == "demo");
        }
        owned
    })
    .await;
    let waiting = "False NotReady FakeCluster status.initialization.provisioned is false";
    says(&world, "demo", "InfrastructureReady", waiting).await;
    assert!(!get(&world, "demo").await.spec.control_plane_endpoint.is_valid());

    let domains = json!([{"name": "b", "controlPlane": true}, {"name": "a", "attributes": {"rack": "7"}}]);
    world
        .report(
            "FakeCluster",
            "infra",
            json!({"initialization": {"provisioned": true}, "failureDomains": domains}),
        )
        .await;
    phase(&world, "demo", "Provisioned").await;
    let cluster = get(&world, "demo").await;
    assert_eq!(cluster.spec.control_plane_endpoint.host, "api.demo");
    let status = cluster.status.unwrap();
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true));
    let names: Vec<_> = status.failure_domains.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    says(&world, "demo", "InfrastructureReady", "True Ready").await;
    says(&world, "demo", "ControlPlaneInitialized", "False NotInitialized Control plane not yet initialized")
        .await;

    world
        .report(
            "FakeControlPlane",
            "plane",
            json!({
                "initialization": {"controlPlaneInitialized": true},
                "replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "upToDateReplicas": 2,
                "conditions": [{"type": "Available", "status": "False", "reason": "Etcd", "message": "no quorum"}],
            }),
        )
        .await;
    says(&world, "demo", "ControlPlaneInitialized", "True Initialized").await;
    says(&world, "demo", "ControlPlaneAvailable", "False Etcd no quorum").await;
    let status = get(&world, "demo").await.status.unwrap();
    let counters = status.control_plane.unwrap();
    assert_eq!(
        (counters.desired_replicas, counters.replicas, counters.available_replicas),
        (Some(3), Some(2), Some(1))
    );
    let old = status.deprecated.unwrap().v1beta1.unwrap().conditions;
    let old: Vec<_> = old.iter().map(|one| format!("{} {} {}", one.kind, one.status, one.reason)).collect();
    assert_eq!(
        old,
        [
            "Ready True ",
            "ControlPlaneInitialized True ",
            "ControlPlaneReady True ",
            "InfrastructureReady True "
        ]
    );

    // What was taken over stays, whatever the providers say now.
    let elsewhere = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": "elsewhere", "port": 1}}}));
    world.fake("FakeCluster").patch("infra", &PatchParams::default(), &elsewhere).await.unwrap();
    world
        .report(
            "FakeCluster",
            "infra",
            json!({"initialization": {"provisioned": false}, "failureDomains": null}),
        )
        .await;
    world
        .report("FakeControlPlane", "plane", json!({"initialization": {"controlPlaneInitialized": false}}))
        .await;
    until("failure domains follow", async || {
        get(&world, "demo").await.status.is_some_and(|status| status.failure_domains.is_empty())
    })
    .await;
    settled(&world).await;
    let cluster = get(&world, "demo").await;
    assert_eq!(cluster.spec.control_plane_endpoint.host, "api.demo");
    let status = cluster.status.unwrap();
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true));
    assert_eq!(status.initialization.control_plane_initialized, Some(true));
    assert_eq!(
        (status.phase.as_str(), status.observed_generation),
        ("Provisioned", cluster.metadata.generation.unwrap())
    );

    let events: Api<Event> = Api::namespaced(world.client(), "default");
    until("everything was told", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
        ["Provisioning", "InfrastructureReady", "Provisioned", "ControlPlaneInitialized"]
            .iter()
            .all(|reason| reasons.contains(reason))
    })
    .await;

    // Starting anew changes nothing.
    running.stop().await;
    let before = world.writes().len();
    let running = world.run();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.writes()[before..], Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn providers_of_the_old_contract_are_understood() {
    let world = World::start().await;
    for kind in ["OldCluster", "OldControlPlane"] {
        let mut definition = fake_crd(kind);
        definition["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta1": "v1"});
        world.define(definition).await;
    }
    let running = world.run();
    create(
        &world,
        "old",
        json!({
            "infrastructureRef": reference("OldCluster", "infra"),
            "controlPlaneRef": reference("OldControlPlane", "plane"),
        }),
    )
    .await;
    world.create_fake("OldCluster", "infra", json!({})).await;
    let endpoint = json!({"controlPlaneEndpoint": {"host": "10.0.0.1", "port": 443}, "replicas": 3});
    world.create_fake("OldControlPlane", "plane", endpoint).await;
    world
        .report(
            "OldCluster",
            "infra",
            json!({"ready": true, "failureDomains": {"z": {"controlPlane": true}}}),
        )
        .await;
    until("infrastructure is there", async || {
        let status = get(&world, "old").await.status.unwrap_or_default();
        status.initialization.infrastructure_provisioned == Some(true)
    })
    .await;
    // Nobody has given it an endpoint.
    phase(&world, "old", "Provisioning").await;
    world.report("OldControlPlane", "plane", json!({"initialized": true, "unavailableReplicas": 1})).await;
    phase(&world, "old", "Provisioned").await;
    let cluster = get(&world, "old").await;
    assert_eq!(cluster.spec.control_plane_endpoint.host, "10.0.0.1");
    let status = cluster.status.unwrap();
    assert_eq!(status.failure_domains[0].name, "z");
    assert_eq!(status.control_plane.unwrap().available_replicas, Some(2));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_installed_is_named_and_awaited() {
    let world = World::start().await;
    let running = world.run();
    create(&world, "demo", json!({"infrastructureRef": reference("LateCluster", "infra")})).await;
    let missing = "Unknown InternalError CRD lateclusters.infrastructure.cluster.x-k8s.io for kind LateCluster in group infrastructure.cluster.x-k8s.io does not exist";
    says(&world, "demo", "InfrastructureReady", missing).await;
    settled(&world).await;

    let mut definition = fake_crd("LateCluster");
    definition["metadata"]["labels"] = json!({});
    world.define(definition).await;
    until("the missing label is named", async || {
        condition(&get(&world, "demo").await, "InfrastructureReady").contains("keeps no known contract")
    })
    .await;
    let crds: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(world.client());
    let label = Patch::Merge(json!({"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}));
    crds.patch("lateclusters.infrastructure.cluster.x-k8s.io", &PatchParams::default(), &label)
        .await
        .unwrap();
    says(&world, "demo", "InfrastructureReady", "False ObjectDoesNotExist LateCluster does not exist").await;
    world.create_fake("LateCluster", "infra", json!({})).await;
    world.report("LateCluster", "infra", json!({"initialization": {"provisioned": "yes"}})).await;
    until("the odd field is named", async || {
        condition(&get(&world, "demo").await, "InfrastructureReady")
            .contains("status.initialization.provisioned of object is not a boolean")
    })
    .await;
    world.report("LateCluster", "infra", json!({"initialization": {"provisioned": true}})).await;
    says(&world, "demo", "InfrastructureReady", "True Ready").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_went_away_stops_a_deletion_and_is_named() {
    let world = World::start().await;
    let running = world.run();
    create(&world, "demo", json!({"infrastructureRef": reference("LateCluster", "infra")})).await;
    until("it is guarded", async || !get(&world, "demo").await.finalizers().is_empty()).await;
    world.api::<Cluster>().delete("demo", &DeleteParams::default()).await.unwrap();
    let missing = "True InternalError Cannot read LateCluster: \
                   CRD lateclusters.infrastructure.cluster.x-k8s.io for kind LateCluster in group infrastructure.cluster.x-k8s.io does not exist";
    says(&world, "demo", "Deleting", missing).await;
    // Installing it again is a way out.
    world.define(fake_crd("LateCluster")).await;
    until("the Cluster is gone", async || world.api::<Cluster>().get_opt("demo").await.unwrap().is_none())
        .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_only_says_so() {
    let world = World::start().await;
    let running = world.run();
    let mut spec = both();
    spec["paused"] = json!(true);
    create(&world, "demo", spec).await;
    world.create_fake("FakeCluster", "infra", json!({})).await;
    world.report("FakeCluster", "infra", json!({"initialization": {"provisioned": true}})).await;
    says(&world, "demo", "Paused", "True Paused Cluster spec.paused is set to true").await;
    settled(&world).await;
    let cluster = get(&world, "demo").await;
    assert_eq!(cluster.status.unwrap().conditions.len(), 1);
    assert!(world.fake("FakeCluster").get("infra").await.unwrap().owner_references().is_empty());

    let unpause = Patch::Merge(json!({"spec": {"paused": null}}));
    world.api::<Cluster>().patch("demo", &PatchParams::default(), &unpause).await.unwrap();
    says(&world, "demo", "Paused", "False NotPaused").await;
    says(&world, "demo", "InfrastructureReady", "True Ready").await;

    let annotate = Patch::Merge(json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}));
    world.api::<Cluster>().patch("demo", &PatchParams::default(), &annotate).await.unwrap();
    says(&world, "demo", "Paused", "True Paused Cluster has the cluster.x-k8s.io/paused annotation").await;
    world.api::<Cluster>().delete("demo", &DeleteParams::default()).await.unwrap();
    settled(&world).await;
    assert_eq!(condition(&get(&world, "demo").await, "Deleting"), "False NotDeleting");
    let release = Patch::Merge(json!({"metadata": {"annotations": null}}));
    world.api::<Cluster>().patch("demo", &PatchParams::default(), &release).await.unwrap();
    until("the Cluster is gone", async || world.api::<Cluster>().get_opt("demo").await.unwrap().is_none())
        .await;
    running.stop().await;
}

/// An object of a provider that belongs to another cluster: by its label, its owner, or the Machine it is of.
#[tokio::test(start_paused = true)]
async fn what_belongs_to_another_cluster_is_neither_adopted_nor_deleted() {
    let world = World::start().await;
    let running = world.run();
    let owner = |kind: &str, name: &str, controller: bool| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": "1", "controller": controller,
        }]}})
    };
    for (name, mark, whose) in [
        (
            "labelled",
            json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "other"}}}),
            "Cluster other",
        ),
        ("owned", owner("Cluster", "other", false), "Cluster other"),
        ("machine", owner("Machine", "m1", true), "Machine m1"),
    ] {
        world.create_fake("FakeCluster", name, json!({})).await;
        let fakes = world.fake("FakeCluster");
        fakes.patch(name, &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
        let before = fakes.get(name).await.unwrap();
        create(&world, name, json!({"infrastructureRef": reference("FakeCluster", name)})).await;
        until("it is told whose it is", async || {
            condition(&get(&world, name).await, "InfrastructureReady").contains(whose)
                || get(&world, name).await.status.is_some_and(|status| {
                    status.conditions.iter().any(|condition| condition.message.contains(whose))
                })
        })
        .await;
        assert_eq!(fakes.get(name).await.unwrap().metadata, before.metadata, "{name}");
        world.api::<Cluster>().delete(name, &DeleteParams::default()).await.unwrap();
        until("the Cluster is gone", async || world.api::<Cluster>().get_opt(name).await.unwrap().is_none())
            .await;
        assert_eq!(fakes.get(name).await.unwrap().metadata, before.metadata, "{name}");
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn infrastructure_that_was_lost_is_told_and_not_forgotten() {
    let world = World::start().await;
    let running = world.run();
    world.create_fake("FakeCluster", "infra", json!({})).await;
    world.report("FakeCluster", "infra", json!({"initialization": {"provisioned": true}})).await;
    create(&world, "demo", json!({"infrastructureRef": reference("FakeCluster", "infra")})).await;
    says(&world, "demo", "InfrastructureReady", "True Ready").await;
    world.fake("FakeCluster").delete("infra", &DeleteParams::default()).await.unwrap();
    let lost = "False ObjectDeleted FakeCluster has been deleted while the cluster still exists";
    says(&world, "demo", "InfrastructureReady", lost).await;
    let status = get(&world, "demo").await.status.unwrap();
    assert_eq!(status.initialization.infrastructure_provisioned, Some(true));
    settled(&world).await;
    // Owner and label come back with the object.
    world.create_fake("FakeCluster", "infra", json!({})).await;
    until("it is the Cluster's again", async || {
        !world.fake("FakeCluster").get("infra").await.unwrap().owner_references().is_empty()
    })
    .await;
    let strip = Patch::Merge(json!({"metadata": {"ownerReferences": null, "labels": null}}));
    world.fake("FakeCluster").patch("infra", &PatchParams::default(), &strip).await.unwrap();
    until("owner and label heal", async || {
        let object = world.fake("FakeCluster").get("infra").await.unwrap();
        !object.owner_references().is_empty() && !object.labels().is_empty()
    })
    .await;
    running.stop().await;
}

/// Creates an object below a Cluster, as its own controllers would leave it.
async fn create_child<K>(world: &World, kind: &str, name: &str, owner: Option<&Cluster>, extra: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let mut labels = json!({"cluster.x-k8s.io/cluster-name": "demo"});
    for (key, value) in extra.as_object().into_iter().flatten() {
        labels[key] = value.clone();
    }
    let machine = json!({
        "clusterName": "demo",
        "bootstrap": {"dataSecretName": "boot"},
        "infrastructureRef": reference("FakeMachine", name),
    });
    let template = json!({
        "metadata": {"labels": {"set": name}},
        "spec": machine,
    });
    let spec = match kind {
        "Machine" => machine,
        "MachinePool" => json!({"clusterName": "demo", "replicas": 1, "template": template}),
        _ => json!({
            "clusterName": "demo", "replicas": 0, "selector": {"matchLabels": {"set": name}}, "template": template,
        }),
    };
    // Paused, so that nobody else has a say.
    let mut object = json!({
        "metadata": {
            "name": name, "labels": labels, "annotations": {"cluster.x-k8s.io/paused": ""},
            "finalizers": ["infrastructure.cluster.x-k8s.io/hold"],
        },
        "spec": spec,
    });
    if let Some(owner) = owner {
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": owner.name_any(), "uid": owner.uid(),
        }]);
    }
    let object: K = serde_json::from_value(with_kind(object, kind)).unwrap();
    world.api::<K>().create(&PostParams::default(), &object).await.unwrap();
}

async fn free<K>(world: &World, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let _ = world.api::<K>().delete(name, &DeleteParams::default()).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _ = world.api::<K>().patch(name, &PatchParams::default(), &free).await;
}

async fn is_deleting<K>(world: &World, name: &str) -> bool
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let found = world.api::<K>().get_opt(name).await.unwrap();
    found.is_none_or(|found| found.meta().deletion_timestamp.is_some())
}

#[tokio::test(start_paused = true)]
async fn everything_below_goes_in_order_and_what_is_waited_for_is_named() {
    let world = World::start().await;
    let running = world.run();
    for (kind, name) in [("FakeCluster", "infra"), ("FakeControlPlane", "plane")] {
        world.create_fake(kind, name, json!({})).await;
        hold(&world, kind, name).await;
    }
    let cluster = create(&world, "demo", both()).await;
    create_child::<MachinePool>(&world, "MachinePool", "mp", Some(&cluster), json!({})).await;
    create_child::<MachineDeployment>(&world, "MachineDeployment", "md", Some(&cluster), json!({})).await;
    create_child::<MachineSet>(&world, "MachineSet", "ms", Some(&cluster), json!({})).await;
    create_child::<Machine>(&world, "Machine", "w", Some(&cluster), json!({})).await;
    let orphan = json!({"cluster.x-k8s.io/set-name": "ghost"});
    create_child::<Machine>(&world, "Machine", "stray", None, orphan).await;
    let plane = json!({"cluster.x-k8s.io/control-plane": "", "cluster.x-k8s.io/control-plane-name": "plane"});
    create_child::<Machine>(&world, "Machine", "cp", None, plane).await;
    until("it is guarded", async || !get(&world, "demo").await.finalizers().is_empty()).await;

    world.api::<Cluster>().delete("demo", &DeleteParams::default()).await.unwrap();
    says(
        &world,
        "demo",
        "Deleting",
        "True WaitingForWorkersDeletion * MachineDeployments: md\n* MachineSets: ms\n* MachinePools: mp\n\
         * Worker Machines: stray, w",
    )
    .await;
    phase(&world, "demo", "Deleting").await;
    until("children were asked to go", async || {
        is_deleting::<MachinePool>(&world, "mp").await
            && is_deleting::<MachineDeployment>(&world, "md").await
            && is_deleting::<MachineSet>(&world, "ms").await
            && is_deleting::<Machine>(&world, "w").await
    })
    .await;
    settled(&world).await;
    assert!(!is_deleting::<Machine>(&world, "stray").await, "it is not the Cluster's to delete");
    assert!(!is_deleting::<Machine>(&world, "cp").await, "it goes with its control plane");

    free::<MachinePool>(&world, "mp").await;
    free::<MachineDeployment>(&world, "md").await;
    free::<MachineSet>(&world, "ms").await;
    free::<Machine>(&world, "w").await;
    says(&world, "demo", "Deleting", "True WaitingForWorkersDeletion * Worker Machines: stray").await;
    let deleting = async |kind: &str, name: &str| {
        let found: Option<DynamicObject> = world.fake(kind).get_opt(name).await.unwrap();
        found.is_some_and(|found| found.metadata.deletion_timestamp.is_some())
    };
    assert!(!deleting("FakeControlPlane", "plane").await);

    free::<Machine>(&world, "stray").await;
    let waiting = "True WaitingForControlPlaneDeletion Waiting for FakeControlPlane to be deleted";
    says(&world, "demo", "Deleting", waiting).await;
    until("the control plane was asked to go", async || deleting("FakeControlPlane", "plane").await).await;
    assert!(!deleting("FakeCluster", "infra").await);
    settled(&world).await;

    let_go(&world, "FakeControlPlane", "plane").await;
    let waiting = "True WaitingForInfrastructureDeletion Waiting for FakeCluster to be deleted";
    says(&world, "demo", "Deleting", waiting).await;
    until("the infrastructure was asked to go", async || deleting("FakeCluster", "infra").await).await;
    let old = get(&world, "demo").await.status.unwrap().deprecated.unwrap().v1beta1.unwrap().conditions;
    assert_eq!(old.iter().find(|one| one.kind == "ControlPlaneReady").unwrap().reason, "Deleted");

    let_go(&world, "FakeCluster", "infra").await;
    until("the Cluster is gone", async || world.api::<Cluster>().get_opt("demo").await.unwrap().is_none())
        .await;
    let events: Api<Event> = Api::namespaced(world.client(), "default");
    until("it was told", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        events.iter().any(|event| event.reason.as_deref() == Some("Deleted"))
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_control_plane_object_machines_decide_and_the_kubeconfig_is_made() {
    let world = World::start().await;
    let running = world.run();
    let spec = json!({"controlPlaneEndpoint": {"host": "fd00::1", "port": 6443}});
    let cluster = create(&world, "demo", spec).await;
    phase(&world, "demo", "Provisioned").await;
    says(&world, "demo", "InfrastructureReady", "True Ready").await;
    let waiting = "Waiting for the first control plane machine to have status.nodeRef set";
    says(&world, "demo", "ControlPlaneInitialized", &format!("False NotInitialized {waiting}")).await;

    // The CA comes when it comes.
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes");
    let certificate = params.self_signed(&authority).unwrap();
    let mut ca = Secret::default();
    ca.metadata.name = Some("demo-ca".to_owned());
    ca.metadata.labels = Some([("cluster.x-k8s.io/cluster-name".to_owned(), "demo".to_owned())].into());
    ca.data = Some(
        [
            ("tls.crt".to_owned(), ByteString(certificate.pem().into_bytes())),
            ("tls.key".to_owned(), ByteString(authority.serialize_pem().into_bytes())),
        ]
        .into(),
    );
    let secrets: Api<Secret> = Api::namespaced(world.client(), "default");
    secrets.create(&PostParams::default(), &ca).await.unwrap();
    until("the kubeconfig is there", async || secrets.get_opt("demo-kubeconfig").await.unwrap().is_some())
        .await;
    let secret = secrets.get("demo-kubeconfig").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert_eq!(secret.labels()["cluster.x-k8s.io/cluster-name"], "demo");
    assert_eq!(secret.owner_references()[0].kind, "Cluster");
    let text = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    assert_eq!(config.current_context.as_deref(), Some("demo-admin@demo"));
    let server = config.clusters[0].cluster.as_ref().unwrap().server.as_deref();
    assert_eq!(server, Some("https://[fd00::1]:6443"));
    settled(&world).await;

    let plane = json!({"cluster.x-k8s.io/control-plane": ""});
    create_child::<Machine>(&world, "Machine", "cp", Some(&cluster), plane).await;
    let node = Patch::Merge(json!({"status": {
        "nodeRef": {"name": "node-1"},
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    }}));
    world.api::<Machine>().patch_status("cp", &PatchParams::default(), &node).await.unwrap();
    says(&world, "demo", "ControlPlaneInitialized", "True Initialized").await;
    says(&world, "demo", "ControlPlaneAvailable", "True Available").await;
    until("it is counted", async || {
        let status = get(&world, "demo").await.status.unwrap();
        status.control_plane.is_some_and(|counters| counters.ready_replicas == Some(1))
    })
    .await;
    let status = get(&world, "demo").await.status.unwrap();
    assert_eq!(status.initialization.control_plane_initialized, None, "only an object sets the flag");

    world.api::<Cluster>().delete("demo", &DeleteParams::default()).await.unwrap();
    says(&world, "demo", "Deleting", "True WaitingForWorkersDeletion * Control plane Machines: cp").await;
    free::<Machine>(&world, "cp").await;
    until("the Cluster is gone", async || world.api::<Cluster>().get_opt("demo").await.unwrap().is_none())
        .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_tells_whether_it_can_be_reached() {
    let world = World::start().await;
    let running = world.run();
    world.create_fake("FakeCluster", "infra", json!({})).await;
    create(&world, "demo", json!({"infrastructureRef": reference("FakeCluster", "infra")})).await;
    let young = "False ProbeFailed Remote connection not established yet";
    says(&world, "demo", "RemoteConnectionProbe", young).await;
    world.report("FakeCluster", "infra", json!({"initialization": {"provisioned": true}})).await;
    says(&world, "demo", "RemoteConnectionProbe", "False ProbeFailed Remote connection probe failed").await;
    world.workloads.start("demo").await;
    says(&world, "demo", "RemoteConnectionProbe", "True ProbeSucceeded").await;
    settled(&world).await;
    running.stop().await;
}
