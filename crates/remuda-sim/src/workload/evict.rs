//! Evictions, as PodDisruptionBudgets allow them.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::{
    api::Answer,
    cluster::{State, WorkloadCluster},
    kinds::{BUDGETS, PODS, SERVED},
    select,
    status::{Failure, success},
};

impl WorkloadCluster {
    pub(super) fn evict(self: &Arc<Self>, namespace: &str, name: &str) -> Result<Answer, Failure> {
        let mut state = self.lock();
        let pod = state.store.get(PODS, namespace, name);
        let pod = pod.ok_or_else(|| Failure::not_found(&SERVED[PODS], name))?.value();
        // A Pod that has ended, or is ending, is nobody's loss.
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if !ended && !pod["metadata"]["deletionTimestamp"].is_string() {
            allowed(&state, namespace, &pod)?;
        }
        self.delete(&mut state, PODS, namespace, name);
        Ok(Answer::Body(StatusCode::CREATED, Bytes::from(success().to_string())))
    }
}

fn allowed(state: &State, namespace: &str, pod: &Value) -> Result<(), Failure> {
    let budgets: Vec<Value> = state
        .store
        .list(BUDGETS, Some(namespace))
        .map(|budget| budget.value())
        .filter(|budget| select::matches(&budget["spec"]["selector"], pod))
        .collect();
    let [budget] = budgets.as_slice() else {
        if budgets.is_empty() {
            return Ok(());
        }
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message));
    };
    let (mut expected, mut healthy) = (0, 0);
    for other in state.store.list(PODS, Some(namespace)).map(|pod| pod.value()) {
        if select::matches(&budget["spec"]["selector"], &other) {
            expected += 1;
            healthy += i64::from(is_healthy(&other));
        }
    }
    let spec = &budget["spec"];
    let needed = match amount(&spec["minAvailable"], expected) {
        Some(least) => least,
        None => expected - amount(&spec["maxUnavailable"], expected).unwrap_or(0),
    };
    if healthy > needed || !is_healthy(pod) {
        return Ok(());
    }
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = format!(
        "The disruption budget {} needs {needed} healthy pods and has {healthy} currently",
        budget["metadata"]["name"].as_str().unwrap_or_default()
    );
    Err(Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
        .because("DisruptionBudget", cause))
}

fn is_healthy(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A number, or a share of `whole`, rounded up.
fn amount(value: &Value, whole: i64) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some((whole.checked_mul(percent)?).div_euclid(100) + i64::from(whole * percent % 100 != 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        assert_eq!(amount(&json!(2), 10), Some(2));
        assert_eq!(amount(&json!("50%"), 3), Some(2));
        assert_eq!(amount(&json!("100%"), 3), Some(3));
        assert_eq!(amount(&json!("x"), 3), None);
        assert_eq!(amount(&Value::Null, 3), None);
    }
}
