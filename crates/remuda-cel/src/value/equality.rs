//! Equality and order. Values of different kinds are unequal, not an error; numbers compare
//! by value whatever their kind.

use std::cmp::Ordering;

use serde_json::Value as Json;

use super::{EvalError, List, Map, Result, Value, list::same_keys};
use crate::{
    Budget,
    types::{ListSemantics, ObjectType},
};

pub(crate) fn equal(a: &Value<'_>, b: &Value<'_>, budget: &mut Budget) -> Result<bool> {
    budget.tenths(1)?;
    Ok(match (a, b) {
        (Value::String(a), Value::String(b)) => {
            budget.tenths(a.len().min(b.len()) as u64)?;
            **a == **b
        }
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(a, b) == Some(Ordering::Equal),
        (Value::Null, Value::Null) => true,
        // Both were decoded to get here.
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.tenths((a.len() + b.len()) as u64)?;
            a == b
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => **a == **b,
        (Value::List(a), Value::List(b)) => lists(a, b, budget)?,
        (Value::Map(a), Value::Map(b)) => maps(a, b, budget)?,
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, budget)?,
            (None, None) => true,
            _ => false,
        },
        (Value::Quantity(a), Value::Quantity(b)) => a.compare(b) == Ordering::Equal,
        (Value::Url(a), Value::Url(b)) => a.text == b.text,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Semver(a), Value::Semver(b)) => a.compare(b) == Ordering::Equal,
        (Value::Format(a), Value::Format(b)) => a == b,
        // These are only good for being asked.
        (Value::Access(_), _) | (_, Value::Access(_)) => return Err(EvalError::no_overload()),
        _ => false,
    })
}

/// The order of two numbers; `None` with a NaN, or when one is no number.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(int) => Some(i128::from(*int)),
        Value::Uint(uint) => Some(i128::from(*uint)),
        _ => None,
    };
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), _) => double_with(*a, whole(b)?),
        (_, Value::Double(b)) => double_with(*b, whole(a)?).map(Ordering::reverse),
        _ => Some(whole(a)?.cmp(&whole(b)?)),
    }
}

/// Exact, where a cast to double would round.
fn double_with(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Casts saturate, so infinities end up on the right side.
    let floor = double.floor();
    Some((floor as i128).cmp(&whole).then(if double > floor { Ordering::Greater } else { Ordering::Equal }))
}

/// The order of two values that have one.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>, budget: &mut Budget) -> Result<Ordering> {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => {
            budget.tenths(a.len().min(b.len()) as u64)?;
            (**a).cmp(&**b)
        }
        // Both were decoded to get here.
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.tenths((a.len() + b.len()) as u64)?;
            a.cmp(b)
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
            Value::Int(_) | Value::Uint(_) | Value::Double(_),
        ) => numbers(a, b).ok_or_else(|| EvalError::failed("NaN values cannot be ordered"))?,
        _ => return Err(EvalError::no_overload()),
    })
}

pub(crate) fn contains(list: &List<'_>, value: &Value<'_>, budget: &mut Budget) -> Result<bool> {
    for item in list.iter() {
        if equal(&item?, value, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lists(a: &List<'_>, b: &List<'_>, budget: &mut Budget) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let semantics = match (a.semantics(), b.semantics()) {
        (ListSemantics::Ordered, other) => other,
        (own, _) => own,
    };
    match semantics {
        ListSemantics::Ordered => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a?, &b?, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // Sets have no duplicates, so same size and inclusion make them equal. Items that are
        // where they were, the usual case, are found at once.
        ListSemantics::Set => {
            for (index, item) in a.iter().enumerate() {
                let item = item?;
                if !equal(&item, &b.get(index)?, budget)? && !contains(b, &item, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        ListSemantics::Map(keys) => {
            for (index, item) in a.iter().enumerate() {
                let item = item?;
                let mut found = Some(b.get(index)?);
                if let Some(there) = &found
                    && !same_keys(&item, there, keys, budget)?
                {
                    found = None;
                    for there in b.iter() {
                        let there = there?;
                        if same_keys(&item, &there, keys, budget)? {
                            found = Some(there);
                            break;
                        }
                    }
                }
                let Some(there) = found else { return Ok(false) };
                if !equal(&item, &there, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn maps(a: &Map<'_>, b: &Map<'_>, budget: &mut Budget) -> Result<bool> {
    if let (Map::Object(a, object), Map::Object(b, _)) = (a, b) {
        return objects(a, b, object, budget);
    }
    let type_name = |map: &Map<'_>| match map {
        Map::Message(name, _) => Some(name.clone()),
        _ => None,
    };
    if type_name(a) != type_name(b) {
        return Ok(false);
    }
    let listed = |map: &Map<'_>| matches!(map, Map::Json(..) | Map::Owned(_) | Map::Message(..));
    if listed(a) && listed(b) && a.len() != b.len() {
        return Ok(false);
    }
    budget.tenths((a.len() + b.len()) as u64 / 2)?;
    let keys = a.keys()?;
    if keys.len() != b.keys()?.len() {
        return Ok(false);
    }
    for key in keys {
        budget.tenths(1)?;
        let same = match (a.get(&key, budget)?, b.get(&key, budget)?) {
            (Some(a), Some(b)) => equal(&a, &b, budget)?,
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

type JsonMap = serde_json::Map<String, Json>;

/// Declared fields compare by their type, the rest as plain JSON.
fn objects(a: &JsonMap, b: &JsonMap, object: &ObjectType, budget: &mut Budget) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let mut declared = 0;
    for field in object.fields.values() {
        budget.tenths(1)?;
        let same = match (a.get(&field.json), b.get(&field.json)) {
            (Some(a), Some(b)) => {
                declared += 1;
                equal(&Value::json(a, &field.ty)?, &Value::json(b, &field.ty)?, budget)?
            }
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    if declared == a.len() {
        return Ok(true);
    }
    let known: std::collections::BTreeSet<&str> =
        object.fields.values().map(|field| field.json.as_str()).collect();
    for (name, value) in a.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        let Some(other) = b.get(name) else { return Ok(false) };
        let (dyn_a, dyn_b) = (Value::json(value, &DYN)?, Value::json(other, &DYN)?);
        if !equal(&dyn_a, &dyn_b, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

static DYN: crate::Type = crate::Type::Dyn;
