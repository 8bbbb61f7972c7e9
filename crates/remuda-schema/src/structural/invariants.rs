//! Structure: types at every level, nothing but value validations inside junctors.

use std::collections::HashMap;

use crate::{
    error::FieldError,
    props::{AdditionalProps, Items, Props},
    validation::Pattern,
};

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// A keyword that structural schemas cannot carry at all, if there is one.
pub(super) fn unsupported(props: &Props) -> Option<&'static str> {
    let mut found = None;
    props.any(&mut |node| {
        found = if node.id {
            Some("OpenAPIV3Schema 'id' is not supported")
        } else if node.schema {
            Some("OpenAPIV3Schema 'schema' is not supported")
        } else if node.reference {
            Some("OpenAPIV3Schema '$ref' is not supported")
        } else if node.pattern_properties {
            Some("OpenAPIV3Schema 'patternProperties' is not supported")
        } else if node.dependencies {
            Some("OpenAPIV3Schema 'dependencies' is not supported")
        } else if node.additional_items {
            Some("OpenAPIV3Schema 'additionalItems' is not supported")
        } else if node.definitions {
            Some("OpenAPIV3Schema 'definitions' is not supported")
        } else if matches!(&node.items, Some(Items::Many(items)) if !items.is_empty()) {
            Some("OpenAPIV3Schema 'items' must be a schema, but is an array")
        } else if node.preserve_unknown == Some(false) {
            Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined")
        } else {
            None
        };
        found.is_some()
    });
    found
}

pub(super) fn check(props: &Props, path: &str, errors: &mut Vec<FieldError>) {
    let mut walk = Walk { errors, patterns: HashMap::new() };
    walk.structural(props, Level::Root, path);
}

struct Walk<'e> {
    errors: &'e mut Vec<FieldError>,
    /// The same few patterns appear all over a large schema.
    patterns: HashMap<String, Option<String>>,
}

