//! Value validations of one schema node.

use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::Value;

use crate::{format::Format, rules::Rule, schema::Schema};

/// Value validations of one schema node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Validation {
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub enumeration: Vec<Value>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub unique_items: bool,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    /// `additionalProperties: false`: entries that are not declared are errors.
    pub closed: bool,
    pub all_of: Vec<Arc<Schema>>,
    pub any_of: Vec<Arc<Schema>>,
    pub one_of: Vec<Arc<Schema>>,
    pub not: Option<Arc<Schema>>,
    /// The format to enforce; formats without meaning for the node's type are left out.
    pub format: Option<Format>,
    /// `x-kubernetes-validations`
    pub rules: Vec<Rule>,
}

/// A `pattern`: unanchored, RE2 syntax. It is compiled when the first value is held against it: most kinds of most
/// servers never see one, and hundreds of patterns take long and fill memory.
#[derive(Debug, Clone)]
pub struct Pattern(Arc<Source>);

#[derive(Debug)]
struct Source {
    text: String,
    regex: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// Never fails: like the reference, a pattern that does not compile rejects every value.
    pub fn new(source: &str) -> Self {
        Self(Arc::new(Source { text: source.to_owned(), regex: OnceLock::new() }))
    }

    pub fn source(&self) -> &str {
        &self.0.text
    }

    pub fn error(&self) -> Option<&str> {
        self.regex().as_ref().err().map(String::as_str)
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex().as_ref().is_ok_and(|regex| regex.is_match(text))
    }

    fn regex(&self) -> &Result<Regex, String> {
        self.0.regex.get_or_init(|| compile_pattern(&self.0.text))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

fn compile_pattern(source: &str) -> Result<Regex, String> {
    let translated = translate(source);
    regex::RegexBuilder::new(&translated)
        // Patterns come from users; the default limit of 10 MiB per pattern is too generous.
        .size_limit(4 << 20)
        .build()
        .map_err(|error| match error {
            regex::Error::Syntax(text) => text.lines().last().unwrap_or("syntax error").trim().to_owned(),
            other => other.to_string(),
        })
}

/// Bridges the places where RE2 and the `regex` crate read the same text differently: in RE2 the
/// classes `\d \s \w \b` are ASCII, `\Q…\E` quotes, `\C` is any byte and `\z` is the end, a `[`
/// inside a class is literal, as are the `&&`, `--` and `~~` that are operators here.
fn translate(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 8);
    let mut chars = source.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => match chars.next() {
                Some('d') if in_class => out.push_str("0-9"),
                Some('w') if in_class => out.push_str("0-9A-Za-z_"),
                Some('s') if in_class => out.push_str("\\t\\n\\x0C\\r "),
                Some('D') if in_class => out.push_str("[^0-9]"),
                Some('W') if in_class => out.push_str("[^0-9A-Za-z_]"),
                Some('S') if in_class => out.push_str("[^\\t\\n\\x0C\\r ]"),
                Some('d') => out.push_str("[0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\x0C\\r ]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str("[^\\t\\n\\x0C\\r ]"),
                Some('b') => out.push_str("(?-u:\\b)"),
                Some('B') => out.push_str("(?-u:\\B)"),
                Some('C') => out.push_str("(?s:.)"),
                Some('Q') => {
                    let rest: String = chars.clone().collect();
                    let quoted = rest.split("\\E").next().unwrap_or_default();
                    out.push_str(&regex::escape(quoted));
                    let skip = quoted.chars().count() + 2;
                    for _ in 0..skip {
                        chars.next();
                    }
                }
                Some(other) => {
                    out.push('\\');
                    out.push(other);
                }
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A POSIX class such as [:alpha:] is passed through whole.
                out.push('[');
                while let Some(inner) = chars.next() {
                    out.push(inner);
                    if inner == ':' && chars.peek() == Some(&']') {
                        chars.next();
                        out.push(']');
                        break;
                    }
                }
            }
            '[' => out.push_str("\\["),
            ']' if in_class && at_start => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && (at_start || chars.peek() == Some(&']')) => out.push_str("\\-"),
            '-' if in_class && chars.peek() == Some(&'-') => {
                chars.next();
                out.push_str("-\\-");
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let pattern = Pattern::new(pattern);
        assert_eq!(pattern.error(), None, "{}", pattern.source());
        for text in matching {
            assert!(pattern.matches(text), "{} should match {text:?}", pattern.source());
        }
        for text in others {
            assert!(!pattern.matches(text), "{} should not match {text:?}", pattern.source());
        }
    }

    #[test]
    fn patterns_read_as_re2_reads_them() {
        check("a", &["bab"], &["bbb"]);
        check(r"^\d+$", &["12"], &["", "\u{0661}"]);
        check(r"^[\w.-]+$", &["a-b.c_1"], &["a b"]);
        check(r"^[a-z[&&]+$", &["a[&"], &["A"]);
        check(r"^[]a]+$", &["]a"], &["b"]);
        check(r"^[[:alpha:]-]+$", &["ab-"], &["1"]);
        check(r"^\Qa.b\E+$", &["a.bb"], &["axb"]);
        check(r"^[+--]$", &["+", ",", "-"], &["."]);
        check(r"^(?i)abc$", &["ABC"], &["abd"]);
        check(r"^[^-]$", &["a"], &["-"]);
        check(r"^[a\-z]$", &["-", "z"], &["b"]);
    }

    #[test]
    fn look_around_is_not_supported() {
        assert!(Pattern::new("(?=a)").error().is_some());
        assert!(Pattern::new("(").error().is_some());
    }
}
