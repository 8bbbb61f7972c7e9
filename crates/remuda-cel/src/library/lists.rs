//! Lists.

use std::{cmp::Ordering, sync::Arc};

use super::{Cx, Entry, operators::add_two};
use crate::{
    budget::MAX_ITEMS,
    eval::folds,
    value::{EvalError, List, Result, Value, compare, contains, equal},
};

pub(super) const TABLE: &[Entry] = &[
    Entry {
        name: "isSorted",
        native: is_sorted,
        overloads: &[
            ".(list(int)) -> bool",
            ".(list(uint)) -> bool",
            ".(list(double)) -> bool",
            ".(list(bool)) -> bool",
            ".(list(duration)) -> bool",
            ".(list(timestamp)) -> bool",
            ".(list(string)) -> bool",
            ".(list(bytes)) -> bool",
        ],
    },
    Entry {
        name: "sum",
        native: |cx, args| sum(cx, args, Value::Int(0)),
        overloads: &[".(list(int)) -> int"],
    },
    Entry {
        name: "sum",
        native: |cx, args| sum(cx, args, Value::Uint(0)),
        overloads: &[".(list(uint)) -> uint"],
    },
    Entry {
        name: "sum",
        native: |cx, args| sum(cx, args, Value::Double(0.0)),
        overloads: &[".(list(double)) -> double"],
    },
    Entry {
        name: "sum",
        native: |cx, args| sum(cx, args, Value::Duration(0)),
        overloads: &[".(list(duration)) -> duration"],
    },
    Entry { name: "min", native: |cx, args| extreme(cx, args, "min", Ordering::Less), overloads: EXTREME },
    Entry { name: "max", native: |cx, args| extreme(cx, args, "max", Ordering::Greater), overloads: EXTREME },
    Entry { name: "indexOf", native: index_of, overloads: &[".(list(A), A) -> int"] },
    Entry { name: "lastIndexOf", native: last_index_of, overloads: &[".(list(A), A) -> int"] },
    Entry { name: "includes", native: includes, overloads: &[".(dyn, dyn) -> bool"] },
    Entry { name: "slice", native: slice, overloads: &[".(list(A), int, int) -> list(A)"] },
    Entry {
        name: "flatten",
        native: flatten,
        overloads: &[".(list(list(A))) -> list(A)", ".(list(dyn), int) -> list(dyn)"],
    },
    Entry {
        name: "sort",
        native: sort,
        overloads: &[
            ".(list(int)) -> list(int)",
            ".(list(uint)) -> list(uint)",
            ".(list(double)) -> list(double)",
            ".(list(bool)) -> list(bool)",
            ".(list(duration)) -> list(duration)",
            ".(list(timestamp)) -> list(timestamp)",
            ".(list(string)) -> list(string)",
            ".(list(bytes)) -> list(bytes)",
        ],
    },
    Entry { name: "distinct", native: distinct, overloads: &[".(list(A)) -> list(A)"] },
    Entry { name: "reverse", native: reverse, overloads: &[".(list(A)) -> list(A)"] },
    Entry { name: "lists.range", native: range, overloads: &["(int) -> list(int)"] },
    Entry { name: "first", native: first, overloads: &[".(list(A)) -> optional(A)"] },
    Entry { name: "last", native: last, overloads: &[".(list(A)) -> optional(A)"] },
];
const EXTREME: &[&str] = &[
    ".(list(int)) -> int",
    ".(list(uint)) -> uint",
    ".(list(double)) -> double",
    ".(list(bool)) -> bool",
    ".(list(duration)) -> duration",
    ".(list(timestamp)) -> timestamp",
    ".(list(string)) -> string",
    ".(list(bytes)) -> bytes",
];

