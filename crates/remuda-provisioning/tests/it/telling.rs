//! What people are told.

use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    events::v1::Event,
};
use kube::{Api, ResourceExt, api::ListParams};
use remuda_api::management::{ClusterRoleTemplateBinding, Token, User};
use serde_json::{Value, json};

use crate::world::{World, edge, until};

#[tokio::test(start_paused = true)]
async fn a_cluster_tells_what_its_control_plane_and_its_connection_tell() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "RKECluster", "True", "").await;
    let id = cluster.status.unwrap().cluster_name;
    world.told("edge", "Ready", "Unknown", "waiting for control plane to report").await;

    let waiting = "configuring bootstrap node(s) m-1: waiting for agent to check in and apply initial plan";
    let ready = |status: &str, message: &str| {
        json!([
            {"type": "Ready", "status": status, "reason": "Waiting", "message": message},
            {"type": "Provisioned", "status": status, "message": message},
            {"type": "Stable", "status": status},
        ])
    };
    world.report("edge", ready("Unknown", waiting)).await;
    for kind in ["Ready", "Updated", "Provisioned", "Waiting"] {
        world.told("edge", kind, "Unknown", waiting).await;
    }
    let logs: Api<ConfigMap> = Api::namespaced(world.client(), &id);
    let told = |log: &ConfigMap| log.data.as_ref().is_some_and(|data| data["log"].contains(waiting));
    world.eventually(&logs, "provisioning-log", "tells it", told).await;

    world.connect(&id, true).await;
    let cluster = world
        .eventually(&world.clusters(), "edge", "has a kubeconfig", |cluster| {
            cluster.status.as_ref().is_some_and(|status| !status.client_secret_name.is_empty())
        })
        .await;
    let status = cluster.status.as_ref().unwrap();
    assert!(status.ready && status.agent_deployed);
    assert_eq!(status.client_secret_name, "edge-kubeconfig");
    assert_eq!(status.fleet_workspace_name, "fleet-default");

    world.report("edge", ready("True", "")).await;
    let cluster = world.told("edge", "Ready", "True", "").await;
    world.told("edge", "Reconciling", "False", "").await;
    assert_eq!(cluster.status.unwrap().observed_generation, cluster.metadata.generation.unwrap());
    let done = |log: &ConfigMap| log.data.as_ref().unwrap()["log"].ends_with("[INFO ] provisioning done\n");
    world.eventually(&logs, "provisioning-log", "is done", done).await;
    let management = world
        .eventually(&world.managements(), &id, "is provisioned", |management| {
            let conditions = &management.status.as_ref().unwrap().conditions;
            conditions.iter().any(|condition| condition.kind == "Provisioned" && condition.status == "True")
        })
        .await;
    let kinds: Vec<_> =
        management.status.unwrap().conditions.into_iter().map(|condition| condition.kind).collect();
    // Whether a cluster is connected is not ours to say, and only while its nodes change whether it is ready.
    assert_eq!(kinds, ["Provisioned", "Updated", "Waiting", "Ready", "Connected", "AgentDeployed"]);

    world.connect(&id, false).await;
    let cluster = world
        .eventually(&world.clusters(), "edge", "has lost its agent", |cluster| {
            !cluster.status.as_ref().unwrap().agent_deployed
        })
        .await;
    assert!(cluster.status.unwrap().ready, "a cluster that was there once is there");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_leads_through_this_server() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "RKECluster", "True", "").await;
    let id = cluster.status.as_ref().unwrap().cluster_name.clone();
    world.connect(&id, true).await;
    let secret = world.eventually(&world.api::<Secret>(), "edge-kubeconfig", "is there", |_| true).await;
    assert_eq!(secret.labels()["cluster.x-k8s.io/cluster-name"], "edge");
    assert_eq!(secret.owner_references()[0].uid, cluster.uid().unwrap());
    let data = secret.data.unwrap();
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    let kubeconfig: Value = serde_saphyr::from_str(std::str::from_utf8(&data["value"].0).unwrap()).unwrap();
    assert_eq!(
        kubeconfig["clusters"][0]["cluster"]["server"],
        format!("https://mgr.example.com/k8s/clusters/{id}")
    );
    assert_eq!(kubeconfig["users"][0]["user"]["token"], token);
    let (name, key) = token.split_once(':').unwrap();
    let users: Api<User> = Api::all(world.client());
    let user = users.get(name).await.unwrap();
    assert_eq!(user.principal_ids, ["system://provisioning/fleet-default/edge"]);
    let tokens: Api<Token> = Api::all(world.client());
    let stored = tokens.get(name).await.unwrap();
    assert!(stored.token.starts_with("$3:1:") && !stored.token.contains(key), "only a hash is stored");
    assert_eq!((stored.user_id.as_str(), &stored.cluster_name, stored.ttl), (name, &id, 0));
    assert_eq!(stored.owner_references()[0].uid, user.uid().unwrap());
    let bindings: Api<ClusterRoleTemplateBinding> = Api::namespaced(world.client(), &id);
    let binding = bindings.get(&format!("{id}-fleet-default-owner")).await.unwrap();
    assert_eq!(binding.user_name, name);
    assert_eq!((binding.cluster_name, binding.role_template_name), (id, "cluster-owner".to_owned()));

    // A Secret that somebody broke is put right.
    world.api::<Secret>().delete("edge-kubeconfig", &Default::default()).await.unwrap();
    let back = world.eventually(&world.api::<Secret>(), "edge-kubeconfig", "is back", |_| true).await;
    let token = back.data.unwrap()["token"].clone();
    world.settle().await;
    let same = world.api::<Secret>().get("edge-kubeconfig").await.unwrap();
    assert_eq!(same.data.unwrap()["token"], token, "and stays as it is then");

    // Whoever revokes the token gets another one into the Secret.
    tokens.delete(name, &Default::default()).await.unwrap();
    world
        .eventually(&world.api::<Secret>(), "edge-kubeconfig", "has another token", |secret| {
            secret.data.as_ref().is_some_and(|data| data["token"] != token)
        })
        .await;

    world.clusters().delete("edge", &Default::default()).await.unwrap();
    until("the user is gone", async || users.get_opt(name).await.unwrap().is_none()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_pool_is_said_in_words_people_know() {
    let (world, running) = World::running().await;
    world
        .create(
            "bad",
            json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machinePools": [
            {"name": "p", "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "x"}}]}}),
        )
        .await;
    let message = "at least one role of etcd, control-plane or worker must be assigned to machinePool [p]";
    for (kind, status) in
        [("RKECluster", "False"), ("Updated", "False"), ("Ready", "False"), ("Stalled", "True")]
    {
        world.told("bad", kind, status, message).await;
    }
    world.create("odd", json!({"rkeConfig": {}})).await;
    world.told("odd", "RKECluster", "False", "kubernetesVersion not set on fleet-default/odd").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fields_that_nothing_follows_are_named_once() {
    let (world, running) = World::running().await;
    let mut spec = edge();
    spec["enableNetworkPolicy"] = json!(true);
    world.create("edge", spec).await;
    let events = world.api::<Event>();
    let notes = async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let ours = events.into_iter().filter(|event| event.reason.as_deref() == Some("FieldIgnored"));
        ours.filter_map(|event| event.note).collect::<Vec<_>>()
    };
    until("it is told", async || !notes().await.is_empty()).await;
    world.settle().await;
    assert_eq!(notes().await, ["spec.enableNetworkPolicy is stored, but nothing follows it"]);
    running.stop().await;
}
