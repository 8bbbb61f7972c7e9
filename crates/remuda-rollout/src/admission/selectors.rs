//! Selectors as they are written in objects.

use remuda_schema::FieldError;
use serde_json::Value;

use super::{
    path::{at, strings, text},
    syntax,
};
use crate::selector::{Expression, Operator, Selector};

/// Reads a selector; the error is told as Kubernetes tells it.
pub(super) fn parse(value: &Value) -> Result<Selector, String> {
    let labels = strings(at(value, &["matchLabels"]));
    for (key, value) in &labels {
        check(key, std::slice::from_ref(value))?;
    }
    let mut expressions = Vec::new();
    for rule in at(value, &["matchExpressions"]).and_then(Value::as_array).into_iter().flatten() {
        let key = text(rule, &["key"]).to_owned();
        let values: Vec<String> = at(rule, &["values"])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect();
        let operator = match text(rule, &["operator"]) {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => return Err(format!("{other:?} is not a valid label selector operator")),
        };
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return Err(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                        .into(),
                );
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                return Err(
                    "values: Invalid value: values set must be empty for exists and does not exist".into()
                );
            }
            _ => check(&key, &values)?,
        }
        expressions.push(Expression { key, operator, values });
    }
    Ok(Selector { labels, expressions })
}

fn check(key: &str, values: &[String]) -> Result<(), String> {
    if let Some(problem) = syntax::label_key(key).first() {
        return Err(format!("key: Invalid value: {key:?}: {problem}"));
    }
    for value in values {
        if let Some(problem) = syntax::label_value(value).first() {
            return Err(format!("values[0][{key}]: Invalid value: {value:?}: {problem}"));
        }
    }
    Ok(())
}

/// A selector as Kubernetes prints it.
pub(super) fn print(selector: &Selector) -> String {
    let mut parts: Vec<(&str, String)> =
        selector.labels.iter().map(|(key, value)| (key.as_str(), format!("{key}={value}"))).collect();
    for Expression { key, operator, values } in &selector.expressions {
        let mut values = values.clone();
        values.sort();
        let values = values.join(",");
        let text = match operator {
            Operator::In => format!("{key} in ({values})"),
            Operator::NotIn => format!("{key} notin ({values})"),
            Operator::Exists => key.clone(),
            Operator::DoesNotExist => format!("!{key}"),
        };
        parts.push((key, text));
    }
    parts.sort_by_key(|(key, _)| *key);
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// The error of an optional selector that cannot be read.
pub(super) fn unreadable(field: String, value: Option<&Value>) -> Option<FieldError> {
    let value = value?;
    parse(value).err().map(|problem| FieldError::invalid(field, value, &problem))
}
