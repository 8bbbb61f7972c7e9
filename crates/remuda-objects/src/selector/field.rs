//! Field selectors: `path=value`, `path==value`, `path!=value`, joined by commas.

use std::fmt;

use super::{MAX_TEXT, SelectorError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

/// One condition on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    pub path: String,
    pub operator: FieldOperator,
    pub value: String,
}

/// All terms must hold. Which paths a kind knows is the caller's check (see `fields`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    pub terms: Vec<FieldTerm>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_TEXT {
            return Err(SelectorError::too_long());
        }
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((path, operator, value)) = split_term(part) else {
                return Err(SelectorError::new(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            terms.push(FieldTerm { path: path.to_owned(), operator, value: unescape(value)? });
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value a field must have: `metadata.name=x` lets a list be answered by one read.
    pub fn requires(&self, path: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.path == path && term.operator == FieldOperator::Equals)
            .map(|term| term.value.as_str())
    }

    /// Matches with the field values `get` returns; a missing value counts as empty.
    pub fn matches_with<V: AsRef<str>>(&self, mut get: impl FnMut(&str) -> Option<V>) -> bool {
        self.terms.iter().all(|term| {
            let equal = get(&term.path).as_ref().map_or("", AsRef::as_ref) == term.value;
            equal == (term.operator == FieldOperator::Equals)
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let sign = if term.operator == FieldOperator::Equals { "=" } else { "!=" };
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}{sign}", term.path)?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}

fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let bytes = term.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        let doubled = bytes.get(index + 1) == Some(&b'=');
        let (operator, length) = match byte {
            b'!' if doubled => (FieldOperator::NotEquals, 2),
            b'=' if doubled => (FieldOperator::Equals, 2),
            b'=' => (FieldOperator::Equals, 1),
            _ => continue,
        };
        return Some((&term[..index], operator, &term[index + length..]));
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence = other.map_or(String::new(), String::from);
                    let text = format!("invalid field selector: invalid escape sequence: \\{sequence}");
                    return Err(SelectorError::new(text));
                }
            },
            // Upstream prints the code point.
            ',' | '=' => {
                let text = format!("invalid field selector: unescaped character in value: {}", u32::from(c));
                return Err(SelectorError::new(text));
            }
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_are_split_and_unescaped() {
        let selector = FieldSelector::parse("spec.b!=x,metadata.name==a\\,b\\=c\\\\").unwrap();
        assert_eq!(selector.to_string(), "metadata.name=a\\,b\\=c\\\\,spec.b!=x");
        assert_eq!(selector.requires("metadata.name"), Some("a,b=c\\"));
        assert_eq!(selector.requires("spec.b"), None);
        assert!(selector.matches_with(|path| (path == "metadata.name").then(|| "a,b=c\\".to_owned())));
        assert!(FieldSelector::parse("").unwrap().is_everything());
    }

    #[test]
    fn broken_selectors_are_refused() {
        let cases = [
            ("abc", "invalid selector: 'abc'; can't understand 'abc'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            ("a=\\x", "invalid field selector: invalid escape sequence: \\x"),
            ("a=\\", "invalid field selector: invalid escape sequence: \\"),
        ];
        for (text, expected) in cases {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_parses_to_the_same(text in "[a.=!,\\\\é]{0,20}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                let again = FieldSelector::parse(&selector.to_string());
                prop_assert!(again.is_ok());
            }
        }
    }
}
