//! Custom objects: pruning, defaults, validation, subresources, columns, selectable fields.

use serde_json::{Value, json};

use crate::harness::{APPLY_PATCH, MERGE_PATCH, Server, names};

pub(crate) const FOOS: &str = "/apis/x.io/v1/namespaces/default/foos";
pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(crate) fn foo(name: &str) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": name}})
}

/// A definition of one version; `version` is merged into it.
pub(crate) fn definition(plural: &str, kind: &str, schema: Value, version: Value) -> Value {
    let mut only =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (key, value) in version.as_object().unwrap() {
        only[key] = value.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.x.io")},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [only],
        },
    })
}

pub(crate) fn foo_crd() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "color": {"type": "string", "enum": ["red", "blue", "green"]},
            "size": {"type": "integer", "minimum": 0},
            "replicas": {"type": "integer", "default": 1},
            "selector": {"type": "string"},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "atomic": {"type": "array", "items": {"type": "integer"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "port": {"type": "integer"},
                }},
            },
        }},
        "status": {"type": "object", "properties": {
            "ready": {"type": "boolean"},
            "replicas": {"type": "integer"},
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type"], "properties": {
                    "type": {"type": "string"}, "status": {"type": "string"},
                }},
            },
        }},
    }});
    definition(
        "foos",
        "Foo",
        schema,
        json!({
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".spec.selector",
            }},
            "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}],
            "additionalPrinterColumns": [
                {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Wrong", "type": "integer", "jsonPath": ".spec.color"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
        }),
    )
}

pub(crate) async fn foo_definition(server: &Server) {
    server.post(CRDS, foo_crd()).await.expect(201);
}

async fn with_schema(schema: Value) -> Server {
    let server = Server::start().await;
    server.post(CRDS, definition("foos", "Foo", schema, json!({}))).await.expect(201);
    server
}

/// Posts a spec and returns the stored one.
async fn stored(server: &Server, spec: Value) -> Value {
    let mut object = foo("a");
    object["spec"] = spec;
    server.post(&format!("{FOOS}?dryRun=All"), object).await.expect(201)["spec"].take()
}

#[tokio::test]
async fn unknown_fields_are_dropped_and_defaults_filled_in() {
    let server = with_schema(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "default": "x"},
        "nested": {"type": "object", "properties": {"b": {"type": "integer", "default": 7}}},
        "made": {"type": "object", "default": {}, "properties": {"c": {"type": "boolean", "default": true}}},
        "items": {"type": "array", "items": {"type": "object", "properties": {"d": {"type": "string", "default": "y"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"e": {"type": "string", "default": "z"}}}},
        "nullable": {"type": "string", "nullable": true, "default": "n"},
        "plain": {"type": "string"},
        "port": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "known": {"type": "object", "properties": {"x": {"type": "string"}}},
        }},
        "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"data": {"type": "string"}}},
    }}}}))
    .await;
    assert_eq!(stored(&server, json!({})).await, json!({"a": "x", "made": {"c": true}, "nullable": "n"}));
    assert_eq!(
        stored(
            &server,
            json!({
                "a": null, "nested": {}, "items": [{}, {"d": "q", "gone": 1}], "map": {"k": {}}, "nullable": null,
                "plain": null, "port": "http", "unknown": 1,
                "free": {"any": {"thing": [1]}, "known": {"x": "1", "y": "2"}},
                "template": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "n", "bogus": 1}, "data": "d", "other": 1},
            })
        )
        .await,
        json!({
            "a": "x", "made": {"c": true}, "nested": {"b": 7}, "items": [{"d": "y"}, {"d": "q"}],
            "map": {"k": {"e": "z"}}, "nullable": null, "port": "http",
            "free": {"any": {"thing": [1]}, "known": {"x": "1"}},
            "template": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "n"}, "data": "d"},
        })
    );
    assert_eq!(stored(&server, json!({"port": 80})).await["port"], 80);
}

