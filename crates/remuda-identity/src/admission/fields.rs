//! Which fields of which kind are free to change.

use remuda_names::{identity::annotation, rancher::label};
use serde_json::Value;

/// Per kind, the fields that give no right to any user, whatever they say. A field that is not listed needs a right.
const FREE: &[(&str, &[&str])] = &[
    ("users", &["displayName", "description", "me"]),
    ("tokens", &["description", "current"]),
    ("globalroles", &["displayName", "description"]),
    ("globalrolebindings", &[]),
    ("roletemplates", &["displayName", "description", "hidden"]),
    ("clusterroletemplatebindings", &[]),
    ("authconfigs", &[]),
    ("settings", &["customized", "source"]),
];

/// Metadata that means something to those who read these kinds. An owner takes what it owns with it, so a
/// reference is a delete in disguise; finalizers see to it that something is cleaned up.
const METADATA: &[&str] = &["ownerReferences", "finalizers"];
const ANNOTATIONS: &[&str] = &[annotation::TOKEN_HASHED];
const LABELS: &[&str] = &[label::TOKEN_USER_ID, label::TOKEN_KIND];

/// Fields of a resource that are free to change; nothing if the resource is none of those.
pub(crate) fn free(resource: &str) -> Option<&'static [&'static str]> {
    FREE.iter().find(|(name, _)| *name == resource).map(|(_, fields)| *fields)
}

/// Fields that a write changes and that are not free, in order. With a create, those that are set; with a
/// delete, those that were.
pub(crate) fn changed(resource: &str, old: Option<&Value>, new: Option<&Value>) -> Vec<String> {
    let free = free(resource).unwrap_or_default();
    let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
    };
    let mut names: Vec<String> = keys(old).into_iter().chain(keys(new)).collect();
    names.sort();
    names.dedup();
    let plain = ["apiVersion", "kind", "metadata", "status"];
    names.retain(|name| {
        !plain.contains(&name.as_str())
            && !free.contains(&name.as_str())
            && !is_same(old.get(name), new.get(name))
    });
    // Metadata of what is made or deleted as a whole is no change of it.
    if !old.is_null() && !new.is_null() {
        names.extend(changed_metadata(&old["metadata"], &new["metadata"]));
    }
    names
}

fn changed_metadata(old: &Value, new: &Value) -> Vec<String> {
    let direct = METADATA
        .iter()
        .filter(|field| !is_same(old.get(**field), new.get(**field)))
        .map(|field| format!("metadata.{field}"));
    let below = |map: &'static str, keys: &'static [&'static str]| {
        keys.iter()
            .filter(move |key| !is_same(old[map].get(**key), new[map].get(**key)))
            .map(move |key| format!("metadata.{map}[{key}]"))
    };
    direct.chain(below("annotations", ANNOTATIONS)).chain(below("labels", LABELS)).collect()
}

/// What is absent, null or empty says the same: nothing.
fn is_same(old: Option<&Value>, new: Option<&Value>) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let said = |value: Option<&Value>| value.filter(|value| !is_empty(value)).cloned();
    said(old) == said(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_free_is_told() {
        let old = json!({"kind": "User", "username": "ann", "displayName": "Ann", "enabled": true,
            "metadata": {"name": "ann", "labels": {"a": "b"}}});
        let mut new = old.clone();
        new["displayName"] = "Anne".into();
        new["metadata"]["labels"]["a"] = "c".into();
        new["principalIds"] = json!([]);
        assert!(changed("users", Some(&old), Some(&new)).is_empty());
        new["enabled"] = Value::Null;
        new["madeUp"] = 1.into();
        new["metadata"]["ownerReferences"] = json!([{"uid": "x"}]);
        assert_eq!(
            changed("users", Some(&old), Some(&new)),
            ["enabled", "madeUp", "metadata.ownerReferences"],
            "also what nobody has heard of"
        );
        assert_eq!(changed("users", None, Some(&old)), ["enabled", "username"]);
        assert_eq!(changed("users", Some(&old), None), ["enabled", "username"]);
    }

    #[test]
    fn labels_of_tokens_are_not_free() {
        let old = json!({"metadata": {"labels": {label::TOKEN_KIND: "session"}}});
        let new = json!({"metadata": {"labels": {label::TOKEN_KIND: "api"}}});
        assert_eq!(
            changed("tokens", Some(&old), Some(&new)),
            [format!("metadata.labels[{}]", label::TOKEN_KIND)]
        );
    }
}
