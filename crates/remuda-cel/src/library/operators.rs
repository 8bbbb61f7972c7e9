//! Operators, `size` and `in`.

use std::{cmp::Ordering, sync::Arc};

use super::{Cx, Entry};
use crate::{
    Budget,
    value::{EvalError, Key, Result, Value, compare, contains, equal},
};

const ORDERED: &[&str] = &[
    "(bool, bool) -> bool",
    "(int, int) -> bool",
    "(int, double) -> bool",
    "(int, uint) -> bool",
    "(uint, uint) -> bool",
    "(uint, double) -> bool",
    "(uint, int) -> bool",
    "(double, double) -> bool",
    "(double, int) -> bool",
    "(double, uint) -> bool",
    "(string, string) -> bool",
    "(bytes, bytes) -> bool",
    "(timestamp, timestamp) -> bool",
    "(duration, duration) -> bool",
];
const INDEX: &[&str] = &[
    "(list(A), int) -> A",
    "(map(A, B), A) -> B",
    "(optional(list(A)), int) -> optional(A)",
    "(optional(map(A, B)), A) -> optional(B)",
];
const OPT_INDEX: &[&str] = &[
    "(list(A), int) -> optional(A)",
    "(optional(list(A)), int) -> optional(A)",
    "(map(A, B), A) -> optional(B)",
    "(optional(map(A, B)), A) -> optional(B)",
];
const SIZE: &[&str] = &[
    "(bytes) -> int",
    ".(bytes) -> int",
    "(list(A)) -> int",
    ".(list(A)) -> int",
    "(map(A, B)) -> int",
    ".(map(A, B)) -> int",
    "(string) -> int",
    ".(string) -> int",
];
const ADD: &[&str] = &[
    "(bytes, bytes) -> bytes",
    "(double, double) -> double",
    "(duration, duration) -> duration",
    "(duration, timestamp) -> timestamp",
    "(timestamp, duration) -> timestamp",
    "(int, int) -> int",
    "(list(A), list(A)) -> list(A)",
    "(string, string) -> string",
    "(uint, uint) -> uint",
];
const SUBTRACT: &[&str] = &[
    "(double, double) -> double",
    "(duration, duration) -> duration",
    "(int, int) -> int",
    "(timestamp, duration) -> timestamp",
    "(timestamp, timestamp) -> duration",
    "(uint, uint) -> uint",
];
const SCALE: &[&str] = &["(double, double) -> double", "(int, int) -> int", "(uint, uint) -> uint"];

pub(super) const TABLE: &[Entry] = &[
    // Evaluated by a node of its own; here for its name.
    Entry { name: "_?_:_", native: condition, overloads: &["(bool, A, A) -> A"] },
    Entry { name: "!_", native: not, overloads: &["(bool) -> bool"] },
    Entry { name: "-_", native: negate, overloads: &["(double) -> double", "(int) -> int"] },
    Entry { name: "_==_", native: equals, overloads: &["(A, A) -> bool"] },
    Entry { name: "_!=_", native: differs, overloads: &["(A, A) -> bool"] },
    Entry { name: "_<_", native: less, overloads: ORDERED },
    Entry { name: "_<=_", native: less_or_equal, overloads: ORDERED },
    Entry { name: "_>_", native: greater, overloads: ORDERED },
    Entry { name: "_>=_", native: greater_or_equal, overloads: ORDERED },
    Entry { name: "_+_", native: add, overloads: ADD },
    Entry { name: "_-_", native: subtract, overloads: SUBTRACT },
    Entry { name: "_*_", native: multiply, overloads: SCALE },
    Entry { name: "_/_", native: divide, overloads: SCALE },
    Entry { name: "_%_", native: modulo, overloads: &["(int, int) -> int", "(uint, uint) -> uint"] },
    Entry { name: "_[_]", native: at, overloads: INDEX },
    Entry { name: "_[?_]", native: optional_at, overloads: OPT_INDEX },
    Entry { name: "@in", native: is_in, overloads: &["(A, list(A)) -> bool", "(A, map(A, B)) -> bool"] },
    Entry { name: "size", native: size, overloads: SIZE },
];

fn condition<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bool(true) => Ok(args[1].clone()),
        Value::Bool(false) => Ok(args[2].clone()),
        _ => Err(EvalError::no_overload()),
    }
}

fn not<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    args[0].as_bool().map(|bool| Value::Bool(!bool)).ok_or_else(EvalError::no_overload)
}

fn negate<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args[0] {
        Value::Int(int) => int.checked_neg().map(Value::Int).ok_or_else(int_overflow),
        Value::Double(double) => Ok(Value::Double(-double)),
        _ => Err(EvalError::no_overload()),
    }
}

fn equals<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    equal(&args[0], &args[1], cx.budget).map(Value::Bool)
}

fn differs<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    equal(&args[0], &args[1], cx.budget).map(|same| Value::Bool(!same))
}

fn less<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    compare(&args[0], &args[1], cx.budget).map(|order| Value::Bool(order == Ordering::Less))
}

