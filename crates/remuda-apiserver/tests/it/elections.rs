//! Several servers on one store, of which one runs the controllers.

use std::sync::Arc;

use remuda_apiserver::Controllers;
use remuda_store::{Memory, Store};
use serde_json::{Value, json};

use crate::harness::{MERGE_PATCH, Server, config};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/remuda-api-controllers";

async fn server(store: &Arc<dyn Store>, identity: &str) -> Server {
    let mut config = config();
    config.controllers = Controllers::Elected { identity: identity.to_owned() };
    Server::on(store.clone(), config).await
}

/// Waits until somebody is the holder, and returns the Lease's spec.
async fn held_by(server: &Server, identity: &str) -> Value {
    let lease = server.until(LEASE, |lease| lease.body["spec"]["holderIdentity"] == identity);
    lease.await.body["spec"].take()
}

/// Waits until somebody does what controllers do.
async fn controllers_work(server: &Server, namespace: &str) {
    server.namespace(namespace).await;
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
    server.until(&path, |answer| answer.code == 200).await;
}

#[tokio::test]
async fn the_first_server_holds_the_lease_and_the_second_gets_it_when_it_stops() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = server(&store, "first").await;
    held_by(&first, "first").await;
    let second = server(&store, "second").await;
    controllers_work(&second, "one").await;
    let before = held_by(&second, "first").await;
    assert_eq!((&before["leaseDurationSeconds"], &before["leaseTransitions"]), (&json!(15), &json!(0)));
    first.api.shutdown().await;
    let after = held_by(&second, "second").await;
    assert_eq!((&after["leaseDurationSeconds"], &after["leaseTransitions"]), (&json!(15), &json!(1)));
    controllers_work(&second, "two").await;
    second.api.shutdown().await;
    let mut last = config();
    last.controllers = Controllers::Never;
    held_by(&Server::on(store, last).await, "").await;
}

#[tokio::test]
async fn servers_that_start_at_once_elect_one() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let servers = ["a", "b", "c"].map(|identity| server(&store, identity));
    let servers = futures::future::join_all(servers).await;
    controllers_work(&servers[0], "one").await;
    let lease = servers[0].get(LEASE).await.expect(200);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_start_at_once_repair_default_roles_without_failing() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = server(&store, "first").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let names = ["view", "edit", "admin", "cluster-admin", "system:discovery", "system:basic-user"];
    for name in names {
        first.patch(&format!("{roles}/{name}"), MERGE_PATCH, json!({"rules": []})).await.expect(200);
    }
    first.api.shutdown().await;
    let mut starting = tokio::task::JoinSet::new();
    for identity in ["a", "b", "c", "d"] {
        let store = store.clone();
        starting.spawn(async move { server(&store, identity).await });
    }
    let servers = starting.join_all().await;
    let role = servers[0].get(&format!("{roles}/system:discovery")).await.expect(200);
    assert_ne!(role["rules"], json!([]));
}

#[tokio::test]
async fn a_holder_that_goes_silent_is_replaced_and_one_that_was_robbed_asks_again() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let first = server(&store, "first").await;
    held_by(&first, "first").await;
    // Good for a second, in the hands of somebody who never renews it.
    let taken = json!({"spec": {"holderIdentity": "robber", "leaseDurationSeconds": 1}});
    first.patch(LEASE, MERGE_PATCH, taken).await.expect(200);
    assert_eq!(held_by(&first, "first").await["leaseTransitions"], 1);
    controllers_work(&first, "one").await;
}
