//! Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.

use std::{cmp::Ordering, sync::Arc};

use remuda_base::quantity::{self, QuantityError, Suffix};

use super::{Cx, Entry};
use crate::value::{EvalError, Result, Value};

const COMPARE: &[&str] = &[".(quantity, quantity) -> bool"];
const SUM: &[&str] = &[".(quantity, quantity) -> quantity", ".(quantity, int) -> quantity"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "quantity", native: quantity, overloads: &["(string) -> quantity"] },
    Entry { name: "isQuantity", native: is_quantity, overloads: &["(string) -> bool"] },
    Entry { name: "sign", native: sign, overloads: &["(quantity) -> int", ".(quantity) -> int"] },
    Entry { name: "isInteger", native: is_integer, overloads: &[".(quantity) -> bool"] },
    Entry { name: "asInteger", native: as_integer, overloads: &[".(quantity) -> int"] },
    Entry { name: "asApproximateFloat", native: as_float, overloads: &[".(quantity) -> double"] },
    Entry { name: "add", native: |_, args| sum(args, false), overloads: SUM },
    Entry { name: "sub", native: |_, args| sum(args, true), overloads: SUM },
    Entry {
        name: "isGreaterThan",
        native: |_, args| compare(args).map(|order| Value::Bool(order == Ordering::Greater)),
        overloads: COMPARE,
    },
    Entry {
        name: "isLessThan",
        native: |_, args| compare(args).map(|order| Value::Bool(order == Ordering::Less)),
        overloads: COMPARE,
    },
    Entry {
        name: "compareTo",
        native: |_, args| compare(args).map(|order| Value::Int(order as i64)),
        overloads: &[".(quantity, quantity) -> int"],
    },
];

/// An exact amount: digits times a power of ten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantity {
    digits: i128,
    /// Power of ten, -9 at least.
    scale: i32,
    /// Whether it is kept as an int64 upstream; others never count as integers there.
    small: bool,
}

const MAX_BINARY: i128 = i64::MAX as i128;

impl Quantity {
    /// More precise than nano is rounded up.
    pub fn parse(text: &str) -> std::result::Result<Self, QuantityError> {
        let parts = quantity::split(text)?;
        let (binary, power) = match parts.suffix {
            Suffix::Binary(power) => (true, power as i32),
            Suffix::Decimal(power) => (false, power),
            // Powers beyond are no amounts anyone means; the limit keeps numbers small.
            Suffix::Exponent(power) if (-1000..=1000).contains(&power) => (false, power),
            Suffix::Exponent(_) => return Err(QuantityError::Suffix),
        };
        let (whole, fraction) = (parts.integer.trim_start_matches('0'), parts.fraction);
        if whole.len() + fraction.len() > 100 {
            return Err(QuantityError::Numeric);
        }
        let small = if binary {
            fraction.is_empty() && 15 - whole.len() as i32 - power * 3 / 10 > 0
        } else {
            whole.len() + fraction.len() <= 18 && power - fraction.len() as i32 >= -9
        };
        Ok(Self::assemble(parts.negative, whole, fraction, binary, power, small))
    }

    fn assemble(negative: bool, whole: &str, fraction: &str, binary: bool, power: i32, small: bool) -> Self {
        let mut scale = if binary { 0 } else { power } - fraction.len() as i32;
        let mut digits: i128 = 0;
        let mut lost = false;
        for digit in whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0')) {
            match digits.checked_mul(10).and_then(|digits| digits.checked_add(digit)) {
                // Room is left for the largest binary suffix.
                Some(more) if more < i128::MAX >> 62 => digits = more,
                _ => {
                    lost |= digit != 0;
                    scale += 1;
                }
            }
        }
        if binary {
            digits <<= power;
        }
        while scale < -9 {
            lost |= digits % 10 != 0;
            digits /= 10;
            scale += 1;
            if digits == 0 {
                scale = -9;
            }
        }
        digits += i128::from(lost);
        if binary && scaled(digits, scale, 0).is_none_or(|whole| whole > MAX_BINARY) {
            (digits, scale) = (MAX_BINARY, 0);
        }
        Self { digits: if negative { -digits } else { digits }, scale, small }
    }

    fn integer(&self) -> Option<i64> {
        if !self.small || self.scale < 0 {
            return None;
        }
        i64::try_from(scaled(self.digits, self.scale, 0)?).ok()
    }

    fn float(&self) -> f64 {
        self.digits as f64 * 10f64.powi(self.scale)
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let scale = self.scale.min(other.scale);
        match (scaled(self.digits, self.scale, scale), scaled(other.digits, other.scale, scale)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // One does not fit at the scale of the other, so it is larger in size.
            (None, Some(_)) => self.digits.cmp(&0),
            (Some(_), None) => 0.cmp(&other.digits),
            (None, None) => self.float().total_cmp(&other.float()),
        }
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let scale = match (self.digits, other.digits) {
            (0, _) => other.scale,
            (_, 0) => self.scale,
            _ => self.scale.min(other.scale),
        };
        let a = if self.digits == 0 { 0 } else { scaled(self.digits, self.scale, scale)? };
        let b = if other.digits == 0 { 0 } else { scaled(other.digits, other.scale, scale)? };
        let digits = a.checked_add(b)?;
        let small = self.small && other.small && i64::try_from(digits).is_ok();
        Some(Self { digits, scale, small })
    }
}

/// Digits at a lower or equal scale, when they fit.
fn scaled(digits: i128, from: i32, to: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    if from >= to {
        return digits.checked_mul(10i128.checked_pow((from - to) as u32)?);
    }
    // Towards a higher scale, rounded up in size.
    let unit = 10i128.checked_pow((to - from) as u32)?;
    Some(digits / unit + (digits % unit).signum())
}

fn quantity<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Quantity::parse(text)
        .map(|quantity| Value::Quantity(Arc::new(quantity)))
        .map_err(|error| EvalError::failed(error.to_string()))
}

fn is_quantity<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::Bool(Quantity::parse(text).is_ok()))
}

fn arg<'v>(value: &'v Value<'_>) -> Result<&'v Quantity> {
    match value {
        Value::Quantity(quantity) => Ok(quantity),
        _ => Err(EvalError::no_overload()),
    }
}

fn sign<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Int(arg(&args[0])?.digits.signum() as i64))
}

fn is_integer<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Bool(arg(&args[0])?.integer().is_some()))
}

fn as_integer<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let integer = arg(&args[0])?.integer();
    integer.map(Value::Int).ok_or_else(|| EvalError::failed("cannot convert value to integer"))
}

fn as_float<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Double(arg(&args[0])?.float()))
}

fn sum<'a>(args: &[Value<'a>], negate: bool) -> Result<Value<'a>> {
    let mut other = match &args[1] {
        Value::Int(int) => Quantity { digits: i128::from(*int), scale: 0, small: true },
        other => arg(other)?.clone(),
    };
    if negate {
        other.digits = -other.digits;
    }
    let sum = arg(&args[0])?.plus(&other);
    sum.map(|sum| Value::Quantity(Arc::new(sum))).ok_or_else(|| EvalError::failed("quantity overflow"))
}

fn compare(args: &[Value<'_>]) -> Result<Ordering> {
    Ok(arg(&args[0])?.compare(arg(&args[1])?))
}
