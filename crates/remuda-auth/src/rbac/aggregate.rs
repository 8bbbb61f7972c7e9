//! The rules an aggregated ClusterRole should have: the union of those its selectors find.

use std::collections::HashSet;

use serde_json::Value;

use super::rule::Rule;

/// The rules `role` should carry, given all ClusterRoles. `None` if it does not aggregate, or a selector
/// makes no sense: then its rules are left alone.
///
/// In the order of the selectors, then of role names; a rule met before is not repeated.
pub fn aggregate<'a>(role: &Value, all: impl Iterator<Item = &'a Value>) -> Option<Vec<Value>> {
    let rules = union(role, all)?;
    Some(rules.iter().map(Rule::to_value).collect())
}

/// What has to be written to `role.rules`, if anything: [`aggregate`] where it differs from what is there.
pub fn aggregation_change<'a>(role: &Value, all: impl Iterator<Item = &'a Value>) -> Option<Vec<Value>> {
    let rules = union(role, all)?;
    if rules == Rule::parse_all(role.get("rules")) {
        return None;
    }
    Some(rules.iter().map(Rule::to_value).collect())
}

fn union<'a>(role: &Value, all: impl Iterator<Item = &'a Value>) -> Option<Vec<Rule>> {
    let rule = role.get("aggregationRule").filter(|rule| rule.is_object())?;
    let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array);
    let own_name = name(role);
    let mut others: Vec<&Value> = all.filter(|other| name(other) != own_name).collect();
    others.sort_by_key(|other| name(other));

    let mut seen = HashSet::new();
    let mut rules = Vec::new();
    for selector in selectors.into_iter().flatten() {
        let selector = Selector::parse(selector)?;
        for other in others.iter().filter(|other| selector.matches(other)) {
            for rule in Rule::parse_all(other.get("rules")) {
                if seen.insert(rule.clone()) {
                    rules.push(rule);
                }
            }
        }
    }
    Some(rules)
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("")
}

/// A label selector; all requirements must hold.
struct Selector<'a> {
    requirements: Vec<Requirement<'a>>,
}

struct Requirement<'a> {
    key: &'a str,
    operator: Operator,
    values: Vec<&'a str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl<'a> Selector<'a> {
    fn parse(value: &'a Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = value.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements.push(Requirement { key, operator: Operator::In, values: vec![value.as_str()?] });
            }
        }
        let expressions = value.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            let operator = match expression.get("operator")?.as_str()? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            let values = expression.get("values").and_then(Value::as_array);
            let values = values.into_iter().flatten().filter_map(Value::as_str).collect();
            requirements.push(Requirement { key: expression.get("key")?.as_str()?, operator, values });
        }
        Some(Self { requirements })
    }

    fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        self.requirements.iter().all(|requirement| {
            let label = labels.and_then(|labels| labels.get(requirement.key)).and_then(Value::as_str);
            let listed = label.is_some_and(|label| requirement.values.contains(&label));
            match requirement.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::Exists => label.is_some(),
                Operator::DoesNotExist => label.is_none(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, resource: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {label: "true"}},
               "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]})
    }

    fn names(rules: &[Value]) -> Vec<&str> {
        rules.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect()
    }

    #[test]
    fn rules_are_gathered_by_selector_then_name_without_repeats() {
        let all = [
            role("z", "view", "pods"),
            role("a", "view", "nodes"),
            role("m", "edit", "secrets"),
            role("n", "edit", "pods"),
            role("agg", "view", "own"),
        ];
        let mut agg = json!({"metadata": {"name": "agg"}, "aggregationRule": {"clusterRoleSelectors": [
            {"matchLabels": {"edit": "true"}},
            {"matchExpressions": [{"key": "view", "operator": "In", "values": ["true"]}]},
        ]}});
        let rules = aggregate(&agg, all.iter()).unwrap();
        assert_eq!(names(&rules), ["secrets", "pods", "nodes"]);
        assert_eq!(aggregation_change(&agg, all.iter()), Some(rules.clone()));
        agg["rules"] = rules.into();
        assert_eq!(aggregation_change(&agg, all.iter()), None);
    }

    #[test]
    fn a_role_without_aggregation_is_left_alone() {
        let all = [role("a", "view", "pods")];
        assert_eq!(aggregate(&role("b", "x", "y"), all.iter()), None);
        let broken = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]}});
        assert_eq!(aggregate(&broken, all.iter()), None);
        let none = json!({"aggregationRule": {}});
        assert_eq!(aggregate(&none, all.iter()), Some(vec![]));
        let everything = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}});
        assert_eq!(aggregate(&everything, all.iter()).unwrap().len(), 1);
    }

    #[test]
    fn operators_select_as_label_selectors_do() {
        let all = [role("a", "x", "pods")];
        for (operator, values, expected) in [
            ("In", json!(["true"]), 1),
            ("In", json!(["false"]), 0),
            ("NotIn", json!(["false"]), 1),
            ("Exists", json!([]), 1),
            ("DoesNotExist", json!([]), 0),
        ] {
            let role = json!({"aggregationRule": {"clusterRoleSelectors": [
                {"matchExpressions": [{"key": "x", "operator": operator, "values": values}]}]}});
            assert_eq!(aggregate(&role, all.iter()).unwrap().len(), expected, "{operator}");
        }
    }
}