impl Walk<'_> {
    fn structural(&mut self, node: &Props, level: Level, path: &str) {
        if node.kind == "array" && node.item().is_none() {
            self.required(path, "items", "must be specified");
        }
        if let Some(item) = node.item() {
            self.structural(item, Level::Item, &format!("{path}.items"));
        }
        for (name, child) in &node.properties {
            self.structural(child, Level::Field, &format!("{path}.properties[{name}]"));
        }
        if node.additional.is_some() && level == Level::Root {
            self.forbidden(path, "additionalProperties", "must not be used at the root");
        }
        if let Some(child) = node.additional_schema() {
            self.structural(child, Level::Field, &format!("{path}.additionalProperties"));
        }
        if node.int_or_string {
            for (set, name) in [
                (node.preserves(), "x-kubernetes-preserve-unknown-fields"),
                (node.embedded, "x-kubernetes-embedded-resource"),
            ] {
                if set {
                    let detail = "must be false if x-kubernetes-int-or-string is true";
                    self.errors.push(FieldError::invalid(format!("{path}.{name}"), &true.into(), detail));
                }
            }
        }
        self.values(node, is_int_or_string(&node.any_of), first_is_int_or_string(&node.all_of), path);
        self.types(node, level, path);
        self.metadata(node, level, path);
        if node.embedded && !node.preserves() && node.properties.is_empty() {
            self.required(
                path,
                "properties",
                "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            );
        }
    }

    fn types(&mut self, node: &Props, level: Level, path: &str) {
        if node.embedded && node.kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            if node.kind.is_empty() {
                self.required(path, "type", detail);
            } else {
                self.invalid_text(&format!("{path}.type"), &node.kind, detail);
            }
        } else if node.kind.is_empty() && !node.int_or_string && !node.preserves() {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.required(path, "type", detail);
        }
        if node.embedded && node.additional.is_some() {
            let detail = "must not be used if x-kubernetes-embedded-resource is set";
            self.forbidden(path, "additionalProperties", detail);
        }
        if level == Level::Root && !node.kind.is_empty() && node.kind != "object" {
            self.invalid_text(&format!("{path}.type"), &node.kind, "must be object at the root");
        }
    }

    /// Type and metadata of a resource are implied; a schema may only narrow the names.
    fn metadata(&mut self, node: &Props, level: Level, path: &str) {
        let resource = level == Level::Root || node.embedded;
        if resource {
            for name in ["kind", "apiVersion"] {
                if let Some(child) = node.properties.get(name)
                    && child.kind != "string"
                {
                    self.invalid_text(
                        &format!("{path}.properties[{name}].type"),
                        &child.kind,
                        "must be string",
                    );
                }
            }
        }
        let Some(metadata) = node.properties.get("metadata") else { return };
        let path = format!("{path}.properties[metadata]");
        if resource && metadata.kind != "object" {
            self.invalid_text(&format!("{path}.type"), &metadata.kind, "must be object");
        }
        if level == Level::Root && !only_names(metadata) {
            self.errors.push(FieldError::forbidden(
                path,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }

    fn values(&mut self, node: &Props, skip_any_of: bool, skip_first_all_of: bool, path: &str) {
        if !skip_any_of {
            for (index, child) in node.any_of.iter().enumerate() {
                self.nested(child, false, &format!("{path}.anyOf[{index}]"));
            }
        }
        for (index, child) in node.all_of.iter().enumerate() {
            self.nested(child, skip_first_all_of && index == 0, &format!("{path}.allOf[{index}]"));
        }
        for (index, child) in node.one_of.iter().enumerate() {
            self.nested(child, false, &format!("{path}.oneOf[{index}]"));
        }
        if let Some(child) = &node.not {
            self.nested(child, false, &format!("{path}.not"));
        }
        if !node.pattern.is_empty() {
            let known = self.patterns.get(&node.pattern).cloned();
            let problem = known.unwrap_or_else(|| {
                let problem = Pattern::new(&node.pattern).error().map(str::to_owned);
                self.patterns.insert(node.pattern.clone(), problem.clone());
                problem
            });
            if let Some(problem) = problem {
                let detail =
                    format!("must be a valid regular expression, but isn't: error parsing regexp: {problem}");
                self.invalid_text(&format!("{path}.pattern"), &node.pattern, &detail);
            }
        }
    }

    fn nested(&mut self, node: &Props, skip_any_of: bool, path: &str) {
        self.values(node, skip_any_of, false, path);
        if let Some(item) = node.item() {
            self.nested(item, false, &format!("{path}.items"));
        }
        for (name, child) in &node.properties {
            self.nested(child, false, &format!("{path}.properties[{name}]"));
        }
        if !matches!(node.additional, None | Some(AdditionalProps::Allowed(false))) {
            self.forbidden(path, "additionalProperties", "must be undefined to be structural");
        }
        let empty = "must be empty to be structural";
        let undefined = "must be undefined to be structural";
        let off = "must be false to be structural";
        for (set, name, detail) in [
            (!node.kind.is_empty(), "type", empty),
            (node.default.is_some(), "default", undefined),
            (node.title, "title", empty),
            (node.description.as_ref().is_some_and(|text| !text.is_empty()), "description", empty),
            (node.nullable, "nullable", off),
            (node.preserves(), "x-kubernetes-preserve-unknown-fields", off),
            (node.embedded, "x-kubernetes-embedded-resource", off),
            (node.int_or_string, "x-kubernetes-int-or-string", off),
            (!node.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", empty),
            (node.list_type.is_some(), "x-kubernetes-list-type", undefined),
            (node.map_type.is_some(), "x-kubernetes-map-type", undefined),
            (!node.rules.is_empty(), "x-kubernetes-validations", empty),
        ] {
            if set {
                self.forbidden(path, name, detail);
            }
        }
        if node.properties.contains_key("metadata") {
            self.forbidden(path, "properties[metadata]", "must not be specified in a nested context");
        }
    }

    fn required(&mut self, path: &str, name: &str, detail: &str) {
        self.errors.push(FieldError::required(format!("{path}.{name}"), detail));
    }

    fn forbidden(&mut self, path: &str, name: &str, detail: &str) {
        self.errors.push(FieldError::forbidden(format!("{path}.{name}"), detail));
    }

    fn invalid_text(&mut self, path: &str, text: &str, detail: &str) {
        self.errors.push(FieldError::invalid(path, &text.into(), detail));
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, which int-or-string fields may spell out.
fn is_int_or_string(any_of: &[Props]) -> bool {
    let only = |kind: &str| Props { kind: kind.to_owned(), ..Props::default() };
    matches!(any_of, [first, second] if *first == only("integer") && *second == only("string"))
}

fn first_is_int_or_string(all_of: &[Props]) -> bool {
    all_of.first().is_some_and(|first| is_int_or_string(&first.any_of))
}

fn only_names(metadata: &Props) -> bool {
    let names = metadata.properties.keys().all(|name| name == "name" || name == "generateName");
    let rest = Props {
        kind: metadata.kind.clone(),
        default: metadata.default.clone(),
        properties: metadata.properties.clone(),
        ..Props::default()
    };
    names && rest == *metadata
}
