//! Admission by webhooks and by hooks in the process.

use std::sync::Arc;

use parking_lot::Mutex;
use remuda_apiserver::{AdmissionRequest, ApiError, Hook, Operation};
use serde_json::{Value, json};

use crate::{
    harness::*,
    hooks::{Webhook, patch},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
pub(crate) const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// One webhook for ConfigMaps; `more` overrides its fields.
pub(crate) fn hook(name: &str, client: Value, more: Value) -> Value {
    let mut hook = json!({
        "name": name, "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
    });
    for (key, value) in more.as_object().unwrap() {
        hook[key] = value.clone();
    }
    hook
}

pub(crate) async fn install(server: &Server, path: &str, name: &str, hooks: &[Value]) {
    let kind =
        if path == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": hooks});
    server.post(path, body).await.expect(201);
}

#[tokio::test]
async fn a_validating_webhook_is_told_everything_and_may_refuse() {
    let server = Server::start().await;
    let webhook = Webhook::start(|request| match request["object"]["data"]["say"].as_str() {
        Some("no") => json!({"allowed": false, "status": {"message": "not like this"}}),
        Some("invalid") => {
            json!({"allowed": false, "status": {"code": 422, "reason": "Invalid", "message": "bad"}})
        }
        Some("teapot") => json!({"allowed": false, "status": {"code": 418}}),
        _ => json!({"allowed": true, "warnings": ["beware"]}),
    })
    .await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), json!({}))]).await;
    let made = server.post(&format!("{MAPS}?fieldManager=me"), config_map("a", json!({"k": "v"}))).await;
    assert_eq!(made.warnings(), ["299 - \"beware\""]);
    made.expect(201);
    let asked = webhook.asked();
    assert_eq!(asked.len(), 1);
    let request = &asked[0];
    assert_eq!(request["url"], "/review?timeout=10s");
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!(request["requestKind"], request["kind"]);
    assert_eq!(request["requestResource"], request["resource"]);
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("default")));
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["object"]["data"], json!({"k": "v"}));
    assert!(request["object"]["metadata"]["uid"].is_string());
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(
        request["options"],
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"})
    );

    let path = format!("{MAPS}/a");
    let refuse = |say: &str| json!({"data": {"say": say}});
    // Neither a code nor a reason: that of a bad request, and none.
    let answer = server.patch(&path, MERGE_PATCH, refuse("no")).await;
    assert_eq!((answer.code, &answer.body["reason"]), (400, &Value::Null), "{answer:?}");
    assert_eq!(answer.body["message"], "admission webhook \"v.test.io\" denied the request: not like this");
    let request = webhook.asked().remove(0);
    assert_eq!(request["operation"], "UPDATE");
    assert_eq!(request["oldObject"]["data"], json!({"k": "v"}));
    assert_eq!(request["options"]["kind"], "PatchOptions");
    let message = server.patch(&path, MERGE_PATCH, refuse("invalid")).await.fails(422, "Invalid");
    assert_eq!(message, "admission webhook \"v.test.io\" denied the request: bad");
    let answer = server.patch(&path, MERGE_PATCH, refuse("teapot")).await;
    assert_eq!(answer.code, 418);
    assert_eq!(
        answer.body["message"],
        "admission webhook \"v.test.io\" denied the request without explanation"
    );
    webhook.asked();
    server.delete_with(&path, json!({"propagationPolicy": "Foreground"})).await.expect(200);
    let request = webhook.asked().remove(0);
    assert_eq!((&request["operation"], &request["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(request["oldObject"]["metadata"]["name"], "a");
    assert_eq!(request["options"]["propagationPolicy"], "Foreground");
}

#[tokio::test]
async fn a_delete_can_be_refused_by_both_sorts_and_so_can_a_collection() {
    let server = Server::start().await;
    let webhook = Webhook::start(|request| json!({"allowed": request["operation"] != "DELETE"})).await;
    let rules = json!({"rules": [{"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["DELETE"]}]});
    install(&server, MUTATING, "m", &[hook("m.test.io", webhook.client_config(), rules)]).await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    server.delete(&format!("{MAPS}/a")).await.expect(400);
    server.delete(MAPS).await.expect(400);
    server.get(&format!("{MAPS}/a")).await.expect(200);
}

#[tokio::test]
async fn selectors_rules_and_conditions_say_what_a_webhook_hears() {
    let server = Server::start().await;
    server.namespace("other").await;
    let webhook = Webhook::allowing().await;
    let conditions = json!({"matchConditions": [{"name": "not-quiet", "expression": "!has(object.data) || !('quiet' in object.data)"}]});
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), conditions)]).await;
    let mut free = config_map("free", json!({}));
    free["metadata"]["labels"] = json!({"free": "yes"});
    server.post(MAPS, free).await.expect(201);
    server.post("/api/v1/namespaces/other/configmaps", config_map("a", json!({}))).await.expect(201);
    server.post(MAPS, config_map("quiet", json!({"quiet": "yes"}))).await.expect(201);
    server
        .post(
            "/api/v1/namespaces/default/secrets",
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        )
        .await
        .expect(201);
    assert_eq!(webhook.asked(), Vec::<Value>::new());
    server.post(MAPS, config_map("loud", json!({}))).await.expect(201);
    assert_eq!(webhook.asked().len(), 1);
    // Losing the label that freed it is told: the old object counts too, as does the new one.
    server
        .patch(&format!("{MAPS}/free"), MERGE_PATCH, json!({"metadata": {"labels": null}}))
        .await
        .expect(200);
    assert_eq!(webhook.asked().len(), 1);
}

#[tokio::test]
async fn scope_subresources_and_namespaces_match_as_written() {
    let server = Server::start().await;
    let webhook = Webhook::allowing().await;
    let rule = |resources: &[&str], scope: &str| {
        json!({"rules": [{"apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": resources, "operations": ["*"], "scope": scope}],
        "namespaceSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]}})
    };
    install(
        &server,
        VALIDATING,
        "cluster",
        &[hook("c.test.io", webhook.client_config(), rule(&["*"], "Cluster"))],
    )
    .await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    assert_eq!(webhook.asked().len(), 0);
    server.namespace("loud").await;
    let request = webhook.asked().remove(0);
    assert_eq!((&request["namespace"], &request["name"]), (&json!("loud"), &json!("loud")));
    server.post("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q", "labels": {"skip": "me"}}})).await.expect(201);
    assert_eq!(webhook.asked().len(), 0);
    server.delete(&format!("{VALIDATING}/cluster")).await.expect(200);

    install(
        &server,
        VALIDATING,
        "subs",
        &[hook(
            "s.test.io",
            webhook.client_config(),
            rule(&["pods/status", "deployments/scale", "pods/eviction"], "*"),
        )],
    )
    .await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.post(pods, pod).await.expect(201);
    assert_eq!(webhook.asked().len(), 0);
    server
        .patch(&format!("{pods}/p/status"), MERGE_PATCH, json!({"status": {"phase": "Failed"}}))
        .await
        .expect(200);
    let request = webhook.asked().remove(0);
    assert_eq!((&request["subResource"], &request["object"]["kind"]), (&json!("status"), &json!("Pod")));
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    server.post(deployments, deployment).await.expect(201);
    server
        .patch(&format!("{deployments}/d/scale"), MERGE_PATCH, json!({"spec": {"replicas": 3}}))
        .await
        .expect(200);
    let request = webhook.asked().remove(0);
    assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!(request["object"]["spec"]["replicas"], 3);
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}});
    server.post(&format!("{pods}/p/eviction"), eviction).await.expect(201);
    let request = webhook.asked().remove(0);
    assert_eq!(request["kind"], json!({"group": "policy", "version": "v1", "kind": "Eviction"}));
    assert_eq!((&request["operation"], &request["subResource"]), (&json!("CREATE"), &json!("eviction")));
}

