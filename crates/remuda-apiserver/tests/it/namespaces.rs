//! Namespaces: what they begin with, how they end, and what lives in them meanwhile.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::*;

const ALL: &str = "/api/v1/namespaces";

fn condition<'a>(namespace: &'a Value, kind: &str) -> &'a Value {
    let conditions = namespace["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().find(|known| known["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn a_namespace_begins_active_with_its_finalizer_and_label() {
    let server = Server::start().await;
    let body =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}});
    let made = server.post(ALL, body).await.expect(201);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"], json!({"phase": "Active"}));
    assert_eq!(made["metadata"]["labels"], json!({"a": "b", "kubernetes.io/metadata.name": "n"}));
    let kept = server
        .patch(
            &format!("{ALL}/n"),
            MERGE_PATCH,
            json!({"metadata": {"labels": null}, "spec": {"finalizers": []}}),
        )
        .await
        .expect(200);
    assert_eq!(kept["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    let list = server.get(ALL).await.expect(200);
    assert_eq!(names(&list), ["default", "kube-node-lease", "kube-public", "kube-system", "n"]);
}

#[tokio::test]
async fn some_namespaces_may_not_be_deleted() {
    let server = Server::start().await;
    for name in ["default", "kube-system", "kube-public"] {
        let message = server.delete(&format!("{ALL}/{name}")).await.fails(403, "Forbidden");
        assert_eq!(message, format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"));
    }
}

#[tokio::test]
async fn nothing_can_be_created_in_a_namespace_that_is_not_there() {
    let server = Server::start().await;
    let message = server
        .post(&format!("{ALL}/nons/configmaps"), config_map("q", json!({})))
        .await
        .fails(404, "NotFound");
    assert_eq!(message, "namespaces \"nons\" not found");
}

#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let server = Server::start().await;
    server.namespace("n").await;
    server.until(&format!("{ALL}/n/serviceaccounts/default"), |answer| answer.code == 200).await;
    for index in 0..50 {
        server
            .post(&format!("{ALL}/n/configmaps"), config_map(&format!("m{index}"), json!({})))
            .await
            .expect(201);
    }
    let from = server.get(ALL).await.version().to_owned();
    let mut watch = server.watch(&format!("{ALL}?resourceVersion={from}")).await;
    let going = server.delete(&format!("{ALL}/n")).await.expect(200);
    assert_eq!(going["kind"], "Namespace");
    assert_eq!(going["status"]["phase"], "Terminating");
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], Value::Null);
    server.until(&format!("{ALL}/n"), |answer| answer.code == 404).await;
    loop {
        let event = watch.next().await.unwrap();
        if event["type"] == "DELETED" {
            assert_eq!(event["object"]["spec"]["finalizers"], Value::Null, "{event}");
            break;
        }
    }
    assert!(
        names(&server.get("/api/v1/configmaps").await.expect(200)).iter().all(|name| !name.starts_with('m'))
    );
    let left = server.get(&format!("{ALL}/n/serviceaccounts")).await.expect(200);
    assert_eq!(names(&left), Vec::<&str>::new());
}

