//! Reaching into objects that may hold anything.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The value at a path, unless it is null.
pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let found = path.iter().try_fold(object, |value, key| value.get(key))?;
    (!found.is_null()).then_some(found)
}

/// The text at a path; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The object at a path, made if it is missing. `None` if something else is in the way; the schema refuses that.
pub(super) fn ensure<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut value = object;
    for key in path {
        let child = value.as_object_mut()?.entry(*key).or_insert(Value::Null);
        if child.is_null() {
            *child = Value::Object(Map::new());
        }
        value = child;
    }
    value.as_object_mut()
}

/// Whether a reference has any part set.
pub(super) fn is_reference(object: &Value, path: &[&str]) -> bool {
    ["apiGroup", "kind", "name"].iter().any(|key| {
        let reference = at(object, path);
        reference.is_some_and(|reference| !text(reference, &[key]).is_empty())
    })
}

/// A map of strings; whatever is none is left out.
pub(super) fn strings(value: Option<&Value>) -> BTreeMap<String, String> {
    let fields = value.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
