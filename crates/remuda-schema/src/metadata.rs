//! `apiVersion`, `kind` and `metadata` of an object and of the resources embedded in it.
//!
//! Coercion reads metadata as the reference's typed decoder does: unknown fields are dropped and
//! reported, empty ones dropped silently, times normalised, wrong types refused.

use serde_json::{Map, Value};

use crate::{
    error::FieldError,
    gotext, names,
    path::Path,
    schema::{Additional, Schema},
    validate::MAX_ERRORS,
};

/// Type or metadata that cannot be read. Displays as the reference words it: at the root the bare
/// reason (a decoding error, 400), in embedded resources the field error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct MetadataError {
    pub field: FieldError,
    text: String,
}

impl From<MetadataError> for FieldError {
    fn from(error: MetadataError) -> Self {
        error.field
    }
}

/// Coerces `apiVersion`, `kind` and `metadata` of `object` and returns the paths of dropped fields.
pub fn coerce_metadata(object: &mut Value) -> Result<Vec<String>, MetadataError> {
    let mut unknown = Vec::new();
    if let Value::Object(map) = object {
        resource(map, &Path::ROOT, &mut unknown)?;
    }
    Ok(unknown)
}

impl Schema {
    /// [`coerce_metadata`] for the object and for every resource embedded in it.
    pub fn coerce(&self, object: &mut Value) -> Result<Vec<String>, MetadataError> {
        let mut unknown = coerce_metadata(object)?;
        if self.may_embed() {
            embedded(self, object, &Path::ROOT, &mut unknown)?;
        }
        Ok(unknown)
    }

    /// All that happens to an object when it is read from a request: coercion of its metadata, pruning,
    /// coercion of embedded metadata. The paths of what was dropped come in this order.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, MetadataError> {
        let mut unknown = coerce_metadata(object)?;
        self.prune(object, Some(&mut unknown));
        if self.may_embed() {
            embedded(self, object, &Path::ROOT, &mut unknown)?;
        }
        Ok(unknown)
    }

    /// Coercion below a value that is not the root of a resource.
    pub(crate) fn coerce_value(&self, value: &mut Value) -> Result<(), MetadataError> {
        embedded(self, value, &Path::ROOT, &mut Vec::new())
    }
}