#[tokio::test]
async fn mutating_webhooks_change_the_object_in_order_and_see_each_others_work() {
    let server = Server::start().await;
    let first = Webhook::start(|request| {
        let seen = request["object"]["data"].as_object().map_or(0, serde_json::Map::len);
        patch(json!([{"op": "add", "path": "/data/first", "value": format!("saw {seen}")}]))
    })
    .await;
    let second =
        Webhook::start(|_| patch(json!([{"op": "add", "path": "/data/second", "value": "yes"}]))).await;
    // By name of the configuration, whatever came first.
    install(&server, MUTATING, "b", &[hook("two.test.io", second.client_config(), json!({}))]).await;
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    install(&server, MUTATING, "a", &[hook("one.test.io", first.client_config(), again)]).await;
    let made = server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    assert_eq!(made["data"], json!({"k": "v", "first": "saw 3", "second": "yes"}));
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
    // Who changes nothing is not run again, and what is patched belongs to the writer.
    let managers = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(managers.len(), 1);
}

#[tokio::test]
async fn defaults_are_in_place_after_every_patch() {
    let server = Server::start().await;
    let adder = Webhook::start(|_| {
        patch(json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "s"}}]))
    })
    .await;
    let watcher = Webhook::allowing().await;
    let pods = json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]});
    install(
        &server,
        MUTATING,
        "m",
        &[
            hook("add.test.io", adder.client_config(), pods.clone()),
            hook("see.test.io", watcher.client_config(), pods),
        ],
    )
    .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = server.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    assert_eq!(made["spec"]["containers"][1]["terminationMessagePath"], "/dev/termination-log");
    let request = watcher.asked().remove(0);
    assert_eq!(request["object"]["spec"]["containers"][1]["terminationMessagePath"], "/dev/termination-log");
    // The name is not made yet.
    assert_eq!(request["name"], Value::Null);
    assert_eq!(request["object"]["metadata"]["generateName"], "p-");
}

