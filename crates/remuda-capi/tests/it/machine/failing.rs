//! What is missing, broken or lost is told, and nothing goes back on it.

use kube::api::{DeleteParams, DynamicObject};

use super::*;
use crate::world::{fake, fake_crd};

#[tokio::test(start_paused = true)]
async fn a_missing_definition_is_named_and_its_arrival_noticed() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    world.create_fake("FakeConfig", "m", json!({})).await;
    create_machine_only(&world, "m", json!({}), json!({"infrastructureRef": reference("FakeLate", "m")}))
        .await;
    let why = "CRD fakelates.infrastructure.cluster.x-k8s.io for kind FakeLate in group infrastructure.cluster.x-k8s.io does not exist";
    says(&world, "m", "InfrastructureReady", &format!("Unknown InternalError {why}")).await;
    settle(&world).await;
    world.define(fake_crd("FakeLate")).await;
    says(&world, "m", "InfrastructureReady", "False ObjectDoesNotExist FakeLate does not exist").await;
    settle(&world).await;
    let mut late = DynamicObject::new("m", &fake("FakeLate"));
    late.data = json!({"spec": {"providerID": "fake://m"}});
    world.fake("FakeLate").create(&PostParams::default(), &late).await.unwrap();
    says(
        &world,
        "m",
        "InfrastructureReady",
        "False NotReady FakeLate status.initialization.provisioned is false",
    )
    .await;
    world.report("FakeLate", "m", json!({"initialization": {"provisioned": true}})).await;
    report_bootstrap(&world, "m").await;
    create_node(&workload, "m").await;
    in_phase(&world, "m", "Running").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_lost_is_told_and_the_machine_stays() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    world.fake("FakeMachine").delete("m", &DeleteParams::default()).await.unwrap();
    says(
        &world,
        "m",
        "InfrastructureReady",
        "False ObjectDeleted FakeMachine has been deleted while the Machine still exists",
    )
    .await;
    let status = get(&world, "m").await.status.unwrap();
    assert_eq!(status.phase, "Running");
    let old = status.deprecated.unwrap().v1beta1.unwrap();
    assert_eq!(old.failure_reason.as_deref(), Some("InvalidConfiguration"));
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_of_providers_are_told_and_taken_back() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({})).await;
    world
        .report("FakeMachine", "m", json!({"failureReason": "CreateError", "failureMessage": "no quota"}))
        .await;
    let failure = async || {
        let old = get(&world, "m").await.status.unwrap_or_default().deprecated.unwrap_or_default();
        let old = old.v1beta1.unwrap_or_default();
        (old.failure_reason, old.failure_message)
    };
    let message = "Failure detected from referenced resource infrastructure.cluster.x-k8s.io/v1, Kind=FakeMachine with name \"m\": no quota";
    let told = (Some("CreateError".to_owned()), Some(message.to_owned()));
    until("the failure is told", async || failure().await == told).await;
    world.report("FakeMachine", "m", json!({"failureReason": null, "failureMessage": null})).await;
    until("the failure is gone", async || failure().await == (None, None)).await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_breaks_the_contract_is_named() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({})).await;
    world.report("FakeConfig", "m", json!({"initialization": {"dataSecretCreated": true}})).await;
    says(
        &world,
        "m",
        "BootstrapConfigReady",
        "Unknown InternalError FakeConfig reports its data secret but no status.dataSecretName",
    )
    .await;
    let patch = Patch::Merge(json!({"spec": {"providerID": 7}}));
    world.fake("FakeMachine").patch("m", &PatchParams::default(), &patch).await.unwrap();
    until("the wrong type is named", async || {
        condition(&world, "m", "InfrastructureReady").await.contains("spec.providerID of ")
    })
    .await;
    settle(&world).await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_its_cluster_says_so() {
    let world = World::start().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({})).await;
    says(&world, "m", "Ready", "Unknown InternalError Cluster default/c does not exist").await;
    let _workload = world.workloads.start("c").await;
    create_cluster(&world, "c").await;
    in_phase(&world, "m", "Pending").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn stripped_owners_labels_and_finalizers_come_back() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({}), json!({})).await;
    let patch = json!({"metadata": {"finalizers": null, "ownerReferences": null, "labels": null}});
    world.api::<Machine>().patch("m", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    world.fake("FakeMachine").patch("m", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    until("all is back", async || {
        let (machine, server) = (get(&world, "m").await, world.fake("FakeMachine").get("m").await.unwrap());
        machine.finalizers().len() == 1
            && machine.owner_references().len() == 1
            && machine.labels().len() == 1
            && server.owner_references().len() == 1
            && server.labels().len() == 1
    })
    .await;
    controllers.stop().await;
}
