//! The accepted subset of OpenAPI v3, list and map types, and the form of expression rules.

use serde_json::Value;

use crate::{
    error::FieldError,
    props::{AdditionalProps, Items, Props},
    rules,
    structural::Lax,
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

pub(crate) fn is_known_type(kind: &str) -> bool {
    kind.is_empty() || TYPES.contains(&kind)
}

pub(super) fn check(props: &Props, path: &str, lax: Lax) -> Vec<FieldError> {
    let mut walk = Walk { errors: Vec::new(), lax };
    walk.node(props, path, true, Context::default());
    walk.errors
}

#[derive(Clone, Copy, Default)]
struct Context {
    /// Inside the type or metadata of a resource.
    meta: bool,
    /// Why defaults may not be set here.
    no_defaults: Option<&'static str>,
}

struct Walk {
    errors: Vec<FieldError>,
    lax: Lax,
}

impl Walk {
    fn node(&mut self, node: &Props, path: &str, root: bool, context: Context) {
        self.keywords(node, path, context);
        if node.unique_items {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(path, "uniqueItems", detail);
        }
        self.children(node, path, root, context);
        if node.preserve_unknown == Some(false) {
            let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
            self.errors.push(FieldError::invalid(field, &false.into(), "must be true or undefined"));
        }
        self.map_type(node, path);
        self.list_type(node, path);
        if !self.lax.map_keys {
            map_keys(node, path, &mut self.errors);
        }
        for (index, rule) in node.rules.iter().enumerate() {
            rules::check_form(
                node,
                rule,
                &format!("{path}.x-kubernetes-validations[{index}]"),
                &mut self.errors,
            );
        }
    }

    fn keywords(&mut self, node: &Props, path: &str, context: Context) {
        if !self.lax.types && !is_known_type(&node.kind) {
            let kind = node.kind.as_str().into();
            self.errors.push(FieldError::not_supported(format!("{path}.type"), &kind, &TYPES));
        }
        if node.default.is_some()
            && let Some(reason) = context.no_defaults
        {
            self.forbidden(path, "default", &format!("must not be set {reason}"));
        }
        for (set, name) in [
            (node.id, "id"),
            (node.additional_items, "additionalItems"),
            (node.pattern_properties, "patternProperties"),
            (node.definitions, "definitions"),
            (node.dependencies, "dependencies"),
            (node.reference, "$ref"),
        ] {
            if set {
                self.forbidden(path, name, &format!("{name} is not supported"));
            }
        }
        if node.kind == "null" {
            self.forbidden(path, "type", "type cannot be set to null, use nullable as an alternative");
        }
        if matches!(&node.items, Some(Items::Many(items)) if !items.is_empty()) {
            self.forbidden(path, "items", "items must be a schema object and not an array");
        }
        if context.meta && node.embedded {
            self.forbidden(
                path,
                "x-kubernetes-embedded-resource",
                "must not be used inside of resource meta",
            );
        }
    }

    fn children(&mut self, node: &Props, path: &str, root: bool, context: Context) {
        if let Some(additional) = &node.additional {
            if !node.properties.is_empty() && *additional != AdditionalProps::Allowed(true) {
                let detail = "additionalProperties and properties are mutual exclusive";
                self.forbidden(path, "additionalProperties", detail);
            }
            if let AdditionalProps::Schema(schema) = additional {
                let mut context = context;
                if context.meta {
                    context.no_defaults = Some("inside additionalProperties applying to object metadata");
                }
                self.node(schema, &format!("{path}.additionalProperties"), false, context);
            }
        }
        for (name, child) in &node.properties {
            let mut context = context;
            if root || node.embedded {
                let reason = match name.as_str() {
                    "metadata" => Some("in top-level metadata"),
                    "kind" => Some("in top-level kind"),
                    "apiVersion" => Some("in top-level apiVersion"),
                    _ => None,
                };
                context.meta |= reason.is_some();
                if root && reason.is_some() {
                    context.no_defaults = reason;
                }
            }
            self.node(child, &format!("{path}.properties[{name}]"), false, context);
        }
        if let Some(child) = &node.not {
            self.node(child, &format!("{path}.not"), false, context);
        }
        for (name, list) in [("allOf", &node.all_of), ("oneOf", &node.one_of), ("anyOf", &node.any_of)] {
            for (index, child) in list.iter().enumerate() {
                self.node(child, &format!("{path}.{name}[{index}]"), false, context);
            }
        }
        match &node.items {
            Some(Items::One(item)) => self.node(item, &format!("{path}.items"), false, context),
            Some(Items::Many(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.node(item, &format!("{path}.items[{index}]"), false, context);
                }
            }
            None => {}
        }
    }

    fn map_type(&mut self, node: &Props, path: &str) {
        let Some(map_type) = &node.map_type else { return };
        if node.kind != "object" {
            self.needs_type(node, path, "must be object if x-kubernetes-map-type is specified");
        }
        if !matches!(map_type.as_str(), "atomic" | "granular") {
            let field = format!("{path}.x-kubernetes-map-type");
            let error = FieldError::not_supported(field, &map_type.as_str().into(), &["atomic", "granular"]);
            self.errors.push(error);
        }
    }

    fn list_type(&mut self, node: &Props, path: &str) {
        let field = format!("{path}.x-kubernetes-list-type");
        if let Some(list_type) = &node.list_type {
            if node.kind != "array" {
                self.needs_type(node, path, "must be array if x-kubernetes-list-type is specified");
            } else if !self.lax.atomic_sets
                && let Some(keyword) = granular_item_of_set(node)
            {
                let item = node.item().and_then(|item| item.list_type.as_deref());
                self.errors.push(FieldError::invalid(
                    format!("{path}.items.{keyword}"),
                    &item.map_or(Value::Null, Value::from),
                    "must be atomic as item of a list with x-kubernetes-list-type=set",
                ));
            }
            if !matches!(list_type.as_str(), "atomic" | "set" | "map") {
                let supported = ["atomic", "set", "map"];
                self.errors.push(FieldError::not_supported(&field, &list_type.as_str().into(), &supported));
            }
        }
        if !node.list_map_keys.is_empty() {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            match node.list_type.as_deref() {
                Some("map") => {}
                None => self.errors.push(FieldError::required(&field, detail)),
                Some(other) => self.errors.push(FieldError::invalid(&field, &other.into(), detail)),
            }
        }
        if node.list_type.as_deref() == Some("map") {
            self.map_list(node, path);
        }
    }

    fn map_list(&mut self, node: &Props, path: &str) {
        let keys_field = format!("{path}.x-kubernetes-list-map-keys");
        if node.list_map_keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(&keys_field, detail));
        }
        let Some(items) = &node.items else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            self.errors.push(FieldError::required(format!("{path}.items"), detail));
            return;
        };
        let Items::One(item) = items else {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            self.errors.push(FieldError::invalid_omitted(format!("{path}.items"), detail));
            return;
        };
        if item.kind != "object" {
            self.errors.push(FieldError::invalid(
                format!("{path}.items.type"),
                &item.kind.as_str().into(),
                "must be object if parent array's x-kubernetes-list-type is map",
            ));
            return;
        }
        let all_keys = Value::from(node.list_map_keys.clone());
        for (index, key) in node.list_map_keys.iter().enumerate() {
            match item.properties.get(key) {
                Some(property) if matches!(property.kind.as_str(), "array" | "object") => {
                    self.errors.push(FieldError::invalid(
                        format!("{path}.items.properties[{key}].type"),
                        &item.kind.as_str().into(),
                        "must be a scalar type if parent array's x-kubernetes-list-type is map",
                    ));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.errors.push(FieldError::invalid(&keys_field, &all_keys, detail));
                }
            }
            if node.list_map_keys[..index].contains(key) {
                self.errors.push(FieldError::invalid(
                    &keys_field,
                    &all_keys,
                    "must not contain duplicate entries",
                ));
            }
        }
    }

    fn needs_type(&mut self, node: &Props, path: &str, detail: &str) {
        let field = format!("{path}.type");
        self.errors.push(if node.kind.is_empty() {
            FieldError::required(field, detail)
        } else {
            FieldError::invalid(field, &node.kind.as_str().into(), detail)
        });
    }

    fn forbidden(&mut self, path: &str, name: &str, detail: &str) {
        self.errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
    }
}

