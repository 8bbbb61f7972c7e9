//! Server-side apply: who owns what, and who may change it.

use remuda_auth::identity::{GROUP_CONTROLLERS, GROUP_MASTERS, User};
use serde_json::{Value, json};

use crate::{
    custom::{FOOS, foo, foo_definition},
    harness::{JSON_PATCH, MERGE_PATCH, Server},
};

/// The managers of an object without their times, as `manager operation [subresource] fields`.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |entry: &Value| {
        assert_eq!(entry["fieldsType"], "FieldsV1");
        let time = entry["time"].as_str().unwrap();
        assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
        let (manager, operation) = (entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
        let subresource = entry["subresource"].as_str().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{manager} {operation}{subresource} {}", entry["fieldsV1"])
    };
    entries.iter().map(text).collect()
}

fn with_spec(name: &str, spec: Value) -> Value {
    let mut object = foo(name);
    object["spec"] = spec;
    object
}

async fn start() -> Server {
    let server = Server::start().await;
    foo_definition(&server).await;
    server
}

const A: &str = "/apis/x.io/v1/namespaces/default/foos/a";

#[tokio::test]
async fn applying_creates_and_owns_what_was_stated_but_no_defaults() {
    let server = start().await;
    let applied = with_spec("a", json!({"color": "red", "ports": [{"name": "p", "port": 1}], "set": ["x"]}));
    let created = server.apply(A, "m1", applied.clone()).await.expect(201);
    assert_eq!(created["spec"]["replicas"], 1);
    assert_eq!(
        managers(&created),
        [
            r#"m1 Apply {"f:spec":{"f:color":{},"f:ports":{"k:{\"name\":\"p\"}":{".":{},"f:name":{},"f:port":{}}},"f:set":{"v:\"x\"":{}}}}"#
        ]
    );
    let again = server.apply(A, "m1", applied).await.expect(200);
    assert_eq!(again, created);
}

