//! Label selectors: the query syntax and the `LabelSelector` object, both into one type.

use std::{collections::BTreeSet, fmt};

use remuda_schema::FieldError;
use serde_json::{Map, Value};

use super::{
    MAX_TEXT, SelectorError,
    lexer::{Lexer, Token},
};
use crate::{names, path::Path};

/// How a requirement compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One condition on one label. `values` is sorted and free of duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// The value of `>` and `<`, parsed once.
    number: i64,
}

/// All requirements must hold. The default one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
    nothing: bool,
}

impl Requirement {
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, SelectorError> {
        let mut complaints = Vec::new();
        let key_complaints = names::qualified(key);
        if !key_complaints.is_empty() {
            complaints.push(format!("key: Invalid value: {}: {}", quote(key), key_complaints.join("; ")));
        }
        let mut number = 0;
        let count = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            _ => None,
        };
        if let Some(detail) = count {
            complaints.push(format!("values: Invalid value: {}: {detail}", Value::from(values.clone())));
        }
        for (index, value) in values.iter().enumerate() {
            if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
                match parse_integer(value) {
                    Some(parsed) => number = parsed,
                    None => complaints.push(format!(
                        "values[{index}]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                        quote(value)
                    )),
                }
            }
        }
        for (index, value) in values.iter().enumerate() {
            let value_complaints = names::label_value(value);
            if !value_complaints.is_empty() {
                complaints.push(format!(
                    "values[{index}][{key}]: Invalid value: {}: {}",
                    quote(value),
                    value_complaints.join("; ")
                ));
            }
        }
        match complaints.len() {
            0 => Ok(Self { key: key.to_owned(), operator, values, number }),
            1 => Err(SelectorError::new(complaints.swap_remove(0))),
            _ => Err(SelectorError::new(format!("[{}]", complaints.join(", ")))),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.binary_search_by(|candidate| candidate.as_str().cmp(value)).is_ok()
    }

    fn matches(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                value.is_some_and(|value| self.has(value))
            }
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(|value| self.has(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => value.and_then(parse_integer).is_some_and(|value| value > self.number),
            Operator::LessThan => value.and_then(parse_integer).is_some_and(|value| value < self.number),
        }
    }
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches no object; what a missing selector object means.
    pub fn nothing() -> Self {
        Self { requirements: Vec::new(), nothing: true }
    }

    /// Parses the query syntax (`a=b,c in (d,e),!f,g>3`).
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.len() > MAX_TEXT {
            return Err(SelectorError::too_long());
        }
        let mut lexer = Lexer::new(text);
        let mut requirements = Vec::new();
        loop {
            match lexer.peek().as_text() {
                Token::Identifier(_) | Token::Not => {
                    let requirement = parse_requirement(&mut lexer).map_err(|SelectorError(text)| {
                        SelectorError(format!("unable to parse requirement: {text}"))
                    })?;
                    requirements.push(requirement);
                    match lexer.take().as_text() {
                        Token::End => break,
                        Token::Comma => {
                            let next = lexer.peek().as_text();
                            if !matches!(next, Token::Identifier(_) | Token::Not) {
                                return Err(found(next, ", expected: identifier after ','"));
                            }
                        }
                        other => return Err(found(other, ", expected: ',' or 'end of string'")),
                    }
                }
                Token::End => break,
                other => return Err(found(other, ", expected: !, identifier, or 'end of string'")),
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Reads a `LabelSelector` object; `null` selects nothing, `{}` everything.
    ///
    /// Call [`LabelSelector::validate`] where errors should name fields.
    pub fn from_object(selector: &Value) -> Result<Self, SelectorError> {
        if selector.is_null() {
            return Ok(Self::nothing());
        }
        let Some(selector) = selector.as_object() else {
            return Err(SelectorError::new("label selector is not an object"));
        };
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value =
                    value.as_str().ok_or_else(|| SelectorError::new("label value is not a string"))?;
                requirements.push(Requirement::new(key, Operator::Equals, vec![value.to_owned()])?);
            }
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let name = expression.get("operator").and_then(Value::as_str).unwrap_or_default();
            let operator = match name {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => {
                    let text = format!("{} is not a valid label selector operator", quote(name));
                    return Err(SelectorError::new(text));
                }
            };
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            let values: BTreeSet<&str> = strings(expression.get("values")).collect();
            let values = values.into_iter().map(str::to_owned).collect();
            requirements.push(Requirement::new(key, operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements, nothing: false })
    }

    /// Reads a plain map of labels, the selector of a Service or ReplicationController.
    pub fn from_map(labels: &Map<String, Value>) -> Self {
        let equals = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
            number: 0,
        };
        let mut requirements: Vec<_> = labels.iter().map(equals).collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { requirements, nothing: false }
    }

    /// Checks a `LabelSelector` object at `path`; a missing one is fine.
    pub fn validate(selector: &Value, path: &Path<'_>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            crate::meta::validate_labels(labels, &path.child("matchLabels"), &mut errors);
        }
        let expressions = path.child("matchExpressions");
        for (index, expression) in
            selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten().enumerate()
        {
            let path = expressions.index(index);
            let operator = expression.get("operator").and_then(Value::as_str).unwrap_or_default();
            let count = strings(expression.get("values")).count();
            match operator {
                "In" | "NotIn" if count == 0 => errors.push(FieldError::required(
                    path.child("values"),
                    "must be specified when `operator` is 'In' or 'NotIn'",
                )),
                "Exists" | "DoesNotExist" if count > 0 => errors.push(FieldError::forbidden(
                    path.child("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                )),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => errors.push(FieldError::invalid(
                    path.child("operator"),
                    &Value::from(other),
                    "not a valid selector operator",
                )),
            }
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            for complaint in names::qualified(key) {
                errors.push(FieldError::invalid(path.child("key"), &Value::from(key), &complaint));
            }
            let values = path.child("values");
            for (index, value) in strings(expression.get("values")).enumerate() {
                for complaint in names::label_value(value) {
                    errors.push(FieldError::invalid(values.index(index), &Value::from(value), &complaint));
                }
            }
        }
        errors
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// True when every object matches.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Matches against a labels map; a missing map has no labels.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.matches_with(|key| labels?.get(key)?.as_str())
    }

    /// Matches against the `metadata.labels` of an object.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(crate::meta::labels(object))
    }

    /// Matches against labels looked up by `get`.
    pub fn matches_with<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self.requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// The value a label must have, when one requirement says so.
    pub fn requires(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values.as_slice()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.operator {
            Operator::Exists => return f.write_str(&self.key),
            Operator::DoesNotExist => return write!(f, "!{}", self.key),
            Operator::In => return write!(f, "{} in ({})", self.key, self.values.join(",")),
            Operator::NotIn => return write!(f, "{} notin ({})", self.key, self.values.join(",")),
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::GreaterThan => ">",
            Operator::LessThan => "<",
        };
        write!(f, "{}{sign}{}", self.key, self.values.join(","))
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

fn parse_requirement(lexer: &mut Lexer<'_>) -> Result<Requirement, SelectorError> {
    let mut token = lexer.take().as_text();
    let absent = token == Token::Not;
    if absent {
        token = lexer.take().as_text();
    }
    let Token::Identifier(key) = token else {
        return Err(found(token, ", expected: identifier"));
    };
    let complaints = names::qualified(key);
    if !complaints.is_empty() {
        // The key has no field to name, which upstream prints as `<nil>`.
        return Err(SelectorError::new(format!(
            "<nil>: Invalid value: {}: {}",
            quote(key),
            complaints.join("; ")
        )));
    }
    if absent {
        return Requirement::new(key, Operator::DoesNotExist, Vec::new());
    }
    if matches!(lexer.peek(), Token::End | Token::Comma) {
        return Requirement::new(key, Operator::Exists, Vec::new());
    }
    let operator = match lexer.take() {
        Token::In => Operator::In,
        Token::NotIn => Operator::NotIn,
        Token::Equals => Operator::Equals,
        Token::DoubleEquals => Operator::DoubleEquals,
        Token::NotEquals => Operator::NotEquals,
        Token::Greater => Operator::GreaterThan,
        Token::Less => Operator::LessThan,
        other => return Err(found(other, ", expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => parse_values(lexer)?,
        _ => vec![parse_exact(lexer)?.to_owned()],
    };
    Requirement::new(key, operator, values)
}

fn parse_exact<'a>(lexer: &mut Lexer<'a>) -> Result<&'a str, SelectorError> {
    if matches!(lexer.peek(), Token::End | Token::Comma) {
        return Ok("");
    }
    match lexer.take().as_text() {
        Token::Identifier(value) => Ok(value),
        other => Err(found(other, ", expected: identifier")),
    }
}

/// The list in parentheses; an omitted element stands for the empty value.
fn parse_values(lexer: &mut Lexer<'_>) -> Result<Vec<String>, SelectorError> {
    let open = lexer.take();
    if open != Token::Open {
        return Err(found(open, " expected: '('"));
    }
    let mut values = BTreeSet::new();
    match lexer.peek().as_text() {
        Token::Close => {
            lexer.take();
            return Ok(vec![String::new()]);
        }
        Token::Identifier(_) | Token::Comma => {}
        other => return Err(found(other, ", expected: ',', ')' or identifier")),
    }
    loop {
        match lexer.take().as_text() {
            Token::Identifier(value) => {
                values.insert(value);
                match lexer.peek().as_text() {
                    Token::Comma => {}
                    Token::Close => break,
                    other => return Err(found(other, ", expected: ',' or ')'")),
                }
            }
            Token::Comma => {
                let next = lexer.peek();
                if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                    values.insert("");
                }
                if next == Token::Close {
                    break;
                }
            }
            other => return Err(found(other, ", expected: ',', or identifier")),
        }
    }
    lexer.take();
    Ok(values.into_iter().map(str::to_owned).collect())
}

