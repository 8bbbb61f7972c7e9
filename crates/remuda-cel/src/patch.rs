//! What expressions of mutating policies give: configurations to apply, and JSON patches.

use serde_json::{Map as JsonMap, Value as Json};

use crate::{Budget, EvalError, Key, Map, Type, Value, types::ObjectType, value::Result};

/// The type of a whole object. What is below it is named after its path, as in `Object.spec`.
pub const OBJECT: &str = "Object";
pub(crate) const BELOW: &str = "Object.";
/// One operation of a JSON patch.
pub const OPERATION: &str = "JSONPatch";
pub(crate) const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// Functions that are of no use elsewhere.
pub(crate) fn is_function(name: &str) -> bool {
    name == ESCAPE_KEY
}

pub(crate) fn operation_field(name: &str) -> Option<Type> {
    match name {
        "op" | "path" | "from" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => None,
    }
}

/// What an expression has to give for a configuration to apply.
pub fn configuration_type() -> Type {
    Type::object(ObjectType::new(OBJECT))
}

/// What an expression has to give for a JSON patch.
pub fn operations_type() -> Type {
    Type::list(Type::object(ObjectType::new(OPERATION)))
}

/// A configuration as JSON, if all objects in it are named after where they are.
pub fn configuration(value: &Value<'_>, budget: &mut Budget) -> Result<Json> {
    check_names(value, OBJECT, budget)?;
    match value.to_json(budget)? {
        Some(json @ Json::Object(_)) => Ok(json),
        _ => Err(EvalError::failed("the configuration holds a value that JSON has no place for")),
    }
}

/// The operations of a JSON patch.
pub fn operations(value: &Value<'_>, budget: &mut Budget) -> Result<Json> {
    let Value::List(list) = value else {
        return Err(EvalError::failed("type mismatch: JSONPatchType.expression should evaluate to array"));
    };
    let mut operations = Vec::with_capacity(list.len());
    for index in 0..list.len() {
        let Value::Map(Map::Message(name, fields)) = list.get(index)? else {
            return Err(not_an_operation());
        };
        if *name != *OPERATION {
            return Err(not_an_operation());
        }
        let mut operation = JsonMap::new();
        for (key, value) in fields.iter() {
            // An object that is a value of an operation begins wherever it says it does.
            if let Value::Map(Map::Message(name, _)) = value {
                check_names(value, name, budget)?;
            }
            let Some(json) = value.to_json(budget)? else {
                return Err(EvalError::failed(
                    "JSONPath valueExpression evaluated to a type that could not marshal to JSON",
                ));
            };
            operation.insert(name_of(key).to_owned(), json);
        }
        for required in ["op", "path"] {
            operation.entry(required).or_insert_with(|| "".into());
        }
        if operation.get("from").is_some_and(|from| from == "") {
            operation.remove("from");
        }
        operations.push(Json::Object(operation));
    }
    Ok(Json::Array(operations))
}

/// Fields of messages have names.
fn name_of<'k>(key: &'k Key<'_>) -> &'k str {
    match key {
        Key::String(name) => name,
        _ => "",
    }
}

fn not_an_operation() -> EvalError {
    EvalError::failed("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch")
}

/// Maps and lists on the way have no names.
fn check_names(value: &Value<'_>, expected: &str, budget: &mut Budget) -> Result<()> {
    budget.tenths(1)?;
    match value {
        Value::Map(Map::Message(name, fields)) => {
            if **name != *expected {
                return Err(EvalError::failed(format!(
                    "type mismatch: unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                )));
            }
            for (key, value) in fields.iter() {
                check_names(value, &format!("{expected}.{}", name_of(key)), budget)?;
            }
            Ok(())
        }
        Value::Map(Map::Owned(map)) => {
            map.values().try_for_each(|value| check_names(value, expected, budget))
        }
        Value::List(list) => {
            (0..list.len()).try_for_each(|index| check_names(&list.get(index)?, expected, budget))
        }
        Value::Optional(Some(inner)) => check_names(inner, expected, budget),
        _ => Ok(()),
    }
}
