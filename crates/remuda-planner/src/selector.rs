//! Label selectors of `machineSelectorConfig` and `machineSelectorFiles`.

use std::collections::BTreeMap;

use crate::spec::{LabelSelector, Requirement};

/// A selector no API server would have let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operator:?} is not a valid label selector operator, or has the wrong number of values, on {key:?}")]
pub struct BadSelector {
    pub key: String,
    pub operator: String,
}

/// Whether `labels` match. No selector at all matches everything.
pub(crate) fn matches(
    selector: Option<&LabelSelector>,
    labels: &BTreeMap<String, String>,
) -> Result<bool, BadSelector> {
    let Some(selector) = selector else { return Ok(true) };
    let mut all = selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
    for requirement in &selector.match_expressions {
        all &= holds(requirement, labels)?;
    }
    Ok(all)
}

fn holds(requirement: &Requirement, labels: &BTreeMap<String, String>) -> Result<bool, BadSelector> {
    let Requirement { key, operator, values } = requirement;
    let value = labels.get(key);
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(value.is_some_and(|value| values.contains(value))),
        ("NotIn", false) => Ok(value.is_none_or(|value| !values.contains(value))),
        ("Exists", true) => Ok(value.is_some()),
        ("DoesNotExist", true) => Ok(value.is_none()),
        _ => Err(BadSelector { key: key.clone(), operator: operator.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: serde_json::Value, expected: Option<bool>) {
        let selector: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(matches(selector.as_ref(), &labels).ok(), expected);
    }

    #[test]
    fn selectors_match_as_kubernetes_does() {
        check(json!(null), Some(true));
        check(json!({}), Some(true));
        check(json!({"matchLabels": {"a": "1"}}), Some(true));
        check(json!({"matchLabels": {"a": "2"}}), Some(false));
        check(
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
            Some(true),
        );
        check(json!({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}), Some(true));
        check(json!({"matchExpressions": [{"key": "b", "operator": "Exists"}]}), Some(false));
        check(json!({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}), Some(true));
        check(json!({"matchExpressions": [{"key": "b", "operator": "Near"}]}), None);
        check(json!({"matchExpressions": [{"key": "b", "operator": "In"}]}), None);
    }
}
