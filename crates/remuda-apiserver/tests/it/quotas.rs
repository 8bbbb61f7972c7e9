//! ResourceQuotas are kept.

use serde_json::{Value, json};

use crate::harness::*;

const NS: &str = "/api/v1/namespaces/default";

async fn quota(server: &Server, name: &str, spec: Value) {
    let body = json!({"metadata": {"name": name}, "spec": spec});
    server.post(&format!("{NS}/resourcequotas"), body).await.expect(201);
    let path = format!("{NS}/resourcequotas/{name}");
    server.until(&path, |quota| quota.body["status"]["hard"] == quota.body["spec"]["hard"]).await;
}

async fn used(server: &Server, name: &str, wanted: Value) {
    let path = format!("{NS}/resourcequotas/{name}");
    server.until(&path, |quota| quota.body["status"]["used"] == wanted).await;
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": resources}]}})
}

#[tokio::test]
async fn objects_are_counted_and_no_more_are_made_than_there_is_room_for() {
    let server = Server::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    server.post(leases, json!({"metadata": {"name": "before"}})).await.expect(201);
    quota(&server, "q", json!({"hard": {"count/leases.coordination.k8s.io": "2", "secrets": "1"}})).await;
    used(&server, "q", json!({"count/leases.coordination.k8s.io": "1", "secrets": "0"})).await;
    server.post(leases, json!({"metadata": {"name": "a"}})).await.expect(201);
    let refused = server.post(leases, json!({"metadata": {"name": "b"}})).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "leases.coordination.k8s.io \"b\" is forbidden: exceeded quota: q, requested: \
         count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=2, limited: \
         count/leases.coordination.k8s.io=2"
    );
    // A dry run is judged, and costs nothing.
    let secrets = format!("{NS}/secrets");
    let secret = |name: &str| json!({"metadata": {"name": name}});
    server.post(&format!("{secrets}?dryRun=All"), secret("x")).await.expect(201);
    server.post(&secrets, secret("x")).await.expect(201);
    assert_eq!(server.post(&format!("{secrets}?dryRun=All"), secret("y")).await.code, 403);
    // Updates cost nothing, and what goes makes room.
    server.patch(&format!("{secrets}/x"), MERGE_PATCH, json!({"data": {"a": "YQ=="}})).await.expect(200);
    server.delete(&format!("{leases}/a")).await.expect(200);
    used(&server, "q", json!({"count/leases.coordination.k8s.io": "1", "secrets": "1"})).await;
    server.post(leases, json!({"metadata": {"name": "b"}})).await.expect(201);
    // Elsewhere there is no quota.
    server.namespace("elsewhere").await;
    server.post("/api/v1/namespaces/elsewhere/secrets", secret("y")).await.expect(201);
}

#[tokio::test]
async fn many_at_once_do_not_pass_a_quota() {
    let server = Server::start().await;
    quota(&server, "q", json!({"hard": {"secrets": "3"}})).await;
    let posts = (0..12).map(|number| {
        let server = server.clone();
        async move {
            let secret = json!({"metadata": {"name": format!("s-{number}")}});
            server.post(&format!("{NS}/secrets"), secret).await.code
        }
    });
    let codes = futures::future::join_all(posts).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 3, "{codes:?}");
    // A name that is taken costs nothing either.
    server.delete(&format!("{NS}/secrets/s-0")).await;
    server.until(&format!("{NS}/secrets"), |list| names(&list.body).len() < 4).await;
    let left = names(&server.get(&format!("{NS}/secrets")).await.body).len();
    used(&server, "q", json!({"secrets": left.to_string()})).await;
}

#[tokio::test]
async fn a_create_that_fails_after_it_was_charged_costs_nothing() {
    let server = Server::start().await;
    quota(&server, "q", json!({"hard": {"secrets": "3"}})).await;
    let secret = json!({"metadata": {"name": "s"}});
    server.post(&format!("{NS}/secrets"), secret.clone()).await.expect(201);
    assert_eq!(server.post(&format!("{NS}/secrets"), secret).await.code, 409);
    let quota = server.get(&format!("{NS}/resourcequotas/q")).await.expect(200);
    assert_eq!(quota["status"]["used"], json!({"secrets": "1"}));
}

#[tokio::test]
async fn pods_are_charged_for_what_they_ask_for() {
    let server = Server::start().await;
    server.until(&format!("{NS}/serviceaccounts/default"), |account| account.code == 200).await;
    quota(&server, "compute", json!({"hard": {"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"}}))
        .await;
    quota(&server, "idle", json!({"hard": {"pods": "0"}, "scopes": ["BestEffort"]})).await;
    let pods = format!("{NS}/pods");
    let unsaid = server.post(&pods, pod("a", json!({"limits": {"memory": "1Gi"}}))).await;
    assert_eq!(
        unsaid.fails(403, "Forbidden"),
        "pods \"a\" is forbidden: failed quota: compute: must specify requests.cpu for: c"
    );
    let small = json!({"limits": {"memory": "512Mi"}, "requests": {"cpu": "600m"}});
    server.post(&pods, pod("a", small.clone())).await.expect(201);
    used(&server, "compute", json!({"pods": "1", "requests.cpu": "600m", "limits.memory": "512Mi"})).await;
    let more = server.post(&pods, pod("b", small.clone())).await;
    let text = more.fails(403, "Forbidden");
    assert!(
        text.ends_with("exceeded quota: compute, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"),
        "{text}"
    );
    // A Pod that has ended makes room.
    let over = json!({"status": {"phase": "Succeeded"}});
    server.patch(&format!("{pods}/a/status"), MERGE_PATCH, over).await.expect(200);
    used(&server, "compute", json!({"pods": "0", "requests.cpu": "0", "limits.memory": "0"})).await;
    server.post(&pods, pod("b", small)).await.expect(201);
    // The other quota is for those who ask for nothing.
    used(&server, "idle", json!({"pods": "0"})).await;
}

#[tokio::test]
async fn a_changed_quota_is_counted_again_and_services_and_claims_have_names_of_their_own() {
    let server = Server::start().await;
    quota(&server, "q", json!({"hard": {"services.nodeports": "1", "requests.storage": "5Gi"}})).await;
    let service = |name: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    server.post(&format!("{NS}/services"), service("a", "NodePort")).await.expect(201);
    server.post(&format!("{NS}/services"), service("b", "ClusterIP")).await.expect(201);
    let patch = json!({"spec": {"type": "NodePort"}});
    assert_eq!(server.patch(&format!("{NS}/services/b"), MERGE_PATCH, patch.clone()).await.code, 403);
    let claim = |name: &str, size: &str| {
        json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}})
    };
    server.post(&format!("{NS}/persistentvolumeclaims"), claim("a", "3Gi")).await.expect(201);
    assert_eq!(server.post(&format!("{NS}/persistentvolumeclaims"), claim("b", "3Gi")).await.code, 403);
    let wider = json!({"spec": {"hard": {"services.nodeports": "2", "count/persistentvolumeclaims": "1"}}});
    server.patch(&format!("{NS}/resourcequotas/q"), MERGE_PATCH, wider).await.expect(200);
    used(
        &server,
        "q",
        json!({"services.nodeports": "1", "requests.storage": "3Gi", "count/persistentvolumeclaims": "1"}),
    )
    .await;
    server.patch(&format!("{NS}/services/b"), MERGE_PATCH, patch).await.expect(200);
}
