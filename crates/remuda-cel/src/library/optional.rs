//! Optional values.

use super::{Cx, Entry};
use crate::{
    time::{MIN_SECONDS as ZERO_TIME, Timestamp},
    value::{EvalError, Result, Value},
};

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "optional.of", native: of, overloads: &["(A) -> optional(A)"] },
    Entry { name: "optional.ofNonZeroValue", native: of_non_zero, overloads: &["(A) -> optional(A)"] },
    Entry {
        name: "optional.none",
        native: |_, _| Ok(Value::Optional(None)),
        overloads: &["() -> optional(A)"],
    },
    Entry { name: "optional.unwrap", native: unwrap, overloads: &["(list(optional(A))) -> list(A)"] },
    Entry { name: "unwrapOpt", native: unwrap, overloads: &[".(list(optional(A))) -> list(A)"] },
    Entry { name: "hasValue", native: has_value, overloads: &[".(optional(A)) -> bool"] },
    Entry { name: "value", native: value, overloads: &[".(optional(A)) -> A"] },
    // Both are evaluated by a node of their own, which leaves out what is not needed.
    Entry { name: "or", native: or, overloads: &[".(optional(A), optional(A)) -> optional(A)"] },
    Entry { name: "orValue", native: or_value, overloads: &[".(optional(A), A) -> A"] },
];

fn of<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::some(args[0].clone()))
}

fn of_non_zero<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let zero = match &args[0] {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Int(int) => *int == 0,
        Value::Uint(uint) => *uint == 0,
        Value::Double(double) => *double == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::Duration(nanos) => *nanos == 0,
        // The zero of Go: the first second of year 1.
        Value::Timestamp(time) => Timestamp::new(ZERO_TIME, 0) == Some(*time),
        Value::List(list) => list.is_empty(),
        Value::Map(map) => map.is_empty(),
        Value::Optional(inner) => inner.is_none(),
        _ => false,
    };
    Ok(if zero { Value::Optional(None) } else { Value::some(args[0].clone()) })
}

fn unwrap<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    cx.budget.items(list.len())?;
    let mut out = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(inner) => out.extend(inner.map(|inner| Value::clone(&inner))),
            _ => return Err(EvalError::no_overload()),
        }
    }
    Ok(Value::list(out))
}

fn has_value<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(EvalError::no_overload()),
    }
}

fn value<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(Some(inner)) => Ok(Value::clone(inner)),
        Value::Optional(None) => Err(EvalError::failed("optional.none() dereference")),
        _ => Err(EvalError::no_overload()),
    }
}

fn or<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(Some(_)) => Ok(args[0].clone()),
        Value::Optional(None) => Ok(args[1].clone()),
        _ => Err(EvalError::no_overload()),
    }
}

fn or_value<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Optional(Some(inner)) => Ok(Value::clone(inner)),
        Value::Optional(None) => Ok(args[1].clone()),
        _ => Err(EvalError::no_overload()),
    }
}
