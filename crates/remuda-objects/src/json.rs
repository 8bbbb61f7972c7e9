//! Small steps through JSON that treat a wrong type like a missing field.

use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

static NULL: Value = Value::Null;

/// The value below the keys, `null` when any step is missing.
pub(crate) fn at<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    let mut current = value;
    for key in keys {
        match current.get(key) {
            Some(next) => current = next,
            None => return &NULL,
        }
    }
    current
}

pub(crate) fn text_at<'a>(value: &'a Value, keys: &[&str]) -> &'a str {
    at(value, keys).as_str().unwrap_or_default()
}

pub(crate) fn int_at(value: &Value, keys: &[&str]) -> i64 {
    at(value, keys).as_i64().unwrap_or_default()
}

pub(crate) fn list_at<'a>(value: &'a Value, keys: &[&str]) -> &'a [Value] {
    at(value, keys).as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn map_at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Object> {
    at(value, keys).as_object()
}

/// True for what typed clients mean by "not set".
pub(crate) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The object in a field, if there is one.
pub(crate) fn object<'a>(parent: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    parent.get_mut(field)?.as_object_mut()
}

/// The object in a field, created when the field is missing or null.
pub(crate) fn ensure<'a>(parent: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    if parent.get(field).is_none_or(Value::is_null) {
        parent.insert(field.to_owned(), Value::Object(Object::new()));
    }
    object(parent, field)
}

/// The objects in a list field.
pub(crate) fn objects<'a>(
    parent: &'a mut Object,
    field: &str,
) -> impl Iterator<Item = &'a mut Object> + use<'a> {
    parent.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Sets a field that is missing or null.
pub(crate) fn set(parent: &mut Object, field: &str, value: impl Into<Value>) {
    if parent.get(field).is_none_or(Value::is_null) {
        parent.insert(field.to_owned(), value.into());
    }
}

/// Sets a text field that is missing, null or empty.
pub(crate) fn set_text(parent: &mut Object, field: &str, value: &str) {
    if parent.get(field).is_none_or(|current| current.is_null() || current.as_str() == Some("")) {
        parent.insert(field.to_owned(), Value::from(value));
    }
}

/// Sets a number field that is missing, null or zero.
pub(crate) fn set_number(parent: &mut Object, field: &str, value: i64) {
    if parent.get(field).is_none_or(|current| current.is_null() || current.as_i64() == Some(0)) {
        parent.insert(field.to_owned(), Value::from(value));
    }
}