#[tokio::test]
async fn posting_owns_defaults_too() {
    let server = start().await;
    let path = format!("{FOOS}?fieldManager=upd");
    let created = server.post(&path, with_spec("a", json!({"color": "red"}))).await.expect(201);
    assert_eq!(managers(&created), [r#"upd Update {"f:spec":{".":{},"f:color":{},"f:replicas":{}}}"#]);
    assert_eq!(created["metadata"]["managedFields"][0]["apiVersion"], "x.io/v1");
}

#[tokio::test]
async fn two_appliers_and_an_updater_share_conflict_and_force() {
    let server = start().await;
    server
        .apply(A, "m1", with_spec("a", json!({"color": "red", "ports": [{"name": "a", "port": 1}]})))
        .await
        .expect(201);
    // The same value is shared.
    let shared = server.apply(A, "m2", with_spec("a", json!({"color": "red"}))).await.expect(200);
    assert_eq!(
        managers(&shared),
        [
            r#"m1 Apply {"f:spec":{"f:color":{},"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:port":{}}}}}"#,
            r#"m2 Apply {"f:spec":{"f:color":{}}}"#,
        ]
    );
    // Another value conflicts with everybody who has it.
    let wanted = with_spec("a", json!({"color": "blue", "ports": [{"name": "a", "port": 2}]}));
    let answer = server.apply(A, "m3", wanted.clone()).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .spec.color\n- .spec.ports[name=\"a\"].port\nconflicts with \"m2\":\n- .spec.color"
    );
    assert_eq!(
        answer.body["details"],
        json!({"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".spec.color"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".spec.ports[name=\"a\"].port"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"m2\"", "field": ".spec.color"},
        ]})
    );
    let forced = server.apply(&format!("{A}?force=true"), "m3", wanted).await.expect(200);
    assert_eq!(forced["spec"], json!({"color": "blue", "replicas": 1, "ports": [{"name": "a", "port": 2}]}));
    assert_eq!(
        managers(&forced),
        [
            r#"m1 Apply {"f:spec":{"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}"#,
            r#"m3 Apply {"f:spec":{"f:color":{},"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:port":{}}}}}"#,
        ]
    );
    // An updater takes what it changes, and only that.
    let path = format!("{A}?fieldManager=upd");
    let updated = server.patch(&path, MERGE_PATCH, json!({"spec": {"color": "green"}})).await.expect(200);
    assert_eq!(
        managers(&updated),
        [
            r#"m1 Apply {"f:spec":{"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}}"#,
            r#"m3 Apply {"f:spec":{"f:ports":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:port":{}}}}}"#,
            r#"upd Update {"f:spec":{"f:color":{}}}"#,
        ]
    );
    let answer = server
        .apply(A, "m3", with_spec("a", json!({"color": "blue", "ports": [{"name": "a", "port": 2}]})))
        .await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        r#"Apply failed with 1 conflict: conflict with "upd" using x.io/v1: .spec.color"#
    );
    assert_eq!(answer.body["details"]["causes"][0]["message"], r#"conflict with "upd" using x.io/v1"#);
}

#[tokio::test]
async fn fields_no_longer_applied_go_unless_somebody_else_has_them() {
    let server = start().await;
    let wide = json!({"color": "red", "size": 3, "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}], "set": ["x", "y"], "atomic": [1, 2], "labels": {"k": "v", "l": "w"}});
    server.apply(A, "m1", with_spec("a", wide)).await.expect(201);
    server.apply(A, "m2", with_spec("a", json!({"color": "red", "ports": [{"name": "b", "port": 2}], "set": ["y"], "labels": {"l": "w"}}))).await.expect(200);
    let left = server
        .apply(A, "m1", with_spec("a", json!({"ports": [{"name": "c", "port": 3}], "set": ["z"]})))
        .await
        .expect(200);
    assert_eq!(
        left["spec"],
        json!({
            "color": "red", "replicas": 1, "labels": {"l": "w"}, "set": ["y", "z"],
            "ports": [{"name": "b", "port": 2}, {"name": "c", "port": 3}],
        })
    );
    let gone = server.apply(A, "m2", foo("a")).await.expect(200);
    assert_eq!(gone["spec"], json!({"replicas": 1, "set": ["z"], "ports": [{"name": "c", "port": 3}]}));
    assert_eq!(
        managers(&gone),
        [
            r#"m1 Apply {"f:spec":{"f:ports":{"k:{\"name\":\"c\"}":{".":{},"f:name":{},"f:port":{}}},"f:set":{"v:\"z\"":{}}}}"#
        ]
    );
}

#[tokio::test]
async fn atomic_lists_belong_to_one() {
    let server = start().await;
    server.apply(A, "m1", with_spec("a", json!({"atomic": [1, 2]}))).await.expect(201);
    let answer = server.apply(A, "m2", with_spec("a", json!({"atomic": [1, 2, 3]}))).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        r#"Apply failed with 1 conflict: conflict with "m1": .spec.atomic"#
    );
}

#[tokio::test]
async fn status_is_applied_through_its_own_endpoint() {
    let server = start().await;
    let mut applied = with_spec("a", json!({"color": "red"}));
    applied["status"] = json!({"ready": true});
    let created = server.apply(A, "m1", applied).await.expect(201);
    assert!(created["status"].is_null());
    assert_eq!(managers(&created), [r#"m1 Apply {"f:spec":{"f:color":{}}}"#]);
    let mut status = foo("a");
    status["spec"] = json!({"color": "other"});
    status["status"] = json!({"ready": true, "conditions": [{"type": "Ready", "status": "True"}]});
    let answered = server.apply(&format!("{A}/status"), "ctl", status).await.expect(200);
    assert_eq!(answered["spec"]["color"], "red");
    assert_eq!(answered["metadata"]["generation"], 1);
    let found = managers(&answered);
    assert!(found.contains(&r#"ctl Apply status {"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:type":{}}},"f:ready":{}}}"#.to_owned()), "{found:?}");
    let mut status = foo("a");
    status["status"] = json!({"ready": false});
    let answer = server.apply(&format!("{A}/status"), "other", status).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        r#"Apply failed with 1 conflict: conflict with "ctl" with subresource "status": .status.ready"#
    );
    let answer = server.apply("/apis/x.io/v1/namespaces/default/foos/none/status", "ctl", foo("none")).await;
    answer.fails(404, "NotFound");
}

#[tokio::test]
async fn an_apply_must_say_who_and_what() {
    let server = start().await;
    let answer = server.patch(A, crate::harness::APPLY_PATCH, foo("a")).await;
    assert_eq!(
        answer.fails(422, "Invalid"),
        r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#
    );
    let answer = server.apply(A, "m", json!({"apiVersion": "x.io/v1", "metadata": {"name": "a"}})).await;
    assert!(answer.fails(400, "BadRequest").starts_with("invalid object type: "), "{answer:?}");
    let mut object = foo("a");
    object["metadata"]["managedFields"] = json!([]);
    let answer = server.apply(A, "m", object).await;
    assert_eq!(answer.fails(400, "BadRequest"), "metadata.managedFields must be nil");
    server.apply(A, "m", foo("b")).await.fails(400, "BadRequest");
    let mut object = foo("a");
    object["metadata"]["uid"] = "u".into();
    let message = server.apply(A, "m", object).await.fails(409, "Conflict");
    assert!(
        message
            .ends_with("uid mismatch: the provided object specified uid u, and no existing object was found"),
        "{message}"
    );
    let answer = server.apply(A, "m", with_spec("a", json!({"nope": 1}))).await;
    assert_eq!(
        answer.fails(400, "BadRequest"),
        "failed to create typed patch object (default/a; x.io/v1, Kind=Foo): .spec.nope: field not declared in schema"
    );
    let twice = json!({"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]});
    let answer = server.apply(A, "m", with_spec("a", twice)).await;
    let message = answer.body["message"].as_str().unwrap().to_owned();
    assert!(message.contains("duplicate entries for key [name=\"a\"]"), "{message}");
}

#[tokio::test]
async fn a_version_in_an_apply_is_a_precondition() {
    let server = start().await;
    let created = server.apply(A, "m", foo("a")).await.expect(201);
    let mut object = with_spec("a", json!({"color": "red"}));
    object["metadata"]["resourceVersion"] = "1".into();
    server.apply(A, "m", object.clone()).await.fails(409, "Conflict");
    object["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    server.apply(A, "m", object).await.expect(200);
}

#[tokio::test]
async fn a_dry_apply_answers_as_if_and_stores_nothing() {
    let server = start().await;
    let dry = format!("{A}?dryRun=All");
    let answered = server.apply(&dry, "m", with_spec("a", json!({"color": "red"}))).await.expect(201);
    assert_eq!(answered["spec"]["replicas"], 1);
    server.get(A).await.fails(404, "NotFound");
    let created = server.apply(A, "m", with_spec("a", json!({"color": "red"}))).await.expect(201);
    let answered = server.apply(&dry, "m", with_spec("a", json!({"color": "blue"}))).await.expect(200);
    assert_eq!(answered["spec"]["color"], "blue");
    assert_eq!(answered["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    assert_eq!(server.get(A).await.expect(200), created);
    server
        .apply(&format!("{A}?dryRun=All"), "n", with_spec("a", json!({"color": "blue"})))
        .await
        .fails(409, "Conflict");
}

#[tokio::test]
async fn an_object_without_managers_gets_one_for_what_is_there() {
    let server = start().await;
    server.post(FOOS, with_spec("a", json!({"color": "red"}))).await.expect(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let reset = server.patch(A, MERGE_PATCH, patch).await.expect(200);
    assert!(reset["metadata"]["managedFields"].is_null(), "{reset}");
    let applied = server.apply(A, "m", with_spec("a", json!({"size": 1}))).await.expect(200);
    assert_eq!(
        managers(&applied),
        [
            r#"m Apply {"f:spec":{"f:size":{}}}"#,
            r#"before-first-apply Update {"f:spec":{".":{},"f:color":{},"f:replicas":{}}}"#,
        ]
    );
}

#[tokio::test]
async fn many_updaters_become_ancient() {
    let server = start().await;
    server
        .post(&format!("{FOOS}?fieldManager=u00"), with_spec("a", json!({"labels": {"k00": "v"}})))
        .await
        .expect(201);
    for index in 1..13 {
        let patch = json!({"spec": {"labels": {format!("k{index:02}"): "v"}}});
        server.patch(&format!("{A}?fieldManager=u{index:02}"), MERGE_PATCH, patch).await.expect(200);
    }
    let object = server.get(A).await.expect(200);
    let found = managers(&object);
    assert_eq!(found.len(), 10, "{found:?}");
    assert!(found.iter().any(|entry| entry.starts_with("ancient-changes Update")), "{found:?}");
}

#[tokio::test]
async fn built_ins_are_owned_in_the_shape_of_their_types() {
    let server = Server::start().await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]}]},
            },
        },
    });
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let created =
        server.post(&format!("{path}?fieldManager=kubectl-create"), deployment.clone()).await.expect(201);
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {
                        "f:containers": {"k:{\"name\":\"a\"}": {
                            ".": {},
                            "f:env": {".": {}, "k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}}},
                            "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                            "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                            "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                        }},
                        "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                        "f:terminationGracePeriodSeconds": {},
                    },
                },
            },
        })
    );
    let mut renamed = deployment.clone();
    renamed["metadata"]["name"] = "app".into();
    let applied = server.apply(&format!("{path}/app"), "m", renamed).await.expect(201);
    assert_eq!(
        applied["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:selector": {},
                "f:template": {
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {
                        ".": {},
                        "f:env": {"k:{\"name\":\"X\"}": {".": {}, "f:name": {}, "f:value": {}}},
                        "f:image": {}, "f:name": {},
                        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                    }}},
                },
            },
        })
    );
}

