//! Conditions of provider objects, which may be of either style and of any quality.

use jiff::Timestamp;
use serde_json::Value;

use super::at;
use crate::{
    condition::{
        Condition, Conditions, NO_REASON_REPORTED, Status,
        old::{OldCondition, OldConditions, Severity},
    },
    provider::Reading,
};

/// All conditions, new style first. One that is broken breaks the reading, and the error says how.
pub fn conditions(object: &Value) -> Result<Conditions, String> {
    for path in ["status.v1beta2.conditions", "status.conditions"] {
        if let Some(Value::Array(entries)) = at(object, path) {
            let read: Result<Vec<_>, _> = entries.iter().filter(|entry| entry.is_object()).map(one).collect();
            let kind = at(object, "kind").and_then(Value::as_str).unwrap_or("object");
            return read.map(Conditions::read).map_err(|problem| {
                format!("failed to convert {path} from {kind} to []metav1.Condition: {problem}")
            });
        }
    }
    Ok(Conditions::default())
}

/// One condition of an object that exists.
pub fn reading(object: &Value, kind: &str) -> Reading {
    Reading::Found(conditions(object).map(|conditions| conditions.get(kind).cloned()))
}

/// Conditions as v1beta1 has them, from where both contracts keep them. What is broken is left out: nothing
/// decides by them.
pub fn old_conditions(object: &Value) -> OldConditions {
    let entries = at(object, "status.conditions").and_then(Value::as_array).into_iter().flatten();
    OldConditions::read(entries.filter_map(old).collect())
}

fn old(entry: &Value) -> Option<OldCondition> {
    // As long as our own schema lets them be.
    let text = |key: &str, most: usize| {
        entry.get(key).and_then(Value::as_str).unwrap_or_default().chars().take(most).collect::<String>()
    };
    let (kind, status) = (text("type", 256), Status::parse(&text("status", 8))?);
    let condition = OldCondition {
        status,
        severity: Severity::parse(&text("severity", 32)).filter(|_| status == Status::False),
        reason: text("reason", 256),
        message: text("message", 10_240),
        since: text("lastTransitionTime", 64).parse::<Timestamp>().ok(),
        kind,
    };
    (!condition.kind.is_empty()).then_some(condition)
}

fn one(entry: &Value) -> Result<Condition, String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = text("type");
    if kind.is_empty() {
        return Err("type must be set for all conditions".into());
    }
    let status = match text("status") {
        "" => return Err(format!("status must be set for the {kind} condition")),
        status => Status::parse(status)
            .ok_or_else(|| format!("status for the {kind} condition must be one of True, False, Unknown"))?,
    };
    let since = match text("lastTransitionTime") {
        "" => None,
        time => {
            let problem = |_| format!("failed to unmarshal lastTransitionTime value: {time}");
            Some(time.parse::<Timestamp>().map_err(problem)?)
        }
    };
    let reason = match text("reason") {
        "" => NO_REASON_REPORTED,
        reason => reason,
    };
    let generation = entry.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
    Ok(Condition { since, generation, ..Condition::new(kind, status, reason, text("message")) })
}
