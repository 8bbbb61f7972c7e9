//! Lists seen as sets.

use super::{Cx, Entry};
use crate::value::{List, Result, Value, contains};

const SETS: &[&str] = &["(list(A), list(A)) -> bool"];

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "sets.contains", native: |cx, args| includes(cx, &args[0], &args[1]), overloads: SETS },
    Entry { name: "sets.equivalent", native: equivalent, overloads: SETS },
    Entry { name: "sets.intersects", native: intersects, overloads: SETS },
];

fn all_in(cx: &mut Cx<'_>, items: &List<'_>, list: &List<'_>) -> Result<bool> {
    for item in items.iter() {
        cx.budget.tenths(1)?;
        if !contains(list, &item?, cx.budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn includes<'a>(cx: &mut Cx<'_>, list: &Value<'a>, items: &Value<'a>) -> Result<Value<'a>> {
    all_in(cx, items.list_arg()?, list.list_arg()?).map(Value::Bool)
}

fn equivalent<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (a, b) = (args[0].list_arg()?, args[1].list_arg()?);
    Ok(Value::Bool(all_in(cx, a, b)? && all_in(cx, b, a)?))
}

fn intersects<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (a, b) = (args[0].list_arg()?, args[1].list_arg()?);
    for item in a.iter() {
        cx.budget.tenths(1)?;
        if contains(b, &item?, cx.budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