#[tokio::test]
async fn what_the_server_adds_is_nobodys() {
    let server = Server::start().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]},
    });
    let ask =
        server.ask("POST", "/api/v1/namespaces/default/services").header("user-agent", "helm/4.0 (linux)");
    let created = ask.json(&service).send().await.expect(201);
    assert!(created["spec"]["clusterIP"].is_string());
    assert_eq!(created["metadata"]["managedFields"][0]["manager"], "helm");
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {
            "f:internalTrafficPolicy": {},
            "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}},
            "f:selector": {}, "f:sessionAffinity": {}, "f:type": {},
        }})
    );
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let created = server.post("/api/v1/namespaces", namespace).await.expect(201);
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}})
    );
}

#[tokio::test]
async fn a_list_that_became_atomic_belongs_to_its_owners_as_a_whole() {
    let server = start().await;
    server.apply(A, "m1", with_spec("a", json!({"set": ["x", "y"]}))).await.expect(201);
    let patch = json!([{
        "op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/set/x-kubernetes-list-type",
        "value": "atomic",
    }]);
    server.patch(&format!("{}/foos.x.io", crate::custom::CRDS), JSON_PATCH, patch).await.expect(200);
    let applied = server.apply(A, "m1", with_spec("a", json!({"set": ["x"]}))).await.expect(200);
    assert_eq!(applied["spec"]["set"], json!(["x"]));
    assert_eq!(managers(&applied), [r#"m1 Apply {"f:spec":{"f:set":{}}}"#]);
    let answer = server.apply(A, "m2", with_spec("a", json!({"set": ["z"]}))).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        r#"Apply failed with 1 conflict: conflict with "m1": .spec.set"#
    );
}

#[tokio::test]
async fn service_ports_are_keyed_by_port_and_protocol() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/services/s";
    let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
    server
        .apply(path, "m1", service(json!([{"name": "dns", "port": 53, "protocol": "UDP"}])))
        .await
        .expect(201);
    let both = server.apply(path, "m2", service(json!([{"name": "dns-tcp", "port": 53}]))).await.expect(200);
    let ports = both["spec"]["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 2, "{both}");
    let fields = both["metadata"]["managedFields"].to_string();
    assert!(
        fields.contains(r#"k:{\\\"port\\\":53,\\\"protocol\\\":\\\"TCP\\\"}"#)
            || fields.contains(r#"k:{\"port\":53,\"protocol\":\"TCP\"}"#),
        "{fields}"
    );
    assert_eq!(ports[1]["protocol"], "TCP");
    let left = server
        .apply(path, "m1", json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}))
        .await
        .expect(200);
    let names: Vec<&Value> =
        left["spec"]["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    assert_eq!(names, ["dns-tcp"]);
}

#[tokio::test]
async fn string_data_of_secrets_is_owned_as_such_and_conflicts_with_nobody() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/secrets/s";
    let secret = |field: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, field: {"k": value}});
    let created = server.apply(path, "m", secret("stringData", "v")).await.expect(201);
    assert_eq!((&created["data"], created.get("stringData")), (&json!({"k": "dg=="}), None));
    assert_eq!(managers(&created), [r#"m Apply {"f:stringData":{"f:k":{}}}"#]);
    let again = server.apply(path, "m", secret("stringData", "v")).await.expect(200);
    assert_eq!(again, created);
    // Another one sets the key itself; the next apply of a chart sets it back, without a word.
    let other = server.apply(path, "other", secret("data", "dw==")).await.expect(200);
    assert_eq!(other["data"], json!({"k": "dw=="}));
    let back = server.apply(path, "m", secret("stringData", "v")).await.expect(200);
    assert_eq!(back["data"], json!({"k": "dg=="}));
    // What is applied no more stays: nobody owns it as data.
    let mut none = secret("stringData", "");
    none["stringData"] = json!({"l": "x"});
    let left = server.apply(path, "m", none).await.expect(200);
    assert_eq!(left["data"], json!({"k": "dg==", "l": "eA=="}));
}

#[tokio::test]
async fn metadata_written_through_status_has_an_owner_too() {
    let server = Server::start().await;
    let labels = json!({"x": "1", "y": "1"});
    server.post("/api/v1/nodes", json!({"metadata": {"name": "n", "labels": labels}})).await.expect(201);
    let change = json!({"metadata": {"labels": {"x": null, "z": "1"}}, "spec": {"unschedulable": true},
        "status": {"phase": "Running"}});
    let node =
        server.patch("/api/v1/nodes/n/status?fieldManager=kubelet", MERGE_PATCH, change).await.expect(200);
    assert_eq!(node["metadata"]["labels"], json!({"y": "1", "z": "1"}));
    assert_eq!(node.pointer("/spec/unschedulable"), None);
    let managers = managers(&node);
    // Who set the label that went has it no more; who set the new one has that.
    let first = r#"unknown Update {"f:metadata":{"f:labels":{".":{},"f:y":{}}}}"#;
    assert!(managers.iter().any(|entry| entry == first), "{managers:?}");
    let kubelet = r#"kubelet Update status {"f:metadata":{"f:labels":{"f:z":{}}}"#;
    assert!(managers.iter().any(|entry| entry.starts_with(kubelet)), "{managers:?}");
}

#[tokio::test]
async fn labels_of_a_deployment_are_not_changed_through_its_status() {
    let server = Server::start().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    server.post(path, json!({"metadata": {"name": "d"}, "spec": spec})).await.expect(201);
    let change = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"q": "1"}}});
    let changed =
        server.patch(&format!("{path}/d/status?fieldManager=m"), MERGE_PATCH, change).await.expect(200);
    assert_eq!(changed.pointer("/metadata/labels"), None);
    let own = r#"m Update status {"f:metadata":{"f:annotations":{".":{},"f:q":{}}}}"#;
    assert!(managers(&changed).iter().any(|entry| entry == own), "{changed}");
}

