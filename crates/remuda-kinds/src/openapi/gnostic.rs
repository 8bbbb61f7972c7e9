//! The version 2 document as the protobuf message `openapi.v2.Document`, the only form older Go clients accept.
//!
//! Only what [`super::v2_document`] writes is encoded. Values of free form travel as YAML text, for which JSON
//! will do.

use serde_json::{Map, Value};

use crate::protobuf::wire::{put_bytes, put_fixed64, put_number};

/// Deeper parts of a schema are encoded as "anything".
const MAX_DEPTH: usize = 128;

/// Encodes a document made by [`super::v2_document`].
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, 1, document.get("swagger"));
    if let Some(info) = document.get("info") {
        let mut message = Vec::new();
        text(&mut message, 1, info.get("title"));
        text(&mut message, 2, info.get("version"));
        put_bytes(&mut out, 2, &message);
    }
    if let Some(Value::Object(paths)) = document.get("paths") {
        let mut message = Vec::new();
        for (path, item) in paths {
            named(&mut message, 2, path, &path_item(item));
        }
        put_bytes(&mut out, 8, &message);
    }
    if let Some(Value::Object(definitions)) = document.get("definitions") {
        put_bytes(&mut out, 9, &properties(definitions, 0));
    }
    out
}

/// `Named…`: a name and a message.
fn named(out: &mut Vec<u8>, number: u32, name: &str, value: &[u8]) {
    let mut message = Vec::with_capacity(name.len() + value.len() + 8);
    put_bytes(&mut message, 1, name.as_bytes());
    put_bytes(&mut message, 2, value);
    put_bytes(out, number, &message);
}

fn text(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    if let Some(Value::String(text)) = value {
        put_bytes(out, number, text.as_bytes());
    }
}

fn texts(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    if let Some(Value::Array(items)) = value {
        items.iter().for_each(|item| text(out, number, Some(item)));
    }
}

fn flag(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    if value == Some(&Value::Bool(true)) {
        put_number(out, number, 1);
    }
}

fn integer(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    if let Some(value) = value.and_then(Value::as_i64).filter(|value| *value != 0) {
        put_number(out, number, value as u64);
    }
}

fn double(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    if let Some(value) = value.and_then(Value::as_f64).filter(|value| *value != 0.0) {
        put_fixed64(out, number, value.to_bits());
    }
}

/// `Any`: the value as text.
fn any(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes(&mut message, 2, value.to_string().as_bytes());
    message
}

fn extensions(out: &mut Vec<u8>, number: u32, object: &Map<String, Value>) {
    for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
        named(out, number, name, &any(value));
    }
}

fn path_item(item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(Value::Object(value)) = item.get(method) {
            put_bytes(&mut out, number, &operation(value));
        }
    }
    parameters(&mut out, 9, item.get("parameters"));
    out
}

fn operation(operation: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    texts(&mut out, 1, operation.get("tags"));
    text(&mut out, 3, operation.get("description"));
    text(&mut out, 5, operation.get("operationId"));
    texts(&mut out, 6, operation.get("produces"));
    texts(&mut out, 7, operation.get("consumes"));
    parameters(&mut out, 8, operation.get("parameters"));
    if let Some(Value::Object(responses)) = operation.get("responses") {
        let mut message = Vec::new();
        for (code, value) in responses {
            let mut response = Vec::new();
            text(&mut response, 1, value.get("description"));
            if let Some(value) = value.get("schema") {
                let mut item = Vec::new();
                put_bytes(&mut item, 1, &schema(value, 0));
                put_bytes(&mut response, 2, &item);
            }
            let mut alternative = Vec::new();
            put_bytes(&mut alternative, 1, &response);
            named(&mut message, 1, code, &alternative);
        }
        put_bytes(&mut out, 9, &message);
    }
    texts(&mut out, 10, operation.get("schemes"));
    extensions(&mut out, 13, operation);
    out
}

