//! Patches of stored objects.

use serde_json::{Map, Value};

/// Deeper than any object.
const DEEPEST: usize = 64;

/// Merge patch. What is nested too deeply is taken as it is.
pub(super) fn merge(target: &mut Value, patch: Value) {
    merge_at(target, patch, None, 0);
}

/// Strategic merge patch, as far as lists that are merged by a key go.
pub(super) fn strategic(target: &mut Value, patch: Value) {
    merge_at(target, patch, Some(""), 0);
}

/// Lists that are merged by item, and the field that tells items apart. Names are unambiguous enough
/// among the kinds that are served.
fn list_key(field: &str) -> Option<&'static str> {
    match field {
        "conditions" | "addresses" => Some("type"),
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => Some("name"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// `field` is where we are, if lists are merged by key.
fn merge_at(target: &mut Value, patch: Value, field: Option<&str>, depth: usize) {
    match patch {
        Value::Object(patch) if depth < DEEPEST => {
            if field.is_some() && patch.get("$patch").and_then(Value::as_str) == Some("replace") {
                let mut patch = patch;
                patch.remove("$patch");
                *target = Value::Object(patch);
                return;
            }
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Value::Object(target) = target else { return };
            for (key, value) in patch {
                if key.starts_with('$') && field.is_some() {
                    continue;
                }
                if value.is_null() {
                    target.remove(&key);
                    continue;
                }
                let below = field.map(|_| key.as_str());
                merge_at(target.entry(key.as_str()).or_insert(Value::Null), value, below, depth + 1);
            }
        }
        Value::Array(items) => match field.and_then(list_key) {
            Some(key) if target.is_array() => merge_list(target, items, key, depth + 1),
            _ => *target = Value::Array(items.into_iter().filter(|item| !is_directive(item)).collect()),
        },
        patch => *target = patch,
    }
}

fn is_directive(item: &Value) -> bool {
    item.get("$patch").is_some()
}

fn merge_list(target: &mut Value, items: Vec<Value>, key: &str, depth: usize) {
    let Value::Array(target) = target else { return };
    if items.iter().any(|item| item.get("$patch").and_then(Value::as_str) == Some("replace")) {
        *target = items.into_iter().filter(|item| !is_directive(item)).collect();
        return;
    }
    for item in items {
        let same = |known: &Value| known.get(key) == item.get(key);
        if item.get("$patch").and_then(Value::as_str) == Some("delete") {
            target.retain(|known| !same(known));
        } else if let Some(known) = target.iter_mut().find(|known| same(known)) {
            merge_at(known, item, Some(""), depth);
        } else {
            target.push(item);
        }
    }
}

/// JSON patch. Says what is wrong, having changed part of `target` perhaps.
pub(super) fn json(target: &mut Value, steps: &Value) -> Result<(), String> {
    let steps = steps.as_array().ok_or("a JSON patch is a list")?;
    for step in steps {
        let text = |key: &str| step.get(key).and_then(Value::as_str).ok_or(format!("a step has no {key}"));
        let value = || step.get("value").cloned().unwrap_or_default();
        let path = text("path")?;
        match text("op")? {
            "add" => add(target, path, value())?,
            "remove" => drop(remove(target, path)?),
            "replace" => {
                *target.pointer_mut(path).ok_or_else(|| format!("{path} does not exist"))? = value();
            }
            "test" if *target.pointer(path).unwrap_or(&Value::Null) != value() => {
                return Err(format!("testing path {path} value failed"));
            }
            "test" => {}
            "copy" => {
                let from = text("from")?;
                let copied = target.pointer(from).cloned().ok_or_else(|| format!("{from} does not exist"))?;
                add(target, path, copied)?;
            }
            "move" => {
                let moved = remove(target, text("from")?)?;
                add(target, path, moved)?;
            }
            other => return Err(format!("{other} is no operation")),
        }
    }
    Ok(())
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| format!("{path:?} is no path"))?;
    let parent = target.pointer_mut(parent).ok_or_else(|| format!("{path} has no parent"))?;
    Ok((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(map), key) => drop(map.insert(key, value)),
        (Value::Array(list), key) => {
            let index = if key == "-" { Some(list.len()) } else { key.parse().ok() };
            let index = index.filter(|index| *index <= list.len());
            list.insert(index.ok_or_else(|| format!("{path} is out of bounds"))?, value);
        }
        _ => return Err(format!("{path} is inside a scalar")),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, String> {
    let missing = || format!("{path} does not exist");
    match parent(target, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or_else(missing),
        (Value::Array(list), key) => {
            let index = key.parse().ok().filter(|index: &usize| *index < list.len());
            Ok(list.remove(index.ok_or_else(missing)?))
        }
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let mut object = json!({"a": [1, 2], "b": {"c": 1, "d": 2}});
        merge(&mut object, json!({"a": [3], "b": {"c": null, "e": {"f": null}}}));
        assert_eq!(object, json!({"a": [3], "b": {"d": 2, "e": {}}}));
    }

    #[test]
    fn a_strategic_patch_merges_conditions_by_type_and_replaces_taints() {
        let mut node = json!({
            "spec": {"taints": [{"key": "a"}]},
            "status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
        });
        strategic(
            &mut node,
            json!({
                "spec": {"taints": [{"key": "b"}]},
                "status": {"conditions": [
                    {"type": "A", "$patch": "delete"},
                    {"type": "B", "status": "False"},
                    {"type": "C", "status": "True"},
                ]},
            }),
        );
        assert_eq!(node["spec"]["taints"], json!([{"key": "b"}]));
        let conditions = json!([{"type": "B", "status": "False"}, {"type": "C", "status": "True"}]);
        assert_eq!(node["status"]["conditions"], conditions);
        strategic(&mut node, json!({"status": {"conditions": [{"$patch": "replace"}, {"type": "D"}]}}));
        assert_eq!(node["status"]["conditions"], json!([{"type": "D"}]));
    }

    #[test]
    fn a_json_patch_does_what_it_says_or_tells_why_not() {
        let mut object = json!({"l": [1], "m": {"a/b": 1}});
        let steps = json!([
            {"op": "test", "path": "/m/a~1b", "value": 1},
            {"op": "test", "path": "/nothing", "value": null},
            {"op": "add", "path": "/l/-", "value": 2},
            {"op": "remove", "path": "/l/0"},
            {"op": "replace", "path": "/m/a~1b", "value": 3},
            {"op": "copy", "from": "/l", "path": "/n"},
            {"op": "move", "from": "/n", "path": "/o"},
        ]);
        json(&mut object, &steps).unwrap();
        assert_eq!(object, json!({"l": [2], "m": {"a/b": 3}, "o": [2]}));
        for wrong in [
            json!({}),
            json!([{"op": "add"}]),
            json!([{"op": "add", "path": "/l/9", "value": 1}]),
            json!([{"op": "remove", "path": "/x"}]),
            json!([{"op": "test", "path": "/l", "value": 1}]),
            json!([{"op": "add", "path": "/o/0/x", "value": 1}]),
            json!([{"op": "dance", "path": "/l"}]),
        ] {
            assert!(json(&mut object, &wrong).is_err(), "{wrong}");
        }
    }
}