#[tokio::test]
async fn an_empty_list_of_managers_forgets_them_all() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    server.post(path, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await.expect(201);
    let one = format!("{path}/a");
    let dry = format!("{one}?dryRun=All");
    let forget = json!({"metadata": {"managedFields": []}});
    let forgotten = server.patch(&dry, MERGE_PATCH, forget).await.expect(200);
    assert_eq!(forgotten.pointer("/metadata/managedFields"), None);
    let operations = json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}]);
    let forgotten = server.patch(&dry, JSON_PATCH, operations).await.expect(200);
    assert_eq!(forgotten.pointer("/metadata/managedFields"), None);
    let body = json!({"metadata": {"name": "a", "managedFields": []}, "data": {"k": "w"}});
    let put = server.put(&one, body).await.expect(200);
    assert_eq!(put.pointer("/metadata/managedFields"), None);
}

#[tokio::test]
async fn what_is_applied_into_being_says_its_name() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}});
    assert_eq!(
        server.apply(path, "m", nameless.clone()).await.fails(400, "BadRequest"),
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    );
    let named = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let created = server.apply(path, "m", named).await.expect(201);
    assert_eq!(created["metadata"].get("managedFields"), None);
    server.apply(path, "m", nameless).await.expect(200);
}

#[tokio::test]
async fn kubectl_moves_from_client_side_to_server_side() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let last = r#"{"apiVersion":"v1","data":{"a":"1","b":"2"},"kind":"ConfigMap","metadata":{"annotations":{},"name":"c","namespace":"default"}}"#;
    let client_side = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"},
        "metadata": {"name": "c", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": format!("{last}\n")}},
    });
    server.post(&format!("{path}?fieldManager=kubectl-client-side-apply"), client_side).await.expect(201);
    let one = format!("{path}/c");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}, "data": {"a": "1"}});
    // 1: no conflict although `b` goes and `a` is the updater's.
    let object = server.apply(&one, "kubectl", applied.clone()).await.expect(200);
    // 2: the annotation alone.
    let annotation =
        object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].clone();
    let only = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": annotation}}});
    let object = server.apply(&one, "kubectl-last-applied", only).await.expect(200);
    // 3: the client folds the update entry into the apply entry.
    let mut entries = object["metadata"]["managedFields"].as_array().unwrap().clone();
    let old = entries.iter().position(|entry| entry["manager"] == "kubectl-client-side-apply").unwrap();
    let old = entries.remove(old);
    let own = entries.iter_mut().find(|entry| entry["manager"] == "kubectl").unwrap();
    own["fieldsV1"]["f:data"] = old["fieldsV1"]["f:data"].clone();
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": object["metadata"]["resourceVersion"]},
    ]);
    let object = server.patch(&one, JSON_PATCH, patch).await.expect(200);
    let found = managers(&object);
    assert!(found.iter().all(|entry| !entry.contains("client-side")), "{found:?}");
    // 4: what the client-side configuration had and this one has not is gone.
    let object = server.apply(&one, "kubectl", applied).await.expect(200);
    assert_eq!(object["data"], json!({"a": "1"}));
    let annotation = object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
        .as_str()
        .unwrap();
    assert!(!annotation.contains("\"b\""), "{annotation}");
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_not_written() {
    let server = start().await;
    let created = server.post(FOOS, with_spec("a", json!({"color": "red"}))).await.expect(201);
    let again = server.put(&format!("{A}?fieldManager=other"), created.clone()).await.expect(200);
    assert_eq!(again, created);
}

