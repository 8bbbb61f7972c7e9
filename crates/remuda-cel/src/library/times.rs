//! Parts of points in time and of spans.

use super::{Cx, Entry};
use crate::{
    time::{Civil, Zone},
    value::{EvalError, Result, Value},
};

const DATE: &[&str] = &[".(timestamp) -> int", ".(timestamp, string) -> int"];
const CLOCK: &[&str] = &[".(timestamp) -> int", ".(timestamp, string) -> int", ".(duration) -> int"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "getFullYear", native: |_, args| date(args, |civil| civil.year), overloads: DATE },
    Entry { name: "getMonth", native: |_, args| date(args, |civil| civil.month - 1), overloads: DATE },
    Entry { name: "getDayOfYear", native: |_, args| date(args, |civil| civil.day_of_year), overloads: DATE },
    Entry { name: "getDayOfMonth", native: |_, args| date(args, |civil| civil.day - 1), overloads: DATE },
    Entry { name: "getDate", native: |_, args| date(args, |civil| civil.day), overloads: DATE },
    Entry { name: "getDayOfWeek", native: |_, args| date(args, |civil| civil.weekday), overloads: DATE },
    Entry {
        name: "getHours",
        native: |_, args| clock(args, |civil| civil.second / 3600, 3_600_000_000_000),
        overloads: CLOCK,
    },
    Entry {
        name: "getMinutes",
        native: |_, args| clock(args, |civil| civil.second / 60 % 60, 60_000_000_000),
        overloads: CLOCK,
    },
    Entry {
        name: "getSeconds",
        native: |_, args| clock(args, |civil| civil.second % 60, 1_000_000_000),
        overloads: CLOCK,
    },
    Entry { name: "getMilliseconds", native: milliseconds, overloads: CLOCK },
];

fn date<'a>(args: &[Value<'a>], part: fn(&Civil) -> i64) -> Result<Value<'a>> {
    let Value::Timestamp(time) = &args[0] else { return Err(EvalError::no_overload()) };
    let zone = match args.get(1) {
        Some(zone) => {
            let name = zone.str_arg()?;
            Zone::parse(name).ok_or_else(|| EvalError::failed(format!("unknown time zone {name}")))?
        }
        None => Zone::Fixed(0),
    };
    Ok(Value::Int(part(&time.civil(&zone))))
}

/// The hour of a time is of its day; that of a span is its whole length.
fn clock<'a>(args: &[Value<'a>], part: fn(&Civil) -> i64, unit: i64) -> Result<Value<'a>> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / unit)),
        _ => date(args, part),
    }
}

fn milliseconds<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000)),
        Value::Timestamp(time) => Ok(Value::Int(i64::from(time.nanos()) / 1_000_000)),
        _ => Err(EvalError::no_overload()),
    }
}