fn less_or_equal<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    compare(&args[0], &args[1], cx.budget).map(|order| Value::Bool(order != Ordering::Greater))
}

fn greater<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    compare(&args[0], &args[1], cx.budget).map(|order| Value::Bool(order == Ordering::Greater))
}

fn greater_or_equal<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    compare(&args[0], &args[1], cx.budget).map(|order| Value::Bool(order != Ordering::Less))
}

fn int_overflow() -> EvalError {
    EvalError::failed("integer overflow")
}

fn uint_overflow() -> EvalError {
    EvalError::failed("unsigned integer overflow")
}

fn duration_overflow() -> EvalError {
    EvalError::failed("duration overflow")
}

fn timestamp_overflow() -> EvalError {
    EvalError::failed("timestamp overflow")
}

/// Also what `sum()` does.
pub(super) fn add_two<'a>(a: &Value<'a>, b: &Value<'a>, budget: &mut Budget) -> Result<Value<'a>> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_add(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            budget.bytes(a.len() + b.len())?;
            Ok(Value::string([&**a, &**b].concat()))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.bytes(a.len() + b.len())?;
            Ok(Value::Bytes(Arc::from([&**a, &**b].concat())))
        }
        (Value::List(a), Value::List(b)) => a.concat(b, budget),
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_add(*b).map(Value::Duration).ok_or_else(duration_overflow)
        }
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            time.add_nanos(*span).map(Value::Timestamp).ok_or_else(timestamp_overflow)
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn add<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    add_two(&args[0], &args[1], cx.budget)
}

fn subtract<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => a.checked_sub(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_sub(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => {
            a.checked_sub(*b).map(Value::Duration).ok_or_else(duration_overflow)
        }
        (Value::Timestamp(time), Value::Duration(span)) => {
            let back = span.checked_neg().ok_or_else(duration_overflow)?;
            time.add_nanos(back).map(Value::Timestamp).ok_or_else(timestamp_overflow)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            a.since(*b).map(Value::Duration).ok_or_else(duration_overflow)
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn multiply<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => a.checked_mul(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_mul(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn divide<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::failed("division by zero"))
        }
        (Value::Int(a), Value::Int(b)) => a.checked_div(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(a / b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn modulo<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            Err(EvalError::failed("modulus by zero"))
        }
        (Value::Int(a), Value::Int(b)) => a.checked_rem(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(a % b)),
        _ => Err(EvalError::no_overload()),
    }
}

fn is_in<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[1] {
        Value::List(list) => contains(list, &args[0], cx.budget).map(Value::Bool),
        Value::Map(map) => match Key::from_value(&args[0]) {
            Some(key) => {
                key.charge(cx.budget)?;
                map.has(&key, cx.budget).map(Value::Bool)
            }
            None => Ok(Value::Bool(false)),
        },
        _ => Err(EvalError::no_overload()),
    }
}

/// The place an index value names; doubles and unsigned numbers count when they are whole.
fn position(index: &Value<'_>) -> Result<i64> {
    match Key::from_value(index) {
        Some(Key::Int(index)) => Ok(index),
        Some(Key::Uint(index)) => Ok(i64::try_from(index).unwrap_or(i64::MAX)),
        _ => Err(EvalError::failed(format!("unsupported index type '{}' in list", index.type_name()))),
    }
}

/// The element at an index or key, if there is one.
fn find<'a>(operand: &Value<'a>, index: &Value<'a>, budget: &mut Budget) -> Result<Option<Value<'a>>> {
    match operand {
        Value::List(list) => match usize::try_from(position(index)?) {
            Ok(index) if index < list.len() => {
                let item = list.get(index)?;
                item.charge_read(budget)?;
                Ok(Some(item))
            }
            _ => Ok(None),
        },
        Value::Map(map) => match Key::from_value(index) {
            Some(key) => {
                key.charge(budget)?;
                let value = map.get(&key, budget)?;
                value.as_ref().map_or(Ok(()), |value| value.charge_read(budget))?;
                Ok(value)
            }
            None => Ok(None),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn at<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    if let Value::Optional(_) = &args[0] {
        return optional_at(cx, args);
    }
    if let Some(value) = find(&args[0], &args[1], cx.budget)? {
        return Ok(value);
    }
    match &args[0] {
        Value::List(list) => {
            let (index, size) = (position(&args[1])?, list.len());
            Err(EvalError::failed(format!("index '{index}' out of range in list size '{size}'")))
        }
        _ => match Key::from_value(&args[1]) {
            Some(key) => Err(EvalError::failed(format!("no such key: {key}"))),
            None => Err(EvalError::failed(format!("unsupported key type: {}", args[1].type_name()))),
        },
    }
}

fn optional_at<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let found = match &args[0] {
        Value::Optional(None) => None,
        Value::Optional(Some(inner)) => find(inner, &args[1], cx.budget)?,
        other => find(other, &args[1], cx.budget)?,
    };
    Ok(Value::Optional(found.map(Arc::new)))
}

fn size<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let size = match &args[0] {
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64 / 10)?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => return Err(EvalError::no_overload()),
    };
    Ok(Value::Int(size as i64))
}
