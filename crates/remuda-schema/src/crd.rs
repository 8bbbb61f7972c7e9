//! CustomResourceDefinitions: defaults, validation and a parsed view.

use serde_json::{Map, Value, json};

mod approval;
mod check;
mod columns;
mod conversion;
mod rank;
mod version;
mod view;
mod warnings;

pub use approval::approval_condition;
pub use check::{check_crd, check_crd_status};
pub use columns::check_scale;
pub use rank::version_rank;
pub use view::{Column, Conversion, CrdError, CrdVersion, CrdView, ScalePaths};
pub use warnings::crd_warnings;

/// Fills in what a definition may leave out.
pub fn default_crd(crd: &mut Value) {
    let Value::Object(object) = crd else { return };
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        default_spec(spec);
    }
    let stored = storage_version(object.get("spec"));
    let status = object.entry("status").or_insert_with(|| json!({}));
    if status.is_null() {
        *status = json!({});
    }
    let Value::Object(status) = status else { return };
    let empty = match status.get("storedVersions") {
        Some(Value::Array(versions)) => versions.is_empty(),
        _ => true,
    };
    if empty && let Some(version) = stored {
        status.insert("storedVersions".to_owned(), json!([version]));
    }
    fill(status, "conditions", || json!([]));
    fill(status, "acceptedNames", || json!({"kind": "", "plural": ""}));
}

/// Adds the storage version to `status.storedVersions`, as every write that sets one must.
pub fn record_storage_version(crd: &mut Value) {
    let Some(version) = storage_version(crd.get("spec")) else { return };
    let Value::Object(object) = crd else { return };
    let status = object.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        fill(status, "storedVersions", || json!([]));
        if let Some(Value::Array(stored)) = status.get_mut("storedVersions")
            && !stored.iter().any(|known| *known == version)
        {
            stored.push(version.into());
        }
    }
}

fn default_spec(spec: &mut Map<String, Value>) {
    if let Some(Value::Object(names)) = spec.get_mut("names") {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let missing = |names: &Map<String, Value>, name: &str| {
            names.get(name).is_none_or(|value| value.is_null() || value == "")
        };
        if !kind.is_empty() && missing(names, "singular") {
            names.insert("singular".to_owned(), kind.to_lowercase().into());
        }
        if !kind.is_empty() && missing(names, "listKind") {
            names.insert("listKind".to_owned(), format!("{kind}List").into());
        }
    }
    fill(spec, "conversion", || json!({"strategy": "None"}));
    let service = spec
        .get_mut("conversion")
        .and_then(|conversion| conversion.get_mut("webhook"))
        .and_then(|webhook| webhook.get_mut("clientConfig"))
        .and_then(|config| config.get_mut("service"));
    if let Some(Value::Object(service)) = service {
        fill(service, "port", || json!(443));
    }
    // False is the only accepted value and is never written out.
    if spec.get("preserveUnknownFields").is_some_and(|value| value.is_null() || value == false) {
        spec.remove("preserveUnknownFields");
    }
}

fn fill(map: &mut Map<String, Value>, name: &str, value: impl FnOnce() -> Value) {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_owned(), value());
    }
}

fn storage_version(spec: Option<&Value>) -> Option<String> {
    let versions = spec?.get("versions")?.as_array()?;
    let storage = versions.iter().find(|version| flag(version, "storage"))?;
    storage.get("name")?.as_str().map(str::to_owned)
}

/// A string field; empty when absent or of another type.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn texts<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a str> {
    list(value, name).iter().filter_map(Value::as_str)
}

/// A field that is there and not null.
fn present<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|value| !value.is_null())
}

fn schema_json(version: &Value) -> Option<&Value> {
    present(version, "schema").and_then(|schema| present(schema, "openAPIV3Schema"))
}

fn condition_is_true(crd: &Value, name: &str) -> bool {
    let conditions = crd.get("status").map(|status| list(status, "conditions")).unwrap_or_default();
    conditions.iter().any(|condition| text(condition, "type") == name && text(condition, "status") == "True")
}

#[cfg(test)]
mod tests;
