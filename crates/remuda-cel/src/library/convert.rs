//! Conversions between types.

use std::sync::Arc;

use super::{Cx, Entry, printf};
use crate::{
    time::{self, Timestamp},
    value::{EvalError, Result, Text, Value},
};

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "type", native: type_of, overloads: &["(A) -> type"] },
    Entry { name: "dyn", native: same, overloads: &["(A) -> dyn"] },
    Entry { name: "bool", native: to_bool, overloads: &["(bool) -> bool", "(string) -> bool"] },
    Entry { name: "bytes", native: to_bytes, overloads: &["(bytes) -> bytes", "(string) -> bytes"] },
    Entry {
        name: "double",
        native: to_double,
        overloads: &["(double) -> double", "(int) -> double", "(string) -> double", "(uint) -> double"],
    },
    Entry {
        name: "int",
        native: to_int,
        overloads: &[
            "(int) -> int",
            "(double) -> int",
            "(duration) -> int",
            "(string) -> int",
            "(timestamp) -> int",
            "(uint) -> int",
        ],
    },
    Entry {
        name: "uint",
        native: to_uint,
        overloads: &["(uint) -> uint", "(double) -> uint", "(int) -> uint", "(string) -> uint"],
    },
    Entry {
        name: "string",
        native: to_string,
        overloads: &[
            "(string) -> string",
            "(bool) -> string",
            "(bytes) -> string",
            "(double) -> string",
            "(duration) -> string",
            "(int) -> string",
            "(timestamp) -> string",
            "(uint) -> string",
            "(ip) -> string",
            "(cidr) -> string",
        ],
    },
    Entry {
        name: "timestamp",
        native: to_timestamp,
        overloads: &["(timestamp) -> timestamp", "(int) -> timestamp", "(string) -> timestamp"],
    },
    Entry {
        name: "duration",
        native: to_duration,
        overloads: &["(duration) -> duration", "(string) -> duration"],
    },
];

fn failed(from: &str, to: &str) -> EvalError {
    EvalError::failed(format!("type conversion error from '{from}' to '{to}'"))
}

fn same<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(args[0].clone())
}

fn type_of<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Type(Text::Borrowed(args[0].type_name())))
}

fn to_bool<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bool(bool) => Ok(Value::Bool(*bool)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed("string", "bool")),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn to_bytes<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Bytes(_) => Ok(args[0].clone()),
        Value::String(text) => {
            cx.budget.bytes(text.len())?;
            Ok(Value::Bytes(Arc::from(text.as_bytes())))
        }
        _ => Err(EvalError::no_overload()),
    }
}

fn to_double<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(Value::Double(match &args[0] {
        Value::Double(double) => *double,
        Value::Int(int) => *int as f64,
        Value::Uint(uint) => *uint as f64,
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64)?;
            // The parser of Go takes the same forms, apart from underscores it refuses as well.
            match text.parse::<f64>() {
                Ok(double) if double.is_finite() || text.to_ascii_lowercase().contains(['n', 'i']) => double,
                _ => return Err(failed("string", "double")),
            }
        }
        _ => return Err(EvalError::no_overload()),
    }))
}

fn to_int<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let overflow = || EvalError::failed("integer overflow");
    Ok(Value::Int(match &args[0] {
        Value::Int(int) => *int,
        Value::Uint(uint) => i64::try_from(*uint).map_err(|_| overflow())?,
        // The bounds themselves are excluded, as their neighbours cannot be told apart.
        Value::Double(double) if *double > -(2f64.powi(63)) && *double < 2f64.powi(63) => *double as i64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64)?;
            text.parse().map_err(|_| failed("string", "int"))?
        }
        Value::Timestamp(time) => time.seconds(),
        Value::Duration(nanos) => *nanos,
        _ => return Err(EvalError::no_overload()),
    }))
}

fn to_uint<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let overflow = || EvalError::failed("unsigned integer overflow");
    Ok(Value::Uint(match &args[0] {
        Value::Uint(uint) => *uint,
        Value::Int(int) => u64::try_from(*int).map_err(|_| overflow())?,
        Value::Double(double) if *double >= 0.0 && *double < 2f64.powi(64) => *double as u64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64)?;
            text.parse().map_err(|_| failed("string", "uint"))?
        }
        _ => return Err(EvalError::no_overload()),
    }))
}

fn to_string<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    Ok(match &args[0] {
        Value::String(_) => args[0].clone(),
        Value::Bool(bool) => Value::String(Text::Borrowed(if *bool { "true" } else { "false" })),
        Value::Int(int) => Value::string(int.to_string()),
        Value::Uint(uint) => Value::string(uint.to_string()),
        Value::Double(double) => Value::string(printf::general(*double)),
        Value::Bytes(bytes) => {
            cx.budget.bytes(bytes.len())?;
            match std::str::from_utf8(bytes) {
                Ok(text) => Value::string(text),
                Err(_) => return Err(EvalError::failed("invalid UTF-8 in bytes, cannot convert to string")),
            }
        }
        Value::Timestamp(time) => Value::string(time.to_string()),
        Value::Duration(nanos) => Value::string(time::format_duration(*nanos)),
        Value::Ip(ip) => Value::string(ip.to_string()),
        Value::Cidr(cidr) => Value::string(cidr.to_string()),
        _ => return Err(EvalError::no_overload()),
    })
}

fn to_timestamp<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let time = match &args[0] {
        Value::Timestamp(time) => Some(*time),
        Value::Int(seconds) => {
            let time = Timestamp::new(*seconds, 0);
            return time.map(Value::Timestamp).ok_or_else(|| EvalError::failed("timestamp overflow"));
        }
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64)?;
            Timestamp::parse(text)
        }
        _ => return Err(EvalError::no_overload()),
    };
    time.map(Value::Timestamp).ok_or_else(|| failed("string", "google.protobuf.Timestamp"))
}

fn to_duration<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Duration(_) => Ok(args[0].clone()),
        Value::String(text) => {
            cx.budget.tenths(text.len() as u64)?;
            let nanos = remuda_base::duration::nanos(text);
            nanos.map(Value::Duration).ok_or_else(|| failed("string", "google.protobuf.Duration"))
        }
        _ => Err(EvalError::no_overload()),
    }
}
