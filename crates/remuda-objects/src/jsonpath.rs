//! The part of JSONPath that printer columns and selectable fields use, compiled once.
//!
//! Supported: `.name`, `['quoted.name']`, `[0]`, `[-1]`, `[*]`, `..name` and filters such as
//! `[?(@.type=="Ready")]` with one comparison. Evaluation stops at the first match.

use serde_json::Value;

/// Paths longer than this are refused; real ones are far shorter.
const MAX_TEXT: usize = 4096;
/// Steps a path may have; evaluation recurses once per step.
const MAX_STEPS: usize = 64;
/// How deep `..` looks.
const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonPathError {
    #[error("path is too long")]
    TooLong,
    #[error("unterminated {0}")]
    Unterminated(&'static str),
    #[error("cannot understand {0:?}")]
    Syntax(String),
}

/// A compiled path.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    Descend,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    test: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path as a CRD writes it (`.spec.x`), with or without the outer braces of kubectl.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        if text.len() > MAX_TEXT {
            return Err(JsonPathError::TooLong);
        }
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(text);
        let text = text.strip_prefix(['$', '@']).unwrap_or(text);
        let steps = parse_steps(text, true)?;
        Ok(Self { steps })
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        walk(&self.steps, value)
    }

    /// The plain fields a path begins with: everything it can reach lies below them.
    pub fn leading_fields(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map_while(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// The field names of a path made of plain fields only (`.spec.replicas`).
    pub fn fields(&self) -> Option<Vec<&str>> {
        let field = |step: &'_ Step| matches!(step, Step::Field(_));
        self.steps.iter().all(field).then(|| {
            let names = self.steps.iter().filter_map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            });
            names.collect()
        })
    }
}

fn walk<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(value) };
    match step {
        Step::Field(name) => walk(rest, value.get(name)?),
        Step::Index(index) => {
            let items = value.as_array()?;
            let index = if *index < 0 {
                items.len().checked_add_signed(isize::try_from(*index).ok()?)?
            } else {
                usize::try_from(*index).ok()?
            };
            walk(rest, items.get(index)?)
        }
        Step::Every => match value {
            Value::Array(items) => items.iter().find_map(|item| walk(rest, item)),
            Value::Object(fields) => fields.values().find_map(|item| walk(rest, item)),
            _ => None,
        },
        Step::Filter(filter) => match value {
            Value::Array(items) => {
                items.iter().filter(|item| filter.accepts(item)).find_map(|item| walk(rest, item))
            }
            _ => None,
        },
        Step::Descend => descend(rest, value, 0),
    }
}

fn descend<'a>(rest: &[Step], value: &'a Value, depth: usize) -> Option<&'a Value> {
    if depth > MAX_DEPTH || rest.is_empty() {
        return None;
    }
    if let Some(found) = walk(rest, value) {
        return Some(found);
    }
    match value {
        Value::Array(items) => items.iter().find_map(|item| descend(rest, item, depth + 1)),
        Value::Object(fields) => fields.values().find_map(|item| descend(rest, item, depth + 1)),
        _ => None,
    }
}

impl Filter {
    fn accepts(&self, item: &Value) -> bool {
        let Some(left) = self.left.value(item) else { return false };
        match &self.test {
            None => true,
            Some((comparison, right)) => right.value(item).is_some_and(|right| comparison.holds(left, right)),
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let ordering = match (left, right) {
            (Value::String(left), Value::String(right)) => left.partial_cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                _ => left.as_f64().partial_cmp(&right.as_f64()),
            },
            (Value::Bool(left), Value::Bool(right)) => left.partial_cmp(right),
            _ => None,
        };
        let Some(ordering) = ordering else { return self == Self::NotEqual };
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// `filters` is false inside of a filter, so that parsing never nests deeper than that.
fn parse_steps(text: &str, filters: bool) -> Result<Vec<Step>, JsonPathError> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            '.' if rest.starts_with("..") => {
                // One descent looks at every value once; a second one inside of it, or in a filter, would look again.
                if !filters || steps.contains(&Step::Descend) {
                    return Err(JsonPathError::Syntax(rest.to_owned()));
                }
                steps.push(Step::Descend);
                rest = if rest[2..].starts_with('[') { &rest[2..] } else { &rest[1..] };
            }
            '.' => {
                rest = &rest[1..];
                if rest.is_empty() || rest.starts_with('[') {
                    continue;
                }
                rest = take_field(rest, &mut steps)?;
            }
            '[' => {
                let end = closing_bracket(rest).ok_or(JsonPathError::Unterminated("array"))?;
                steps.push(parse_bracket(rest[1..end].trim(), filters)?);
                rest = &rest[end + 1..];
            }
            _ if steps.is_empty() => rest = take_field(rest, &mut steps)?,
            _ => return Err(JsonPathError::Syntax(rest.to_owned())),
        }
        if steps.len() > MAX_STEPS {
            return Err(JsonPathError::TooLong);
        }
    }
    Ok(steps)
}

