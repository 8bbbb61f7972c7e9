use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use remuda_control::ObjectKey;
use remuda_gateway::TunnelConnect;
use remuda_testkit::until;
use remuda_workload::{Connect, Down};
use serde_json::json;

use crate::{
    downstream::{ADDRESS, Downstream},
    world::{TOKEN, World},
};

#[tokio::test]
async fn a_cluster_is_connected_while_its_agent_is() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    world.until_condition("c-m-1", "Connected", "False Cluster agent is not connected").await;
    world.until_condition("c-m-1", "AgentDeployed", "False").await;

    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Connected", "True").await;
    world.until_condition("c-m-1", "AgentDeployed", "True").await;
    world.until_condition("c-m-1", "Ready", "True").await;
    until("credentials are kept", async || {
        world.managed("c-m-1").await.status.unwrap().api_endpoint == format!("https://{ADDRESS}")
    })
    .await;
    let status = world.managed("c-m-1").await.status.unwrap();
    assert!(status.version.unwrap().git_version.starts_with('v'));
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "cattle-global-data");
    let kept = secrets.get(&status.service_account_token_secret).await.unwrap();
    assert_eq!(kept.data.unwrap()["credential"].0, b"agent-token");

    drop(agent);
    world.until_condition("c-m-1", "Connected", "False Cluster agent is not connected: ").await;
    world.until_condition("c-m-1", "Ready", "False").await;
    world.until_condition("c-m-1", "AgentDeployed", "True").await;
    let _agent =
        downstream.connect_with(world.address, "/v3/connect", TOKEN, &downstream.params()).await.unwrap();
    world.until_condition("c-m-1", "Ready", "True").await;
}

#[tokio::test]
async fn only_a_token_lets_an_agent_in_and_only_as_its_cluster() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    let refused = |result: Result<crate::downstream::Agent, String>| result.err().unwrap();
    let wrong = refused(downstream.connect(world.address, "wrong").await);
    assert!(wrong.contains("400") && wrong.contains("cluster not found"), "{wrong}");
    let none = refused(downstream.dial(world.address, "/v3/connect", HeaderMap::new()).await);
    assert!(none.contains("401") && none.contains("failed authentication"), "{none}");
    let mut params = downstream.params();
    params["cluster"]["token"] = "".into();
    let empty = refused(downstream.connect_with(world.address, "/v3/connect", TOKEN, &params).await);
    assert!(empty.contains("invalid input, token empty"), "{empty}");
    for params in [
        json!({}),
        json!({"node": {}}),
        json!([]),
        json!({"cluster": {"address": "a b", "token": "t", "caCert": "eA=="}}),
    ] {
        let odd = refused(downstream.connect_with(world.address, "/v3/connect", TOKEN, &params).await);
        assert!(odd.contains("400") && odd.contains("invalid input"), "{odd}");
    }
    let mut twice = HeaderMap::new();
    twice.append("x-api-tunnel-token", TOKEN.parse().unwrap());
    twice.append("x-api-tunnel-token", "other".parse().unwrap());
    assert!(refused(downstream.dial(world.address, "/v3/connect", twice).await).contains("401"));
    let (status, _) = world.get("/v3/connect", &[("x-api-tunnel-token", TOKEN)]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!world.gateway.connection("c-m-1").is_connected());
    // The session of an agent that serves an API of its own goes beside.
    let mut bearer = HeaderMap::new();
    bearer.insert("authorization", format!("Bearer stv-cluster-{TOKEN}").parse().unwrap());
    let _second = downstream.dial(world.address, "/v3/connect", bearer).await.unwrap();
    until("it is there", async || world.gateway.tunnel().has_session("stv-cluster-c-m-1")).await;
    assert!(!world.gateway.connection("c-m-1").is_connected());
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_with_its_cluster() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Connected", "True").await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "c-m-1");
    // Rotated: the old token is still good.
    let other: String = TOKEN.chars().rev().collect();
    let rotated = json!({"stringData": {"token": other, "previousToken": TOKEN}});
    secrets.patch("crt-token-default-token", &PatchParams::default(), &Patch::Merge(rotated)).await.unwrap();
    let path = format!("/v3/import/{other}_c-m-1.yaml");
    until("the new token is known", async || world.get(&path, &[]).await.0 == StatusCode::OK).await;
    assert!(!agent.is_over());
    let revoked = json!({"data": {"previousToken": null}});
    secrets.patch("crt-token-default-token", &PatchParams::default(), &Patch::Merge(revoked)).await.unwrap();
    agent.ended().await;
    assert!(downstream.connect(world.address, TOKEN).await.is_err());

    let agent = downstream.connect(world.address, &other).await.unwrap();
    world.until_condition("c-m-1", "Connected", "True").await;
    let clusters = world.dynamic("management.cattle.io/v3", "Cluster", None);
    clusters.delete("c-m-1", &DeleteParams::default()).await.unwrap();
    agent.ended().await;
    let refused = downstream.connect(world.address, &other).await.err().unwrap();
    assert!(refused.contains("cluster not found"), "{refused}");
}