fn is_sorted<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let mut previous: Option<Value<'a>> = None;
    for item in args[0].list_arg()?.iter() {
        let item = item?;
        cx.budget.charge(1)?;
        if let Some(previous) = &previous
            && compare(previous, &item, cx.budget)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(cx: &mut Cx<'_>, args: &[Value<'a>], zero: Value<'a>) -> Result<Value<'a>> {
    let mut total: Option<Value<'a>> = None;
    for item in args[0].list_arg()?.iter() {
        cx.budget.charge(1)?;
        let item = item?;
        total = Some(match total {
            Some(total) => add_two(&total, &item, cx.budget)?,
            None => item,
        });
    }
    Ok(total.unwrap_or(zero))
}

fn extreme<'a>(cx: &mut Cx<'_>, args: &[Value<'a>], name: &str, wanted: Ordering) -> Result<Value<'a>> {
    let mut best: Option<Value<'a>> = None;
    for item in args[0].list_arg()?.iter() {
        cx.budget.charge(1)?;
        let item = item?;
        best = Some(match best {
            Some(best) if compare(&item, &best, cx.budget)? != wanted => best,
            _ => item,
        });
    }
    best.ok_or_else(|| EvalError::failed(format!("{name} called on empty list")))
}

fn index_of<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    position(cx, list, 0..list.len(), &args[1])
}

fn last_index_of<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    position(cx, list, (0..list.len()).rev(), &args[1])
}

fn position<'a>(
    cx: &mut Cx<'_>,
    list: &List<'a>,
    order: impl Iterator<Item = usize>,
    wanted: &Value<'a>,
) -> Result<Value<'a>> {
    for index in order {
        cx.budget.charge(1)?;
        if equal(&list.get(index)?, wanted, cx.budget)? {
            return Ok(Value::Int(index as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn includes<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    match &args[0] {
        Value::List(list) => contains(list, &args[1], cx.budget).map(Value::Bool),
        other => equal(other, &args[1], cx.budget).map(Value::Bool),
    }
}

fn slice<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (list, start, end) = (args[0].list_arg()?, args[1].int_arg()?, args[2].int_arg()?);
    let fail = |problem: String| Err(EvalError::failed(format!("cannot slice({start}, {end}), {problem}")));
    if start < 0 || end < 0 {
        return fail("negative indexes not supported".to_owned());
    }
    if start > end {
        return fail("start index must be less than or equal to end index".to_owned());
    }
    if end > list.len() as i64 {
        return fail(format!("list is length {}", list.len()));
    }
    cx.budget.items((end - start) as usize)?;
    (start as usize..end as usize).map(|index| list.get(index)).collect::<Result<_>>().map(Value::list)
}

fn flatten<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let depth = args.get(1).map_or(Ok(1), Value::int_arg)?;
    if depth < 0 {
        return Err(EvalError::failed("level must be non-negative"));
    }
    let mut out = Vec::new();
    flatten_into(cx, args[0].list_arg()?, depth, &mut out)?;
    Ok(Value::list(out))
}

fn flatten_into<'a>(cx: &mut Cx<'_>, list: &List<'a>, depth: i64, out: &mut Vec<Value<'a>>) -> Result<()> {
    for item in list.iter() {
        cx.budget.tenths(1)?;
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(cx, &inner, depth - 1, out)?,
            item => {
                if out.len() >= MAX_ITEMS {
                    return Err(EvalError::failed("list is too long"));
                }
                out.push(item);
            }
        }
    }
    Ok(())
}

fn sort<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    cx.budget.items(list.len())?;
    folds::sort(list, cx.budget)
}

fn distinct<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let mut out: Vec<Value<'a>> = Vec::new();
    for item in args[0].list_arg()?.iter() {
        let item = item?;
        cx.budget.tenths(1)?;
        let mut known = false;
        for other in &out {
            if equal(&item, other, cx.budget)? {
                known = true;
                break;
            }
        }
        if !known {
            out.push(item);
        }
    }
    Ok(Value::list(out))
}

fn reverse<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    cx.budget.items(list.len())?;
    (0..list.len()).rev().map(|index| list.get(index)).collect::<Result<_>>().map(Value::list)
}

fn range<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let size = args[0].int_arg()?;
    if size < 0 {
        return Err(EvalError::failed(format!("lists.range: size must be non-negative, got {size}")));
    }
    if size > MAX_ITEMS as i64 {
        return Err(EvalError::failed(format!(
            "lists.range: size {size} exceeds maximum allowed ({MAX_ITEMS})"
        )));
    }
    cx.budget.items(size as usize)?;
    Ok(Value::list((0..size).map(Value::Int).collect()))
}

fn first<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    let item = if list.is_empty() { None } else { Some(Arc::new(list.get(0)?)) };
    Ok(Value::Optional(item))
}

fn last<'a>(_: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    let item = if list.is_empty() { None } else { Some(Arc::new(list.get(list.len() - 1)?)) };
    Ok(Value::Optional(item))
}
