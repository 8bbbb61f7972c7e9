//! `format()`, and numbers as text.

use std::fmt::Write as _;

use remuda_base::quote::quoted;

use super::Cx;
use crate::{
    Budget, time,
    value::{EvalError, Key, Result, Value},
};

/// More decimals than this are refused.
const MAX_PRECISION: usize = 1000;

pub(super) fn format<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (pattern, list) = (args[0].str_arg()?, args[1].list_arg()?);
    cx.budget.bytes(pattern.len())?;
    let mut out = String::with_capacity(pattern.len());
    let mut next = 0;
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let value: usize = after[..digits].parse().map_err(|_| bad_clause("invalid precision"))?;
            if value > MAX_PRECISION {
                return Err(bad_clause("precision is too large"));
            }
            precision = Some(value);
            rest = &after[digits..];
        }
        let Some(verb) = rest.chars().next() else {
            return Err(bad_clause("unexpected end of string"));
        };
        rest = &rest[verb.len_utf8()..];
        if next >= list.len() {
            return Err(EvalError::failed(format!("index {next} out of range")));
        }
        let arg = list.get(next)?;
        next += 1;
        clause(&mut out, verb, precision, &arg, cx.budget)?;
        cx.budget.tenths(1)?;
        if out.len() > crate::budget::MAX_BYTES {
            return Err(EvalError::failed("string is too long"));
        }
    }
    out.push_str(rest);
    cx.budget.bytes(out.len())?;
    Ok(Value::string(out))
}

fn bad_clause(problem: &str) -> EvalError {
    EvalError::failed(format!("could not parse formatting clause: {problem}"))
}

fn refused(allowed: &str, arg: &Value<'_>) -> EvalError {
    let name = arg.type_name();
    EvalError::failed(format!("error during formatting: {allowed}, was given {name}"))
}

fn clause(
    out: &mut String,
    verb: char,
    precision: Option<usize>,
    arg: &Value<'_>,
    budget: &mut Budget,
) -> Result<()> {
    let written = match (verb, arg) {
        ('s', arg) => return text(out, arg, false, budget),
        ('d', Value::Int(int)) => write!(out, "{int}"),
        ('d', Value::Uint(uint)) => write!(out, "{uint}"),
        ('d', _) => return Err(refused("decimal clause can only be used on integers", arg)),
        ('f', Value::Double(double)) => write!(out, "{}", fixed(*double, precision.unwrap_or(6))),
        ('f', _) => return Err(refused("fixed-point clause can only be used on doubles", arg)),
        ('e', Value::Double(double)) => write!(out, "{}", scientific(*double, precision.unwrap_or(6))),
        ('e', _) => return Err(refused("scientific clause can only be used on doubles", arg)),
        ('b', Value::Int(int)) => signed(out, *int, |out, value| write!(out, "{value:b}")),
        ('b', Value::Uint(uint)) => write!(out, "{uint:b}"),
        ('b', Value::Bool(bool)) => write!(out, "{}", u8::from(*bool)),
        ('b', _) => return Err(refused("only integers and bools can be formatted as binary", arg)),
        ('o', Value::Int(int)) => signed(out, *int, |out, value| write!(out, "{value:o}")),
        ('o', Value::Uint(uint)) => write!(out, "{uint:o}"),
        ('o', _) => return Err(refused("octal clause can only be used on integers", arg)),
        ('x', Value::Int(int)) => signed(out, *int, |out, value| write!(out, "{value:x}")),
        ('X', Value::Int(int)) => signed(out, *int, |out, value| write!(out, "{value:X}")),
        ('x', Value::Uint(uint)) => write!(out, "{uint:x}"),
        ('X', Value::Uint(uint)) => write!(out, "{uint:X}"),
        ('x' | 'X', Value::String(text)) => return hex(out, text.as_bytes(), verb, budget),
        ('x' | 'X', Value::Bytes(bytes)) => return hex(out, bytes, verb, budget),
        ('x' | 'X', _) => {
            let allowed = "only integers, byte buffers, and strings can be formatted as hex";
            return Err(refused(allowed, arg));
        }
        _ => return Err(bad_clause(&format!("unrecognized formatting clause \"{verb}\""))),
    };
    written.map_err(|_| EvalError::failed("formatting failed"))
}

