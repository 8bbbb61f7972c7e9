//! Schemas as types of expressions, and the compilation of all rules of a tree.

use std::sync::Arc;

use remuda_cel::{Env, ListSemantics, ObjectType, Type};

use super::{Compiled, Rule};
use crate::{
    props::RuleSource,
    schema::{Additional, ListType, Schema, Type as Kind},
};

/// Compiles the rules of every node. Trees without rules come back as they are.
pub(crate) fn compile_tree(mut schema: Arc<Schema>, root: bool) -> Arc<Schema> {
    if super::exist(&schema) {
        node(&mut schema, "selfType", root, false);
    }
    schema
}

/// Compiles below and at a node and returns its type: `None` when expressions cannot see it.
fn node(schema: &mut Arc<Schema>, name: &str, resource: bool, wanted: bool) -> Option<Type> {
    if !wanted && !super::exist(schema) {
        return None;
    }
    let own_rules = schema.validation.as_ref().is_some_and(|validation| !validation.rules.is_empty());
    let wanted = wanted || own_rules;
    if !super::exist(schema) {
        return type_of(schema, name, resource);
    }
    // The tree was built a moment ago and nobody shares it yet, so nothing is copied here.
    let schema = Arc::make_mut(schema);
    let mut object = ObjectType::new(name);
    for (field, child) in &mut schema.properties {
        let embedded = child.embedded_resource;
        if let Some(ty) = node(child, &format!("{name}.{field}"), embedded, wanted) {
            object = object.field(field, ty);
        }
    }
    let value = match &mut schema.additional {
        Some(Additional::Schema(child)) => {
            let embedded = child.embedded_resource;
            Some(node(child, &format!("{name}.@elem"), embedded, wanted))
        }
        _ => None,
    };
    let item = schema.items.as_mut().and_then(|child| {
        let embedded = child.embedded_resource;
        node(child, &format!("{name}.@idx"), embedded, wanted)
    });
    if !wanted {
        return None;
    }
    let ty = assemble(schema, name, resource, object, value, item);
    if own_rules && let Some(validation) = &mut schema.validation {
        for rule in &mut validation.rules {
            rule.compiled = Some(Arc::new(compile(rule, ty.as_ref())));
        }
    }
    ty
}

/// The type of objects of a kind, as expressions from elsewhere see them. `None` if nothing is declared.
pub fn object_type(schema: &Schema, name: &str) -> Option<Type> {
    type_of(schema, name, true)
}

fn type_of(schema: &Schema, name: &str, resource: bool) -> Option<Type> {
    let mut object = ObjectType::new(name);
    for (field, child) in &schema.properties {
        if let Some(ty) = type_of(child, &format!("{name}.{field}"), child.embedded_resource) {
            object = object.field(field, ty);
        }
    }
    let value = match &schema.additional {
        Some(Additional::Schema(child)) => {
            Some(type_of(child, &format!("{name}.@elem"), child.embedded_resource))
        }
        _ => None,
    };
    let item = schema
        .items
        .as_ref()
        .and_then(|child| type_of(child, &format!("{name}.@idx"), child.embedded_resource));
    assemble(schema, name, resource, object, value, item)
}

fn assemble(
    schema: &Schema,
    name: &str,
    resource: bool,
    object: ObjectType,
    value: Option<Option<Type>>,
    item: Option<Type>,
) -> Option<Type> {
    if schema.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match schema.kind {
        Kind::Any => return None,
        Kind::Array => {
            let semantics = match &schema.list_type {
                ListType::Atomic => ListSemantics::Ordered,
                ListType::Set => ListSemantics::Set,
                ListType::Map(keys) => ListSemantics::Map(keys.clone()),
            };
            Type::list_with(item?, semantics)
        }
        Kind::Object => match value {
            Some(value) => Type::map(Type::String, value?),
            None if resource => Type::object(with_meta(object, name, schema)),
            None => Type::object(object),
        },
        Kind::String => match schema.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        },
        Kind::Integer => Type::Int,
        Kind::Number => Type::Double,
        Kind::Boolean => Type::Bool,
    })
}

/// Rules of a resource always see its type and its name, and of its metadata only that.
fn with_meta(object: ObjectType, name: &str, schema: &Schema) -> ObjectType {
    let metadata_done = schema.properties.get("metadata").is_some_and(|metadata| {
        ["name", "generateName"].iter().all(|field| metadata.properties.contains_key(*field))
    });
    let mut object = object.field("apiVersion", Type::String).field("kind", Type::String);
    if !metadata_done {
        let metadata = ObjectType::new(format!("{name}.metadata"))
            .field("name", Type::String)
            .field("generateName", Type::String);
        object = object.field("metadata", Type::object(metadata));
    }
    object
}

fn compile(rule: &Rule, ty: Option<&Type>) -> Compiled {
    let source = &rule.source;
    let Some(ty) = ty else {
        let problem = "failed to convert to declType for CEL validation rules".to_owned();
        return Compiled { rule: Err(problem), message: None, uses_old: false };
    };
    let env = environment(source, ty);
    let compiled = match env.compile(&source.rule) {
        Err(errors) => Err(format!("compilation failed: {errors}")),
        Ok(program) if *program.output() != Type::Bool => {
            Err("cel expression must evaluate to a bool".to_owned())
        }
        Ok(program) => Ok(program),
    };
    let uses_old = compiled.as_ref().is_ok_and(|program| program.references("oldSelf"));
    let message =
        (!source.message_expression.is_empty()).then(|| match env.compile(&source.message_expression) {
            Err(errors) => Err(format!("messageExpression compilation failed: {errors}")),
            Ok(program) if *program.output() != Type::String => {
                Err("messageExpression must evaluate to a string".to_owned())
            }
            Ok(program) => Ok(program),
        });
    Compiled { rule: compiled, message, uses_old }
}

fn environment(source: &RuleSource, ty: &Type) -> Env {
    let old = if source.optional_old_self == Some(true) { Type::optional(ty.clone()) } else { ty.clone() };
    Env::new().variable("self", ty.clone()).variable("oldSelf", old)
}
