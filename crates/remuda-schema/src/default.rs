//! Defaulting, and what becomes of nulls where none are allowed.

use serde_json::{Map, Value};

use crate::schema::{Additional, Schema};

impl Schema {
    /// Fills in defaults. A null where null is not allowed counts as missing: it is replaced by the
    /// default or, in an object, dropped. Parents are not created unless they have defaults themselves.
    pub fn apply_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(map) => self.default_object(map),
            Value::Array(items) => self.default_items(items),
            _ => {}
        }
    }

    fn default_object(&self, map: &mut Map<String, Value>) {
        if self.properties.is_empty() && !matches!(self.additional, Some(Additional::Schema(_))) {
            return;
        }
        let mut droppable = false;
        for (name, child) in map.iter_mut() {
            // The common case first: most entries are scalars, and those need no schema.
            if !matches!(child, Value::Null | Value::Object(_) | Value::Array(_)) {
                continue;
            }
            let Some(schema) = self.entry(name) else { continue };
            if child.is_null() && !schema.nullable {
                match &schema.default {
                    Some(default) => child.clone_from(default),
                    None => droppable = true,
                }
            }
            schema.apply_defaults(child);
        }
        if droppable {
            map.retain(|name, child| {
                !child.is_null() || self.entry(name).is_none_or(|schema| schema.nullable)
            });
        }
        if self.may_default() {
            for (name, schema) in &self.properties {
                if let Some(default) = &schema.default
                    && !map.contains_key(name)
                {
                    let mut value = default.clone();
                    schema.apply_defaults(&mut value);
                    map.insert(name.clone(), value);
                }
            }
        }
    }

    fn default_items(&self, items: &mut [Value]) {
        let Some(schema) = &self.items else { return };
        for item in items {
            if item.is_null()
                && !schema.nullable
                && let Some(default) = &schema.default
            {
                item.clone_from(default);
            }
            schema.apply_defaults(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compile;

    #[track_caller]
    fn check(schema: &Value, mut value: Value, expected: &Value) {
        let schema = compile(schema).unwrap();
        schema.apply_defaults(&mut value);
        assert_eq!(&value, expected);
        schema.apply_defaults(&mut value);
        assert_eq!(&value, expected, "defaulting again changes nothing");
    }

    fn object(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    #[test]
    fn missing_fields_get_defaults_but_parents_are_not_created() {
        check(
            &object(json!({
                "a": {"type": "string", "default": "x"},
                "b": {"type": "object", "properties": {"c": {"type": "integer", "default": 1}}},
                "d": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 2}}},
            })),
            json!({}),
            &json!({"a": "x", "d": {"e": 2}}),
        );
    }

    #[test]
    fn items_and_map_values_get_defaults() {
        let inner = object(json!({"p": {"type": "string", "default": "TCP"}}));
        check(
            &object(json!({
                "l": {"type": "array", "items": inner},
                "m": {"type": "object", "additionalProperties": inner},
            })),
            json!({"l": [{}, {"p": "UDP"}], "m": {"k": {}}}),
            &json!({"l": [{"p": "TCP"}, {"p": "UDP"}], "m": {"k": {"p": "TCP"}}}),
        );
    }

    #[test]
    fn nulls_are_defaulted_dropped_or_kept() {
        check(
            &object(json!({
                "defaulted": {"type": "string", "default": "x"},
                "dropped": {"type": "string"},
                "kept": {"type": "string", "nullable": true, "default": "y"},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "string"}},
                "filled": {"type": "array", "items": {"type": "string", "default": "z"}},
            })),
            json!({"defaulted": null, "dropped": null, "kept": null, "unknown": null,
                "map": {"k": null}, "list": [null], "filled": [null]}),
            &json!({"defaulted": "x", "kept": null, "unknown": null,
                "map": {}, "list": [null], "filled": ["z"]}),
        );
    }
}