#[tokio::test]
async fn a_webhook_that_cannot_be_asked_fails_or_is_ignored_as_it_says() {
    let server = Server::start().await;
    let gone = Webhook::allowing().await;
    let client = gone.client_config();
    drop(gone);
    tokio::task::yield_now().await;
    install(
        &server,
        VALIDATING,
        "v",
        &[hook("v.test.io", client.clone(), json!({"failurePolicy": "Ignore"}))],
    )
    .await;
    server.post(MAPS, config_map("ignored", json!({}))).await.expect(201);
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    install(&server, VALIDATING, "v", &[hook("v.test.io", client, json!({}))]).await;
    let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    assert!(
        message.starts_with("Internal error occurred: failed calling webhook \"v.test.io\": failed to call webhook: Post \"https://127.0.0.1:"),
        "{message}"
    );
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    // Answers that cannot be trusted count as none.
    let odd = Webhook::start(|_| json!({"allowed": true, "uid": "another"})).await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", odd.client_config(), json!({}))]).await;
    server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    // Another certificate than the one trusted.
    let mut foreign = odd.client_config();
    foreign["caBundle"] = Webhook::allowing().await.client_config()["caBundle"].clone();
    install(&server, VALIDATING, "v", &[hook("v.test.io", foreign, json!({}))]).await;
    server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
}

#[tokio::test]
async fn a_placeholder_for_a_certificate_can_be_installed_but_trusts_nobody() {
    let server = Server::start().await;
    let webhook = Webhook::allowing().await;
    let mut client = webhook.client_config();
    // What manifests hold until an injector has been there.
    client["caBundle"] = "Cg==".into();
    install(&server, VALIDATING, "v", &[hook("v.test.io", client, json!({}))]).await;
    let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    assert!(message.contains("unable to load root certificates"), "{message}");
    let injected = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle",
        "value": webhook.client_config()["caBundle"]}]);
    server.patch(&format!("{VALIDATING}/v"), JSON_PATCH, injected).await.expect(200);
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
}

#[tokio::test]
async fn a_slow_webhook_is_given_up_on() {
    let server = Server::start().await;
    let slow = Webhook::start(|_| json!({"slow": true})).await;
    install(
        &server,
        VALIDATING,
        "v",
        &[hook("v.test.io", slow.client_config(), json!({"timeoutSeconds": 1}))],
    )
    .await;
    let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    assert!(message.contains("context deadline exceeded"), "{message}");
}