/// The keyword by which items of a set are not atomic, if they are not.
fn granular_item_of_set(node: &Props) -> Option<&'static str> {
    let item = node.item().filter(|_| node.list_type.as_deref() == Some("set"))?;
    match item.kind.as_str() {
        "array" if item.list_type.as_deref().is_some_and(|kind| kind != "atomic") => {
            Some("x-kubernetes-list-type")
        }
        "object" if item.map_type.as_deref() != Some("atomic") => Some("x-kubernetes-map-type"),
        _ => None,
    }
}

/// Items of sets and maps, and the keys of maps, are never absent or null.
fn map_keys(node: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let (Some(item), Some(list_type @ ("set" | "map"))) = (node.item(), node.list_type.as_deref()) else {
        return;
    };
    if item.nullable {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &detail));
    }
    if list_type != "map" {
        return;
    }
    for key in &node.list_map_keys {
        let Some(property) = item.properties.get(key) else { continue };
        if !item.required.contains(key) && property.default.is_none() {
            errors.push(FieldError::required(
                format!("{path}.items.properties[{key}].default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if property.nullable {
            errors.push(FieldError::forbidden(
                format!("{path}.items.properties[{key}].nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

pub(crate) fn has_granular_sets(props: &Props) -> bool {
    props.any(&mut |node| granular_item_of_set(node).is_some())
}

pub(crate) fn has_bad_map_keys(props: &Props) -> bool {
    props.any(&mut |node| {
        let mut errors = Vec::new();
        map_keys(node, "", &mut errors);
        !errors.is_empty()
    })
}