/// A field name up to the next `.` or `[`; a backslash takes the next character as it is.
fn take_field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, JsonPathError> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((index, c)) = chars.next() {
        match c {
            '.' | '[' => {
                end = index;
                break;
            }
            '\\' => match chars.next() {
                Some((_, escaped)) => name.push(escaped),
                None => return Err(JsonPathError::Unterminated("escape")),
            },
            ' ' | ']' | '(' | ')' | '{' | '}' => return Err(JsonPathError::Syntax(text.to_owned())),
            c => name.push(c),
        }
    }
    if name.is_empty() {
        return Err(JsonPathError::Syntax(text.to_owned()));
    }
    steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
    Ok(&text[end..])
}

/// Where the bracket that opens `text` closes, not counting brackets in quotes.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn parse_bracket(inner: &str, filters: bool) -> Result<Step, JsonPathError> {
    let syntax = || JsonPathError::Syntax(inner.to_owned());
    if inner == "*" {
        return Ok(Step::Every);
    }
    if let Some(name) = unquote(inner) {
        return Ok(Step::Field(name));
    }
    if let Ok(index) = inner.parse::<i64>() {
        return Ok(Step::Index(index));
    }
    let filter = inner.strip_prefix('?').map(str::trim).ok_or_else(syntax)?;
    let filter = filter.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(syntax)?;
    if !filters {
        return Err(syntax());
    }
    parse_filter(filter).map(Step::Filter)
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

fn parse_filter(text: &str) -> Result<Filter, JsonPathError> {
    let mut quote = None;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                let rest = &text[index..];
                if let Some((sign, comparison)) = COMPARISONS.iter().find(|(sign, _)| rest.starts_with(sign))
                {
                    let left = parse_operand(&text[..index])?;
                    let right = parse_operand(&rest[sign.len()..])?;
                    return Ok(Filter { left, test: Some((*comparison, right)) });
                }
            }
        }
    }
    Ok(Filter { left: parse_operand(text)?, test: None })
}

fn parse_operand(text: &str) -> Result<Operand, JsonPathError> {
    let text = text.trim();
    if let Some(path) = text.strip_prefix('@') {
        return Ok(Operand::Path(JsonPath { steps: parse_steps(path, false)? }));
    }
    if let Some(text) = unquote(text) {
        return Ok(Operand::Literal(Value::from(text)));
    }
    match text {
        "true" | "false" => Ok(Operand::Literal(Value::from(text == "true"))),
        _ => match text.parse::<i64>() {
            Ok(number) => Ok(Operand::Literal(Value::from(number))),
            Err(_) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Operand::Literal(Value::from(number))),
                _ => Err(JsonPathError::Syntax(text.to_owned())),
            },
        },
    }
}

fn unquote(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut plain = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(chars.next()?),
            c if c == quote => return None,
            c => plain.push(c),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_form_finds_its_value() {
        let object = json!({
            "spec": {"a": 1, "list": [{"type": "X", "n": 1}, {"type": "Ready", "status": "True", "n": 2}]},
            "metadata": {"annotations": {"x.io/y": "z"}},
        });
        let cases = [
            (".spec.a", json!(1)),
            ("{.spec.a}", json!(1)),
            ("spec.a", json!(1)),
            (".spec['a']", json!(1)),
            (".metadata.annotations['x.io/y']", json!("z")),
            (".metadata.annotations.x\\.io/y", json!("z")),
            (".spec.list[0].type", json!("X")),
            (".spec.list[-1].type", json!("Ready")),
            (".spec.list[*].status", json!("True")),
            (".spec.list[?(@.type==\"Ready\")].status", json!("True")),
            (".spec.list[?(@.type=='Ready')].status", json!("True")),
            (".spec.list[?(@.n > 1)].type", json!("Ready")),
            (".spec.list[?(@.n!=1)].type", json!("Ready")),
            (".spec.list[?(@.status)].n", json!(2)),
            ("..status", json!("True")),
        ];
        for (path, expected) in cases {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), Some(&expected), "{path}");
        }
        for path in [".spec.b", ".spec.list[7]", ".spec.list[-7]", ".spec.a[*]", ".spec.list[?(@.type==1)]"] {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), None, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_refused() {
        for path in [".a[", ".a[x]", ".a[?(@.b==c)]", ".a[?(@.b[?(@.c)])]", ".a[0]b", "..a..b", ".a[?(@..b)]"]
        {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(text in "[.a\\[\\]?()@=<'\"*\\-0-9\\\\{}$é]{0,30}") {
            if let Ok(path) = JsonPath::parse(&text) {
                path.first(&json!({"a": [{"a": {"a": 1}}, [0, "a"]]}));
            }
        }
    }
}