#[tokio::test]
async fn a_namespace_says_what_holds_it() {
    let server = Server::start().await;
    server.namespace("nsd").await;
    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(&format!("{ALL}/nsd/configmaps"), held).await.expect(201);
    server.delete(&format!("{ALL}/nsd")).await.expect(200);
    let stuck = server
        .until(&format!("{ALL}/nsd"), |answer| {
            condition(&answer.body, "NamespaceFinalizersRemaining")["status"] == "True"
        })
        .await
        .body;
    let finalizers = condition(&stuck, "NamespaceFinalizersRemaining");
    assert_eq!(finalizers["reason"], "SomeFinalizersRemain");
    assert_eq!(
        finalizers["message"],
        "Some content in the namespace has finalizers remaining: x.io/f in 1 resource instances"
    );
    let content = condition(&stuck, "NamespaceContentRemaining");
    assert_eq!((&content["status"], &content["reason"]), (&json!("True"), &json!("SomeResourcesRemain")));
    assert_eq!(content["message"], "Some resources are remaining: configmaps. has 1 resource instances");
    for (kind, reason) in [
        ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered"),
        ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions"),
        ("NamespaceDeletionContentFailure", "ContentDeleted"),
    ] {
        let known = condition(&stuck, kind);
        assert_eq!((&known["status"], &known["reason"]), (&json!("False"), &json!(reason)));
    }
    // While it goes, nothing new comes; what is there may still change.
    let answer = server.post(&format!("{ALL}/nsd/configmaps"), config_map("q", json!({}))).await;
    assert_eq!(
        answer.fails(403, "Forbidden"),
        "configmaps \"q\" is forbidden: unable to create new content in namespace nsd because it is being terminated"
    );
    assert_eq!(
        answer.body["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": "namespace nsd is being terminated", "field": "metadata.namespace"}])
    );
    let path = format!("{ALL}/nsd/configmaps/held");
    server.patch(&path, MERGE_PATCH, json!({"data": {"k": "v"}})).await.expect(200);
    // Waiting costs nothing.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = server.store.observed();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.store.observed(), before);
    server.patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.until(&format!("{ALL}/nsd"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_namespace_with_a_finalizer_of_its_own_stays_until_that_goes() {
    let server = Server::start().await;
    let body =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "finalizers": ["x.io/f"]}});
    server.post(ALL, body).await.expect(201);
    server.delete(&format!("{ALL}/n")).await.expect(200);
    let empty = server.until(&format!("{ALL}/n"), |answer| answer.body["spec"]["finalizers"].is_null()).await;
    assert_eq!(empty.body["status"]["phase"], "Terminating");
    server
        .patch(&format!("{ALL}/n"), MERGE_PATCH, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    server.get(&format!("{ALL}/n")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn finalize_takes_only_the_finalizers() {
    let server = Server::with(|config| config.controllers = remuda_apiserver::Controllers::Never).await;
    server.namespace("n").await;
    let mut namespace = server.get(&format!("{ALL}/n")).await.expect(200);
    namespace["spec"]["finalizers"] = json!(["kubernetes", "x.io/f"]);
    namespace["metadata"]["labels"]["ignored"] = "yes".into();
    let put = server.put(&format!("{ALL}/n/finalize"), namespace).await.expect(200);
    assert_eq!(put["spec"]["finalizers"], json!(["kubernetes", "x.io/f"]));
    assert_eq!(put["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "n"}));
    server.delete(&format!("{ALL}/n")).await.expect(200);
    let mut namespace = server.get(&format!("{ALL}/n")).await.expect(200);
    let version = namespace["metadata"]["resourceVersion"].clone();
    namespace["spec"]["finalizers"] = json!([]);
    let last = server.put(&format!("{ALL}/n/finalize"), namespace).await.expect(200);
    assert_eq!(last["metadata"]["resourceVersion"], version);
    server.get(&format!("{ALL}/n")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn every_namespace_has_a_default_account_and_the_root_certificate_again_and_again() {
    let server = Server::start().await;
    server.namespace("n").await;
    let account = format!("{ALL}/n/serviceaccounts/default");
    let root = format!("{ALL}/n/configmaps/kube-root-ca.crt");
    let first = server.until(&account, |answer| answer.code == 200).await;
    let published = server.until(&root, |answer| answer.code == 200).await;
    let certificate = published.body["data"]["ca.crt"].clone();
    assert!(certificate.as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    server.delete(&account).await.expect(200);
    let uid = first.body["metadata"]["uid"].clone();
    server.until(&account, |answer| answer.code == 200 && answer.body["metadata"]["uid"] != uid).await;
    server.delete(&root).await.expect(200);
    server.until(&root, |answer| answer.code == 200).await;
    server.patch(&root, MERGE_PATCH, json!({"data": {"ca.crt": "mine"}})).await.expect(200);
    server.until(&root, |answer| answer.body["data"]["ca.crt"] == certificate).await;
}

#[tokio::test]
async fn a_definition_and_a_namespace_can_go_at_the_same_time() {
    let server = Server::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    server.post(crds, crd).await.expect(201);
    server.namespace("n").await;
    let things = "/apis/test.io/v1/namespaces/n/things";
    for index in 0..20 {
        let finalizers = if index == 0 { json!(["x.io/f"]) } else { json!([]) };
        let thing = json!({"apiVersion": "test.io/v1", "kind": "Thing",
            "metadata": {"name": format!("t{index}"), "finalizers": finalizers}});
        server.post(things, thing).await.expect(201);
    }
    server.delete(&format!("{crds}/things.test.io")).await.expect(200);
    server.delete(&format!("{ALL}/n")).await.expect(200);
    let held = server
        .until(things, |answer| answer.body["items"].as_array().is_some_and(|items| items.len() == 1))
        .await;
    assert_eq!(names(&held.body), ["t0"]);
    server.get(&format!("{crds}/things.test.io")).await.expect(200);
    server
        .patch(&format!("{things}/t0"), MERGE_PATCH, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    server.until(&format!("{crds}/things.test.io"), |answer| answer.code == 404).await;
    server.until(&format!("{ALL}/n"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn objects_that_slipped_into_a_namespace_as_it_went_do_not_outlive_it() {
    let server = Server::start().await;
    // What a create that was checked just before the end leaves behind.
    let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "late", "namespace": "gone", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let value = remuda_store::Template { bytes: orphan.to_string().into(), slot: None };
    let write = remuda_store::Write::Create { key: "/core/configmaps/gone/late".to_owned(), value };
    server.store.write(write).await.unwrap();
    server.until(&format!("{ALL}/gone/configmaps/late"), |answer| answer.code == 404).await;
}

#[tokio::test]
async fn who_holds_a_namespace_has_a_qualified_name_and_its_phase_follows_its_deletion() {
    let server = Server::start().await;
    let held = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["plain"]}});
    let unqualified = "name is neither a standard finalizer name nor is it fully qualified";
    assert_eq!(
        server.post("/api/v1/namespaces", held.clone()).await.fails(422, "Invalid"),
        format!("Namespace \"n\" is invalid: spec.finalizers: Invalid value: \"plain\": {unqualified}")
    );
    server.namespace("n").await;
    assert_eq!(
        server.put("/api/v1/namespaces/n/finalize", held).await.fails(422, "Invalid"),
        format!("Namespace \"n\" is invalid: spec.finalizers[0]: Invalid value: \"plain\": {unqualified}")
    );
    let ended = json!({"status": {"phase": "Terminating"}});
    assert_eq!(
        server.patch("/api/v1/namespaces/n/status", MERGE_PATCH, ended).await.fails(422, "Invalid"),
        "Namespace \"n\" is invalid: status.Phase: Invalid value: \"Terminating\": may only be 'Active' if \
         `deletionTimestamp` is empty"
    );
}
