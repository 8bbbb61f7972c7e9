//! Defaults must be values the schema itself accepts and keeps.

use serde_json::{Map, Value};

use crate::{error::FieldError, metadata, path::Path, rules, schema::Schema};

pub(super) fn check(schema: &Schema, path: &str, pruned: bool) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), pruned, surroundings: Vec::new() };
    walk.node(schema, path, true, false);
    walk.errors
}

/// Whether some default holds fields that pruning would drop.
pub(super) fn any_unpruned(schema: &Schema) -> bool {
    schema.default.as_ref().is_some_and(|default| is_unpruned(schema, default))
        || schema.children().any(|child| any_unpruned(child))
}

fn is_unpruned(schema: &Schema, default: &Value) -> bool {
    let mut pruned = default.clone();
    schema.prune_value(&mut pruned);
    pruned != *default
}

struct Walk<'s> {
    errors: Vec<FieldError>,
    pruned: bool,
    /// The way from the innermost resource to here; `None` is a list item.
    surroundings: Vec<Option<&'s str>>,
}

impl<'s> Walk<'s> {
    fn node(&mut self, schema: &'s Schema, path: &str, root: bool, inside_meta: bool) {
        let resource = root || schema.embedded_resource;
        let outer = resource.then(|| std::mem::take(&mut self.surroundings));
        let inside_meta = inside_meta && !resource;
        if let Some(default) = &schema.default {
            self.default(schema, default, &format!("{path}.default"), inside_meta);
        }
        if let Some(items) = &schema.items {
            self.surroundings.push(None);
            self.node(items, &format!("{path}.items"), false, inside_meta);
            self.surroundings.pop();
        }
        for (name, child) in &schema.properties {
            let meta =
                inside_meta || (resource && matches!(name.as_str(), "metadata" | "apiVersion" | "kind"));
            self.surroundings.push(Some(name));
            self.node(child, &format!("{path}.properties[{name}]"), false, meta);
            self.surroundings.pop();
        }
        if let Some(outer) = outer {
            self.surroundings = outer;
        }
    }

    fn default(&mut self, schema: &Schema, default: &Value, path: &str, inside_meta: bool) {
        if inside_meta {
            if let Some(problem) = self.bad_metadata(default) {
                let detail = format!("must result in valid metadata: {problem}");
                self.errors.push(FieldError::invalid(path, default, &detail));
                return;
            }
        } else {
            if self.pruned && is_unpruned(schema, default) {
                self.errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
            }
            if let Err(error) = schema.coerce_value(&mut default.clone()) {
                self.errors.push(below(error.into(), path));
                return;
            }
            let mut found = Vec::new();
            metadata::validate_embedded(schema, default, &Path::ROOT, &mut found);
            if !found.is_empty() {
                self.errors.extend(found.into_iter().map(|error| below(error, path)));
                return;
            }
        }
        let found = schema.validate_value(default, path);
        if found.is_empty() {
            self.errors.extend(rules::check_default(schema, default, path));
        } else {
            self.errors.extend(found);
        }
    }

    /// Puts the default into the resource it would appear in and looks at the result.
    fn bad_metadata(&self, default: &Value) -> Option<String> {
        let mut value = default.clone();
        for step in self.surroundings.iter().rev() {
            value = match step {
                Some(name) => Value::Object(Map::from_iter([((*name).to_owned(), value)])),
                None => Value::Array(vec![value]),
            };
        }
        if let Value::Object(map) = &mut value {
            map.entry("kind").or_insert_with(|| "Validation".into());
            map.entry("apiVersion").or_insert_with(|| "validation/v1".into());
        }
        if let Err(error) = metadata::coerce_metadata(&mut value) {
            return Some(error.to_string());
        }
        let resource = Schema { embedded_resource: true, ..Schema::default() };
        let mut found = Vec::new();
        metadata::validate_embedded(&resource, &value, &Path::ROOT, &mut found);
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        match texts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }
}

fn below(mut error: FieldError, base: &str) -> FieldError {
    error.field = match error.field.as_str() {
        "<nil>" => base.to_owned(),
        field if field.starts_with('[') => format!("{base}{field}"),
        field => format!("{base}.{field}"),
    };
    error
}
