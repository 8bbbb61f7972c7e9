//! Uniqueness in lists declared as sets or maps.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::{
    error::FieldError,
    path::Path,
    schema::{Additional, ListType, Schema},
    validate::MAX_ERRORS,
};

pub(crate) fn check(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Value::Object(map) = object {
        entries(schema, map, &Path::ROOT, &mut errors);
    }
    errors
}

fn node(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if !schema.may_have_list_types() || errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Value::Array(items) => list(schema, items, path, errors),
        Value::Object(map) => entries(schema, map, path, errors),
        _ => {}
    }
}

fn entries(schema: &Schema, map: &Map<String, Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some(Additional::Schema(additional)) = &schema.additional {
        for (name, child) in map {
            node(additional, child, &path.key(name), errors);
        }
    }
    if schema.properties.is_empty() {
        return;
    }
    for (name, child) in map {
        if (child.is_array() || child.is_object())
            && let Some(property) = schema.properties.get(name)
        {
            node(property, child, &path.field(name), errors);
        }
    }
}

fn list(schema: &Schema, items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match &schema.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            for index in repeated(items) {
                errors.push(FieldError::duplicate(path.index(index).field_path(), &items[index]));
            }
        }
        ListType::Map(keys) => map_list(keys, items, path, errors),
    }
    if let Some(item_schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            node(item_schema, item, &path.index(index), errors);
        }
    }
}

fn map_list(keys: &[String], items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let odd = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(index) = odd {
        let field = path.index(index).field_path();
        errors.push(FieldError::invalid(
            field,
            &items[index],
            "must be an object for an array of list-type map",
        ));
        return;
    }
    if items.len() < 2 {
        return;
    }
    // Two or three items are the rule; comparing them beats building keys.
    if items.len() <= 8 {
        let same = |a: &Value, b: &Value| keys.iter().all(|key| a.get(key) == b.get(key));
        let any =
            items.iter().enumerate().any(|(at, item)| items[..at].iter().any(|other| same(item, other)));
        if !any {
            return;
        }
    }
    let keyed: Vec<Value> = items
        .iter()
        .map(|item| {
            let mut key = Map::new();
            for name in keys {
                if let Some(value) = item.get(name) {
                    key.insert(name.clone(), value.clone());
                }
            }
            Value::Object(key)
        })
        .collect();
    for index in repeated(&keyed) {
        errors.push(FieldError::duplicate(path.index(index).field_path(), &keyed[index]));
    }
}

/// The second appearance of every value that appears more than once.
fn repeated(items: &[Value]) -> Vec<usize> {
    if items.len() < 2 {
        return Vec::new();
    }
    if items.len() <= 8 && !items.iter().enumerate().any(|(at, item)| items[..at].contains(item)) {
        return Vec::new();
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    let mut out = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(item.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            out.push(index);
        }
    }
    out
}
