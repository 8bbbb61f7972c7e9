//! Schemas for tests, written as OpenAPI JSON.

use std::sync::Arc;

use remuda_schema::{Additional, ListType, PatchStrategy, Schema, Type};
use serde_json::{Value, json};

pub(crate) fn schema(json: &Value) -> Schema {
    let flag = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
    let text = |key: &str| json.get(key).and_then(Value::as_str);
    let strategy = text("x-kubernetes-patch-strategy").unwrap_or_default();
    let keys = || {
        let keys = json["x-kubernetes-list-map-keys"].as_array().expect("map keys");
        keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect()
    };
    Schema {
        kind: match text("type") {
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            _ => Type::Any,
        },
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        properties: json["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, field)| (name.clone(), Arc::new(schema(field))))
            .collect(),
        additional: match json.get("additionalProperties") {
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(values @ Value::Object(_)) => Some(Additional::Schema(Arc::new(schema(values)))),
            _ => None,
        },
        items: json.get("items").map(|items| Arc::new(schema(items))),
        default: json.get("default").cloned(),
        list_type: match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(keys()),
            _ => ListType::Atomic,
        },
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        patch: PatchStrategy {
            merge: strategy.split(',').any(|part| part == "merge"),
            retain_keys: strategy.split(',').any(|part| part == "retainKeys"),
            replace: strategy.split(',').any(|part| part == "replace"),
            merge_key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
        },
        ..Schema::default()
    }
}

/// A kind with one field of every sort.
pub(crate) fn foo() -> Schema {
    let text = || json!({"type": "string"});
    schema(&json!({"type": "object", "properties": {
        "apiVersion": text(), "kind": text(), "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {
            "color": text(),
            "size": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": text()},
            "nested": {"type": "object", "properties": {"a": text(), "b": text()}},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text(), "b": text()}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": text(), "port": {"type": "integer"}, "target": text()}}},
            "endpoints": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "name": text()}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
            "args": {"type": "array", "items": text()},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
        }},
        "status": {"type": "object", "properties": {"phase": text()}}
    }}))
}