#[tokio::test]
async fn validation_says_what_the_reference_says() {
    let server = with_schema(json!({"type": "object", "required": ["spec"], "properties": {"spec": {
        "type": "object", "required": ["must"],
        "properties": {
            "must": {"type": "string"},
            "replicas": {"type": "integer", "minimum": 0},
            "text": {"type": "string", "minLength": 3, "pattern": "^a+$"},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
        },
        "x-kubernetes-validations": [{"rule": "self.must != 'no'"}],
    }}}))
    .await;
    let mut object = foo("a");
    object["spec"] = json!({"replicas": -1, "text": "b", "color": "green", "list": ["a", "b", "c"]});
    let answer = server.post(FOOS, object).await;
    answer.fails(422, "Invalid");
    let causes: Vec<(&str, &str, &str)> = answer.body["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| {
            (
                cause["field"].as_str().unwrap(),
                cause["reason"].as_str().unwrap(),
                cause["message"].as_str().unwrap(),
            )
        })
        .collect();
    for expected in [
        (
            "spec.replicas",
            "FieldValueInvalid",
            "Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
        (
            "spec.text",
            "FieldValueInvalid",
            "Invalid value: \"b\": spec.text in body should be at least 3 chars long",
        ),
        (
            "spec.color",
            "FieldValueNotSupported",
            "Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        ("spec.must", "FieldValueRequired", "Required value"),
        (
            "<nil>",
            "FieldValueInvalid",
            "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ),
    ] {
        assert!(causes.contains(&expected), "{expected:?} not in {causes:#?}");
    }
    assert!(causes.iter().any(|cause| cause.0 == "spec.list"), "{causes:#?}");
    let message = server.post(FOOS, foo("a")).await.fails(422, "Invalid");
    assert!(message.starts_with("Foo.x.io \"a\" is invalid: [spec: Required value"), "{message}");
    let mut object = foo("a");
    object["spec"] = json!({"must": 1});
    let message = server.post(FOOS, object).await.fails(422, "Invalid");
    assert!(
        message.contains(
            r#"spec.must: Invalid value: "integer": spec.must in body must be of type string: "integer""#
        ),
        "{message}"
    );
}

#[tokio::test]
async fn rules_see_the_object_and_its_past() {
    let server = with_schema(json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name is immutable"}]},
            "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.replicas) || !has(self.max) || self.replicas <= self.max",
             "messageExpression": "'replicas must not exceed %d'.format([self.max])", "fieldPath": ".replicas",
             "reason": "FieldValueForbidden"},
            {"rule": "!has(self.replicas) || self.replicas != 13"},
        ],
    }}}))
    .await;
    let with = |spec: Value| {
        let mut object = foo("a");
        object["spec"] = spec;
        object
    };
    let answer = server.post(FOOS, with(json!({"replicas": 5, "max": 3}))).await;
    assert_eq!(
        answer.fails(422, "Invalid"),
        "Foo.x.io \"a\" is invalid: spec.replicas: Forbidden: replicas must not exceed 3"
    );
    let message = server.post(FOOS, with(json!({"replicas": 13}))).await.fails(422, "Invalid");
    assert_eq!(
        message,
        "Foo.x.io \"a\" is invalid: spec: Invalid value: failed rule: !has(self.replicas) || self.replicas != 13"
    );
    server.post(FOOS, with(json!({"name": "n"}))).await.expect(201);
    let path = format!("{FOOS}/a");
    let answer = server.patch(&path, MERGE_PATCH, json!({"spec": {"name": "m"}})).await;
    assert_eq!(
        answer.fails(422, "Invalid"),
        "Foo.x.io \"a\" is invalid: spec.name: Invalid value: \"m\": name is immutable"
    );
    server.patch(&path, MERGE_PATCH, json!({"spec": {"replicas": 2}})).await.expect(200);
}

