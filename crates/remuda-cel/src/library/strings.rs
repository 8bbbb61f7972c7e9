//! Strings, in characters.

use super::{Cx, Entry, printf};
use crate::{
    Budget,
    value::{EvalError, Result, Value},
};

pub(super) const TABLE: &[Entry] = &[
    Entry { name: "contains", native: contains, overloads: &[".(string, string) -> bool"] },
    Entry { name: "startsWith", native: starts_with, overloads: &[".(string, string) -> bool"] },
    Entry { name: "endsWith", native: ends_with, overloads: &[".(string, string) -> bool"] },
    Entry { name: "charAt", native: char_at, overloads: &[".(string, int) -> string"] },
    Entry {
        name: "indexOf",
        native: index_of,
        overloads: &[".(string, string) -> int", ".(string, string, int) -> int"],
    },
    Entry {
        name: "lastIndexOf",
        native: last_index_of,
        overloads: &[".(string, string) -> int", ".(string, string, int) -> int"],
    },
    Entry {
        name: "lowerAscii",
        native: |cx, args| map(cx, args, str::to_ascii_lowercase),
        overloads: &[".(string) -> string"],
    },
    Entry {
        name: "upperAscii",
        native: |cx, args| map(cx, args, str::to_ascii_uppercase),
        overloads: &[".(string) -> string"],
    },
    Entry {
        name: "trim",
        native: |cx, args| map(cx, args, |text| text.trim().to_owned()),
        overloads: &[".(string) -> string"],
    },
    Entry { name: "strings.quote", native: quote, overloads: &["(string) -> string"] },
    Entry {
        name: "replace",
        native: replace,
        overloads: &[".(string, string, string) -> string", ".(string, string, string, int) -> string"],
    },
    Entry {
        name: "split",
        native: split,
        overloads: &[".(string, string) -> list(string)", ".(string, string, int) -> list(string)"],
    },
    Entry {
        name: "substring",
        native: substring,
        overloads: &[".(string, int) -> string", ".(string, int, int) -> string"],
    },
    Entry {
        name: "join",
        native: join,
        overloads: &[".(list(string)) -> string", ".(list(string), string) -> string"],
    },
    Entry { name: "format", native: printf::format, overloads: &[".(string, list(dyn)) -> string"] },
];

fn out_of_range(index: i64) -> EvalError {
    EvalError::failed(format!("index out of range: {index}"))
}

fn charge_search(budget: &mut Budget, text: &str, part: &str) -> Result<()> {
    // The search is linear, so the product upstream charges would be too much for long texts.
    budget.tenths(text.len() as u64 + part.len() as u64)
}

fn contains<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, part) = (args[0].str_arg()?, args[1].str_arg()?);
    charge_search(cx.budget, text, part)?;
    Ok(Value::Bool(text.contains(part)))
}

fn starts_with<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, part) = (args[0].str_arg()?, args[1].str_arg()?);
    cx.budget.tenths(part.len() as u64)?;
    Ok(Value::Bool(text.starts_with(part)))
}

fn ends_with<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, part) = (args[0].str_arg()?, args[1].str_arg()?);
    cx.budget.tenths(part.len() as u64)?;
    Ok(Value::Bool(text.ends_with(part)))
}

fn map<'a>(cx: &mut Cx<'_>, args: &[Value<'a>], change: fn(&str) -> String) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    Ok(Value::string(change(text)))
}

/// The byte offset of a character, or of the end.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, index) = (args[0].str_arg()?, args[1].int_arg()?);
    cx.budget.tenths(text.len() as u64 / 10)?;
    let at = offset(text, index).ok_or_else(|| out_of_range(index))?;
    Ok(Value::string(text[at..].chars().next().map(String::from).unwrap_or_default()))
}

