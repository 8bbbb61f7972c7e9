//! Schemas of custom kinds: verbatim in version 3, reduced to what version 2 can say.

use serde_json::{Map, Value, json};

use super::{Dialect, KindDoc, gvk, text, types::meta_name};

/// Deeper parts of a schema are published as "anything".
const MAX_DEPTH: usize = 120;

/// Keywords version 2 clients understand; everything else is dropped there.
const V2_KEYWORDS: [&str; 20] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "externalDocs",
    "example",
];

pub(super) fn schema(kind: &KindDoc, schema: Option<&Value>, dialect: Dialect) -> Value {
    let preserved = schema.is_some_and(|schema| is_true(schema, "x-kubernetes-preserve-unknown-fields"));
    let mut published = match schema {
        // Naming only the common fields would make version 2 clients refuse all others.
        None => json!({ "type": "object" }),
        Some(_) if preserved && dialect == Dialect::V2 => json!({ "type": "object" }),
        Some(schema) => {
            let mut schema = match dialect {
                Dialect::V3 => schema.clone(),
                Dialect::V2 => reduce(schema, 0),
            };
            complete(&mut schema, dialect, 0);
            if let Value::Object(object) = &mut schema {
                add_common(object, dialect);
            }
            schema
        }
    };
    if let Value::Object(object) = &mut published {
        object.insert(
            "x-kubernetes-group-version-kind".to_owned(),
            json!([gvk(&kind.group, &kind.version, &kind.kind)]),
        );
        if dialect == Dialect::V3 && !kind.selectable_fields.is_empty() {
            let fields: Vec<Value> = kind
                .selectable_fields
                .iter()
                .map(|path| json!({ "fieldPath": path.trim_start_matches('.') }))
                .collect();
            object.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
        }
    }
    published
}

fn is_true(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

/// `apiVersion`, `kind` and `metadata`, which a definition need not spell out.
fn add_common(object: &mut Map<String, Value>, dialect: Dialect) {
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties
            .insert("apiVersion".to_owned(), json!({ "type": "string", "description": text::API_VERSION }));
        properties.insert("kind".to_owned(), json!({ "type": "string", "description": text::KIND }));
        let description = [("description".to_owned(), Value::from(text::METADATA))].into_iter().collect();
        properties
            .insert("metadata".to_owned(), dialect.reference_with(&meta_name("ObjectMeta"), description));
    }
}

/// Says what a definition need not: embedded objects have the common fields too, and what is an integer or a
/// string is one of the two.
fn complete(schema: &mut Value, dialect: Dialect, depth: usize) {
    let Value::Object(object) = schema else { return };
    if depth > MAX_DEPTH {
        return;
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for property in properties.values_mut() {
            complete_here(property, dialect);
            complete(property, dialect, depth + 1);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            complete_here(inner, dialect);
            complete(inner, dialect, depth + 1);
        }
    }
}

fn complete_here(schema: &mut Value, dialect: Dialect) {
    if dialect == Dialect::V3
        && is_true(schema, "x-kubernetes-int-or-string")
        && let Value::Object(object) = schema
        && !object.contains_key("anyOf")
        && !object.contains_key("allOf")
    {
        object.insert("anyOf".to_owned(), json!([{ "type": "integer" }, { "type": "string" }]));
    }
    // A version 2 client takes listed properties for all there are.
    let open = dialect == Dialect::V2 && is_true(schema, "x-kubernetes-preserve-unknown-fields");
    if is_true(schema, "x-kubernetes-embedded-resource")
        && !open
        && let Value::Object(object) = schema
    {
        add_common(object, dialect);
    }
}

/// The part of a schema that version 2 can express without older clients refusing valid objects.
fn reduce(schema: &Value, depth: usize) -> Value {
    let (Value::Object(schema), true) = (schema, depth <= MAX_DEPTH) else { return json!({}) };
    let flag = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in schema {
        let extension = key.starts_with("x-kubernetes-") && key != "x-kubernetes-validations";
        if extension || V2_KEYWORDS.contains(&key.as_str()) {
            out.insert(key.clone(), value.clone());
        }
    }
    let (nullable, preserved) = (flag("nullable"), flag("x-kubernetes-preserve-unknown-fields"));
    let children = !nullable && !preserved;
    if let Some(items) = schema.get("items").filter(|items| children && items.is_object()) {
        out.insert("items".to_owned(), reduce(items, depth + 1));
    }
    if let Some(Value::Object(properties)) = schema.get("properties").filter(|_| children) {
        let properties =
            properties.iter().map(|(name, property)| (name.clone(), reduce(property, depth + 1))).collect();
        out.insert("properties".to_owned(), Value::Object(properties));
    }
    let mut required: Vec<Value> =
        schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    required.retain(|name| {
        let property = name.as_str().and_then(|name| schema.get("properties")?.get(name));
        !property.is_some_and(|property| is_true(property, "nullable"))
    });
    match schema.get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            out.insert("additionalProperties".to_owned(), Value::Bool(*allowed));
        }
        Some(item) => {
            if is_true(item, "nullable") {
                required.clear();
            }
            out.insert("additionalProperties".to_owned(), reduce(item, depth + 1));
        }
        None => {}
    }
    if !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    let kind = schema.get("type").and_then(Value::as_str);
    let untyped = nullable
        || (kind == Some("array") && !out.contains_key("items"))
        || (kind == Some("object") && preserved);
    if untyped {
        out.remove("type");
    }
    Value::Object(out)
}