#[tokio::test]
async fn unchanged_values_are_not_judged_by_new_rules() {
    let schema = |limits: Value| {
        let mut spec = json!({"type": "object", "properties": {"text": {"type": "string"}, "other": {"type": "string"}}});
        if let Some(limits) = limits.as_object() {
            for (key, value) in limits {
                spec["properties"]["text"][key] = value.clone();
            }
        }
        json!({"type": "object", "properties": {"spec": spec}})
    };
    let server = with_schema(schema(json!({}))).await;
    let mut object = foo("a");
    object["spec"] = json!({"text": "much too long", "other": "x"});
    server.post(FOOS, object).await.expect(201);
    let crd = format!("{CRDS}/foos.x.io");
    let tight = schema(json!({"maxLength": 3, "x-kubernetes-validations": [{"rule": "self.size() < 3"}]}));
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": tight}]);
    server.patch(&crd, crate::harness::JSON_PATCH, patch).await.expect(200);
    let path = format!("{FOOS}/a");
    server.patch(&path, MERGE_PATCH, json!({"spec": {"other": "y"}})).await.expect(200);
    server.patch(&path, MERGE_PATCH, json!({"spec": {"text": "still too long"}})).await.fails(422, "Invalid");
    server.patch(&path, MERGE_PATCH, json!({"spec": {"text": "ok"}})).await.expect(200);
}

#[tokio::test]
async fn status_is_apart_and_generation_counts_the_rest() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let mut object = foo("a");
    object["spec"] = json!({"color": "red"});
    object["status"] = json!({"ready": true});
    let mut created = server.post(FOOS, object).await.expect(201);
    assert!(created["status"].is_null());
    assert_eq!(created["metadata"]["generation"], 1);
    created["status"] = json!({"ready": true});
    created["spec"]["color"] = "blue".into();
    created["metadata"]["labels"] = json!({"a": "b"});
    let updated = server.put(&format!("{FOOS}/a/status"), created.clone()).await.expect(200);
    assert_eq!(updated["status"], json!({"ready": true}));
    assert_eq!(updated["spec"]["color"], "red");
    assert!(updated["metadata"]["labels"].is_null());
    assert_eq!(updated["metadata"]["generation"], 1);
    let entry = updated["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["subresource"] == "status");
    assert_eq!(entry.unwrap()["fieldsV1"], json!({"f:status": {".": {}, "f:ready": {}}}));
    created["metadata"]["resourceVersion"] = updated["metadata"]["resourceVersion"].clone();
    created["status"] = json!({"ready": false});
    let updated = server.put(&format!("{FOOS}/a"), created).await.expect(200);
    assert_eq!(updated["status"], json!({"ready": true}));
    assert_eq!(updated["spec"]["color"], "blue");
    assert_eq!(updated["metadata"]["generation"], 2);
    assert_eq!(server.get(&format!("{FOOS}/a/status")).await.expect(200), updated);
}

#[tokio::test]
async fn scale_is_a_window_on_the_replicas() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let mut object = foo("a");
    object["spec"] = json!({"replicas": 2, "selector": "app=a"});
    let created = server.post(FOOS, object).await.expect(201);
    server
        .patch(&format!("{FOOS}/a/status"), MERGE_PATCH, json!({"status": {"replicas": 1}}))
        .await
        .expect(200);
    let path = format!("{FOOS}/a/scale");
    let mut scale = server.get(&path).await.expect(200);
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["apiVersion"], "autoscaling/v1");
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=a"}));
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        assert_eq!(scale["metadata"][field], created["metadata"][field], "{field}");
    }
    scale["spec"]["replicas"] = 5.into();
    scale["status"]["replicas"] = 9.into();
    let written = server.put(&format!("{path}?fieldManager=hpa"), scale.clone()).await.expect(200);
    assert_eq!(written["spec"]["replicas"], 5);
    assert_eq!(written["status"]["replicas"], 1);
    server.put(&path, scale.clone()).await.fails(409, "Conflict");
    for (field, odd) in
        [("spec", json!({"replicas": "9"})), ("apiVersion", json!("v1")), ("kind", json!("Foo"))]
    {
        let mut scale = scale.clone();
        scale[field] = odd;
        server.put(&path, scale).await.fails(400, "BadRequest");
    }
    let object = server.get(&format!("{FOOS}/a")).await.expect(200);
    assert_eq!(object["spec"]["replicas"], 5);
    let entry = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "hpa");
    let entry = entry.unwrap();
    assert_eq!(entry["subresource"], "scale");
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    server.patch(&path, MERGE_PATCH, json!({"spec": {"replicas": 3}})).await.expect(200);
    let message =
        server.patch(&path, MERGE_PATCH, json!({"spec": {"replicas": -1}})).await.fails(422, "Invalid");
    assert!(
        message.contains("spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        "{message}"
    );
    let message = server
        .patch(&format!("{FOOS}/a"), MERGE_PATCH, json!({"spec": {"replicas": -1}}))
        .await
        .fails(422, "Invalid");
    assert!(
        message.contains(".spec.replicas: Invalid value: -1: should be a non-negative integer"),
        "{message}"
    );
}

