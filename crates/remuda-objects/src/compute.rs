//! What a Pod asks for of a node's resources.

use std::collections::BTreeMap;

use remuda_base::quantity;
use serde_json::Value;

use crate::json::{at, list_at, map_at, text_at};

/// Amounts in billionths, by the name of what they are of.
pub type Amounts = BTreeMap<String, i128>;

/// The amounts in a map of quantities; what is none counts as missing.
pub fn amounts(map: &Value) -> Amounts {
    let entries = map.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), nanos(amount)?))).collect()
}

/// An amount in JSON, where a number is as good as a text.
pub fn nanos(amount: &Value) -> Option<i128> {
    match amount {
        Value::String(text) => quantity::nanos(text),
        Value::Number(number) => quantity::nanos(&number.to_string()),
        _ => None,
    }
}

/// As it is written for people and in status: bytes in powers of 1024.
pub fn text(name: &str, amount: i128) -> String {
    quantity::text(amount, name.ends_with("memory") || name.ends_with("storage"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Requests,
    Limits,
}

impl Side {
    pub fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// Of one container.
pub fn container(container: &Value, side: Side) -> Amounts {
    amounts(at(container, &["resources", side.field()]))
}

/// Init containers run one after the other before the others do, but those that stay run along with all that follow.
pub fn pod(pod: &Value, side: Side) -> Amounts {
    let mut sum = Amounts::new();
    for item in list_at(pod, &["spec", "containers"]) {
        add(&mut sum, &container(item, side));
    }
    let mut staying = Amounts::new();
    let mut first = Amounts::new();
    for item in list_at(pod, &["spec", "initContainers"]) {
        let mut own = container(item, side);
        if text_at(item, &["restartPolicy"]) == "Always" {
            add(&mut sum, &own);
            add(&mut staying, &own);
            own = staying.clone();
        } else {
            add(&mut own, &staying);
        }
        raise(&mut first, &own);
    }
    raise(&mut sum, &first);
    for (name, amount) in amounts(at(pod, &["spec", "resources", side.field()])) {
        sum.insert(name, amount);
    }
    for (name, amount) in amounts(at(pod, &["spec", "overhead"])) {
        match sum.get_mut(&name) {
            Some(sum) => *sum = sum.saturating_add(amount),
            // Overhead is no limit of its own.
            None if side == Side::Requests => drop(sum.insert(name, amount)),
            None => {}
        }
    }
    sum
}

/// Whether a Pod asks for nothing at all.
pub fn is_best_effort(pod: &Value) -> bool {
    let mut parts = list_at(pod, &["spec", "containers"]).iter();
    let mut init = list_at(pod, &["spec", "initContainers"]).iter();
    let asks = |part: &Value| {
        [Side::Requests, Side::Limits].iter().any(|side| {
            let amounts = map_at(part, &["resources", side.field()]).into_iter().flatten();
            amounts
                .into_iter()
                .any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && nanos(amount) != Some(0))
        })
    };
    !parts.any(asks) && !init.any(asks) && !asks(at(pod, &["spec"]))
}

pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = sum.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(sum: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let sum = sum.entry(name.clone()).or_insert(*amount);
        *sum = (*sum).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn part(cpu: &str) -> Value {
        json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    fn cpu(spec: &Value, side: Side) -> String {
        text("cpu", pod(&json!({"spec": spec}), side).get("cpu").copied().unwrap_or(0))
    }

    #[test]
    fn a_pod_asks_for_what_runs_at_once() {
        let mut spec =
            json!({"containers": [part("1"), part("500m")], "initContainers": [part("2"), part("1")]});
        assert_eq!(cpu(&spec, Side::Requests), "2");
        let mut sidecar = part("1");
        sidecar["restartPolicy"] = "Always".into();
        spec["initContainers"] = json!([sidecar, part("2")]);
        assert_eq!(cpu(&spec, Side::Requests), "3");
        spec["initContainers"] = json!([part("2"), sidecar]);
        assert_eq!(cpu(&spec, Side::Requests), "2500m");
        spec["overhead"] = json!({"cpu": "100m", "memory": "1Mi"});
        assert_eq!(cpu(&spec, Side::Requests), "2600m");
        assert!(!pod(&json!({"spec": spec}), Side::Limits).contains_key("memory"));
        spec["resources"] = json!({"requests": {"cpu": "4"}});
        assert_eq!((cpu(&spec, Side::Requests), cpu(&spec, Side::Limits)), ("4100m".into(), "2600m".into()));
    }

    #[test]
    fn best_effort_is_to_ask_for_nothing() {
        assert!(is_best_effort(&json!({"spec": {"containers": [{"name": "a"}, {"resources": {}}]}})));
        assert!(!is_best_effort(&json!({"spec": {"containers": [{"name": "a"}, part("1")]}})));
    }
}
