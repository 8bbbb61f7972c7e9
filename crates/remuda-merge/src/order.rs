//! A total order on JSON values, so that list keys can be sorted and looked up.
//!
//! Kinds are ordered numbers, strings, booleans, lists, maps, null. Integers and floats are
//! compared by exact value (`1` equals `1.0`); a comparison through `f64` would not be transitive
//! for large integers, and sorting needs a real order.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A value usable as the key of an ordered map.
#[derive(Clone)]
pub(crate) struct Key(pub(crate) Value);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::String(left), Value::String(right)) => left == right,
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| equal(left, right)))
        }
        _ => compare(left, right) == Ordering::Equal,
    }
}

pub(crate) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Number(left), Value::Number(right)) => numbers(left, right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| compare(left, right));
            pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter()
                .map(|key| match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => compare(left, right),
                    // The map whose first differing key is smaller comes first.
                    (Some(_), None) => Ordering::Less,
                    _ => Ordering::Greater,
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn numbers(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => mixed(left, right.as_f64().unwrap_or_default()),
        (None, Some(right)) => mixed(right, left.as_f64().unwrap_or_default()).reverse(),
        (None, None) => {
            let (left, right) = (left.as_f64().unwrap_or_default(), right.as_f64().unwrap_or_default());
            left.partial_cmp(&right).unwrap_or(Ordering::Equal)
        }
    }
}

fn mixed(left: i128, right: f64) -> Ordering {
    // The cast saturates, so floats beyond every integer still compare correctly.
    let whole = right.trunc() as i128;
    left.cmp(&whole).then_with(|| 0.0_f64.partial_cmp(&right.fract()).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_and_floats_compare_by_value() {
        assert!(equal(&json!({"a": [1, 2.0]}), &json!({"a": [1.0, 2]})));
        assert!(!equal(&json!(9007199254740993_i64), &json!(9007199254740992.0)));
        assert_eq!(compare(&json!(-1), &json!(-1.5)), Ordering::Greater);
        assert_eq!(compare(&json!(u64::MAX), &json!(1e300)), Ordering::Less);
    }

    #[test]
    fn kinds_have_a_fixed_order() {
        let mut values = vec![json!(null), json!({}), json!([]), json!(true), json!("a"), json!(3)];
        values.sort_by(compare);
        assert_eq!(values, vec![json!(3), json!("a"), json!(true), json!([]), json!({}), json!(null)]);
        assert_eq!(compare(&json!({"a": 1}), &json!({"b": 1})), Ordering::Less);
        assert_eq!(compare(&json!({"a": 1}), &json!({"a": 1, "b": 1})), Ordering::Greater);
    }
}
