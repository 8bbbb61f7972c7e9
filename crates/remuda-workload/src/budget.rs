//! PodDisruptionBudgets that keep a node from being drained.
//!
//! An API server that refuses an eviction says that a budget is in the way, and names it in a sentence only. Which it
//! is follows from the budgets' selectors.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::ListParams,
    core::{Selector, SelectorExt},
};

use crate::{Down, Lease};

/// The cause in the answer to an eviction that a budget does not allow.
const CAUSE: &str = "DisruptionBudget";
/// Pods of one budget that are named.
const NAMED: usize = 3;

/// A budget that allows no disruption, and the pods it keeps: `namespace/name` each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocking {
    pub budget: String,
    pub pods: Vec<String>,
}

/// Whether an eviction was refused because of a budget.
pub fn is_budget(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 429 && causes.any(|cause| cause.reason == CAUSE)
}

/// Which of these budgets keep which of these pods. Pods that none of them is about are left out.
pub fn blocking(budgets: &[PodDisruptionBudget], pods: &[&Pod]) -> Vec<Blocking> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for budget in budgets {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        // One without a selector is about no pod, one that is empty about all.
        let Some(Ok(selector)) = selector.map(Selector::try_from) else { continue };
        for pod in pods.iter().filter(|pod| pod.namespace() == budget.namespace()) {
            if selector.matches(pod.labels()) {
                found.entry(key(budget)).or_default().insert(key(*pod));
            }
        }
    }
    found.into_iter().map(|(budget, pods)| Blocking { budget, pods: pods.into_iter().collect() }).collect()
}

/// Asks the cluster which budgets keep pods whose eviction a budget refused.
pub async fn find(lease: &Lease, pods: &[&Pod]) -> Result<Result<Vec<Blocking>, kube::Error>, Down> {
    let namespaces: BTreeSet<String> = pods.iter().filter_map(|pod| pod.namespace()).collect();
    let mut budgets = Vec::new();
    for namespace in namespaces {
        let api: Api<PodDisruptionBudget> = Api::namespaced(lease.client(), &namespace);
        match lease.call(api.list(&ListParams::default())).await? {
            Ok(list) => budgets.extend(list.items),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(blocking(&budgets, pods)))
}

/// How a condition tells it; empty if nothing blocks.
pub fn told(blocking: &[Blocking]) -> String {
    let one = |Blocking { budget, pods }: &Blocking| {
        let named = pods.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = pods.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let noun = if pods.len() == 1 { "Pod" } else { "Pods" };
        format!("PodDisruptionBudget {budget} does not let {noun} {named}{more} go")
    };
    blocking.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn key<K: ResourceExt>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(name: &str, selector: &Value) -> PodDisruptionBudget {
        let metadata = json!({"namespace": "web", "name": name});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"selector": selector}})).unwrap()
    }

    fn pod(namespace: &str, name: &str, app: &str) -> Pod {
        let metadata = json!({"namespace": namespace, "name": name, "labels": {"app": app}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn budgets_are_found_by_their_selectors_and_not_by_words() {
        let pods = [pod("web", "api-1", "api"), pod("web", "api-0", "api"), pod("web", "db-0", "db")];
        let elsewhere = pod("other", "api-0", "api");
        let pods: Vec<&Pod> = pods.iter().chain([&elsewhere]).collect();
        let check = |budgets: &[PodDisruptionBudget], expected: &str| {
            assert_eq!(told(&blocking(budgets, &pods)), expected);
        };
        let api = budget("api", &json!({"matchLabels": {"app": "api"}}));
        check(
            std::slice::from_ref(&api),
            "PodDisruptionBudget web/api does not let Pods web/api-0, web/api-1 go",
        );
        let db =
            budget("db", &json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}));
        check(
            &[db, api],
            "PodDisruptionBudget web/api does not let Pods web/api-0, web/api-1 go; \
             PodDisruptionBudget web/db does not let Pod web/db-0 go",
        );
        check(&[budget("none", &Value::Null)], "");
        check(
            &[budget("all", &json!({}))],
            "PodDisruptionBudget web/all does not let Pods web/api-0, web/api-1, web/db-0 go",
        );
    }

    #[test]
    fn many_pods_are_counted() {
        let pods = (0..5).map(|number| format!("web/p{number}")).collect();
        assert_eq!(
            told(&[Blocking { budget: "web/b".to_owned(), pods }]),
            "PodDisruptionBudget web/b does not let Pods web/p0, web/p1, web/p2 and 2 more go"
        );
    }

    #[test]
    fn a_budget_is_told_from_other_refusals_by_the_cause() {
        let refusal = |code: u16, cause: &str| {
            let status = json!({"status": "Failure", "code": code, "message": "", "reason": "",
                                "details": {"causes": [{"reason": cause, "message": ""}]}});
            kube::Error::Api(serde_json::from_value(status).unwrap())
        };
        assert!(is_budget(&refusal(429, "DisruptionBudget")));
        assert!(!is_budget(&refusal(429, "Throttled")));
        assert!(!is_budget(&refusal(500, "DisruptionBudget")));
    }
}
