//! Numbers.

use std::cmp::Ordering;

use super::{Cx, Entry};
use crate::value::{EvalError, Result, Value, compare};

const DOUBLE: &[&str] = &["(double) -> double"];
const CHECK: &[&str] = &["(double) -> bool"];
const SAME: &[&str] = &["(double) -> double", "(int) -> int", "(uint) -> uint"];
const BITS: &[&str] = &["(int, int) -> int", "(uint, uint) -> uint"];
const SHIFT: &[&str] = &["(int, int) -> int", "(uint, int) -> uint"];
const EXTREME: &[&str] = &[
    "(double) -> double",
    "(int) -> int",
    "(uint) -> uint",
    "(double, double) -> double",
    "(int, int) -> int",
    "(uint, uint) -> uint",
    "(int, uint) -> dyn",
    "(int, double) -> dyn",
    "(double, int) -> dyn",
    "(double, uint) -> dyn",
    "(uint, int) -> dyn",
    "(uint, double) -> dyn",
    "(list(double)) -> double",
    "(list(int)) -> int",
    "(list(uint)) -> uint",
];

pub(super) const TABLE: &[Entry] = &[
    Entry {
        name: "math.@max",
        native: |cx, args| extreme(cx, args, "max", Ordering::Greater),
        overloads: EXTREME,
    },
    Entry {
        name: "math.@min",
        native: |cx, args| extreme(cx, args, "min", Ordering::Less),
        overloads: EXTREME,
    },
    Entry { name: "math.ceil", native: |_, args| double(args, f64::ceil), overloads: DOUBLE },
    Entry { name: "math.floor", native: |_, args| double(args, f64::floor), overloads: DOUBLE },
    Entry { name: "math.round", native: |_, args| double(args, f64::round), overloads: DOUBLE },
    Entry { name: "math.trunc", native: |_, args| double(args, f64::trunc), overloads: DOUBLE },
    Entry { name: "math.isNaN", native: |_, args| check(args, f64::is_nan), overloads: CHECK },
    Entry { name: "math.isInf", native: |_, args| check(args, f64::is_infinite), overloads: CHECK },
    Entry { name: "math.isFinite", native: |_, args| check(args, f64::is_finite), overloads: CHECK },
    Entry { name: "math.abs", native: abs, overloads: SAME },
    Entry { name: "math.sign", native: sign, overloads: SAME },
    Entry {
        name: "math.sqrt",
        native: sqrt,
        overloads: &["(double) -> double", "(int) -> double", "(uint) -> double"],
    },
    Entry { name: "math.bitAnd", native: |_, args| bits(args, |a, b| a & b), overloads: BITS },
    Entry { name: "math.bitOr", native: |_, args| bits(args, |a, b| a | b), overloads: BITS },
    Entry { name: "math.bitXor", native: |_, args| bits(args, |a, b| a ^ b), overloads: BITS },
    Entry { name: "math.bitNot", native: not, overloads: &["(int) -> int", "(uint) -> uint"] },
    Entry { name: "math.bitShiftLeft", native: shift_left, overloads: SHIFT },
    Entry { name: "math.bitShiftRight", native: shift_right, overloads: SHIFT },
];

fn extreme<'a>(cx: &mut Cx<'_>, args: &[Value<'a>], name: &str, wanted: Ordering) -> Result<Value<'a>> {
    let items: Vec<Value<'a>> = match args {
        [Value::List(list)] => {
            cx.budget.items(list.len())?;
            list.iter().collect::<Result<_>>()?
        }
        values => values.to_vec(),
    };
    let mut best: Option<Value<'a>> = None;
    for item in items {
        if !matches!(item, Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
            return Err(EvalError::failed(format!("no such overload: math.@{name}")));
        }
        best = Some(match best {
            Some(best) if compare(&item, &best, cx.budget)? != wanted => best,
            _ => item,
        });
    }
    best.ok_or_else(|| EvalError::failed(format!("math.@{name}(list) argument must not be empty")))
}

fn double<'a>(args: &[Value<'a>], change: fn(f64) -> f64) -> Result<Value<'a>> {
    match args[0] {
        Value::Double(double) => Ok(Value::Double(change(double))),
        _ => Err(EvalError::no_overload()),
    }
}

fn check<'a>(args: &[Value<'a>], check: fn(f64) -> bool) -> Result<Value<'a>> {
    match args[0] {
        Value::Double(double) => Ok(Value::Bool(check(double))),
        _ => Err(EvalError::no_overload()),
    }
}

fn abs<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args[0] {
        Value::Double(double) => Ok(Value::Double(double.abs())),
        Value::Int(int) => {
            int.checked_abs().map(Value::Int).ok_or_else(|| EvalError::failed("integer overflow"))
        }
        Value::Uint(uint) => Ok(Value::Uint(uint)),
        _ => Err(EvalError::no_overload()),
    }
}

fn sign<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args[0] {
        Value::Double(double) if double.is_nan() || double == 0.0 => Ok(Value::Double(double)),
        Value::Double(double) => Ok(Value::Double(double.signum())),
        Value::Int(int) => Ok(Value::Int(int.signum())),
        Value::Uint(uint) => Ok(Value::Uint(uint.min(1))),
        _ => Err(EvalError::no_overload()),
    }
}

fn sqrt<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args[0] {
        Value::Double(double) => Ok(Value::Double(double.sqrt())),
        Value::Int(int) => Ok(Value::Double((int as f64).sqrt())),
        Value::Uint(uint) => Ok(Value::Double((uint as f64).sqrt())),
        _ => Err(EvalError::no_overload()),
    }
}

fn bits<'a>(args: &[Value<'a>], combine: fn(u64, u64) -> u64) -> Result<Value<'a>> {
    match (&args[0], &args[1]) {
        (Value::Int(a), Value::Int(b)) => Ok(Value::Int(combine(*a as u64, *b as u64) as i64)),
        (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(combine(*a, *b))),
        _ => Err(EvalError::no_overload()),
    }
}

fn not<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match args[0] {
        Value::Int(int) => Ok(Value::Int(!int)),
        Value::Uint(uint) => Ok(Value::Uint(!uint)),
        _ => Err(EvalError::no_overload()),
    }
}

/// Places to shift by; `None` shifts everything out.
fn places(name: &str, arg: &Value<'_>) -> Result<Option<u32>> {
    let places = arg.int_arg()?;
    if places < 0 {
        return Err(EvalError::failed(format!("math.{name}() negative offset: {places}")));
    }
    Ok(u32::try_from(places).ok().filter(|places| *places < 64))
}

fn shift_left<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let places = places("bitShiftLeft", &args[1])?;
    match args[0] {
        Value::Int(int) => Ok(Value::Int(places.map_or(0, |places| int << places))),
        Value::Uint(uint) => Ok(Value::Uint(places.map_or(0, |places| uint << places))),
        _ => Err(EvalError::no_overload()),
    }
}

fn shift_right<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let places = places("bitShiftRight", &args[1])?;
    match args[0] {
        // Zeroes are shifted in, also for negative numbers.
        Value::Int(int) => Ok(Value::Int(places.map_or(0, |places| ((int as u64) >> places) as i64))),
        Value::Uint(uint) => Ok(Value::Uint(places.map_or(0, |places| uint >> places))),
        _ => Err(EvalError::no_overload()),
    }
}
