//! Label selectors.

use std::collections::BTreeMap;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Which labels an object must have. An empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    pub labels: Labels,
    pub expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// A selector that cannot be written as plain labels; sets and deployments need one that can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "selector requirement on {key:?} is not a single value: only matchLabels and In with one value are supported"
)]
pub struct NotPlain {
    pub key: String,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|expression| expression.matches(labels))
    }

    /// The labels that say the same, if labels can.
    pub fn as_labels(&self) -> Result<Labels, NotPlain> {
        let mut labels = self.labels.clone();
        for Expression { key, operator, values } in &self.expressions {
            match (operator, values.as_slice()) {
                (Operator::In, [value]) => labels.insert(key.clone(), value.clone()),
                _ => return Err(NotPlain { key: key.clone() }),
            };
        }
        Ok(labels)
    }
}

impl Expression {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn one(key: &str, operator: Operator, values: &[&str]) -> Selector {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Selector {
            labels: Labels::new(),
            expressions: vec![Expression { key: key.into(), operator, values }],
        }
    }

    #[test]
    fn every_operator_matches_as_in_kubernetes() {
        let object = labels(&[("a", "1")]);
        assert!(one("a", Operator::In, &["1", "2"]).matches(&object));
        assert!(!one("b", Operator::In, &["1"]).matches(&object));
        assert!(one("b", Operator::NotIn, &["1"]).matches(&object));
        assert!(!one("a", Operator::NotIn, &["1"]).matches(&object));
        assert!(one("a", Operator::Exists, &[]).matches(&object));
        assert!(one("b", Operator::DoesNotExist, &[]).matches(&object));
        assert!(Selector::default().matches(&object));
    }

    #[test]
    fn only_single_values_can_be_written_as_labels() {
        assert_eq!(one("a", Operator::In, &["1"]).as_labels(), Ok(labels(&[("a", "1")])));
        assert_eq!(one("a", Operator::In, &["1", "2"]).as_labels(), Err(NotPlain { key: "a".into() }));
        assert_eq!(one("a", Operator::Exists, &[]).as_labels(), Err(NotPlain { key: "a".into() }));
    }
}
