//! From the JSON of a definition's schema to the tree that requests are checked against.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    format::Format,
    props::{AdditionalProps, Props, SchemaError},
    rules::{self, Rule},
    schema::{Additional, ListType, Schema, Type},
    validation::{Pattern, Validation},
};

/// Compiles the `openAPIV3Schema` of a definition's version.
///
/// Accepts every schema with the shape of one, also such as [`crate::check_structural`] refuses:
/// stored definitions must stay usable. What has no meaning is left out.
pub fn compile(schema_json: &Value) -> Result<Arc<Schema>, SchemaError> {
    let props = Props::parse(schema_json)?;
    Ok(compile_props(&props))
}

pub(crate) fn compile_props(props: &Props) -> Arc<Schema> {
    let schema = node(props, true);
    rules::compile_tree(Arc::new(schema), true)
}

/// A tree whose rules are not compiled, for checks that only need structure.
pub(crate) fn compile_without_rules(props: &Props) -> Schema {
    node(props, false)
}

fn node(props: &Props, with_rules: bool) -> Schema {
    let properties: BTreeMap<String, Arc<Schema>> = props
        .properties
        .iter()
        .map(|(name, child)| (name.clone(), Arc::new(node(child, with_rules))))
        .collect();
    let additional = match &props.additional {
        None => None,
        Some(AdditionalProps::Allowed(_)) => Some(Additional::Any),
        Some(AdditionalProps::Schema(schema)) => Some(Additional::Schema(Arc::new(node(schema, with_rules)))),
    };
    let list_type = match props.list_type.as_deref() {
        Some("set") => ListType::Set,
        Some("map") if !props.list_map_keys.is_empty() => ListType::Map(props.list_map_keys.clone()),
        _ => ListType::Atomic,
    };
    Schema {
        kind: if props.int_or_string { Type::Any } else { parse_type(&props.kind) },
        description: props.description.clone(),
        format: (!props.format.is_empty()).then(|| props.format.clone()),
        nullable: props.nullable,
        int_or_string: props.int_or_string,
        preserve_unknown: props.preserves(),
        embedded_resource: props.embedded,
        properties,
        required: props.required.clone(),
        additional,
        items: props.item().map(|item| Arc::new(node(item, with_rules))),
        default: props.default.clone(),
        list_type,
        atomic_map: props.map_type.as_deref() == Some("atomic"),
        validation: validation(props, with_rules).map(Box::new),
        ..Schema::default()
    }
    .seal()
}

fn parse_type(name: &str) -> Type {
    match name {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        "number" => Type::Number,
        "boolean" => Type::Boolean,
        _ => Type::Any,
    }
}

fn validation(props: &Props, with_rules: bool) -> Option<Validation> {
    let nested = |list: &[Props]| list.iter().map(|child| Arc::new(node(child, with_rules))).collect();
    let validation = Validation {
        minimum: props.minimum,
        exclusive_minimum: props.exclusive_minimum,
        maximum: props.maximum,
        exclusive_maximum: props.exclusive_maximum,
        multiple_of: props.multiple_of,
        min_length: props.min_length,
        max_length: props.max_length,
        pattern: (!props.pattern.is_empty()).then(|| Pattern::new(&props.pattern)),
        enumeration: props.enumeration.clone(),
        min_items: props.min_items,
        max_items: props.max_items,
        unique_items: props.unique_items,
        min_properties: props.min_properties,
        max_properties: props.max_properties,
        closed: props.additional == Some(AdditionalProps::Allowed(false)),
        all_of: nested(&props.all_of),
        any_of: nested(&props.any_of),
        one_of: nested(&props.one_of),
        not: props.not.as_ref().map(|child| Arc::new(node(child, with_rules))),
        format: Format::of(if props.int_or_string { "" } else { &props.kind }, &props.format),
        rules: if with_rules { props.rules.iter().cloned().map(Rule::new).collect() } else { Vec::new() },
    };
    (validation != Validation::default()).then_some(validation)
}
