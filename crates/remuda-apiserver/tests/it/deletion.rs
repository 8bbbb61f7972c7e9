//! DELETE and DELETECOLLECTION: options, finalizers, grace.

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn held(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers}})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 40},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

#[tokio::test]
async fn an_object_without_finalizers_goes_at_once_and_the_answer_says_what_went() {
    let server = Server::start().await;
    let created = server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let answer = server.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(
        answer,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}})
    );
    server.get(&format!("{MAPS}/a")).await.fails(404, "NotFound");
    let message = server.delete(&format!("{MAPS}/a")).await.fails(404, "NotFound");
    assert_eq!(message, "configmaps \"a\" not found");
}

#[tokio::test]
async fn preconditions_that_do_not_hold_are_conflicts() {
    let server = Server::start().await;
    let created = server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let version = created["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}/a");
    let message =
        server.delete_with(&path, json!({"preconditions": {"uid": "other"}})).await.fails(409, "Conflict");
    assert!(
        message.contains(&format!(
            "the UID in the precondition (other) does not match the UID in record ({uid})"
        )),
        "{message}"
    );
    let message = server
        .delete_with(&path, json!({"preconditions": {"resourceVersion": "1"}}))
        .await
        .fails(409, "Conflict");
    assert!(message.contains(&format!("in record ({version})")), "{message}");
    let both = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    server.delete_with(&path, both).await.expect(200);
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let path = format!("{MAPS}/a");
    let message = server.delete_with(&path, json!({"propagationPolicy": "Foo"})).await.fails(422, "Invalid");
    assert!(
        message.contains(
            "propagationPolicy: Unsupported value: \"Foo\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        ),
        "{message}"
    );
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    let message = server.delete_with(&path, both).await.fails(422, "Invalid");
    assert!(message.contains("orphanDependents and deletionPropagation cannot be both set"), "{message}");
    server.delete_with(&path, json!({"kind": "ConfigMap"})).await.fails(400, "BadRequest");
    server.get(&path).await.expect(200);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    server.post(MAPS, held("b", &["x.io/f"])).await.expect(201);
    server.delete_with(&format!("{MAPS}/a"), json!({"dryRun": ["All"]})).await.expect(200);
    server.delete(&format!("{MAPS}/a?dryRun=All")).await.expect(200);
    let shown = server.delete(&format!("{MAPS}/b?dryRun=All")).await.expect(200);
    assert!(shown["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        server.get(&format!("{MAPS}/b")).await.expect(200)["metadata"]["deletionTimestamp"],
        Value::Null
    );
    server.get(&format!("{MAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn an_object_with_finalizers_waits_for_them() {
    let server = Server::start().await;
    let created = server.post(MAPS, held("a", &["x.io/f"])).await.expect(201);
    let path = format!("{MAPS}/a");
    let marked = server.delete(&path).await.expect(200);
    assert_eq!(marked["kind"], "ConfigMap");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_ne!(marked["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    // Again: the same object, unchanged.
    assert_eq!(server.delete(&path).await.expect(200), marked);
    // The content may change, but nothing can hold it longer.
    let changed = server.patch(&path, MERGE_PATCH, json!({"data": {"k": "v"}})).await.expect(200);
    assert_eq!(changed["data"]["k"], "v");
    let message = server
        .patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": ["x.io/f", "x.io/g"]}}))
        .await
        .fails(422, "Invalid");
    assert!(
        message.contains("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.io/g\"}"),
        "{message}"
    );
    let mut undo = server.get(&path).await.expect(200);
    undo["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let undone = server.put(&path, undo).await.expect(200);
    assert_eq!(undone["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
}

#[tokio::test]
async fn removing_the_last_finalizer_removes_the_object_and_watchers_see_only_that() {
    let server = Server::start().await;
    server.post(MAPS, held("a", &["x.io/f", "x.io/g"])).await.expect(201);
    let path = format!("{MAPS}/a");
    let marked = server.delete(&path).await.expect(200);
    let from = marked["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch =
        server.watch(&format!("{MAPS}?fieldSelector=metadata.name=a&resourceVersion={from}")).await;
    let one =
        server.patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": ["x.io/g"]}})).await.expect(200);
    watch.expect("MODIFIED").await;
    let last = server
        .patch(&path, JSON_PATCH, json!([{"op": "remove", "path": "/metadata/finalizers"}]))
        .await
        .expect(200);
    assert_eq!(last["metadata"]["resourceVersion"], one["metadata"]["resourceVersion"]);
    assert_eq!(last["metadata"]["finalizers"], Value::Null);
    let gone = watch.expect("DELETED").await;
    assert_eq!(gone["metadata"]["finalizers"], Value::Null);
    let number =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&gone) > number(&one));
    server.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn generation_moves_when_a_custom_or_specced_object_begins_to_go() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "finalizers": ["x.io/f"]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    server.post(path, deployment).await.expect(201);
    let marked = server.delete(&format!("{path}/d")).await.expect(200);
    assert_eq!(marked["metadata"]["generation"], 2);
}

#[tokio::test]
async fn only_a_pod_on_a_node_leaves_with_grace() {
    let server = Server::start().await;
    server.post(PODS, pod("free", None)).await.expect(201);
    assert_eq!(server.delete(&format!("{PODS}/free")).await.expect(200)["kind"], "Pod");
    server.get(&format!("{PODS}/free")).await.fails(404, "NotFound");

    let created = server.post(PODS, pod("bound", Some("n1"))).await.expect(201);
    let path = format!("{PODS}/bound");
    let first = server.delete(&path).await.expect(200);
    assert_eq!(first["metadata"]["deletionGracePeriodSeconds"], 40);
    let generation = |pod: &Value| pod["metadata"]["generation"].as_i64().unwrap_or(0);
    assert_eq!(generation(&first), generation(&created) + 1);
    let at = |pod: &Value| -> jiff::Timestamp {
        pod["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap()
    };
    let began: jiff::Timestamp = created["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
    assert!((at(&first).as_second() - began.as_second() - 40).abs() <= 2);
    // A second delete does not lengthen it.
    let second = server.delete_with(&path, json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(second, first);
    // It may shorten it.
    let third = server.delete_with(&path, json!({"gracePeriodSeconds": 10})).await.expect(200);
    assert_eq!(third["metadata"]["deletionGracePeriodSeconds"], 10);
    assert_eq!(at(&first).as_second() - at(&third).as_second(), 30);
    // Not even the last finalizer ends it before its time; grace 0 does.
    let gone = server.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.expect(200);
    assert_eq!(gone["kind"], "Pod", "{gone}");
    server.get(&path).await.fails(404, "NotFound");

    server.post(PODS, pod("negative", Some("n1"))).await.expect(201);
    let marked = server.delete_with(&format!("{PODS}/negative"), json!({"gracePeriodSeconds": -5})).await;
    assert_eq!(marked.expect(200)["metadata"]["deletionGracePeriodSeconds"], 1);

    server.post(PODS, pod("over", Some("n1"))).await.expect(201);
    let over = json!({"status": {"phase": "Succeeded"}});
    server.patch(&format!("{PODS}/over/status"), MERGE_PATCH, over).await.expect(200);
    server.delete(&format!("{PODS}/over")).await.expect(200);
    server.get(&format!("{PODS}/over")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_pod_with_finalizers_and_no_grace_left_waits_for_them() {
    let server = Server::start().await;
    let mut held = pod("p", Some("n1"));
    held["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(PODS, held).await.expect(201);
    let path = format!("{PODS}/p");
    server.delete(&path).await.expect(200);
    let shortened = server.delete_with(&path, json!({"gracePeriodSeconds": 0})).await.expect(200);
    assert_eq!(shortened["metadata"]["deletionGracePeriodSeconds"], 0);
    server.patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.get(&path).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_the_answer_lists_it() {
    let server = Server::start().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"app": app});
        server.post(MAPS, map).await.expect(201);
    }
    server
        .patch(&format!("{MAPS}/b"), MERGE_PATCH, json!({"metadata": {"finalizers": ["x.io/f"]}}))
        .await
        .expect(200);
    let list = server.delete(&format!("{MAPS}?labelSelector=app%3Dx")).await.expect(200);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(names(&list), ["a", "b"]);
    server.get(&format!("{MAPS}/a")).await.fails(404, "NotFound");
    assert!(server.get(&format!("{MAPS}/b")).await.expect(200)["metadata"]["deletionTimestamp"].is_string());
    server.get(&format!("{MAPS}/c")).await.expect(200);
}

#[tokio::test]
async fn a_collection_that_spans_all_namespaces_is_not_deleted_at_one_stroke() {
    let server = Server::start().await;
    crate::custom::foo_definition(&server).await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    for path in ["/api/v1/configmaps", "/api/v1/pods", "/apis/x.io/v1/foos"] {
        server.delete(path).await.fails(405, "MethodNotAllowed");
    }
    server.get(&format!("{MAPS}/a")).await.expect(200);
    server.delete(MAPS).await.expect(200);
    server.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=no=one").await.expect(200);
}

#[tokio::test]
async fn options_that_cannot_be_read_delete_nothing() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let path = format!("{MAPS}/a");
    for options in [
        json!({"dryRun": "All"}),
        json!({"gracePeriodSeconds": "0"}),
        json!({"preconditions": {"uid": 1}}),
        json!({"preconditions": "u"}),
    ] {
        server.delete_with(&path, options).await.fails(400, "BadRequest");
    }
    server.delete(&format!("{path}?dryRun=")).await.fails(422, "Invalid");
    server.get(&path).await.expect(200);
    server.delete_with(&path, json!({"unknown": 1})).await.expect(200);
}
