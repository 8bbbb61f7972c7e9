//! Filters of lists: `filter=<field><operator><value>`, several in one parameter separated by commas.
//!
//! Terms of one parameter are alternatives; all parameters must hold.

use crate::{path::Cell, relation::Field};

/// Longest parameter that is read.
const LONGEST: usize = 16 << 10;

/// Why a filter cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadFilter(pub(crate) String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Like,
    NotLike,
    In,
    NotIn,
    Contains,
    NotContains,
    Less,
    Greater,
    Exists,
    NotExists,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) field: Field,
    operator: Operator,
    values: Vec<String>,
}

/// Alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) terms: Vec<Term>,
}

impl Filter {
    pub(crate) fn parse(text: &str) -> Result<Self, BadFilter> {
        if text.len() > LONGEST {
            return Err(BadFilter(format!("a filter must not have more than {LONGEST} bytes")));
        }
        let terms = split(text, ',')?.into_iter().map(str::trim).filter(|term| !term.is_empty());
        let terms = terms.map(Term::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { terms })
    }

    /// Whether one of the alternatives holds. One without any holds always.
    pub(crate) fn matches(&self, get: impl Fn(&Field) -> Cell) -> bool {
        self.terms.is_empty() || self.terms.iter().any(|term| term.matches(&get(&term.field)))
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, BadFilter> {
        let bad = || BadFilter(format!("cannot read the filter {text:?}"));
        let (negated, rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, text),
        };
        let (field, rest) = Field::begin(rest).ok_or_else(bad)?;
        let (operator, value) = operator(rest).ok_or_else(bad)?;
        if negated {
            let is_bare = operator == Operator::Exists;
            return if is_bare {
                Ok(Self { field, operator: Operator::NotExists, values: Vec::new() })
            } else {
                Err(bad())
            };
        }
        let values = match operator {
            Operator::Exists | Operator::NotExists => Vec::new(),
            Operator::In | Operator::NotIn | Operator::Contains | Operator::NotContains => {
                let inner = value.strip_prefix('(').and_then(|value| value.strip_suffix(')'));
                match inner {
                    Some(inner) => split(inner, ',')?.into_iter().map(unquoted).collect(),
                    None if matches!(operator, Operator::Contains | Operator::NotContains) => {
                        vec![unquoted(value)]
                    }
                    None => return Err(bad()),
                }
            }
            _ => vec![unquoted(value)],
        };
        Ok(Self { field, operator, values })
    }

    fn matches(&self, cell: &Cell) -> bool {
        let have = cell.values();
        let wanted = &self.values;
        let any_equal = || have.iter().any(|have| wanted.iter().any(|want| **have == **want));
        // What is not there is empty: a filter for nothing finds it.
        let is_equal = || any_equal() || (have.is_empty() && wanted.iter().any(String::is_empty));
        let like = || {
            let want = wanted.first().map(|want| want.to_lowercase()).unwrap_or_default();
            want.is_empty() || have.iter().any(|have| have.to_lowercase().contains(&want))
        };
        let contains = || match cell {
            Cell::Many(_) => any_equal(),
            _ => have.iter().any(|have| wanted.iter().any(|want| have.contains(want.as_str()))),
        };
        let compare = |less: bool| {
            let want = wanted.first().and_then(|want| number(want));
            let is = |have: f64, want: f64| if less { have < want } else { have > want };
            want.is_some_and(|want| have.iter().filter_map(|have| number(have)).any(|have| is(have, want)))
        };
        match self.operator {
            Operator::Equal | Operator::In => is_equal(),
            Operator::NotEqual | Operator::NotIn => !is_equal(),
            Operator::Like => like(),
            Operator::NotLike => !like(),
            Operator::Contains => contains(),
            Operator::NotContains => !contains(),
            Operator::Less => compare(true),
            Operator::Greater => compare(false),
            Operator::Exists => *cell != Cell::None,
            Operator::NotExists => *cell == Cell::None,
        }
    }
}

/// A number, or a quantity as Kubernetes writes them.
pub(crate) fn number(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    remuda_base::quantity::nanos(text).map(|nanos| nanos as f64 / 1e9)
}