fn signed(out: &mut String, int: i64, write: fn(&mut String, u64) -> std::fmt::Result) -> std::fmt::Result {
    if int < 0 {
        out.push('-');
    }
    write(out, int.unsigned_abs())
}

fn hex(out: &mut String, bytes: &[u8], verb: char, budget: &mut Budget) -> Result<()> {
    budget.bytes(bytes.len() * 2)?;
    for byte in bytes {
        let written = if verb == 'x' { write!(out, "{byte:02x}") } else { write!(out, "{byte:02X}") };
        written.map_err(|_| EvalError::failed("formatting failed"))?;
    }
    Ok(())
}

/// A value as `%s` shows it; inside of lists and maps strings are quoted.
fn text(out: &mut String, arg: &Value<'_>, nested: bool, budget: &mut Budget) -> Result<()> {
    let start = out.len();
    match arg {
        Value::String(text) if nested => out.push_str(&quoted(text)),
        Value::String(text) => out.push_str(text),
        Value::Bytes(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            out.push_str(&if nested { format!("b{}", quoted(&text)) } else { text.into_owned() });
        }
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Int(int) => out.push_str(&int.to_string()),
        Value::Uint(uint) => out.push_str(&uint.to_string()),
        Value::Double(double) => out.push_str(&general(*double)),
        Value::Timestamp(time) => out.push_str(&time.to_string()),
        Value::Duration(nanos) => out.push_str(&time::format_duration(*nanos)),
        Value::Type(name) => out.push_str(name),
        Value::Null => out.push_str("null"),
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                text(out, &item?, true, budget)?;
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, key) in map.keys()?.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                match &key {
                    Key::String(name) => out.push_str(&quoted(name)),
                    key => out.push_str(&key.to_string()),
                }
                out.push(':');
                let value = map.get(&key, budget)?.unwrap_or(Value::Null);
                text(out, &value, true, budget)?;
            }
            out.push('}');
        }
        _ => {
            let allowed = "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                           lists, types, durations, and timestamps";
            return Err(refused(allowed, arg));
        }
    }
    budget.tenths(1 + (out.len() - start) as u64)?;
    if out.len() > crate::budget::MAX_BYTES {
        return Err(EvalError::failed("string is too long"));
    }
    Ok(())
}

/// The name of a double that has no digits.
fn special(double: f64) -> Option<&'static str> {
    match double {
        _ if double.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

/// With decimals, and commas between thousands.
fn fixed(double: f64, precision: usize) -> String {
    if let Some(name) = special(double) {
        return name.to_owned();
    }
    let text = format!("{double:.precision$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |text| ("-", text));
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut out = String::from(sign);
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out.push_str(fraction);
    out
}

/// `3.140000×10⁰⁰`
fn scientific(double: f64, precision: usize) -> String {
    if let Some(name) = special(double) {
        return name.to_owned();
    }
    let text = format!("{double:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let raised = |digit: char| match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4'..='9' => char::from_u32('⁴' as u32 + digit as u32 - '4' as u32).unwrap_or(digit),
        _ => '⁰',
    };
    let exponent: String = format!("{exponent:0>2}").chars().map(raised).collect();
    format!("{digits}×10{sign}{exponent}")
}

/// The shortest form, with an exponent when it is below -4 or above 5.
pub(super) fn general(double: f64) -> String {
    match double {
        _ if double.is_nan() => return "NaN".to_owned(),
        f64::INFINITY => return "+Inf".to_owned(),
        f64::NEG_INFINITY => return "-Inf".to_owned(),
        _ => {}
    }
    let text = format!("{double:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if double == 0.0 || (-4..6).contains(&power) {
        return format!("{double}");
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}
