//! JSON with the exact bytes Go's encoder writes.
//!
//! Nodes remember a digest of their configuration file and restart when it changes, and the server compares
//! plans byte for byte. A node that another implementation configured must therefore be given the same
//! bytes: sorted keys, `<`, `>` and `&` escaped, numbers in Go's notation.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Number, Value};

/// Compact form.
pub fn compact(value: &Value) -> String {
    let mut writer = Writer { out: String::new(), indent: None };
    writer.value(value, 0);
    writer.out
}

/// Two spaces per level, no newline at the end. Empty arrays and objects stay on one line. Answers the whole
/// object, and the object without the keys in `skip`.
pub fn indented<'a>(
    entries: impl IntoIterator<Item = (&'a str, &'a Value)>,
    skip: &[&str],
) -> (String, String) {
    let mut writer = Writer { out: String::with_capacity(1024), indent: Some("  ") };
    let mut without = String::with_capacity(1024);
    writer.out.push('{');
    without.push('{');
    for (key, value) in entries {
        if writer.out.len() > 1 {
            writer.out.push(',');
        }
        let start = writer.out.len();
        writer.line(1);
        string(&mut writer.out, key);
        writer.out.push_str(": ");
        writer.value(value, 1);
        if !skip.contains(&key) {
            if without.len() > 1 {
                without.push(',');
            }
            without.push_str(&writer.out[start..]);
        }
    }
    for out in [&mut writer.out, &mut without] {
        out.push_str(if out.len() > 1 { "\n}" } else { "}" });
    }
    (writer.out, without)
}

/// A value whose keys are in the order they are to have.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Escaping);
    value.serialize(&mut serializer).expect("maps with string keys always encode");
    text
}

struct Escaping;

impl serde_json::ser::Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut chars = special.chars();
            if let Some(special) = chars.next() {
                write!(writer, "\\u{:04x}", u32::from(special))?;
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// A JSON string in quotes.
pub fn string(out: &mut String, text: &str) {
    out.push('"');
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut start = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if !ESCAPED[usize::from(byte)] {
            continue;
        }
        let replacement = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            8 => "\\b",
            12 => "\\f",
            b'<' => "\\u003c",
            b'>' => "\\u003e",
            b'&' => "\\u0026",
            // U+2028 and U+2029 are the only escaped characters outside ASCII.
            0xe2 if bytes[at..].starts_with(&[0xe2, 0x80, 0xa8]) => "\\u2028",
            0xe2 if bytes[at..].starts_with(&[0xe2, 0x80, 0xa9]) => "\\u2029",
            0xe2 => continue,
            _ => "",
        };
        out.push_str(&text[start..at]);
        if replacement.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(replacement);
        }
        start = at + if byte == 0xe2 { 3 } else { 1 };
    }
    out.push_str(&text[start..]);
    out.push('"');
}

/// Whether nothing has to be escaped. Most of a plan is base64; written so that it compiles to vector code.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|chunk| {
        !chunk.iter().fold(false, |found, &byte| {
            found
                | (byte < 32)
                | (byte == b'"')
                | (byte == b'\\')
                | (byte == b'<')
                | (byte == b'>')
                | (byte == b'&')
                | (byte == 0xe2)
        })
    })
}

const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut at = 0;
    while at < 32 {
        table[at] = true;
        at += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

struct Writer {
    out: String,
    indent: Option<&'static str>,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Number(number) => self.out.push_str(&number_text(number)),
            Value::String(text) => string(&mut self.out, text),
            Value::Array(items) => self.array(items, depth),
            Value::Object(map) => self.map(map, depth),
        }
    }

    fn array(&mut self, items: &[Value], depth: usize) {
        if items.is_empty() {
            self.out.push_str("[]");
            return;
        }
        self.out.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.line(depth + 1);
            self.value(item, depth + 1);
        }
        self.line(depth);
        self.out.push(']');
    }

    fn map(&mut self, map: &Map<String, Value>, depth: usize) {
        // Another crate of the workspace may have asked serde_json to keep insertion order.
        let mut entries: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        self.object(entries.into_iter(), depth);
    }

    fn object<'a>(&mut self, entries: impl Iterator<Item = (&'a str, &'a Value)>, depth: usize) {
        let mut any = false;
        self.out.push('{');
        for (key, value) in entries {
            if any {
                self.out.push(',');
            }
            any = true;
            self.line(depth + 1);
            string(&mut self.out, key);
            self.out.push_str(if self.indent.is_some() { ": " } else { ":" });
            self.value(value, depth + 1);
        }
        if any {
            self.line(depth);
        }
        self.out.push('}');
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }
}

fn number_text(number: &Number) -> String {
    if number.is_i64() || number.is_u64() {
        return number.to_string();
    }
    let Some(float) = number.as_f64() else { return number.to_string() };
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        // Rust writes 1e21 and 1e-7, Go 1e+21 and 1e-07.
        return match text.split_once('e') {
            Some((digits, exponent)) => match exponent.strip_prefix('-') {
                Some(exponent) => format!("{digits}e-{exponent:0>2}"),
                None => format!("{digits}e+{exponent:0>2}"),
            },
            None => text,
        };
    }
    format!("{float}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does() {
        let text = "a<b>&\"\\\n\r\t\u{8}\u{c}\u{1}\u{2028}\u{2029}é\u{20ac}";
        let mut out = String::new();
        string(&mut out, text);
        assert_eq!(out, "\"a\\u003cb\\u003e\\u0026\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u2028\\u2029é\u{20ac}\"");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
    }

    #[test]
    fn objects_are_sorted_and_indented() {
        let value = json!({"b": [], "a": ["x", {"d": 1, "c": {}}]});
        assert_eq!(compact(&value), r#"{"a":["x",{"c":{},"d":1}],"b":[]}"#);
        let Value::Object(map) = &value else { unreachable!() };
        let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
        entries.sort_by_key(|(key, _)| *key);
        let expected =
            "{\n  \"a\": [\n    \"x\",\n    {\n      \"c\": {},\n      \"d\": 1\n    }\n  ],\n  \"b\": []\n}";
        assert_eq!(indented(entries.clone(), &[]), (expected.to_owned(), expected.to_owned()));
        assert_eq!(indented(entries.clone(), &["a"]).1, "{\n  \"b\": []\n}");
        assert_eq!(indented(entries, &["a", "b"]).1, "{}");
    }

    #[test]
    fn numbers_are_written_in_gos_notation() {
        for (number, text) in [
            (json!(1.0), "1"),
            (json!(1.5), "1.5"),
            (json!(1e21), "1e+21"),
            (json!(1e-7), "1e-07"),
            (json!(-12), "-12"),
            (json!(123_456_789.0), "123456789"),
        ] {
            assert_eq!(compact(&number), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_reads_back(text in ".{0,40}") {
            let mut out = String::new();
            string(&mut out, &text);
            proptest::prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}