#[tokio::test]
async fn a_dry_run_asks_only_those_without_side_effects() {
    let server = Server::start().await;
    let webhook = Webhook::allowing().await;
    let mut careful = hook("v.test.io", webhook.client_config(), json!({"sideEffects": "NoneOnDryRun"}));
    install(&server, VALIDATING, "v", &[careful.clone()]).await;
    server.post(&format!("{MAPS}?dryRun=All"), config_map("a", json!({}))).await.expect(201);
    assert_eq!(webhook.asked()[0]["dryRun"], true);
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    // v1 configurations cannot say this any more, older stored ones do.
    careful["sideEffects"] = "Some".into();
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [careful]});
    let key = "/admissionregistration.k8s.io/validatingwebhookconfigurations/w".to_owned();
    let value = remuda_store::Template { bytes: body.to_string().into(), slot: None };
    server.store.write(remuda_store::Write::Create { key, value }).await.unwrap();
    server.until(VALIDATING, |answer| answer.text().contains("\"w\"")).await;
    let started = std::time::Instant::now();
    loop {
        let answer = server.post(&format!("{MAPS}?dryRun=All"), config_map("a", json!({}))).await;
        if answer.code == 400 {
            let message = answer.fails(400, "BadRequest");
            assert_eq!(message, "admission webhook \"v.test.io\" does not support dry run");
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{answer:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_found_by_its_endpoints() {
    let server = Server::start().await;
    let webhook = Webhook::allowing().await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.service_config(), json!({}))]).await;
    let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    assert!(message.contains("service \"hook\" not found"), "{message}");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "https", "port": 443, "targetPort": 8443}]}});
    server.post("/api/v1/namespaces/default/services", service).await.expect(201);
    let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
    assert!(message.contains("no endpoints available for service \"hook\""), "{message}");
    // Loopback addresses are refused in slices; this test has no other.
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "hook-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "hook"}},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": webhook.port, "protocol": "TCP"}]});
    let key = "/discovery.k8s.io/endpointslices/default/hook-1".to_owned();
    let value = remuda_store::Template { bytes: slice.to_string().into(), slot: None };
    server.store.write(remuda_store::Write::Create { key, value }).await.unwrap();
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    assert_eq!(webhook.asked()[0]["url"], "/review?timeout=10s");
}

#[tokio::test]
async fn an_equivalent_version_is_shown_in_the_version_the_rules_list() {
    let server = Server::with(|config| {
        let convert: remuda_apiserver::NativeConversion = Arc::new(|object: &mut Value, version: &str| {
            let (from, to) = if version == "v1" { ("size", "length") } else { ("length", "size") };
            let spec = object["spec"].as_object_mut().unwrap();
            if let Some(value) = spec.remove(from) {
                spec.insert(to.to_owned(), value);
            }
            Ok(())
        });
        config.conversions.insert("things.test.io".to_owned(), convert);
    })
    .await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v1beta1", false)]}});
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await.expect(201);
    let rules = |policy: &str| json!({"matchPolicy": policy, "rules": [{"apiGroups": ["test.io"], "apiVersions": ["v1"], "resources": ["things"], "operations": ["*"]}]});
    let webhook = Webhook::start(|request| {
        let length = request["object"]["spec"]["length"].as_i64().unwrap();
        patch(json!([{"op": "replace", "path": "/spec/length", "value": length + 1}]))
    })
    .await;
    let exact = Webhook::allowing().await;
    install(&server, MUTATING, "m", &[hook("m.test.io", webhook.client_config(), rules("Equivalent"))]).await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", exact.client_config(), rules("Exact"))]).await;
    let thing = json!({"apiVersion": "test.io/v1beta1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"size": 4}});
    let made = server.post("/apis/test.io/v1beta1/namespaces/default/things", thing).await.expect(201);
    assert_eq!(made["spec"], json!({"size": 5}));
    let request = webhook.asked().remove(0);
    assert_eq!(request["kind"]["version"], "v1");
    assert_eq!(request["resource"]["version"], "v1");
    assert_eq!(request["requestKind"]["version"], "v1beta1");
    assert_eq!(request["object"]["apiVersion"], "test.io/v1");
    assert_eq!(exact.asked().len(), 0);
}

#[tokio::test]
async fn webhook_configurations_are_never_sent_to_webhooks_and_are_checked_when_written() {
    let server = Server::start().await;
    let webhook = Webhook::start(|_| json!({"allowed": false})).await;
    let all = json!({"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}], "namespaceSelector": {}});
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), all)]).await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(400);
    server
        .patch(&format!("{VALIDATING}/v"), MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    let broken = hook(
        "v.test.io",
        webhook.client_config(),
        json!({"matchConditions": [{"name": "c", "expression": "object.("}]}),
    );
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "v"}, "webhooks": [broken]});
    let message = server.post(VALIDATING, body).await.fails(422, "Invalid");
    assert!(message.contains("webhooks[0].matchConditions[0].expression: Invalid value"), "{message}");
    assert!(message.contains("compilation failed"), "{message}");
}

