//! Label and field selectors.

use serde_json::Value;

/// Whether an object matches a label selector as a query has it.
pub(super) fn labels(selector: &str, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    split(selector).into_iter().all(|requirement| {
        let requirement = requirement.trim();
        if let Some((key, wanted)) = requirement.split_once("!=") {
            return value(key.trim()) != Some(wanted.trim());
        }
        if let Some((key, wanted)) = requirement.split_once('=') {
            return value(key.trim()) == Some(wanted.trim_start_matches('=').trim());
        }
        for (word, negated) in [(" notin ", true), (" in ", false)] {
            if let Some((key, wanted)) = requirement.split_once(word) {
                let wanted = wanted.trim().trim_start_matches('(').trim_end_matches(')');
                let found = value(key.trim());
                let among = wanted.split(',').any(|wanted| found == Some(wanted.trim()));
                return among != negated;
            }
        }
        match requirement.strip_prefix('!') {
            Some(key) => value(key.trim()).is_none(),
            None => requirement.is_empty() || value(requirement).is_some(),
        }
    })
}

/// Splits at commas that are not in parentheses.
fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in selector.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&selector[start..]);
    parts
}

/// Whether an object matches a field selector. Any field can be asked for.
pub(super) fn fields(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|part| !part.is_empty()).all(|requirement| {
        let (path, wanted, negated) = match requirement.split_once("!=") {
            Some((path, wanted)) => (path, wanted, true),
            None => match requirement.split_once('=') {
                Some((path, wanted)) => (path, wanted.trim_start_matches('='), false),
                None => return false,
            },
        };
        let found = path.split('.').try_fold(object, |value, key| value.get(key));
        (found.and_then(Value::as_str).unwrap_or_default() == wanted) != negated
    })
}

/// Whether labels of an object match a LabelSelector object; an empty one matches everything.
pub(super) fn matches(selector: &Value, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let value = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let equal = equal.into_iter().flatten().all(|(key, wanted)| value(key) == wanted.as_str());
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    equal
        && expressions.into_iter().flatten().all(|expression| {
            let found = expression.get("key").and_then(Value::as_str).and_then(value);
            let values = expression.get("values").and_then(Value::as_array);
            let among = values.into_iter().flatten().any(|one| found.is_some() && one.as_str() == found);
            match expression.get("operator").and_then(Value::as_str) {
                Some("In") => among,
                Some("NotIn") => !among,
                Some("Exists") => found.is_some(),
                Some("DoesNotExist") => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_match_as_kubernetes_has_them() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier=front", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (api, web)", true),
            ("app notin (api,web),tier", false),
            ("!other", true),
            ("!app", false),
            ("other", false),
        ] {
            assert_eq!(labels(selector, &object), expected, "{selector}");
        }
    }

    #[test]
    fn field_selectors_compare_text() {
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}});
        assert!(fields("spec.nodeName=n,metadata.name!=b", &pod));
        assert!(!fields("spec.nodeName=m", &pod));
        assert!(fields("spec.other=", &pod));
        assert!(!fields("nonsense", &pod));
    }

    #[test]
    fn selector_objects_match_labels_and_expressions() {
        let pod = json!({"metadata": {"labels": {"app": "web"}}});
        assert!(matches(&json!({}), &pod));
        assert!(matches(&json!({"matchLabels": {"app": "web"}}), &pod));
        assert!(!matches(&json!({"matchLabels": {"app": "api"}}), &pod));
        let expression = |operator: &str| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": ["web"]}]});
        assert!(matches(&expression("In"), &pod));
        assert!(!matches(&expression("NotIn"), &pod));
        assert!(matches(&expression("Exists"), &pod));
        assert!(!matches(&expression("Guess"), &pod));
    }
}
