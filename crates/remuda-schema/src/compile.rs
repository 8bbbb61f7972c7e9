//! From the JSON of a definition's schema to the tree that requests are checked against.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    fieldpath,
    format::Format,
    props::{AdditionalProps, Props, RuleSource, SchemaError},
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
    let mut compiler = Compiler::default();
    rules::compile_tree(Arc::new(compiler.node(props)), true)
}

/// Large schemas repeat a few patterns hundreds of times; each is compiled once.
#[derive(Default)]
struct Compiler {
    patterns: HashMap<String, Pattern>,
}

impl Compiler {
    fn node(&mut self, props: &Props) -> Schema {
        let properties: BTreeMap<String, Arc<Schema>> =
            props.properties.iter().map(|(name, child)| (name.clone(), Arc::new(self.node(child)))).collect();
        let additional = match &props.additional {
            None => None,
            Some(AdditionalProps::Allowed(_)) => Some(Additional::Any),
            Some(AdditionalProps::Schema(schema)) => Some(Additional::Schema(Arc::new(self.node(schema)))),
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
            items: props.item().map(|item| Arc::new(self.node(item))),
            default: props.default.clone(),
            list_type,
            atomic_map: props.map_type.as_deref() == Some("atomic"),
            validation: self.validation(props).map(Box::new),
            ..Schema::default()
        }
        .seal()
    }

    fn validation(&mut self, props: &Props) -> Option<Validation> {
        let validation = Validation {
            minimum: props.minimum,
            exclusive_minimum: props.exclusive_minimum,
            maximum: props.maximum,
            exclusive_maximum: props.exclusive_maximum,
            multiple_of: props.multiple_of,
            min_length: props.min_length,
            max_length: props.max_length,
            pattern: (!props.pattern.is_empty()).then(|| self.pattern(&props.pattern)),
            enumeration: props.enumeration.clone(),
            min_items: props.min_items,
            max_items: props.max_items,
            unique_items: props.unique_items,
            min_properties: props.min_properties,
            max_properties: props.max_properties,
            closed: props.additional == Some(AdditionalProps::Allowed(false)),
            all_of: self.nested(&props.all_of),
            any_of: self.nested(&props.any_of),
            one_of: self.nested(&props.one_of),
            not: props.not.as_ref().map(|child| Arc::new(self.node(child))),
            format: Format::of(if props.int_or_string { "" } else { &props.kind }, &props.format),
            rules: props
                .rules
                .iter()
                .filter(|rule| !rule.rule.trim().is_empty())
                .map(|source| rule(props, source))
                .collect(),
        };
        (validation != Validation::default()).then_some(validation)
    }

    fn pattern(&mut self, source: &str) -> Pattern {
        if let Some(known) = self.patterns.get(source) {
            return known.clone();
        }
        let pattern = Pattern::new(source);
        self.patterns.insert(source.to_owned(), pattern.clone());
        pattern
    }

    fn nested(&mut self, list: &[Props]) -> Vec<Arc<Schema>> {
        list.iter().map(|child| Arc::new(self.node(child))).collect()
    }
}

fn rule(props: &Props, source: &RuleSource) -> Rule {
    let field = match source.field_path.as_str() {
        "" => String::new(),
        path => fieldpath::resolve(path, props, true).map(|found| found.text).unwrap_or_default(),
    };
    Rule::new(source.clone(), field)
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