/// The operator at the beginning, and the value behind it.
fn operator(text: &str) -> Option<(Operator, &str)> {
    const SIGNS: &[(&str, Operator)] = &[
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("!~", Operator::NotLike),
        ("=", Operator::Equal),
        ("~", Operator::Like),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    const WORDS: &[(&str, Operator)] = &[
        ("in", Operator::In),
        ("notin", Operator::NotIn),
        ("contains", Operator::Contains),
        ("notcontains", Operator::NotContains),
    ];
    if text.is_empty() {
        return Some((Operator::Exists, ""));
    }
    if let Some((sign, operator)) = SIGNS.iter().find(|(sign, _)| text.starts_with(sign)) {
        return Some((*operator, text[sign.len()..].trim()));
    }
    let end = text.find([' ', '\t', '(']).unwrap_or(text.len());
    let (word, value) = text.split_at(end);
    let (_, operator) = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word))?;
    Some((*operator, value.trim()))
}

/// Splits at a separator outside of quotes, brackets and parentheses.
fn split(text: &str, separator: char) -> Result<Vec<&str>, BadFilter> {
    let (mut parts, mut from) = (Vec::new(), 0);
    let (mut quote, mut depth, mut escaped) = (None, 0_usize, false);
    for (at, letter) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match (quote, letter) {
            (Some(_), '\\') => escaped = true,
            (Some(open), letter) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, letter) if letter == separator && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + letter.len_utf8();
            }
            (None, _) => {}
        }
    }
    if quote.is_some() {
        return Err(BadFilter(format!("a quote in the filter {text:?} does not end")));
    }
    parts.push(&text[from..]);
    Ok(parts)
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    let quoted = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let Some(inner) = quoted else { return text.to_owned() };
    let mut out = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(filter: &str, expected: bool) {
        let object = json!({
            "metadata": {"name": "demo-1", "labels": {"app/name": "Web, 1", "empty": ""}, "fields": ["x", 7]},
            "spec": {"replicas": 3, "paused": false, "tags": ["a", "b"], "memory": "2Gi"},
        });
        let parsed = Filter::parse(filter).unwrap();
        assert_eq!(parsed.matches(|field| field.path.value(&object)), expected, "{filter}");
    }

    #[test]
    fn every_operator_compares_as_it_says() {
        check("metadata.name=demo-1", true);
        check("metadata.name==demo-1", true);
        check("metadata.name = 'demo-1'", true);
        check("metadata.name=demo", false);
        check("metadata.name!=demo", true);
        check("metadata.name~DEMO", true);
        check("metadata.name!~demo", false);
        check("metadata.name in (x, demo-1)", true);
        check("metadata.name notin (x, demo-1)", false);
        check("metadata.name in (\"demo-1\")", true);
        check("spec.tags=a", true);
        check("spec.tags!=a", false);
        check("spec.tags contains b", true);
        check("spec.tags contains (c)", false);
        check("spec.tags notcontains (c,d)", true);
        check("metadata.name contains emo", true);
        check("spec.replicas>2", true);
        check("spec.replicas<3", false);
        check("spec.memory>1000000", true);
        check("spec.paused=false", true);
        check("metadata.fields[1]=7", true);
        check("metadata.labels[app/name]", true);
        check("!metadata.labels[app/name]", false);
        check("!metadata.labels[other]", true);
        check("metadata.labels[empty]", true);
        check("metadata.labels[app/name]=\"Web, 1\"", true);
    }

    #[test]
    fn what_is_missing_is_empty() {
        check("spec.nothing=", true);
        check("spec.nothing!=x", true);
        check("spec.nothing=x", false);
        check("spec.nothing notin (x)", true);
        check("spec.nothing>1", false);
    }

    #[test]
    fn terms_of_one_parameter_are_alternatives() {
        check("metadata.name=x,metadata.name=demo-1", true);
        check("metadata.name=x,metadata.name=y", false);
        check("metadata.name in (x,y),spec.replicas=3", true);
        check("", true);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in ["=x", "a.=x", "a in x", "a isnot b", "a=\"x", "!a=b", "[x"] {
            assert!(Filter::parse(bad).is_err(), "{bad}");
        }
    }
}