/// Each parameter is wrapped in the alternatives it belongs to.
fn parameters(out: &mut Vec<u8>, number: u32, value: Option<&Value>) {
    let Some(Value::Array(items)) = value else { return };
    for item in items {
        let mut alternative = Vec::new();
        if item.get("in").and_then(Value::as_str) == Some("body") {
            let mut body = Vec::new();
            text(&mut body, 2, item.get("name"));
            text(&mut body, 3, item.get("in"));
            flag(&mut body, 4, item.get("required"));
            if let Some(value) = item.get("schema") {
                put_bytes(&mut body, 5, &schema(value, 0));
            }
            put_bytes(&mut alternative, 1, &body);
        } else {
            let in_path = item.get("in").and_then(Value::as_str) == Some("path");
            let mut simple = Vec::new();
            flag(&mut simple, 1, item.get("required"));
            text(&mut simple, 2, item.get("in"));
            text(&mut simple, 4, item.get("name"));
            text(&mut simple, if in_path { 5 } else { 6 }, item.get("type"));
            let mut place = Vec::new();
            put_bytes(&mut place, if in_path { 4 } else { 3 }, &simple);
            put_bytes(&mut alternative, 2, &place);
        }
        let mut wrapped = Vec::new();
        put_bytes(&mut wrapped, 1, &alternative);
        put_bytes(out, number, &wrapped);
    }
}

/// `Definitions` and `Properties` have the same layout.
fn properties(properties: &Map<String, Value>, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, property) in properties {
        named(&mut out, 1, name, &schema(property, depth));
    }
    out
}

fn schema(value: &Value, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let (Value::Object(schema), true) = (value, depth <= MAX_DEPTH) else { return out };
    let get = |key: &str| schema.get(key);
    text(&mut out, 1, get("$ref"));
    text(&mut out, 2, get("format"));
    text(&mut out, 3, get("title"));
    text(&mut out, 4, get("description"));
    if let Some(default) = get("default") {
        put_bytes(&mut out, 5, &any(default));
    }
    double(&mut out, 6, get("multipleOf"));
    double(&mut out, 7, get("maximum"));
    flag(&mut out, 8, get("exclusiveMaximum"));
    double(&mut out, 9, get("minimum"));
    flag(&mut out, 10, get("exclusiveMinimum"));
    integer(&mut out, 11, get("maxLength"));
    integer(&mut out, 12, get("minLength"));
    text(&mut out, 13, get("pattern"));
    integer(&mut out, 14, get("maxItems"));
    integer(&mut out, 15, get("minItems"));
    flag(&mut out, 16, get("uniqueItems"));
    integer(&mut out, 17, get("maxProperties"));
    integer(&mut out, 18, get("minProperties"));
    texts(&mut out, 19, get("required"));
    if let Some(Value::Array(values)) = get("enum") {
        values.iter().for_each(|value| put_bytes(&mut out, 20, &any(value)));
    }
    additional(&mut out, get("additionalProperties"), depth);
    if let Some(Value::String(kind)) = get("type") {
        let mut item = Vec::new();
        put_bytes(&mut item, 1, kind.as_bytes());
        put_bytes(&mut out, 22, &item);
    }
    if let Some(items) = get("items") {
        let mut item = Vec::new();
        put_bytes(&mut item, 1, &self::schema(items, depth + 1));
        put_bytes(&mut out, 23, &item);
    }
    if let Some(Value::Object(children)) = get("properties") {
        put_bytes(&mut out, 25, &properties(children, depth + 1));
    }
    if let Some(docs) = get("externalDocs") {
        let mut message = Vec::new();
        text(&mut message, 1, docs.get("description"));
        text(&mut message, 2, docs.get("url"));
        put_bytes(&mut out, 29, &message);
    }
    if let Some(example) = get("example") {
        put_bytes(&mut out, 30, &any(example));
    }
    extensions(&mut out, 31, schema);
    out
}

fn additional(out: &mut Vec<u8>, value: Option<&Value>, depth: usize) {
    let mut item = Vec::new();
    match value {
        Some(Value::Bool(allowed)) => put_number(&mut item, 2, u64::from(*allowed)),
        Some(value) => put_bytes(&mut item, 1, &schema(value, depth + 1)),
        None => return,
    }
    put_bytes(out, 21, &item);
}
