//! Quoting as Go's `%q` does it, because error texts that clients compare are built that way.

use std::fmt::Write;

/// The text in double quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push(&mut out, text);
    out
}

/// Appends `text` in double quotes.
pub fn push(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            ' '..='~' => out.push(c),
            _ => push_unusual(out, c),
        }
    }
    out.push('"');
}

/// Appends a list as `%q` prints it: `["a" "b"]`.
pub fn push_list<S: AsRef<str>>(out: &mut String, items: &[S]) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        push(out, item.as_ref());
    }
    out.push(']');
}

fn push_unusual(out: &mut String, c: char) {
    let code = u32::from(c);
    let written = if code < 0x80 {
        write!(out, "\\x{code:02x}")
    } else if is_printable(c) {
        out.push(c);
        Ok(())
    } else if code < 0x1_0000 {
        write!(out, "\\u{code:04x}")
    } else {
        write!(out, "\\U{code:08x}")
    };
    // Writing to a String cannot fail.
    debug_assert!(written.is_ok());
}

/// Combining marks count as printable when they follow something, hence the letter in front.
fn is_printable(c: char) -> bool {
    let mut text = String::with_capacity(8);
    text.push('a');
    text.push(c);
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_go_does_it() {
        for (text, expected) in [
            ("plain", r#""plain""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("tab\tnl\n", r#""tab\tnl\n""#),
            ("\x07\x08\x0b\x0c\r", r#""\a\b\v\f\r""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("ü<日本", r#""ü<日本""#),
            // Neither printed nor lost: a reader sees that there is something.
            ("\u{85}\u{a0}\u{200b}\u{feff}", r#""\u0085\u00a0\u200b\ufeff""#),
            ("e\u{301}", "\"e\u{301}\""),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
        let mut list = String::new();
        push_list(&mut list, &["a", "b"]);
        push_list::<&str>(&mut list, &[]);
        assert_eq!(list, r#"["a" "b"][]"#);
    }
}