fn found(token: Token<'_>, expected: &str) -> SelectorError {
    SelectorError::new(format!("found '{}'{expected}", token.literal()))
}

fn quote(text: &str) -> Value {
    Value::from(text)
}

fn strings(values: Option<&Value>) -> impl Iterator<Item = &str> {
    values.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Decimal with an optional sign, as `ParseInt` of Go reads it.
fn parse_integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: &str, canonical: &str, matching: &[Value], others: &[Value]) {
        let parsed = LabelSelector::parse(selector).unwrap();
        assert_eq!(parsed.to_string(), canonical);
        for labels in matching {
            assert!(parsed.matches(labels.as_object()), "{selector} should match {labels}");
        }
        for labels in others {
            assert!(!parsed.matches(labels.as_object()), "{selector} should not match {labels}");
        }
    }

    #[test]
    fn every_operator_matches_as_documented() {
        check("", "", &[json!({}), json!({"a": "b"})], &[]);
        check("a=b", "a=b", &[json!({"a": "b"})], &[json!({}), json!({"a": "c"})]);
        check("a==b", "a==b", &[json!({"a": "b"})], &[json!({"a": "c"})]);
        check("a!=b", "a!=b", &[json!({}), json!({"a": "c"})], &[json!({"a": "b"})]);
        check(
            "a in (c, b)",
            "a in (b,c)",
            &[json!({"a": "b"}), json!({"a": "c"})],
            &[json!({"a": "d"}), json!({})],
        );
        check("a notin (b)", "a notin (b)", &[json!({}), json!({"a": "c"})], &[json!({"a": "b"})]);
        check("a", "a", &[json!({"a": ""})], &[json!({})]);
        check("!a", "!a", &[json!({})], &[json!({"a": ""})]);
        check("a>5", "a>5", &[json!({"a": "6"})], &[json!({"a": "5"}), json!({"a": "x"}), json!({})]);
        check("a<5", "a<5", &[json!({"a": "-1"})], &[json!({"a": "5"})]);
        check("a=", "a=", &[json!({"a": ""})], &[json!({})]);
    }

    #[test]
    fn odd_lists_hold_the_empty_value() {
        check("x in ()", "x in ()", &[json!({"x": ""})], &[json!({})]);
        check("x in (a,,b)", "x in (,a,b)", &[json!({"x": ""})], &[]);
        check("x in (,)", "x in ()", &[json!({"x": ""})], &[]);
        check("x in (in,notin)", "x in (in,notin)", &[json!({"x": "in"})], &[]);
        check("z,a = b , in", "a=b,in,z", &[json!({"a": "b", "in": "", "z": ""})], &[]);
    }

    #[test]
    fn errors_read_as_upstream() {
        let cases = [
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ];
        for (selector, expected) in cases {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), expected, "{selector}");
        }
        let error = LabelSelector::parse("-a=b").unwrap_err().to_string();
        assert!(error.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist"
        ));
        let error = LabelSelector::parse("a=b$").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "unable to parse requirement: values[0][a]: Invalid value: \"b$\": a valid label"
            )
        );
    }

    #[test]
    fn selector_objects_become_the_same_type() {
        let object = json!({"matchLabels": {"b": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["y", "x"]}]});
        assert_eq!(LabelSelector::from_object(&object).unwrap().to_string(), "a in (x,y),b=1");
        assert!(LabelSelector::from_object(&json!({})).unwrap().is_everything());
        assert!(!LabelSelector::from_object(&Value::Null).unwrap().matches(None));
        let path = Path::root("spec");
        let path = path.child("selector");
        let errors = LabelSelector::validate(
            &json!({"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "X"}]}),
            &path,
        );
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
                "spec.selector.matchExpressions[1].operator: Invalid value: \"X\": not a valid selector operator",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[a-c!=<>(), \\t]{0,40}|.{0,40}") {
            if let Ok(parsed) = LabelSelector::parse(&text) {
                let again = LabelSelector::parse(&parsed.to_string()).unwrap();
                prop_assert_eq!(again.to_string(), parsed.to_string());
            }
        }
    }
}
