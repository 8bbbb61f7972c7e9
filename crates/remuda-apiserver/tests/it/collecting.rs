//! Garbage collection by owner references.

use std::{sync::Arc, time::Duration};

use remuda_store::Memory;
use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn owned(name: &str, owners: &[(&Value, bool)]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|(owner, blocks)| {
            json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks})
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": references}})
}

async fn gone(server: &Server, path: &str) {
    server.until(path, |answer| answer.code == 404).await;
}

fn crd(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.test.io")},
        "spec": {"group": "test.io", "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Writes one more object and says how many writes there were since the last time.
async fn settled(server: &Server) {
    let mut last = 0;
    let started = std::time::Instant::now();
    loop {
        let now = server.store.observed();
        if now == last {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "writes do not end");
        last = now;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn in_the_background_dependents_follow_their_owner() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let child = server.post(MAPS, owned("child", &[(&owner, false)])).await.expect(201);
    server.post(MAPS, owned("grandchild", &[(&child, true)])).await.expect(201);
    let answer = server.delete(&format!("{MAPS}/owner")).await.expect(200);
    assert_eq!(answer["kind"], "Status");
    gone(&server, &format!("{MAPS}/child")).await;
    gone(&server, &format!("{MAPS}/grandchild")).await;
}

#[tokio::test]
async fn in_the_foreground_a_tree_goes_from_its_leaves() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let child = server.post(MAPS, owned("child", &[(&owner, true)])).await.expect(201);
    let mut leaf = owned("leaf", &[(&child, true)]);
    leaf["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(MAPS, leaf).await.expect(201);
    let from = server.get(MAPS).await.version().to_owned();
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={from}")).await;
    let marked = server
        .delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"}))
        .await
        .expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server
        .until(&format!("{MAPS}/leaf"), |leaf| leaf.body["metadata"]["deletionTimestamp"].is_string())
        .await;
    let child = server.get(&format!("{MAPS}/child")).await.expect(200);
    assert_eq!(child["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.get(&format!("{MAPS}/owner")).await.expect(200);
    server
        .patch(&format!("{MAPS}/leaf"), MERGE_PATCH, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    gone(&server, &format!("{MAPS}/owner")).await;
    let mut order = Vec::new();
    while order.len() < 3 {
        let event = watch.next().await.unwrap();
        if event["type"] == "DELETED" {
            order.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(order, ["leaf", "child", "owner"]);
}

/// Makes ConfigMaps in a cycle: each is owned by the one before it, the first by the last.
async fn cycle(server: &Server, maps: &str, names: &[&str]) {
    let mut objects = Vec::new();
    for name in names {
        objects.push(server.post(maps, config_map(name, json!({}))).await.expect(201));
    }
    for (index, name) in names.iter().enumerate() {
        let owner = &objects[(index + names.len() - 1) % names.len()];
        let patch = json!({"metadata": {"ownerReferences": owned(name, &[(owner, true)])["metadata"]["ownerReferences"]}});
        server.patch(&format!("{maps}/{name}"), MERGE_PATCH, patch).await.expect(200);
    }
}

#[tokio::test]
async fn a_cycle_of_owners_goes_in_the_foreground() {
    let server = Server::start().await;
    for names in [&["self"][..], &["a", "b"], &["x", "y", "z"]] {
        cycle(&server, MAPS, names).await;
        server.delete(&format!("{MAPS}/{}?propagationPolicy=Foreground", names[0])).await.expect(200);
        for name in names {
            gone(&server, &format!("{MAPS}/{name}")).await;
        }
    }
}

#[tokio::test]
async fn a_namespace_goes_with_the_cycles_in_it() {
    let server = Server::start().await;
    server.namespace("round").await;
    let maps = "/api/v1/namespaces/round/configmaps";
    cycle(&server, maps, &["a", "b", "c"]).await;
    let options = json!({"propagationPolicy": "Foreground"});
    server.ask("DELETE", maps).json(&options).send().await.expect(200);
    server.delete("/api/v1/namespaces/round").await.expect(200);
    gone(&server, "/api/v1/namespaces/round").await;
}

#[tokio::test]
async fn what_hangs_on_a_cycle_is_still_waited_for() {
    let server = Server::start().await;
    cycle(&server, MAPS, &["a", "b"]).await;
    let b = server.get(&format!("{MAPS}/b")).await.expect(200);
    let mut leaf = owned("leaf", &[(&b, true)]);
    leaf["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(MAPS, leaf).await.expect(201);
    server.delete(&format!("{MAPS}/b?propagationPolicy=Foreground")).await.expect(200);
    gone(&server, &format!("{MAPS}/a")).await;
    server.get(&format!("{MAPS}/b")).await.expect(200);
    let free = json!({"metadata": {"finalizers": null}});
    server.patch(&format!("{MAPS}/leaf"), MERGE_PATCH, free).await.expect(200);
    gone(&server, &format!("{MAPS}/b")).await;
}

#[tokio::test]
async fn an_owner_goes_when_its_dependent_stops_blocking() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let mut child = owned("child", &[(&owner, true)]);
    child["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(MAPS, child).await.expect(201);
    server.delete(&format!("{MAPS}/owner?propagationPolicy=Foreground")).await.expect(200);
    server
        .until(&format!("{MAPS}/child"), |child| child.body["metadata"]["deletionTimestamp"].is_string())
        .await;
    server.get(&format!("{MAPS}/owner")).await.expect(200);
    let patch = json!({"metadata": {"ownerReferences": owned("", &[(&owner, false)])["metadata"]["ownerReferences"]}});
    server.patch(&format!("{MAPS}/child"), MERGE_PATCH, patch).await.expect(200);
    gone(&server, &format!("{MAPS}/owner")).await;
}

#[tokio::test]
async fn a_dependent_that_does_not_block_does_not_hold_its_owner() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let mut child = owned("child", &[(&owner, false)]);
    child["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(MAPS, child).await.expect(201);
    server.delete(&format!("{MAPS}/owner?propagationPolicy=Foreground")).await.expect(200);
    gone(&server, &format!("{MAPS}/owner")).await;
    server
        .until(&format!("{MAPS}/child"), |child| child.body["metadata"]["deletionTimestamp"].is_string())
        .await;
}

#[tokio::test]
async fn orphans_stay_and_lose_their_reference() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let other = server.post(MAPS, config_map("other", json!({}))).await.expect(201);
    server.post(MAPS, owned("child", &[(&owner, true), (&other, true)])).await.expect(201);
    server.post(MAPS, owned("only", &[(&owner, true)])).await.expect(201);
    let marked = server.delete(&format!("{MAPS}/owner?propagationPolicy=Orphan")).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    gone(&server, &format!("{MAPS}/owner")).await;
    let child = server.get(&format!("{MAPS}/child")).await.expect(200);
    assert_eq!(child["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], "other");
    let only = server.get(&format!("{MAPS}/only")).await.expect(200);
    assert_eq!(only["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn one_living_owner_keeps_a_dependent() {
    let server = Server::start().await;
    let a = server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let b = server.post(MAPS, config_map("b", json!({}))).await.expect(201);
    server.post(MAPS, owned("child", &[(&a, false), (&b, true)])).await.expect(201);
    server.delete(&format!("{MAPS}/b?propagationPolicy=Foreground")).await.expect(200);
    gone(&server, &format!("{MAPS}/b")).await;
    let child = server
        .until(&format!("{MAPS}/child"), |child| {
            child.body["metadata"]["ownerReferences"].as_array().is_some_and(|list| list.len() == 1)
        })
        .await;
    assert_eq!(child.body["metadata"]["ownerReferences"][0]["name"], "a");
}

#[tokio::test]
async fn a_reference_to_another_uid_or_namespace_is_to_nobody() {
    let server = Server::start().await;
    server.namespace("elsewhere").await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let mut false_uid = owned("false-uid", &[(&owner, false)]);
    false_uid["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-0000-0000-000000000000".into();
    server.post(MAPS, false_uid).await.expect(201);
    gone(&server, &format!("{MAPS}/false-uid")).await;
    let there = "/api/v1/namespaces/elsewhere/configmaps";
    server.post(there, owned("foreign", &[(&owner, false)])).await.expect(201);
    gone(&server, &format!("{there}/foreign")).await;
}

#[tokio::test]
async fn cluster_scoped_owners_own_namespaced_objects_but_not_the_other_way_round() {
    let server = Server::start().await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "owner"}, "rules": []});
    let role = server.post(roles, role).await.expect(201);
    server.post(MAPS, owned("child", &[(&role, false)])).await.expect(201);
    let map = server.post(MAPS, config_map("map", json!({}))).await.expect(201);
    let mut wrong = owned("wrong", &[(&map, false)]);
    wrong["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
    wrong["kind"] = "ClusterRole".into();
    server.post(roles, wrong).await.expect(201);
    server.delete(&format!("{MAPS}/map")).await.expect(200);
    server.delete(&format!("{roles}/owner")).await.expect(200);
    gone(&server, &format!("{MAPS}/child")).await;
    // Kept, and somebody is told why.
    server
        .until("/api/v1/namespaces/default/events", |events| {
            events.body["items"].as_array().is_some_and(|items| {
                items.iter().any(|event| {
                    event["reason"] == "OwnerRefInvalidNamespace"
                        && event["type"] == "Warning"
                        && event["involvedObject"]["name"] == "wrong"
                })
            })
        })
        .await;
    settled(&server).await;
    server.get(&format!("{roles}/wrong")).await.expect(200);
}

#[tokio::test]
async fn an_owner_of_an_unknown_kind_decides_nothing_until_its_kind_is_served() {
    let server = Server::start().await;
    let mut child = config_map("child", json!({}));
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "test.io/v1", "kind": "Thing", "name": "t", "uid": "00000000-0000-0000-0000-000000000001"}]);
    server.post(MAPS, child).await.expect(201);
    settled(&server).await;
    server.get(&format!("{MAPS}/child")).await.expect(200);
    server.post(CRDS, crd("things", "Thing", "Namespaced")).await.expect(201);
    gone(&server, &format!("{MAPS}/child")).await;
}

#[tokio::test]
async fn when_a_definition_goes_its_objects_and_their_dependents_go_too() {
    let server = Server::start().await;
    server.post(CRDS, crd("things", "Thing", "Namespaced")).await.expect(201);
    let things = "/apis/test.io/v1/namespaces/default/things";
    let thing = json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let thing = server.post(things, thing).await.expect(201);
    server.post(MAPS, owned("child", &[(&thing, true)])).await.expect(201);
    server.delete(&format!("{CRDS}/things.test.io")).await.expect(200);
    gone(&server, &format!("{CRDS}/things.test.io")).await;
    gone(&server, &format!("{MAPS}/child")).await;
    settled(&server).await;
}

#[tokio::test]
async fn what_lost_its_owner_while_the_server_was_down_goes_at_the_next_start() {
    let store = Arc::new(Memory::default());
    let mut quiet = config();
    quiet.controllers = remuda_apiserver::Controllers::Never;
    let server = Server::on(store.clone(), quiet).await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    server.post(MAPS, owned("child", &[(&owner, false)])).await.expect(201);
    let front = server.post(MAPS, config_map("front", json!({}))).await.expect(201);
    server.post(MAPS, owned("blocker", &[(&front, true)])).await.expect(201);
    server.delete(&format!("{MAPS}/owner")).await.expect(200);
    server.delete(&format!("{MAPS}/front?propagationPolicy=Foreground")).await.expect(200);
    server.namespace("going").await;
    server.post("/api/v1/namespaces/going/configmaps", config_map("x", json!({}))).await.expect(201);
    server.delete("/api/v1/namespaces/going").await.expect(200);
    server.api.shutdown().await;
    let server = Server::on(store, config()).await;
    gone(&server, &format!("{MAPS}/child")).await;
    gone(&server, &format!("{MAPS}/front")).await;
    gone(&server, &format!("{MAPS}/blocker")).await;
    gone(&server, "/api/v1/namespaces/going").await;
}

#[tokio::test]
async fn a_thousand_dependents_go_with_one_owner() {
    let server = Server::start().await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    for index in 0..1000 {
        server.post(MAPS, owned(&format!("child-{index}"), &[(&owner, true)])).await.expect(201);
    }
    server.delete(&format!("{MAPS}/owner?propagationPolicy=Foreground")).await.expect(200);
    gone(&server, &format!("{MAPS}/owner")).await;
    let left = server.get(MAPS).await.expect(200);
    assert_eq!(names(&left), ["kube-root-ca.crt"]);
}

#[tokio::test]
async fn nobody_in_another_namespace_holds_an_owner_up() {
    let server = Server::start().await;
    server.namespace("elsewhere").await;
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    let mut foreign = owned("foreign", &[(&owner, true)]);
    foreign["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post("/api/v1/namespaces/elsewhere/configmaps", foreign).await.expect(201);
    server.delete(&format!("{MAPS}/owner?propagationPolicy=Foreground")).await.expect(200);
    gone(&server, &format!("{MAPS}/owner")).await;
}

#[tokio::test]
async fn jobs_orphan_their_pods_unless_told_otherwise() {
    let server = Server::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let made = server.post(jobs, job.clone()).await.expect(201);
    server.post(MAPS, owned("kept", &[(&made, true)])).await.expect(201);
    let marked = server.delete(&format!("{jobs}/j")).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    gone(&server, &format!("{jobs}/j")).await;
    assert_eq!(
        server.get(&format!("{MAPS}/kept")).await.expect(200)["metadata"]["ownerReferences"],
        Value::Null
    );
    let made = server.post(jobs, job).await.expect(201);
    server.post(MAPS, owned("follows", &[(&made, true)])).await.expect(201);
    server.delete(&format!("{jobs}/j?propagationPolicy=Background")).await.expect(200);
    gone(&server, &format!("{MAPS}/follows")).await;
}

#[tokio::test]
async fn a_settled_server_writes_nothing() {
    let server = Server::start().await;
    server.namespace("n").await;
    server.post(CRDS, crd("things", "Thing", "Namespaced")).await.expect(201);
    let owner = server.post(MAPS, config_map("owner", json!({}))).await.expect(201);
    server.post(MAPS, owned("child", &[(&owner, false)])).await.expect(201);
    settled(&server).await;
    let before = server.store.observed();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.store.observed(), before);
}
