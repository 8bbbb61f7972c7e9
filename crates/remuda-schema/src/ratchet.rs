//! Which old value a new value continues, and whether it is unchanged.
//!
//! An update does not have to repair what it does not touch: errors of a value that equals the old
//! value it is correlated with are dropped.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::{ListType, Schema};

/// An old value together with the structural schema that says how its children are found.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    pub(crate) value: &'a Value,
    pub(crate) schema: &'a Schema,
}

impl<'a> Old<'a> {
    pub(crate) fn entry(&self, name: &str) -> Option<Old<'a>> {
        let value = self.value.as_object()?.get(name)?;
        let schema = self.schema.entry(name)?;
        Some(Old { value, schema })
    }

    /// Old items by key; `None` where items cannot be told apart.
    pub(crate) fn items(&self) -> Option<OldItems<'a>> {
        let items = self.value.as_array()?;
        let schema = self.schema.items.as_deref()?;
        OldItems::new(&self.schema.list_type, items, schema)
    }

    pub(crate) fn equals(&self, new: &Value) -> bool {
        match (new, self.value) {
            (Value::Array(new_items), Value::Array(old_items)) => {
                if new_items.len() != old_items.len() {
                    return false;
                }
                match self.items() {
                    Some(items) => {
                        new_items.iter().all(|item| items.get(item).is_some_and(|old| old.equals(item)))
                    }
                    None => new_items == old_items,
                }
            }
            (Value::Object(new_map), Value::Object(old_map)) => {
                new_map.len() == old_map.len()
                    && new_map
                        .iter()
                        .all(|(name, child)| self.entry(name).is_some_and(|old| old.equals(child)))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of an old map list by their keys.
pub(crate) struct OldItems<'a> {
    keys: &'a [String],
    schema: &'a Schema,
    by_key: HashMap<String, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(crate) fn new(list_type: &'a ListType, items: &'a [Value], schema: &'a Schema) -> Option<Self> {
        let ListType::Map(keys) = list_type else { return None };
        let mut by_key = HashMap::with_capacity(items.len());
        for item in items {
            if let Some(key) = item.as_object().and_then(|map| composite_key(keys, map)) {
                // The first of several items with one key is the one that counts.
                by_key.entry(key).or_insert(item);
            }
        }
        Some(Self { keys, schema, by_key })
    }

    pub(crate) fn get(&self, new: &Value) -> Option<Old<'a>> {
        let key = composite_key(self.keys, new.as_object()?)?;
        self.by_key.get(&key).map(|value| Old { value, schema: self.schema })
    }
}

fn composite_key(keys: &[String], map: &Map<String, Value>) -> Option<String> {
    let mut out = String::new();
    for key in keys {
        let value = map.get(key)?;
        if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return None;
        }
        out.push_str(&value.to_string());
        out.push('\0');
    }
    Some(out)
}
