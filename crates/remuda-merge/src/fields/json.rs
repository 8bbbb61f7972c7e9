//! `FieldsV1`: the JSON form of a set, and the texts of path elements.
//!
//! A key of an object is `f:` and a field name, `k:` and the key fields as sorted compact JSON,
//! `v:` and a JSON value, or `i:` and a position. `{}` is a member without children; a member with
//! children has the key `.`.

use std::{borrow::Cow, fmt::Write};

use serde_json::{Map, Value};

use super::{Node, PathElement, Set};
use crate::gotext;

/// Why a stored set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldsError {
    #[error("key must be 2 characters long: {0:?}")]
    Short(String),
    #[error("missing colon: {0}")]
    Colon(String),
    #[error("invalid path element {0}")]
    Element(String),
    #[error("a set of fields is a JSON object")]
    Object,
}

/// Reads a set; keys of a kind this version does not know are dropped.
pub fn parse(fields: &Value) -> Result<Set<'_>, FieldsError> {
    let Value::Object(map) = fields else { return Err(FieldsError::Object) };
    level(map)
}

fn level(map: &Map<String, Value>) -> Result<Set<'_>, FieldsError> {
    let mut nodes = Vec::with_capacity(map.len());
    for (key, value) in map.iter().filter(|(key, _)| *key != ".") {
        let Some(element) = element(key)? else { continue };
        let Value::Object(inner) = value else { return Err(FieldsError::Object) };
        let children = level(inner)?;
        // Without children the node can only be there because it is a member itself.
        let member = inner.contains_key(".") || children.is_empty();
        nodes.push(Node { element, member, children });
    }
    Ok(Set::from_nodes(nodes))
}

/// Reads one key. `None` is a kind of element this version does not know.
pub fn element(key: &str) -> Result<Option<PathElement<'_>>, FieldsError> {
    let [kind, separator, ..] = key.as_bytes() else { return Err(FieldsError::Short(key.to_owned())) };
    if *separator != b':' {
        return Err(FieldsError::Colon(key.to_owned()));
    }
    let bad = || FieldsError::Element(key.to_owned());
    let rest = key.get(2..).ok_or_else(bad)?;
    Ok(Some(match kind {
        b'f' => PathElement::Field(rest),
        b'v' => PathElement::Value(Cow::Owned(serde_json::from_str(rest).map_err(|_| bad())?)),
        b'i' => PathElement::Index(rest.parse().map_err(|_| bad())?),
        b'k' => {
            let keys: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
            let mut keys: Vec<_> =
                keys.into_iter().map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect();
            keys.sort_by(|left: &(Cow<'_, str>, _), right| left.0.cmp(&right.0));
            PathElement::Key(keys)
        }
        _ => return Ok(None),
    }))
}

/// Appends the key of an element.
pub fn write_element(out: &mut String, element: &PathElement<'_>) {
    match element {
        PathElement::Field(name) => {
            out.push_str("f:");
            out.push_str(name);
        }
        PathElement::Key(keys) => {
            out.push_str("k:{");
            for (index, (name, value)) in keys.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, name, false);
                out.push(':');
                write_value(out, value);
            }
            out.push('}');
        }
        PathElement::Value(value) => {
            out.push_str("v:");
            write_value(out, value);
        }
        PathElement::Index(index) => {
            let _ = write!(out, "i:{index}");
        }
    }
}

impl Set<'_> {
    /// The JSON form.
    pub fn to_json(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    pub(super) fn to_map(&self, own: bool) -> Map<String, Value> {
        let mut map = Map::new();
        if own && !self.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for node in self.nodes() {
            let mut key = String::new();
            write_element(&mut key, &node.element);
            map.insert(key, Value::Object(node.children.to_map(node.member)));
        }
        map
    }
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_string(out, text, true),
        Value::Number(number) => out.push_str(&gotext::number(number)),
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key, true);
                out.push(':');
                write_value(out, item);
            }
            out.push('}');
        }
    }
}

/// A JSON string. Values also escape what would be special in HTML, as Go's encoder does; two
/// spellings of one value would otherwise be two keys.
fn write_string(out: &mut String, text: &str, html: bool) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if html => {
                let _ = write!(out, "\\u{:04x}", char as u32);
            }
            char if (char as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", char as u32);
            }
            char => out.push(char),
        }
    }
    out.push('"');
}
