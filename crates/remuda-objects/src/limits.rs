//! LimitRange: what containers, Pods and claims get by default, and between what they must stay.

use serde_json::{Value, json};

use crate::{
    compute::{self, Amounts, Side},
    json::{at, list_at, text_at},
};

const NOTE: &str = "kubernetes.io/limit-ranger";

/// Gives containers of a new Pod what the namespace gives those that say nothing.
pub fn default_pod(range: &Value, pod: &mut Value) {
    let mut defaults = [json!({}), json!({})];
    let items = list_at(range, &["spec", "limits"]).iter();
    for item in items.filter(|item| text_at(item, &["type"]) == "Container") {
        for (all, field) in defaults.iter_mut().zip(["defaultRequest", "default"]) {
            for (name, amount) in at(item, &[field]).as_object().into_iter().flatten() {
                if all.get(name).is_none() {
                    all[name] = amount.clone();
                }
            }
        }
    }
    let mut notes = Vec::new();
    for (list, word) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(containers) = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)) else { continue };
        for container in containers.as_array_mut().into_iter().flatten().filter(|item| item.is_object()) {
            let name = text_at(container, &["name"]).to_owned();
            for (all, (field, what)) in defaults.iter().zip([("requests", "request"), ("limits", "limit")]) {
                let given = fill(container, field, all);
                if !given.is_empty() {
                    notes.push(format!("{} {what} for {word} {name}", given.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() && meta_is_object(pod) {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod["metadata"]["annotations"][NOTE] = text.into();
    }
}

fn meta_is_object(pod: &Value) -> bool {
    let annotations = at(pod, &["metadata", "annotations"]);
    at(pod, &["metadata"]).is_object() && (annotations.is_null() || annotations.is_object())
}

/// What is missing of the defaults, by name; it is filled in.
fn fill(container: &mut Value, field: &str, defaults: &Value) -> Vec<String> {
    let mut given = Vec::new();
    let resources = at(container, &["resources"]);
    let shaped = |value: &Value| value.is_null() || value.is_object();
    if !shaped(resources) || !shaped(at(resources, &[field])) {
        return given;
    }
    for (name, amount) in defaults.as_object().into_iter().flatten() {
        if at(container, &["resources", field, name]).is_null() {
            container["resources"][field][name] = amount.clone();
            given.push(name.clone());
        }
    }
    given
}

/// What a range has against a Pod.
pub fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for item in list_at(range, &["spec", "limits"]) {
        match text_at(item, &["type"]) {
            "Container" => {
                for list in ["containers", "initContainers"] {
                    for container in list_at(pod, &["spec", list]) {
                        let side = |side| compute::container(container, side);
                        check_item(item, &side(Side::Requests), &side(Side::Limits), &mut errors);
                    }
                }
            }
            "Pod" => {
                let side = |side| compute::pod(pod, side);
                check_item(item, &side(Side::Requests), &side(Side::Limits), &mut errors);
            }
            _ => {}
        }
    }
    errors
}

/// What a range has against a claim.
pub fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = compute::amounts(at(claim, &["spec", "resources", "requests"]));
    let mut errors = Vec::new();
    for item in list_at(range, &["spec", "limits"]).iter().filter(|item| text_at(item, &["type"]) == KIND) {
        for (name, least) in compute::amounts(at(item, &["min"])) {
            errors.extend(minimum(
                KIND,
                &name,
                (shown(item, "min", &name), least),
                &requests,
                &Amounts::new(),
            ));
        }
        for (name, most) in compute::amounts(at(item, &["max"])) {
            let is = format!("maximum {name} usage per {KIND} is {}", shown(item, "max", &name));
            match requests.get(&name) {
                None => errors.push(format!("{is}.  No request is specified")),
                Some(request) if *request > most => {
                    errors.push(format!("{is}, but request is {}", compute::text(&name, *request)));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn shown(item: &Value, field: &str, name: &str) -> String {
    match at(item, &[field, name]) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn check_item(item: &Value, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
    let kind = text_at(item, &["type"]);
    for (name, least) in compute::amounts(at(item, &["min"])) {
        errors.extend(minimum(kind, &name, (shown(item, "min", &name), least), requests, limits));
    }
    for (name, most) in compute::amounts(at(item, &["max"])) {
        let is = format!("maximum {name} usage per {kind} is {}", shown(item, "max", &name));
        let over = |amounts: &Amounts| {
            amounts.get(&name).filter(|amount| **amount > most).map(|amount| compute::text(&name, *amount))
        };
        if !limits.contains_key(&name) {
            errors.push(format!("{is}.  No limit is specified"));
        } else if let Some(limit) = over(limits) {
            errors.push(format!("{is}, but limit is {limit}"));
        } else if let Some(request) = over(requests) {
            errors.push(format!("{is}, but request is {request}"));
        }
    }
    for (name, most) in compute::amounts(at(item, &["maxLimitRequestRatio"])) {
        let most_text = shown(item, "maxLimitRequestRatio", &name);
        let is = format!("{name} max limit to request ratio per {kind} is {most_text}");
        let amount = |amounts: &Amounts| amounts.get(&name).copied().unwrap_or(0);
        let (request, limit) = (amount(requests), amount(limits));
        if request == 0 {
            errors.push(format!("{is}, but no request is specified or request is 0"));
        } else if limit == 0 {
            errors.push(format!("{is}, but no limit is specified or limit is 0"));
        } else if limit.saturating_mul(1_000_000_000) > most.saturating_mul(request) {
            let ratio = limit as f64 / request as f64;
            errors.push(format!("{is}, but provided ratio is {ratio:.6}"));
        }
    }
}

fn minimum(
    kind: &str,
    name: &str,
    (text, least): (String, i128),
    requests: &Amounts,
    limits: &Amounts,
) -> Option<String> {
    let is = format!("minimum {name} usage per {kind} is {text}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => Some(format!("{is}.  No request is specified")),
        (Some(request), _) if *request < least => {
            Some(format!("{is}, but request is {}", compute::text(name, *request)))
        }
        (_, Some(limit)) if *limit < least => {
            Some(format!("{is}, but limit is {}", compute::text(name, *limit)))
        }
        _ => None,
    }
}

/// Several refusals as one text.
pub fn joined(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        _ => format!("[{}]", errors.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(item: Value) -> Value {
        json!({"spec": {"limits": [item]}})
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn containers_get_what_they_do_not_say() {
        let range = range(json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}));
        let mut pod = pod(json!({"requests": {"cpu": "200m"}}));
        default_pod(&range, &mut pod);
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": "200m", "memory": "1Gi"}));
        assert_eq!(resources["limits"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(
            pod["metadata"]["annotations"][NOTE],
            "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c"
        );
    }

    #[test]
    fn limits_are_kept_in_the_words_of_kubernetes() {
        let item = json!({"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "1"},
            "maxLimitRequestRatio": {"cpu": "2"}});
        let check = |resources: Value| check_pod(&range(item.clone()), &pod(resources));
        assert_eq!(check(json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})), [""; 0]);
        assert_eq!(
            check(json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "2"}})),
            [
                "minimum cpu usage per Container is 100m, but request is 50m",
                "maximum cpu usage per Container is 1, but limit is 2",
                "cpu max limit to request ratio per Container is 2, but provided ratio is 40.000000"
            ]
        );
        assert_eq!(
            check(json!({})),
            [
                "minimum cpu usage per Container is 100m.  No request is specified",
                "maximum cpu usage per Container is 1.  No limit is specified",
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"
            ]
        );
        let claims = range(json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}));
        let claim = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
        assert_eq!(
            check_claim(&claims, &claim),
            ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]
        );
    }
}