#[tokio::test]
async fn controllers_reach_a_cluster_through_its_tunnel_or_hear_why_not() {
    struct Other;
    impl Connect for Other {
        fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
            let why = format!("other way to {cluster}");
            Box::pin(async { Err(Down { why }) })
        }
    }
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    let connect = TunnelConnect::new(&world.gateway, Some(Arc::new(Other)));
    let changed: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = changed.clone();
    let _following = connect.follow(Arc::new(move |key: &ObjectKey| told.lock().push(key.to_string())));
    let (demo, foreign) = (ObjectKey::namespaced("fleet-default", "demo"), ObjectKey::namespaced("x", "y"));
    let why =
        async |key: &ObjectKey| connect.connect(key).await.err().map(|down| down.why).unwrap_or_default();
    until("the cluster is known", async || why(&demo).await.starts_with("cluster c-m-1 is not connected"))
        .await;
    assert_eq!(why(&foreign).await, "other way to x/y");

    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    until("somebody was told", async || changed.lock().contains(&"fleet-default/demo".to_owned())).await;
    let client = connect.connect(&demo).await.unwrap();
    assert!(!client.apiserver_version().await.unwrap().git_version.is_empty());
    let before = changed.lock().len();
    drop(agent);
    until("somebody was told again", async || changed.lock().len() > before).await;
    assert!(why(&demo).await.contains("not connected since"), "{}", why(&demo).await);
    let failed = client.apiserver_version().await.unwrap_err();
    assert!(format!("{failed:?}").contains("NoSession"), "{failed:?}");
}

#[tokio::test]
async fn five_hundred_reconnects_leave_nothing_behind() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    for _ in 0..500 {
        let agent = downstream.connect(world.address, TOKEN).await.unwrap();
        drop(agent);
    }
    until("all sessions are gone", async || world.gateway.tunnel().statistics().client_sessions == 0).await;
    until("the table says so", async || !world.gateway.connection("c-m-1").is_connected()).await;
    let _agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Ready", "True").await;
}

#[tokio::test]
async fn a_restart_of_the_server_is_no_loss_of_its_clusters() {
    for (settle, stays) in [(600, true), (0, false)] {
        let world = World::with(|options| options.timing.settle = Duration::from_secs(settle)).await;
        world.bare_cluster("c-m-1", "demo", "false").await;
        world.until_condition("c-m-1", "Connected", "False").await;
        // As a server that ran before has left it.
        let clusters = world.dynamic("management.cattle.io/v3", "Cluster", None);
        let before = json!({"status": {"conditions": [{"type": "Connected", "status": "True"}]}});
        clusters.patch_status("c-m-1", &PatchParams::default(), &Patch::Merge(before)).await.unwrap();
        if stays {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(world.condition("c-m-1", "Connected").await, "True");
        } else {
            world.until_condition("c-m-1", "Connected", "False").await;
        }
    }
}
