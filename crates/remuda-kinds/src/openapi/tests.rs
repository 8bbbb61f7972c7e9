use std::collections::BTreeSet;

use super::*;
use crate::inventory::resources;

fn built_in() -> Vec<KindDoc> {
    resources().iter().map(KindDoc::built_in).collect()
}

fn custom(schema: Value) -> KindDoc {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let sub = |name: &str, group: &str, kind: &str| SubresourceDoc {
        name: name.to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        verbs: owned(&["get", "patch", "update"]),
    };
    KindDoc {
        group: "stable.x.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Foo".to_owned(),
        list_kind: "FooList".to_owned(),
        plural: "foos".to_owned(),
        namespaced: true,
        verbs: owned(&["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
        subresources: vec![sub("status", "stable.x.io", "Foo"), sub("scale", "autoscaling", "Scale")],
        schema: Source::Custom(Some(Arc::new(schema))),
        selectable_fields: vec![".spec.color".to_owned()],
    }
}

fn example() -> Value {
    json!({
        "type": "object",
        "description": "A foo.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["a", "b"],
                "properties": {
                    "a": { "type": "string", "nullable": true },
                    "b": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
                    "c": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "d": { "type": "string" } } },
                    "e": { "type": "array", "items": { "type": "string", "minLength": 1 }, "x-kubernetes-list-type": "set" },
                    "f": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": {} },
                    "g": { "type": "object", "additionalProperties": { "type": "integer", "default": 3 } },
                    "h": { "type": "array", "items": { "x-kubernetes-int-or-string": true } },
                },
                "x-kubernetes-validations": [{ "rule": "true" }],
            },
        },
    })
}

/// Every `$ref` below a value.
fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(target)) = object.get("$ref") {
                into.insert(target.clone());
            }
            // `$ref` is also the name of a property of JSON schemas.
            object.values().for_each(|value| references(value, into));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, into)),
        _ => {}
    }
}

#[track_caller]
fn all_references_resolve(document: &Value, prefix: &str, schemas: &Value) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for target in found {
        let name = target.strip_prefix(prefix).unwrap_or_else(|| panic!("{target}"));
        assert!(schemas.get(name).is_some(), "{target}");
    }
}

#[test]
fn every_group_has_a_closed_version_3_document() {
    let kinds = built_in();
    for group in crate::inventory::groups() {
        let document = v3_document(group, "v1", &kinds);
        all_references_resolve(&document, "#/components/schemas/", &document["components"]["schemas"]);
        assert!(!document["paths"].as_object().unwrap().is_empty(), "{group}");
    }
}

#[test]
fn operation_ids_are_unique() {
    let document = v2_document(&[built_in(), vec![custom(example())]].concat(), "v1.35.0");
    let mut seen = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values().filter_map(|value| value.get("operationId")) {
            assert!(seen.insert(operation.as_str().unwrap().to_owned()), "{path} {operation}");
        }
    }
    for id in [
        "patchCoreV1NamespacedPod",
        "listCoreV1PodForAllNamespaces",
        "readAppsV1NamespacedDeploymentScale",
        "createCoreV1NamespacedPodEviction",
        "listRbacAuthorizationV1ClusterRole",
        "deleteBatchV1CollectionNamespacedJob",
        "patchStableXIoV1NamespacedFooStatus",
    ] {
        assert!(seen.contains(id), "{id}");
    }
}

#[test]
fn kinds_carry_what_clients_look_for() {
    let document = v3_document("apps", "v1", &built_in());
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{ "group": "apps", "version": "v1", "kind": "Deployment" }])
    );
    let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(spec["required"], json!(["selector", "template"]));
    assert_eq!(spec["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    assert_eq!(
        spec["properties"]["strategy"]["allOf"],
        json!([{ "$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy" }])
    );
    let container = &schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"];
    assert_eq!(container["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(container["x-kubernetes-patch-merge-key"], "containerPort");
    assert_eq!(
        schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"]["enum"],
        json!(["Always", "Never", "OnFailure"])
    );
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": "apps", "version": "v1", "kind": "Deployment" })
    );
    assert!(schemas.get("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions").is_some());
}

#[test]
fn custom_schemas_are_verbatim_in_version_3() {
    let document = v3_document("stable.x.io", "v1", &[custom(example())]);
    let schemas = &document["components"]["schemas"];
    all_references_resolve(&document, "#/components/schemas/", schemas);
    let foo = &schemas["io.x.stable.v1.Foo"];
    assert_eq!(
        foo["properties"]["spec"]["properties"]["b"],
        example()["properties"]["spec"]["properties"]["b"]
    );
    let either = &foo["properties"]["spec"]["properties"]["h"]["items"];
    assert_eq!(either["anyOf"], json!([{ "type": "integer" }, { "type": "string" }]));
    assert_eq!(foo["properties"]["spec"]["x-kubernetes-validations"], json!([{ "rule": "true" }]));
    assert_eq!(foo["x-kubernetes-selectable-fields"], json!([{ "fieldPath": "spec.color" }]));
    assert!(foo["properties"]["metadata"]["allOf"].is_array());
    assert!(foo["properties"]["spec"]["properties"]["f"]["properties"]["kind"].is_object());
    assert!(schemas["io.x.stable.v1.FooList"]["properties"]["items"].is_object());
    let body =
        &document["paths"]["/apis/stable.x.io/v1/namespaces/{namespace}/foos/{name}"]["patch"]["requestBody"];
    assert!(body["content"].get("application/strategic-merge-patch+json").is_none());
}

#[test]
fn custom_schemas_are_reduced_in_version_2() {
    let document = v2_document(&[custom(example())], "v1.35.0");
    all_references_resolve(&document, "#/definitions/", &document["definitions"]);
    let spec = &document["definitions"]["io.x.stable.v1.Foo"]["properties"]["spec"];
    assert_eq!(spec["required"], json!(["b"]));
    assert_eq!(spec["properties"]["a"], json!({}));
    assert_eq!(spec["properties"]["b"], json!({ "x-kubernetes-int-or-string": true }));
    assert_eq!(spec["properties"]["c"], json!({ "x-kubernetes-preserve-unknown-fields": true }));
    assert_eq!(
        spec["properties"]["e"],
        json!({ "type": "array", "items": { "type": "string", "minLength": 1 }, "x-kubernetes-list-type": "set" })
    );
    assert_eq!(
        spec["properties"]["g"],
        json!({ "type": "object", "additionalProperties": { "type": "integer" } })
    );
    assert!(spec.get("x-kubernetes-validations").is_none());
    let open = custom(
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "spec": {} } }),
    );
    let document = v2_document(&[open], "v1.35.0");
    assert!(document["definitions"]["io.x.stable.v1.Foo"].get("properties").is_none());
}

#[test]
fn the_version_2_document_has_a_protobuf_form() {
    let document = v2_document(&[custom(example())], "v1.35.0");
    let bytes = v2_protobuf(&document);
    assert_eq!(&bytes[..5], b"\x0a\x032.0");
    let mut fields = crate::protobuf::wire::Fields::new(&bytes);
    let mut numbers = Vec::new();
    while let Some((number, _)) = fields.next().unwrap() {
        numbers.push(number);
    }
    assert_eq!(numbers, [1, 2, 8, 9]);
}

#[test]
fn endless_custom_schemas_are_cut() {
    let mut schema = json!({});
    for _ in 0..400 {
        schema = Value::Object([("items".to_owned(), schema)].into_iter().collect());
    }
    let document = v2_document(&[custom(schema)], "v1.35.0");
    assert!(!v2_protobuf(&document).is_empty());
}
