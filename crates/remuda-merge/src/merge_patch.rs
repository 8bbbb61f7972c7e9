//! JSON merge patch (RFC 7386) as kube-apiserver applies it.
//!
//! One difference to the RFC is kept: keys with `null` are also dropped inside lists of a patch
//! when the value they replace is not an object.

use serde_json::{Map, Value};

/// Merges `patch` into `target`: `null` deletes a key, objects merge, everything else replaces.
pub fn apply(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge(target, patch),
        // An object given way to a list or scalar is replaced by it as it is.
        (target @ Value::Object(_), patch) => *target = patch.clone(),
        (target, patch) => *target = without_nulls(patch),
    }
}

fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
            continue;
        }
        match target.get_mut(key) {
            Some(current) => apply(current, value),
            None => {
                target.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(target: Value, patch: Value, expected: Value) {
        let mut merged = target;
        apply(&mut merged, &patch);
        assert_eq!(merged, expected, "{patch}");
    }

    #[test]
    fn the_examples_of_the_rfc_hold() {
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }

    #[test]
    fn deleting_an_absent_key_changes_nothing() {
        check(json!({"a": {"b": 1}}), json!({"a": {"x": null}, "y": null}), json!({"a": {"b": 1}}));
    }
}
