//! Bundles of definitions as operators bring them: many, large, with rules and several versions.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{
    custom::CRDS,
    harness::{MERGE_PATCH, Server},
};

/// A schema of about `size` bytes: nested groups of settings with descriptions, limits and rules.
fn large_schema(size: usize) -> Value {
    let mut sections = Map::new();
    let mut written = 0;
    for section in 0.. {
        let mut fields = Map::new();
        for field in 0..12 {
            let description = format!(
                "Setting {field} of section {section}. It tunes one part of the machine and may be left out, in which case the controller picks a value that suits most installations."
            );
            let schema = match field % 4 {
                0 => {
                    json!({"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "description": description})
                }
                1 => {
                    json!({"type": "integer", "format": "int32", "minimum": 0, "default": 1, "description": description})
                }
                2 => {
                    json!({"type": "array", "maxItems": 16, "items": {"type": "string", "maxLength": 32}, "x-kubernetes-list-type": "set", "description": description})
                }
                _ => {
                    json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "description": description})
                }
            };
            fields.insert(format!("field{field}"), schema);
        }
        let schema = json!({
            "type": "object", "description": format!("Section {section}."), "properties": fields,
            "x-kubernetes-validations": [
                {"rule": "!has(self.field0) || self.field0 != 'forbidden'", "message": "this name is reserved"},
                {"rule": "!has(self.field1) || !has(oldSelf.field1) || self.field1 >= oldSelf.field1", "message": "may only grow"},
            ],
        });
        written += schema.to_string().len();
        sections.insert(format!("section{section}"), schema);
        if written >= size {
            break;
        }
    }
    json!({
        "type": "object", "description": "A kind of the bundle.",
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": sections},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    })
}

fn bundled(index: usize, size: usize, versions: usize) -> Value {
    let schema = large_schema(size);
    let versions: Vec<Value> = (1..=versions)
        .map(|version| {
            json!({
                "name": format!("v{version}"), "served": true, "storage": version == 1,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [{"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"}],
            })
        })
        .collect();
    let group = format!("group{}.bundle.io", index % 5);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things{index}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": format!("things{index}"), "singular": format!("thing{index}"), "kind": format!("Thing{index}")},
            "versions": versions,
        },
    })
}

#[tokio::test]
async fn a_bundle_of_forty_kinds_is_installed_used_and_documented() {
    let server = Server::start().await;
    for index in 0..40 {
        let crd = bundled(index, 8 << 10, 2);
        let path = format!("{CRDS}/{}", crd["metadata"]["name"].as_str().unwrap());
        let created = server.apply(&path, "installer", crd).await.expect(201);
        let established = created["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True");
        assert!(established, "{}", created["status"]);
    }
    for index in 0..40 {
        let group = format!("group{}.bundle.io", index % 5);
        let path = format!("/apis/{group}/v2/namespaces/default/things{index}");
        let object = json!({
            "apiVersion": format!("{group}/v2"), "kind": format!("Thing{index}"), "metadata": {"name": "t"},
            "spec": {"section0": {"field0": "ok", "field3": "50%"}},
        });
        let created = server.post(&path, object.clone()).await.expect(201);
        assert_eq!(created["spec"]["section0"]["field1"], 1);
        let mut refused = object;
        refused["spec"]["section0"]["field0"] = "forbidden".into();
        refused["metadata"]["name"] = "u".into();
        let message = server.post(&path, refused).await.fails(422, "Invalid");
        assert!(message.contains("spec.section0: Invalid value: this name is reserved"), "{message}");
        server
            .patch(&format!("{path}/t"), MERGE_PATCH, json!({"spec": {"section0": {"field1": 0}}}))
            .await
            .fails(422, "Invalid");
    }
    let index = server.get("/openapi/v3").await.expect(200);
    let document = index["paths"]["apis/group3.bundle.io/v2"]["serverRelativeURL"].as_str().unwrap();
    let document = server.get(document).await.expect(200);
    let schema = &document["components"]["schemas"]["io.bundle.group3.v2.Thing3"];
    assert_eq!(schema["description"], "A kind of the bundle.");
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{"group": "group3.bundle.io", "version": "v2", "kind": "Thing3"}])
    );
    let field = &schema["properties"]["spec"]["properties"]["section0"]["properties"]["field1"];
    assert_eq!((&field["type"], &field["default"]), (&json!("integer"), &json!(1)));
    assert!(field["description"].as_str().unwrap().starts_with("Setting 1 of section 0."));
    let path = &document["paths"]["/apis/group3.bundle.io/v2/namespaces/{namespace}/things3/{name}"];
    assert!(path["patch"]["parameters"].to_string().contains("fieldValidation"), "{path}");
    assert!(path["patch"]["requestBody"]["content"]["application/apply-patch+yaml"].is_object(), "{path}");
    let whole = server.get("/openapi/v2").await.expect(200);
    assert!(whole["definitions"]["io.bundle.group3.v2.Thing3"]["properties"]["spec"].is_object());
}

#[tokio::test]
async fn the_hundredth_definition_costs_what_the_first_did() {
    let server = Server::start().await;
    let mut times = Vec::new();
    for index in 0..100 {
        let crd = bundled(index, 10 << 10, 1);
        let started = Instant::now();
        server.post(CRDS, crd).await.expect(201);
        times.push(started.elapsed());
    }
    // Generous, for machines that do other things too; what pays for all that came before is far beyond.
    let first: Duration = times[..30].iter().sum();
    let last: Duration = times[70..].iter().sum();
    assert!(
        last < first * 3 + Duration::from_secs(2),
        "{first:?} for the first thirty, {last:?} for the last"
    );
    let index = server.get("/openapi/v3").await.expect(200);
    assert!(index["paths"]["apis/group4.bundle.io/v1"].is_object());
}