fn embedded(
    schema: &Schema,
    value: &mut Value,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), MetadataError> {
    if !schema.may_embed() {
        return Ok(());
    }
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                resource(map, path, unknown)?;
            }
            for (name, child) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    embedded(property, child, &path.field(name), unknown)?;
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    embedded(schema, child, &path.key(name), unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter_mut().enumerate() {
                    embedded(schema, item, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn resource(
    map: &mut Map<String, Value>,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), MetadataError> {
    let root = path.is_root();
    for name in ["apiVersion", "kind"] {
        if let Some(value) = map.get(name)
            && !value.is_string()
        {
            let field = FieldError::invalid(path.field(name).field_path(), value, "must be a string");
            let text = match root {
                true => format!(
                    ".{name} accessor error: {} is of the type {}, expected string",
                    gotext::json(value),
                    gotext::type_name(value)
                ),
                false => field.to_string(),
            };
            return Err(MetadataError { field, text });
        }
    }
    let Some(metadata) = map.get_mut("metadata") else { return Ok(()) };
    let path = path.field("metadata");
    // Null decodes into empty metadata.
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let wrong = match &mut *metadata {
        Value::Object(fields) => {
            let mut decoder = Decoder { unknown, error: None };
            decoder.fields(OBJECT_META, "ObjectMeta", fields, &path);
            decoder.error
        }
        other => {
            Some(format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", json_kind(other)))
        }
    };
    let Some(detail) = wrong else { return Ok(()) };
    let field = FieldError::invalid(path.field_path(), metadata, &detail);
    let text = if root { detail } else { field.to_string() };
    Err(MetadataError { field, text })
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Int,
    /// Kept when zero, because the field is a pointer.
    IntPointer,
    BoolPointer,
    Time,
    Labels,
    Texts,
    Json,
    List(&'static str, &'static [(&'static str, Kind)]),
}

type Fields = &'static [(&'static str, Kind)];

const OBJECT_META: Fields = &[
    ("name", Kind::Text),
    ("generateName", Kind::Text),
    ("namespace", Kind::Text),
    ("selfLink", Kind::Text),
    ("uid", Kind::Text),
    ("resourceVersion", Kind::Text),
    ("generation", Kind::Int),
    ("creationTimestamp", Kind::Time),
    ("deletionTimestamp", Kind::Time),
    ("deletionGracePeriodSeconds", Kind::IntPointer),
    ("labels", Kind::Labels),
    ("annotations", Kind::Labels),
    ("ownerReferences", Kind::List("OwnerReference", OWNER_REFERENCE)),
    ("finalizers", Kind::Texts),
    ("managedFields", Kind::List("ManagedFieldsEntry", MANAGED_FIELDS)),
];

const OWNER_REFERENCE: Fields = &[
    ("apiVersion", Kind::Text),
    ("kind", Kind::Text),
    ("name", Kind::Text),
    ("uid", Kind::Text),
    ("controller", Kind::BoolPointer),
    ("blockOwnerDeletion", Kind::BoolPointer),
];

const MANAGED_FIELDS: Fields = &[
    ("manager", Kind::Text),
    ("operation", Kind::Text),
    ("apiVersion", Kind::Text),
    ("time", Kind::Time),
    ("fieldsType", Kind::Text),
    ("fieldsV1", Kind::Json),
    ("subresource", Kind::Text),
];

struct Decoder<'u> {
    unknown: &'u mut Vec<String>,
    error: Option<String>,
}

impl Decoder<'_> {
    fn fields(&mut self, known: Fields, owner: &str, map: &mut Map<String, Value>, path: &Path<'_>) {
        map.retain(|name, value| {
            if self.error.is_some() {
                return true;
            }
            match known.iter().find(|(known, _)| known == name) {
                Some((_, kind)) => self.field(*kind, owner, name, value, path),
                None => {
                    self.unknown.push(path.field(name).field_path());
                    false
                }
            }
        });
    }

    /// Decodes one field; whether it stays.
    fn field(&mut self, kind: Kind, owner: &str, name: &str, value: &mut Value, path: &Path<'_>) -> bool {
        // References keep their required fields even when empty.
        let keep_empty = owner == "OwnerReference";
        match (kind, value) {
            (_, Value::Null) => false,
            (Kind::Text, Value::String(text)) => keep_empty || !text.is_empty(),
            (Kind::Text, other) => self.wrong(other, owner, name, "string"),
            (Kind::Int, Value::Number(number)) if number.as_i64().is_some() => number.as_i64() != Some(0),
            (Kind::IntPointer, Value::Number(number)) if number.as_i64().is_some() => true,
            (Kind::Int | Kind::IntPointer, other) => self.wrong(other, owner, name, "int64"),
            (Kind::BoolPointer, Value::Bool(_)) => true,
            (Kind::BoolPointer, other) => self.wrong(other, owner, name, "bool"),
            (Kind::Time, value) => self.time(value, owner, name),
            (Kind::Labels, Value::Object(map)) => {
                for entry in map.values_mut() {
                    match entry {
                        Value::String(_) => {}
                        Value::Null => *entry = Value::String(String::new()),
                        other => return self.wrong(other, owner, name, "string"),
                    }
                }
                !map.is_empty()
            }
            (Kind::Labels, other) => self.wrong(other, owner, name, "map[string]string"),
            (Kind::Texts, Value::Array(items)) => {
                for item in items.iter_mut() {
                    match item {
                        Value::String(_) => {}
                        Value::Null => *item = Value::String(String::new()),
                        other => return self.wrong(other, owner, name, "string"),
                    }
                }
                !items.is_empty()
            }
            (Kind::Texts, other) => self.wrong(other, owner, name, "[]string"),
            (Kind::Json, _) => true,
            (Kind::List(item_owner, known), Value::Array(items)) => {
                let path = path.field(name);
                for (index, item) in items.iter_mut().enumerate() {
                    match item {
                        Value::Object(map) => self.fields(known, item_owner, map, &path.index(index)),
                        Value::Null => *item = Value::Object(Map::new()),
                        other => {
                            let target = format!("v1.{item_owner}");
                            return self.wrong(other, owner, name, &target);
                        }
                    }
                }
                !items.is_empty()
            }
            (Kind::List(item_owner, _), other) => {
                let target = format!("[]v1.{item_owner}");
                self.wrong(other, owner, name, &target)
            }
        }
    }

    fn time(&mut self, value: &mut Value, owner: &str, name: &str) -> bool {
        let Value::String(text) = value else {
            return self.wrong(value, owner, name, "string");
        };
        match text.parse::<jiff::Timestamp>() {
            Ok(time) => {
                let normal = remuda_base::rfc3339(time.as_nanosecond().div_euclid(1_000_000_000) as i64);
                if *text != normal {
                    *text = normal;
                }
                true
            }
            Err(_) => {
                let quoted = gotext::quote(text);
                self.error = Some(format!(
                    "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""
                ));
                true
            }
        }
    }

    fn wrong(&mut self, value: &Value, owner: &str, name: &str, target: &str) -> bool {
        let kind = match value {
            Value::Number(number) if target == "int64" => format!("number {number}"),
            other => json_kind(other).to_owned(),
        };
        let at = if owner == "ObjectMeta" { name.to_owned() } else { format!("ownerReferences.{name}") };
        let at = if owner == "ManagedFieldsEntry" { format!("managedFields.{name}") } else { at };
        self.error = Some(format!(
            "json: cannot unmarshal {kind} into Go struct field ObjectMeta.{at} of type {target}"
        ));
        true
    }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks type and metadata of the resources embedded in a (coerced) value.
pub(crate) fn validate_embedded(
    schema: &Schema,
    value: &Value,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) {
    if !schema.may_embed() || errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                validate_resource(map, path, errors);
            }
            for (name, child) in map {
                if let Some(property) = schema.properties.get(name) {
                    validate_embedded(property, child, &path.field(name), errors);
                } else if let Some(Additional::Schema(schema)) = &schema.additional {
                    validate_embedded(schema, child, &path.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    validate_embedded(schema, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_resource(map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if !map.contains_key(name) {
            errors.push(FieldError::required(path.field(name).field_path(), ""));
        }
    }
    for name in ["apiVersion", "kind"] {
        let Some(value) = map.get(name) else { continue };
        let detail = match value.as_str() {
            None => "must be a string".to_owned(),
            Some("") => "must not be empty".to_owned(),
            Some(text) if name == "apiVersion" => {
                if text.matches('/').count() < 2 {
                    continue;
                }
                format!("unexpected GroupVersion string: {text}")
            }
            Some(text) => {
                let problems = names::dns1035_label(&text.to_lowercase());
                if problems.is_empty() {
                    continue;
                }
                format!("may have mixed case, but should otherwise match: {}", problems.join(","))
            }
        };
        errors.push(FieldError::invalid(path.field(name).field_path(), value, &detail));
    }
    if let Some(Value::Object(metadata)) = map.get("metadata") {
        validate_metadata(metadata, &path.field("metadata"), errors);
    }
}

fn validate_metadata(metadata: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut invalid = |path: Path<'_>, value: &Value, details: Vec<String>| {
        let found = details.iter().map(|detail| FieldError::invalid(path.field_path(), value, detail));
        errors.extend(found);
    };
    for name in ["generateName", "name", "namespace"] {
        if let Some(value) = metadata.get(name)
            && let Some(text) = value.as_str()
        {
            let details =
                if name == "namespace" { names::dns1123_subdomain(text) } else { names::path_segment(text) };
            invalid(path.field(name), value, details);
        }
    }
    if let Some(Value::Object(labels)) = metadata.get("labels") {
        for (name, value) in labels {
            invalid(path.field("labels"), &name.as_str().into(), names::qualified_name(name));
            invalid(path.field("labels"), value, names::label_value(value.as_str().unwrap_or_default()));
        }
    }
    if let Some(Value::Object(annotations)) = metadata.get("annotations") {
        for name in annotations.keys() {
            let details = names::qualified_name(&name.to_lowercase());
            invalid(path.field("annotations"), &name.as_str().into(), details);
        }
    }
    if let Some(Value::Array(finalizers)) = metadata.get("finalizers") {
        for value in finalizers {
            invalid(
                path.field("finalizers"),
                value,
                names::qualified_name(value.as_str().unwrap_or_default()),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_and_empty_metadata_is_dropped() {
        let mut object = json!({"kind": "K", "metadata": {
            "name": "n", "foo": 1, "namespace": "", "labels": {}, "creationTimestamp": null, "generation": 0,
            "deletionTimestamp": "2024-01-01T01:00:00.5+01:00",
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "", "odd": true}],
        }});
        let unknown = coerce_metadata(&mut object).unwrap();
        assert_eq!(unknown, ["metadata.foo", "metadata.ownerReferences[0].odd"]);
        let expected = json!({"kind": "K", "metadata": {
            "name": "n", "deletionTimestamp": "2024-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": ""}],
        }});
        assert_eq!(object, expected);
    }

    #[test]
    fn metadata_of_a_wrong_type_is_refused() {
        let refused = |mut object: Value| {
            let error = coerce_metadata(&mut object).unwrap_err();
            (error.to_string(), FieldError::from(error).to_string())
        };
        let (text, field) = refused(json!({"metadata": {"labels": {"a": 1}}}));
        assert_eq!(
            text,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
        );
        assert_eq!(field, format!("metadata: Invalid value: {{\"labels\":{{\"a\":1}}}}: {text}"));
        let (text, field) = refused(json!({"apiVersion": 1}));
        assert_eq!(text, ".apiVersion accessor error: 1 is of the type int64, expected string");
        assert_eq!(field, "apiVersion: Invalid value: 1: must be a string");
        let (text, _) = refused(json!({"metadata": []}));
        assert_eq!(text, "json: cannot unmarshal array into Go value of type v1.ObjectMeta");
    }

    #[test]
    fn reading_drops_and_reports_in_order() {
        let schema = crate::compile(&json!({"type": "object", "properties": {"t": {"type": "object",
            "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}}}))
        .unwrap();
        let mut object =
            json!({"a": 1, "kind": "K", "metadata": {"x": 1}, "t": {"metadata": {"y": 1}, "z": 1}});
        assert_eq!(schema.admit(&mut object).unwrap(), ["metadata.x", "a", "t.z", "t.metadata.y"]);
        assert_eq!(object, json!({"kind": "K", "metadata": {}, "t": {"metadata": {}}}));
    }

    #[test]
    fn embedded_metadata_is_coerced_too() {
        let schema = crate::compile(&json!({"type": "object", "properties": {"t": {"type": "array", "items":
            {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}))
        .unwrap();
        let mut object = json!({"t": [{"kind": "K", "metadata": {"name": "a", "x": 1}, "free": 1}]});
        assert_eq!(schema.coerce(&mut object).unwrap(), ["t[0].metadata.x"]);
        assert_eq!(object, json!({"t": [{"kind": "K", "metadata": {"name": "a"}, "free": 1}]}));
    }
}