#[tokio::test]
async fn scale_can_be_applied() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let path = format!("{FOOS}/a");
    let mut object = foo("a");
    object["spec"] = json!({"replicas": 2});
    server.apply(&path, "owner", object).await.expect(201);
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 4}});
    let answer = server.apply(&format!("{path}/scale"), "hpa", scale.clone()).await;
    assert_eq!(
        answer.fails(409, "Conflict"),
        "Apply failed with 1 conflict: conflict with \"owner\": .spec.replicas"
    );
    let forced = server.apply(&format!("{path}/scale?force=true"), "hpa", scale.clone()).await.expect(200);
    assert_eq!(forced["spec"]["replicas"], 4);
    let object = server.get(&path).await.expect(200);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["subresource"], "scale");
    assert_eq!(entries[0]["operation"], "Apply");
    let answer =
        server.ask("PATCH", &format!("{path}/scale")).body(APPLY_PATCH, scale.to_string()).send().await;
    answer.fails(422, "Invalid");
}

#[tokio::test]
async fn columns_have_their_types() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let mut object = foo("a");
    object["spec"] = json!({"color": "red", "size": 3});
    server.post(FOOS, object).await.expect(201);
    let status = json!({"status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}});
    server.patch(&format!("{FOOS}/a/status"), MERGE_PATCH, status).await.expect(200);
    let table = server
        .ask("GET", FOOS)
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .await
        .expect(200);
    let columns: Vec<(&str, &str, i64)> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            (
                column["name"].as_str().unwrap(),
                column["type"].as_str().unwrap(),
                column["priority"].as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("Name", "string", 0),
            ("Color", "string", 0),
            ("Size", "integer", 1),
            ("Ready", "string", 0),
            ("Wrong", "integer", 0),
            ("Age", "date", 0)
        ]
    );
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], [json!("a"), json!("red"), json!(3), json!("True"), Value::Null]);
    assert!(cells[5].is_string());
}

