//! Values as Go prints them, because some of the messages clients show contain them.

pub(crate) use remuda_base::quote::quoted;
use serde_json::{Number, Value};

/// Longest printed value; the rest is cut so that an error never repeats a whole request.
const LIMIT: usize = 1000;

/// `%v` of a decoded JSON value: `map[a:1 b:[x y]]`.
pub(crate) fn plain(value: &Value) -> String {
    let mut text = String::new();
    write_plain(&mut text, value);
    cut(text)
}

/// `%#v`: `map[string]interface {}{"a":1}`.
pub(crate) fn syntax(value: &Value) -> String {
    let mut text = String::new();
    write_syntax(&mut text, value);
    cut(text)
}

/// `%T`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A number as Go's JSON encoder writes it: an integral float has no fraction.
pub(crate) fn number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e21 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LIMIT {
        let mut end = LIMIT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

fn write_plain(out: &mut String, value: &Value) {
    if out.len() > LIMIT {
        return;
    }
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => out.push_str(&number(value)),
        Value::String(value) => out.push_str(value),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate().take(LIMIT) {
                if index > 0 {
                    out.push(' ');
                }
                write_plain(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (index, (key, item)) in map.iter().enumerate().take(LIMIT) {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_plain(out, item);
            }
            out.push(']');
        }
    }
}

fn write_syntax(out: &mut String, value: &Value) {
    if out.len() > LIMIT {
        return;
    }
    match value {
        Value::String(value) => out.push_str(&quoted(value)),
        Value::Array(items) => {
            out.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate().take(LIMIT) {
                if index > 0 {
                    out.push_str(", ");
                }
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Object(map) => {
            out.push_str("map[string]interface {}{");
            for (index, (key, item)) in map.iter().enumerate().take(LIMIT) {
                if index > 0 {
                    out.push_str(", ");
                }
                out.push_str(&quoted(key));
                out.push(':');
                write_syntax(out, item);
            }
            out.push('}');
        }
        Value::Null => out.push_str("interface {}(nil)"),
        scalar => write_plain(out, scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_print_as_go_prints_them() {
        let value = json!({"a": 1, "b": ["x", null, true], "c": {"d": 1.5, "e": 2.0}});
        assert_eq!(plain(&value), "map[a:1 b:[x <nil> true] c:map[d:1.5 e:2]]");
        assert_eq!(syntax(&json!({"a": ["b"]})), "map[string]interface {}{\"a\":[]interface {}{\"b\"}}");
        assert_eq!(quoted("a\"b\n\u{1}"), "\"a\\\"b\\n\\x01\"");
    }

    #[test]
    fn long_values_are_cut() {
        assert!(plain(&json!("é".repeat(5000))).len() < 1010);
        assert!(plain(&json!(vec!["x"; 100_000])).len() < 1010);
    }
}