#[tokio::test]
async fn removed_fields_vanish_from_everybody() {
    let server = start().await;
    server.apply(A, "m1", with_spec("a", json!({"color": "red", "size": 1}))).await.expect(201);
    let removed = server
        .patch(&format!("{A}?fieldManager=u"), MERGE_PATCH, json!({"spec": {"size": null}}))
        .await
        .expect(200);
    assert_eq!(managers(&removed), [r#"m1 Apply {"f:spec":{"f:color":{}}}"#]);
}

#[tokio::test]
async fn a_controller_takes_over_what_it_applied_under_a_former_name() {
    let server = Server::with(|config| {
        config.former_manager = |manager| (manager == "remuda-machines").then(|| "remuda".to_owned());
    })
    .await;
    foo_definition(&server).await;
    let before = with_spec("a", json!({"color": "red", "set": ["x", "y"]}));
    server.apply(A, "remuda", before.clone()).await.expect(201);
    let after = with_spec("a", json!({"color": "red", "set": ["x"]}));
    // A person who calls themselves so takes over nothing.
    let other = server.apply(A, "remuda-machines", after.clone()).await.expect(200);
    assert_eq!(other["spec"]["set"], json!(["x", "y"]));
    server.delete(A).await.expect(200);

    server.apply(A, "remuda", before).await.expect(201);
    let controller = server.by(User::new("controller", [GROUP_CONTROLLERS, GROUP_MASTERS]));
    let taken = controller.apply(A, "remuda-machines", after).await.expect(200);
    assert_eq!(taken["spec"]["set"], json!(["x"]), "what it no longer applies is gone");
    let managers = managers(&taken);
    assert!(managers.iter().all(|manager| manager.starts_with("remuda-machines ")), "{managers:?}");
}
