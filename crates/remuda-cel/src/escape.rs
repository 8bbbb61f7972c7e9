//! Names of JSON fields as CEL identifiers.

/// The words that the grammar keeps for itself.
pub(crate) const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Turns a JSON field name into the identifier rules write, or `None` when no identifier can
/// stand for it (it starts with a digit, or has characters other than letters, digits and `_.-/`).
pub fn escape(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    if bytes.is_empty() || bytes[0].is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&json) {
        return Some(format!("__{json}__"));
    }
    let mut out = String::with_capacity(json.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'_' if bytes.get(at + 1) == Some(&b'_') => {
                out.push_str("__underscores__");
                at += 1;
            }
            b'.' => out.push_str("__dot__"),
            b'-' => out.push_str("__dash__"),
            b'/' => out.push_str("__slash__"),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => out.push(char::from(byte)),
            _ => return None,
        }
        at += 1;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        for (json, cel) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("in", Some("__in__")),
            ("a.b", Some("a__dot__b")),
            ("a-b/c", Some("a__dash__b__slash__c")),
            ("a__b", Some("a__underscores__b")),
            ("a___b", Some("a__underscores___b")),
            ("_", Some("_")),
            ("", None),
            ("1a", None),
            ("a b", None),
            ("a$", None),
            ("é", None),
        ] {
            assert_eq!(escape(json).as_deref(), cel, "{json}");
        }
    }
}
