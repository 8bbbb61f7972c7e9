//! Types and schemas have the same fields, of the same types.

use serde_json::{Map, Value};

use super::types::{Shape, Types};

/// What every object has and no schema describes.
pub(super) const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schema of the version the types are of.
pub(super) fn stored(definition: &Value) -> &Value {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|version| version["storage"] == true).unwrap();
    &version["schema"]["openAPIV3Schema"]
}

/// Differences below a path, one line each.
fn compare(path: &str, shape: &Shape<'_>, schema: &Value, found: &mut Vec<String>) {
    if shape.is_anything() {
        return;
    }
    let mut differ = |what: String| found.push(format!("{path}: {what}"));
    if schema["x-kubernetes-int-or-string"] == true || shape.has("x-kubernetes-int-or-string") {
        if schema.get("x-kubernetes-int-or-string").is_some() != shape.has("x-kubernetes-int-or-string") {
            differ("an integer or a string in only one of them".into());
        }
        return;
    }
    let (kind, format) = (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str());
    if kind != shape.kind() {
        return differ(format!("the schema says {kind}, the type {}", shape.kind()));
    }
    match kind {
        "array" => compare(&format!("{path}[]"), &shape.items().unwrap(), &schema["items"], found),
        "object" => match (shape.values(), schema.get("additionalProperties")) {
            (Some(values), Some(schema)) => compare(&format!("{path}{{}}"), &values, schema, found),
            (None, None) => {
                let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
                if is_open != shape.is_open() && !shape.foreign {
                    differ(format!(
                        "keeps unknown fields only in {}",
                        if is_open { "the schema" } else { "the type" }
                    ));
                }
                compare_fields(path, shape, schema, found);
            }
            (values, _) => {
                differ(format!("a map only in {}", if values.is_some() { "the type" } else { "the schema" }));
            }
        },
        // A string may be said to be of a form that the type keeps as it is.
        _ if format.unwrap_or_default() != shape.format()
            && !(kind == "string" && shape.format().is_empty())
            // A number of no given width is kept in the widest.
            && !(kind == "integer" && format.is_none() && shape.format() == "int64") =>
        {
            differ(format!("the schema says {format:?}, the type {:?}", shape.format()));
        }
        _ => {}
    }
}

fn compare_fields(path: &str, shape: &Shape<'_>, schema: &Value, found: &mut Vec<String>) {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let common = |name: &str| path.is_empty() && COMMON.contains(&name);
    for (name, _, field) in shape.fields().filter(|(name, ..)| !common(name)) {
        let path = format!("{path}.{name}");
        match properties.get(name) {
            Some(schema) => compare(&path, &field, schema, found),
            None => found.push(format!("{path}: not in the schema")),
        }
    }
    for name in properties.keys().filter(|name| !common(name)) {
        if !shape.fields().any(|(known, ..)| known == name) {
            found.push(format!("{path}.{name}: not in the type"));
        }
    }
}

fn differences(definition: &Value) -> Vec<String> {
    let types = Types::of(definition["metadata"]["name"].as_str().unwrap());
    let mut found = Vec::new();
    compare("", &types.shape(), stored(definition), &mut found);
    found
}

#[test]
fn types_and_definitions_have_the_same_fields() {
    for definition in super::all().chain(super::rancher()) {
        assert_eq!(differences(&definition), Vec::<String>::new(), "{}", definition["metadata"]["name"]);
    }
}

#[test]
fn a_difference_is_found_whichever_side_it_is_on() {
    let mut definition = super::named("machines.cluster.x-k8s.io").unwrap();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    let schema = &mut versions.iter_mut().find(|version| version["storage"] == true).unwrap()["schema"];
    let spec = &mut schema["openAPIV3Schema"]["properties"]["spec"]["properties"];
    spec["version"]["type"] = "integer".into();
    spec["minReadySeconds"]["format"] = "int64".into();
    spec["deletion"]["properties"]["later"] = serde_json::json!({"type": "string"});
    spec.as_object_mut().unwrap().remove("providerID");
    assert_eq!(
        differences(&definition),
        [
            ".spec.deletion.later: not in the type",
            ".spec.minReadySeconds: the schema says Some(\"int64\"), the type \"int32\"",
            ".spec.providerID: not in the schema",
            ".spec.version: the schema says integer, the type string",
        ]
    );
}

#[test]
fn a_schema_that_drops_what_the_type_keeps_differs() {
    let mut definition = super::named("clusters.management.cattle.io").unwrap();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    schema["spec"].as_object_mut().unwrap().remove("x-kubernetes-preserve-unknown-fields");
    schema["status"]["properties"]["nodeCount"]["type"] = "string".into();
    assert_eq!(
        differences(&definition),
        [
            ".spec: keeps unknown fields only in the type",
            ".status.nodeCount: the schema says string, the type integer",
        ]
    );
}

/// Fields without a description, below a path.
fn silent(path: &str, schema: &Value, found: &mut Vec<String>) {
    for part in ["items", "additionalProperties"].iter().filter_map(|part| schema.get(part)) {
        silent(path, part, found);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && COMMON.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        silent(&path, property, found);
    }
}

#[test]
fn every_field_of_every_kind_is_explained() {
    for definition in super::all().chain(super::rancher()) {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut found = Vec::new();
            if schema["description"].as_str().is_none_or(str::is_empty) {
                found.push("the kind itself".to_owned());
            }
            silent("", schema, &mut found);
            assert_eq!(found, Vec::<String>::new(), "{} {}", definition["metadata"]["name"], version["name"]);
        }
    }
}
