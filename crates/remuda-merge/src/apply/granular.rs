//! Merging a configuration whose fields get no owner: that of a mutating admission policy.

use remuda_schema::Schema;
use serde_json::Value;

use crate::typed::{Form, Typed, merge::merge, validate::validate};

/// The object with what the configuration states. What is owned as a whole may not be stated: parts of it that are
/// left out would be lost, which is rarely meant.
pub fn merge_granular(object: &Value, applied: &Value, schema: Option<&Schema>) -> Result<Value, String> {
    let typed = Typed::Root(schema);
    validate(applied, typed)
        .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
    let mut atomics = Vec::new();
    find_atomics(applied, typed, "", &mut atomics);
    if !atomics.is_empty() {
        let places = atomics.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {places}"
        ));
    }
    let mut merged = object.clone();
    merge(&mut merged, applied, typed);
    Ok(merged)
}

/// Paths of what is owned as a whole, also below such.
fn find_atomics(value: &Value, typed: Typed<'_>, path: &str, found: &mut Vec<String>) {
    match (value, typed.form(value)) {
        (Value::Object(map), Form::Map) => {
            if typed.atomic_map() {
                found.push(path.to_owned());
            }
            for (name, value) in map {
                if let Some(field) = typed.declared(name) {
                    find_atomics(value, field, &format!("{path}.{name}"), found);
                }
            }
        }
        (Value::Array(items), Form::List) => {
            if typed.atomic_list() {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomics(item, typed.item(), &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> std::sync::Arc<Schema> {
        let text = json!({"type": "string"});
        remuda_schema::compile(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "plain": text,
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text}},
            "list": {"type": "array", "items": text},
            "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": text, "list": {"type": "array", "items": text}}}},
        }}}}))
        .unwrap()
    }

    #[test]
    fn what_is_stated_is_merged_and_the_rest_stays() {
        let object = json!({"metadata": {"labels": {"a": "1"}}, "spec": {
            "plain": "x", "list": ["y"], "set": ["s"], "keyed": [{"name": "one"}],
        }});
        let applied =
            json!({"metadata": {"labels": {"b": "2"}}, "spec": {"set": ["t"], "keyed": [{"name": "two"}]}});
        let merged = merge_granular(&object, &applied, Some(&schema())).unwrap();
        let expected = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {
            "plain": "x", "list": ["y"], "set": ["s", "t"], "keyed": [{"name": "one"}, {"name": "two"}],
        }});
        assert_eq!(merged, expected);
    }

    #[test]
    fn what_is_owned_as_a_whole_is_refused_by_its_paths() {
        let applied =
            json!({"spec": {"whole": {"a": "x"}, "list": [], "keyed": [{"name": "one", "list": ["x"]}]}});
        assert_eq!(
            merge_granular(&json!({}), &applied, Some(&schema())),
            Err("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.keyed[0].list, .spec.list, .spec.whole".to_owned())
        );
    }

    #[test]
    fn what_the_type_does_not_know_is_refused() {
        let error = merge_granular(&json!({}), &json!({"spec": {"none": 1}}), Some(&schema())).unwrap_err();
        assert!(error.starts_with("failed to convert patch object to typed object: "), "{error}");
    }
}