#[tokio::test]
async fn the_servers_own_bookkeeping_does_not_wait_for_webhooks_on_the_objects_themselves() {
    let server = Server::start().await;
    server.namespace("n").await;
    let gone = Webhook::allowing().await;
    let client = gone.client_config();
    drop(gone);
    let rules = json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"], "operations": ["UPDATE"]}], "namespaceSelector": {}});
    install(&server, VALIDATING, "v", &[hook("v.test.io", client, rules)]).await;
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.until("/api/v1/namespaces/n", |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_namespace_whose_content_may_not_be_deleted_says_so_and_deletes_the_rest() {
    let server = Server::start().await;
    server.namespace("n").await;
    let secrets = "/api/v1/namespaces/n/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    server.post(secrets, secret).await.expect(201);
    server.post("/api/v1/namespaces/n/configmaps", config_map("a", json!({}))).await.expect(201);
    let webhook = Webhook::start(|_| json!({"allowed": false, "status": {"message": "mine"}})).await;
    let rules = json!({"namespaceSelector": {}, "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["DELETE"]}]});
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), rules)]).await;
    server.delete("/api/v1/namespaces/n").await.expect(200);
    server.until(&format!("{secrets}/s"), |answer| answer.code == 404).await;
    let failed = |answer: &Answer| {
        let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|known| {
            known["type"] == "NamespaceDeletionContentFailure"
                && known["status"] == "True"
                && known["reason"] == "ContentDeletionFailed"
                && known["message"].as_str().unwrap().contains("denied the request: mine")
        })
    };
    server.until("/api/v1/namespaces/n", failed).await;
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    server.until("/api/v1/namespaces/n", |answer| answer.code == 404).await;
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

impl Hook for Recorder {
    fn mutate(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<(), ApiError> {
        if request.resource != "configmaps" {
            return Ok(());
        }
        self.0.lock().push(format!("mutate {:?} {}", request.operation, request.name));
        object["data"]["hooked"] = "yes".into();
        Ok(())
    }

    fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
    ) -> Result<Vec<String>, ApiError> {
        if request.resource != "configmaps" || request.user.name != "admin" {
            return Ok(Vec::new());
        }
        self.0.lock().push(format!("validate {:?} {}", request.operation, request.name));
        if request.operation == Operation::Delete {
            assert!(object.is_none() && request.old.is_some());
        }
        match object.and_then(|object| object["data"]["refuse"].as_str()) {
            Some(why) => Err(ApiError::new(422, "Invalid", why)),
            None => Ok(vec!["seen".to_owned()]),
        }
    }
}

#[tokio::test]
async fn hooks_in_the_process_change_first_and_judge_the_result() {
    let recorder = Arc::new(Recorder::default());
    let server = Server::with(|config| config.hooks.push(recorder.clone())).await;
    let webhook =
        Webhook::start(|request| json!({"allowed": request["object"]["data"]["hooked"] == "yes"})).await;
    let create = json!({"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]});
    install(&server, MUTATING, "m", &[hook("m.test.io", webhook.client_config(), create)]).await;
    recorder.0.lock().clear();
    let made = server.post(MAPS, config_map("a", json!({"k": "v"}))).await;
    assert_eq!(made.warnings(), ["299 - \"seen\""]);
    assert_eq!(made.expect(201)["data"]["hooked"], "yes");
    let message =
        server.patch(&format!("{MAPS}/a"), MERGE_PATCH, json!({"data": {"refuse": "because"}})).await;
    assert_eq!(message.fails(422, "Invalid"), "because");
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    let heard: Vec<String> = recorder.0.lock().iter().filter(|line| line.ends_with(" a")).cloned().collect();
    assert_eq!(
        heard,
        ["mutate Create a", "validate Create a", "mutate Update a", "validate Update a", "validate Delete a"]
    );
}
