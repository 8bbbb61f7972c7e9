//! Free values as the originals of these plans read them.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;

/// Text of a scalar.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => remuda_plan::json::compact(other),
    }
}

/// A list of texts; a single text is a list of one, anything else is empty.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.iter().map(text).collect(),
        Some(Value::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    }
}

pub(super) fn list(items: Vec<String>) -> Value {
    Value::Array(items.into_iter().map(Value::String).collect())
}

/// `true`, `t`, `yes` and `y` are true in any case.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::String(text) => ["true", "t", "yes", "y"].iter().any(|yes| text.eq_ignore_ascii_case(yes)),
        _ => false,
    }
}

/// Value of `name` among `name=value` arguments; empty if it is not there.
pub(super) fn argument<'a>(args: &'a [String], name: &str) -> &'a str {
    args.iter()
        .filter_map(|arg| arg.split_once('='))
        .find(|(key, _)| *key == name)
        .map_or("", |(_, value)| value)
}

/// Decodes base64 that may be broken into lines.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    BASE64_STANDARD.decode(joined).ok()
}