fn index_of<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, part) = (args[0].str_arg()?, args[1].str_arg()?);
    charge_search(cx.budget, text, part)?;
    let from = args.get(2).map_or(Ok(0), Value::int_arg)?;
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(start) = offset(text, from) else {
        let found = if part.is_empty() { text.chars().count() as i64 } else { -1 };
        return Ok(Value::Int(found));
    };
    let found = text[start..].find(part);
    Ok(Value::Int(found.map_or(-1, |at| from + text[start..start + at].chars().count() as i64)))
}

fn last_index_of<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, part) = (args[0].str_arg()?, args[1].str_arg()?);
    charge_search(cx.budget, text, part)?;
    let until = args.get(2).map(Value::int_arg).transpose()?;
    let length = text.chars().count() as i64;
    // The last place a match may start at.
    let until = match until {
        Some(until) if until < 0 => return Err(out_of_range(until)),
        Some(until) if part.is_empty() => return Ok(Value::Int(until.min(length))),
        Some(until) if until >= length => return Ok(Value::Int(-1)),
        Some(until) => until,
        None => length,
    };
    let end = offset(text, until).unwrap_or(text.len()).saturating_add(part.len()).min(text.len());
    // A cut inside of a character cannot be the end of a match.
    let end = (end..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let found = text[..end].rfind(part).map(|at| text[..at].chars().count() as i64);
    Ok(Value::Int(found.filter(|at| *at <= until).unwrap_or(-1)))
}

fn quote<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let text = args[0].str_arg()?;
    cx.budget.bytes(text.len())?;
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            char => out.push(char),
        }
    }
    out.push('"');
    Ok(Value::string(out))
}

/// A count argument; negative means all.
fn limit(arg: Option<&Value<'_>>) -> Result<usize> {
    let limit = arg.map_or(Ok(-1), Value::int_arg)?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

fn replace<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, old, new) = (args[0].str_arg()?, args[1].str_arg()?, args[2].str_arg()?);
    let limit = limit(args.get(3))?;
    cx.budget.tenths(text.len() as u64 * 2)?;
    let count = text.matches(old).take(limit).count();
    cx.budget.bytes(text.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Value::string(text.replacen(old, new, count)))
}

fn split<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, separator) = (args[0].str_arg()?, args[1].str_arg()?);
    let limit = limit(args.get(2))?;
    cx.budget.tenths(text.len() as u64 * 2)?;
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while parts.len() + 1 < limit {
        // An empty separator splits into characters.
        let next = match separator.is_empty() {
            true => rest.char_indices().nth(1).map(|(at, _)| (at, at)),
            false => rest.find(separator).map(|at| (at, at + separator.len())),
        };
        let Some((end, start)) = next else { break };
        cx.budget.items(1)?;
        parts.push(Value::string(&rest[..end]));
        rest = &rest[start..];
    }
    if !(separator.is_empty() && text.is_empty()) {
        parts.push(Value::string(rest));
    }
    Ok(Value::list(parts))
}

fn substring<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let (text, start) = (args[0].str_arg()?, args[1].int_arg()?);
    cx.budget.bytes(text.len())?;
    let end = args.get(2).map(Value::int_arg).transpose()?;
    if let Some(end) = end
        && start > end
    {
        return Err(EvalError::failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = offset(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => offset(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::string(&text[from..to]))
}

fn join<'a>(cx: &mut Cx<'_>, args: &[Value<'a>]) -> Result<Value<'a>> {
    let list = args[0].list_arg()?;
    let separator = args.get(1).map_or(Ok(""), Value::str_arg)?;
    let mut out = String::new();
    for (index, item) in list.iter().enumerate() {
        let item = item?;
        let Value::String(text) = &item else {
            return Err(EvalError::failed(format!("join: invalid input: {}", item.type_name())));
        };
        let glue = if index == 0 { "" } else { separator };
        cx.budget.tenths((glue.len() + text.len()) as u64 * 2 + 1)?;
        out.push_str(glue);
        out.push_str(text);
        if out.len() > crate::budget::MAX_BYTES {
            return Err(EvalError::failed("string is too long"));
        }
    }
    Ok(Value::string(out))
}