#[tokio::test]
async fn selectable_fields_select_in_lists_watches_and_collections() {
    let server = Server::start().await;
    foo_definition(&server).await;
    for (name, color, size) in [("a", "red", 1), ("b", "blue", 2), ("c", "red", 2)] {
        let mut object = foo(name);
        object["spec"] = json!({"color": color, "size": size});
        server.post(FOOS, object).await.expect(201);
    }
    let list = server.get(&format!("{FOOS}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(names(&list), ["a", "c"]);
    let list = server.get(&format!("{FOOS}?fieldSelector=spec.color%3Dred,spec.size%3D2")).await.expect(200);
    assert_eq!(names(&list), ["c"]);
    let list =
        server.get(&format!("{FOOS}?fieldSelector=spec.color!%3Dred,metadata.name%3Db")).await.expect(200);
    assert_eq!(names(&list), ["b"]);
    let answer = server.get(&format!("{FOOS}?fieldSelector=spec.replicas%3D1")).await;
    assert_eq!(answer.fails(400, "BadRequest"), "field label not supported: spec.replicas");
    let version = server.get(FOOS).await.version().to_owned();
    let mut watch =
        server.watch(&format!("{FOOS}?fieldSelector=spec.color%3Dblue&resourceVersion={version}")).await;
    server.patch(&format!("{FOOS}/a"), MERGE_PATCH, json!({"spec": {"color": "blue"}})).await.expect(200);
    assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "a");
    server.patch(&format!("{FOOS}/b"), MERGE_PATCH, json!({"spec": {"color": "red"}})).await.expect(200);
    let left = watch.expect("DELETED").await;
    assert_eq!(left["metadata"]["name"], "b");
    assert_eq!(left["spec"]["color"], "blue");
    server.delete(&format!("{FOOS}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(names(&server.get(FOOS).await.expect(200)), ["a"]);
}

#[tokio::test]
async fn bad_metadata_is_refused() {
    let server = Server::start().await;
    foo_definition(&server).await;
    for (field, value) in
        [("labels", json!({"a": 1})), ("labels", json!("x")), ("finalizers", json!([1])), ("name", json!(5))]
    {
        let mut object = foo("a");
        object["metadata"][field] = value;
        let answer = server.post(FOOS, object).await;
        answer.fails(400, "BadRequest");
    }
}

#[tokio::test]
async fn selectable_fields_and_scale_are_documented() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let document = server.get("/openapi/v3/apis/x.io/v1").await.expect(200);
    let schema = &document["components"]["schemas"]["io.x.v1.Foo"];
    assert_eq!(
        schema["x-kubernetes-selectable-fields"],
        json!([{"fieldPath": "spec.color"}, {"fieldPath": "spec.size"}])
    );
    assert!(document["paths"]["/apis/x.io/v1/namespaces/{namespace}/foos/{name}/scale"]["get"].is_object());
    assert!(
        document["paths"]["/apis/x.io/v1/namespaces/{namespace}/foos/{name}/status"]["patch"].is_object()
    );
}

#[tokio::test]
async fn without_a_status_endpoint_status_is_a_field_like_any_other() {
    let server = with_schema(json!({"type": "object", "properties": {
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }}))
    .await;
    let mut object = foo("a");
    object["status"] = json!({"ready": true});
    let created = server.post(FOOS, object).await.expect(201);
    assert_eq!(created["status"], json!({"ready": true}));
    let changed = server
        .patch(&format!("{FOOS}/a"), MERGE_PATCH, json!({"status": {"ready": false}}))
        .await
        .expect(200);
    assert_eq!(changed["metadata"]["generation"], 2);
    server.get(&format!("{FOOS}/a/status")).await.fails(404, "NotFound");
    server.get(&format!("{FOOS}/a/scale")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn rules_at_the_root_know_the_name_and_optional_pasts() {
    let server = with_schema(json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object", "properties": {"level": {"type": "integer"}},
            "x-kubernetes-validations": [{
                "rule": "!oldSelf.hasValue() ? self.level == 0 : self.level >= oldSelf.value().level",
                "optionalOldSelf": true, "message": "levels start at zero and only rise",
            }],
        }},
        "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a')", "message": "names begin with a"}],
    }))
    .await;
    let with = |name: &str, level: i64| {
        let mut object = foo(name);
        object["spec"] = json!({"level": level});
        object
    };
    let message = server.post(FOOS, with("b", 0)).await.fails(422, "Invalid");
    assert!(message.contains("names begin with a"), "{message}");
    let message = server.post(FOOS, with("a", 1)).await.fails(422, "Invalid");
    assert!(message.contains("levels start at zero and only rise"), "{message}");
    server.post(FOOS, with("a", 0)).await.expect(201);
    server.patch(&format!("{FOOS}/a"), MERGE_PATCH, json!({"spec": {"level": 3}})).await.expect(200);
    server
        .patch(&format!("{FOOS}/a"), MERGE_PATCH, json!({"spec": {"level": 2}}))
        .await
        .fails(422, "Invalid");
}

#[tokio::test]
async fn a_rule_that_fails_to_run_refuses_with_its_error() {
    let server = with_schema(json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.a / self.b > 0"}],
    }}}))
    .await;
    let mut object = foo("a");
    object["spec"] = json!({"a": 1, "b": 0});
    let message = server.post(FOOS, object).await.fails(422, "Invalid");
    assert!(message.contains("division by zero"), "{message}");
}
