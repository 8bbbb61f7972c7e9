//! Pruning: dropping what the schema does not specify.

use serde_json::{Map, Value};

use crate::{
    path::Path,
    schema::{Additional, Schema},
};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Drops what is not specified. At the root, as in embedded resources, `apiVersion`, `kind` and
    /// `metadata` stay; their content is the business of [`Schema::coerce`].
    ///
    /// The paths of dropped fields are added to `unknown` in the order of the document.
    pub fn prune(&self, value: &mut Value, unknown: Option<&mut Vec<String>>) {
        let mut walk = Walk { unknown };
        walk.node(value, Some(self), true, &Path::ROOT);
    }

    /// As [`Schema::prune`], for a value that is not the root of a resource.
    pub(crate) fn prune_value(&self, value: &mut Value) {
        let mut walk = Walk { unknown: None };
        walk.node(value, Some(self), false, &Path::ROOT);
    }
}

struct Walk<'u> {
    unknown: Option<&'u mut Vec<String>>,
}

impl Walk<'_> {
    fn node(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool, path: &Path<'_>) {
        if schema.is_some_and(|schema| !schema.may_prune()) {
            return;
        }
        match (value, schema) {
            (Value::Object(map), Some(schema)) => self.object(map, schema, root, path),
            (Value::Object(map), None) => {
                for name in map.keys() {
                    self.report(name, path);
                }
                map.clear();
            }
            (Value::Array(items), Some(schema)) if schema.preserve_unknown => {
                self.preserved_items(items, schema, path);
            }
            (Value::Array(items), schema) => {
                let schema = schema.and_then(|schema| schema.items.as_deref());
                for (index, item) in items.iter_mut().enumerate() {
                    // Scalars cannot hold fields; skipping them here keeps long lists cheap.
                    if item.is_object() || item.is_array() {
                        self.node(item, schema, false, &path.index(index));
                    }
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, map: &mut Map<String, Value>, schema: &Schema, root: bool, path: &Path<'_>) {
        let resource = root || schema.embedded_resource;
        let mut lookup = schema.lookup(map.len());
        let mut drop = false;
        for (name, child) in map.iter_mut() {
            if resource && META.contains(&name.as_str()) {
                continue;
            }
            let entry = match (lookup.find(name), &schema.additional) {
                (Some(property), _) => Some(property.as_ref()),
                (None, Some(Additional::Schema(schema))) => Some(schema.as_ref()),
                (None, Some(Additional::Any)) => None,
                (None, None) if schema.preserve_unknown => continue,
                (None, None) => {
                    self.report(name, path);
                    drop = true;
                    continue;
                }
            };
            // Scalars cannot hold fields.
            if child.is_object() || child.is_array() {
                self.node(child, entry, false, &path.field(name));
            }
        }
        // Rarely anything is unknown, so finding that out does not touch the map.
        if drop {
            map.retain(|name, _| {
                (resource && META.contains(&name.as_str())) || schema.properties.contains_key(name)
            });
        }
    }

    /// Items below a preserving list keep what they do not specify themselves.
    fn preserved_items(&mut self, items: &mut [Value], schema: &Schema, path: &Path<'_>) {
        let Some(schema) = schema.items.as_deref() else { return };
        for (index, item) in items.iter_mut().enumerate() {
            let path = path.index(index);
            match item {
                Value::Array(items) => self.preserved_items(items, schema, &path),
                Value::Object(map) => {
                    for (name, child) in map.iter_mut() {
                        if schema.embedded_resource && META.contains(&name.as_str()) {
                            continue;
                        }
                        if let Some(property) = schema.entry(name) {
                            self.node(child, Some(property), false, &path.field(name));
                        } else if schema.additional.is_some() {
                            self.node(child, None, false, &path.field(name));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn report(&mut self, name: &str, path: &Path<'_>) {
        if let Some(unknown) = self.unknown.as_deref_mut() {
            unknown.push(path.field(name).dotted());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::compile;

    #[track_caller]
    fn check(schema: &Value, mut value: Value, expected: &Value, unknown: &[&str]) {
        let schema = compile(schema).unwrap();
        let mut found = Vec::new();
        schema.prune(&mut value, Some(&mut found));
        assert_eq!(&value, expected);
        assert_eq!(found, unknown);
        schema.prune(&mut value, Some(&mut found));
        assert_eq!(found, unknown, "pruning again finds nothing");
    }

    #[test]
    fn unspecified_fields_are_dropped_and_reported() {
        check(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "ports": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "integer"}}}}
            }}}}),
            json!({"apiVersion": "x/v1", "kind": "K", "metadata": {"name": "n", "odd": 1},
                "spec": {"a": "x", "b": {"c": 1}, "ports": [{"p": 1, "x": 2}, 3]}, "extra": 1}),
            &json!({"apiVersion": "x/v1", "kind": "K", "metadata": {"name": "n", "odd": 1},
                "spec": {"a": "x", "ports": [{"p": 1}, 3]}}),
            &["extra", "spec.b", "spec.ports[0].x"],
        );
    }

    #[test]
    fn preserved_nodes_keep_everything_until_properties_specify_again() {
        check(
            &json!({"type": "object", "properties": {"spec": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}),
            json!({"spec": {"any": {"deep": 1}, "strict": {"a": "x", "b": 1}}}),
            &json!({"spec": {"any": {"deep": 1}, "strict": {"a": "x"}}}),
            &["spec.strict.b"],
        );
    }

    #[test]
    fn map_entries_are_kept_and_pruned_inside() {
        check(
            &json!({"type": "object", "properties": {
                "typed": {"type": "object", "additionalProperties":
                    {"type": "object", "properties": {"a": {"type": "string"}}}},
                "open": {"type": "object", "additionalProperties": true}}}),
            json!({"typed": {"k": {"a": "x", "b": 1}}, "open": {"s": 1, "o": {"x": 1}}}),
            &json!({"typed": {"k": {"a": "x"}}, "open": {"s": 1, "o": {}}}),
            &["open.o.x", "typed.k.b"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_type_and_metadata() {
        check(
            &json!({"type": "object", "properties": {"template": {"type": "object",
                "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}),
            json!({"template": {"apiVersion": "v1", "kind": "P", "metadata": {"x": 1}, "spec": {"b": 1}, "c": 1}}),
            &json!({"template": {"apiVersion": "v1", "kind": "P", "metadata": {"x": 1}, "spec": {}}}),
            &["template.c", "template.spec.b"],
        );
    }

    #[test]
    fn items_of_preserving_lists_keep_their_fields() {
        check(
            &json!({"type": "object", "properties": {"l": {"type": "array",
                "x-kubernetes-preserve-unknown-fields": true,
                "items": {"type": "object", "properties": {"a": {"type": "object"}}}}}}),
            json!({"l": [{"a": {"z": 1}, "b": 1}]}),
            &json!({"l": [{"a": {}, "b": 1}]}),
            &["l[0].a.z"],
        );
    }
}
