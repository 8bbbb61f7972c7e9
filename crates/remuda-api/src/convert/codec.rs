//! How one field is written in each version.

use serde_json::{Map, Value, json};

use super::duration;

/// Where a field stands in both versions, and how it is written there. Paths are dotted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) hub: &'static str,
    pub(super) spoke: &'static str,
    pub(super) codec: Codec,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Codec {
    /// The same value.
    Same,
    /// The same value; zero in v1beta1 is absent in v1beta2.
    Plain,
    /// Whole seconds against a duration.
    Seconds,
    /// A reference by contract against an object reference.
    Reference,
    /// A reference with version against an object reference.
    Template,
    /// The name of a Node against an object reference.
    Node,
    /// A list by name against a map.
    FailureDomains,
    /// `Updating` is not a phase of v1beta1.
    Phase,
    /// A list whose members have a table of their own.
    Each(&'static [Field]),
}

/// What a conversion may ask of its surroundings.
pub(super) struct Context<'a> {
    pub(super) namespace: &'a str,
    pub(super) api_version: &'a dyn Fn(&str, &str) -> Option<String>,
}

/// Rewrites what the table knows; everything else is left out.
pub(super) fn down(fields: &[Field], hub: &Map<String, Value>, context: &Context<'_>) -> Map<String, Value> {
    let mut spoke = Map::new();
    for field in fields {
        if let Some(value) = get(hub, field.hub).and_then(|value| to_spoke(field.codec, value, context)) {
            put(&mut spoke, field.spoke, value);
        }
    }
    spoke
}

/// The other direction.
pub(super) fn up(fields: &[Field], spoke: &Map<String, Value>, context: &Context<'_>) -> Map<String, Value> {
    let mut hub = Map::new();
    for field in fields {
        if let Some(value) = get(spoke, field.spoke).and_then(|value| to_hub(field.codec, value, context)) {
            put(&mut hub, field.hub, value);
        }
    }
    hub
}

fn to_spoke(codec: Codec, value: &Value, context: &Context<'_>) -> Option<Value> {
    match codec {
        Codec::Same | Codec::Plain => Some(value.clone()),
        Codec::Seconds => value.as_i64().map(|seconds| Value::String(duration::from_seconds(seconds))),
        Codec::Reference => {
            let (group, kind) = (text(value, "apiGroup"), text(value, "kind"));
            let version = (context.api_version)(group, kind);
            let version = version.unwrap_or_else(|| format!("{group}/{}", super::SPOKE));
            Some(json!({
                "apiVersion": version, "kind": kind, "name": text(value, "name"), "namespace": context.namespace,
            }))
        }
        Codec::Template => Some(json!({
            "apiVersion": text(value, "apiVersion"), "kind": text(value, "kind"), "name": text(value, "name"),
            "namespace": context.namespace,
        })),
        Codec::Node => Some(json!({"apiVersion": "v1", "kind": "Node", "name": text(value, "name")})),
        Codec::FailureDomains => {
            let mut domains = Map::new();
            for domain in value.as_array()? {
                let mut entry = domain.as_object()?.clone();
                if let Some(Value::String(name)) = entry.remove("name") {
                    domains.insert(name, Value::Object(entry));
                }
            }
            Some(Value::Object(domains))
        }
        Codec::Phase if value == "Updating" => Some(json!("Running")),
        Codec::Phase => Some(value.clone()),
        Codec::Each(fields) => each(value, |item| down(fields, item, context)),
    }
}

fn to_hub(codec: Codec, value: &Value, context: &Context<'_>) -> Option<Value> {
    match codec {
        Codec::Same | Codec::Phase => Some(value.clone()),
        Codec::Plain => (!is_zero(value)).then(|| value.clone()),
        Codec::Seconds => value.as_str().and_then(duration::to_seconds).map(Value::from),
        Codec::Reference => {
            let version = text(value, "apiVersion");
            let group = version.rsplit_once('/').map_or("", |(group, _)| group);
            let mut reference = Map::new();
            for (key, part) in
                [("apiGroup", group), ("kind", text(value, "kind")), ("name", text(value, "name"))]
            {
                if !part.is_empty() {
                    reference.insert(key.into(), part.into());
                }
            }
            (!reference.is_empty()).then_some(Value::Object(reference))
        }
        Codec::Template => {
            let mut reference = Map::new();
            for key in ["apiVersion", "kind", "name"] {
                if !text(value, key).is_empty() {
                    reference.insert(key.into(), text(value, key).into());
                }
            }
            (!reference.is_empty()).then_some(Value::Object(reference))
        }
        Codec::Node => {
            let name = text(value, "name");
            (!name.is_empty()).then(|| json!({"name": name}))
        }
        Codec::FailureDomains => {
            // A JSON map is sorted by name already.
            let mut domains = Vec::new();
            for (name, domain) in value.as_object()? {
                let mut entry = domain.as_object()?.clone();
                entry.entry("controlPlane").or_insert(Value::Bool(false));
                entry.insert("name".into(), Value::String(name.clone()));
                domains.push(Value::Object(entry));
            }
            domains.sort_by(|a, b| text(a, "name").cmp(text(b, "name")));
            Some(Value::Array(domains))
        }
        Codec::Each(fields) => each(value, |item| up(fields, item, context)),
    }
}

fn each(value: &Value, convert: impl Fn(&Map<String, Value>) -> Map<String, Value>) -> Option<Value> {
    let items = value.as_array()?.iter().filter_map(Value::as_object);
    Some(Value::Array(items.map(|item| Value::Object(convert(item))).collect()))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

fn get<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let mut value = map.get(keys.next()?)?;
    for key in keys {
        value = value.get(key)?;
    }
    Some(value)
}

fn put(map: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            map.insert(path.into(), value);
        }
        Some((key, rest)) => {
            let child = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
            if !child.is_object() {
                *child = Value::Object(Map::new());
            }
            if let Value::Object(child) = child {
                put(child, rest, value);
            }
        }
    }
}

/// Three-way merge: what the client changed since `base` wins, everything else stays as it was `before`.
pub(super) fn merge(
    mine: &Map<String, Value>,
    base: &Map<String, Value>,
    before: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = Map::new();
    let mut keys: Vec<&String> = mine.keys().chain(before.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let (mine, base, before) = (mine.get(key), base.get(key), before.get(key));
        let value = match (mine, base, before) {
            (mine, base, before) if mine == base => before.cloned(),
            (Some(Value::Object(mine)), base, Some(Value::Object(before))) => {
                let empty = Map::new();
                let base = base.and_then(Value::as_object).unwrap_or(&empty);
                Some(Value::Object(merge(mine, base, before)))
            }
            (mine, ..) => mine.cloned(),
        };
        if let Some(value) = value {
            result.insert(key.clone(), value);
        }
    }
    result
}
