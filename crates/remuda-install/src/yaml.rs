//! JSON values as YAML documents.
//!
//! Written here rather than by a library because the bytes end up in plans: another version of a library
//! must not deliver every plan again.

use serde_json::Value;

/// One document, without a separator.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

/// Depth is bounded: values are built here or came through serde_json, which refuses more than 128 levels.
fn block(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    pad(text, indent);
                }
                scalar(text, key);
                text.push(':');
                nested(text, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    pad(text, indent);
                }
                text.push_str("- ");
                block(text, item, indent + 2);
            }
        }
        Value::String(string) => {
            scalar(text, string);
            text.push('\n');
        }
        other => {
            text.push_str(&other.to_string());
            text.push('\n');
        }
    }
}

/// What stands behind a key: on its line if it is small, below it otherwise.
fn nested(text: &mut String, value: &Value, indent: usize) {
    let (is_block, indent) = match value {
        Value::Object(map) => (!map.is_empty(), indent + 2),
        Value::Array(items) => (!items.is_empty(), indent),
        _ => (false, indent),
    };
    if is_block {
        text.push('\n');
        pad(text, indent);
    } else {
        text.push(' ');
    }
    block(text, value, indent);
}

fn pad(text: &mut String, indent: usize) {
    text.extend(std::iter::repeat_n(' ', indent));
}

/// Bare only where no version of YAML reads anything but a string.
fn scalar(text: &mut String, value: &str) {
    const OTHERS: &[&str] =
        &["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"];
    let is_plain = value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
        && !OTHERS.contains(&value.to_ascii_lowercase().as_str());
    if is_plain {
        text.push_str(value);
    } else {
        // A JSON string is a YAML string.
        text.push_str(&Value::from(value).to_string());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_reads_as_people_write_it() {
        let value = json!({
            "kind": "Secret",
            "list": [{"a": 1, "b": ["x", {"c": null}]}, "on", "1e3", ""],
            "empty": {}, "none": [], "yes": true, "text": "two\nlines: # \"quoted\"",
        });
        let expected = r##"empty: {}
kind: Secret
list:
- a: 1
  b:
  - x
  - c: null
- "on"
- "1e3"
- ""
none: []
text: "two\nlines: # \"quoted\""
"yes": true
"##;
        assert_eq!(document(&value), expected);
        let read: Value = serde_saphyr::from_str(expected).unwrap();
        assert_eq!(read, value);
    }
}
