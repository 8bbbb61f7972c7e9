//! Relative field paths as `fieldPath` of rules and `jsonPath` of selectable fields spell them:
//! `.a.b`, `.a['b.c']`.

use crate::props::{AdditionalProps, Props};

/// A path that leads to a declared field.
#[derive(Debug)]
pub(crate) struct Resolved<'a> {
    /// As in field errors: `a.b`, `a[key]`.
    pub(crate) text: String,
    pub(crate) first: String,
    pub(crate) props: &'a Props,
}

pub(crate) fn resolve<'a>(path: &str, root: &'a Props, brackets: bool) -> Result<Resolved<'a>, String> {
    let tokens = tokens(path);
    let mut out = Resolved { text: String::new(), first: String::new(), props: root };
    let mut at = 0;
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.get(at) {
        at += 1;
        let name = match *token {
            "." => {
                let name = tokens.get(at).ok_or_else(end)?;
                at += 1;
                (*name).to_owned()
            }
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.get(at).ok_or_else(end)?;
                let inner = quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(inner)?;
                let close = tokens.get(at + 1).ok_or_else(end)?;
                if *close != "]" {
                    return Err(format!("expected ] but got {close}"));
                }
                at += 2;
                name
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        step(&mut out, &name)?;
    }
    Ok(out)
}

fn step(out: &mut Resolved<'_>, name: &str) -> Result<(), String> {
    let unknown = || "does not refer to a valid field".to_owned();
    if out.first.is_empty() {
        name.clone_into(&mut out.first);
    }
    if out.props.properties.is_empty() {
        let Some(AdditionalProps::Schema(schema)) = &out.props.additional else { return Err(unknown()) };
        out.props = schema;
        out.text.push_str(&format!("[{name}]"));
    } else {
        out.props = out.props.properties.get(name).ok_or_else(unknown)?;
        if !out.text.is_empty() {
            out.text.push('.');
        }
        out.text.push_str(name);
    }
    Ok(())
}

/// Delimiters, quoted strings and what lies between.
fn tokens(path: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let length = if let Some(inner) = rest.strip_prefix('\'') {
            quoted_end(inner).map_or(rest.len(), |end| end + 2)
        } else {
            match rest.find(['.', '[', ']']) {
                Some(0) => 1,
                Some(end) => end,
                None => rest.len(),
            }
        };
        let (token, tail) = rest.split_at(length);
        out.push(token);
        rest = tail;
    }
    out
}

fn quoted_end(inner: &str) -> Option<usize> {
    let bytes = inner.as_bytes();
    (0..bytes.len()).find(|at| bytes[*at] == b'\'' && (*at == 0 || bytes[*at - 1] != b'\\'))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(same @ ('\'' | '\\')) => same,
            Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, brackets: bool, expected: Result<&str, &str>) {
        let root = Props::parse(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b.c": {"type": "string"}, "it's": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        }}))
        .unwrap();
        let found = resolve(path, &root, brackets);
        assert_eq!(found.as_ref().map(|found| found.text.as_str()).map_err(String::as_str), expected);
    }

    #[test]
    fn paths_lead_to_declared_fields() {
        check(".a", true, Ok("a"));
        check(".a['b.c']", true, Ok("a.b.c"));
        check(r".a['it\'s']", true, Ok("a.it's"));
        check(".m.key", true, Ok("m[key]"));
        check(".m['x y']", true, Ok("m[x y]"));
        check(".x", true, Err("does not refer to a valid field"));
        check("a", true, Err("expected [ or . but got: a"));
        check(".a[0]", true, Err("expected single quoted string but got 0"));
        check(".a['b.c'", true, Err("unexpected end of JSON path"));
        check(".a['b.c']", false, Err("array notation is not allowed"));
        check(".", true, Err("unexpected end of JSON path"));
    }
}
