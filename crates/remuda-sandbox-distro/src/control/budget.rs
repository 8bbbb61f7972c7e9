//! `PodDisruptionBudget`: how many Pods may be evicted at this moment.
//!
//! Reads   budgets and Pods.
//! Writes  the budget's status. Evictions take from it; that is the API's business.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, ResourceExt};
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive, write};
use tokio_util::sync::CancellationToken;

use super::{Error, pods};

/// An eviction that did not lead to a deletion is forgotten after this.
const FORGET: Duration = Duration::from_secs(120);

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let budgets: Informer<PodDisruptionBudget> = ctx.informers.of(Scope::all());
    let known = budgets.clone();
    let controller = Controller::<PodDisruptionBudget>::new("disruption", &ctx).watches(
        &pods::informer(&ctx),
        move |pod: &Pod| {
            let namespace = pod.namespace().unwrap_or_default();
            known.in_namespace(&namespace).iter().map(|budget| ObjectKey::of(&budget.metadata)).collect()
        },
    );
    drive(controller, reconcile, ctx, stop).await;
}

/// How many Pods must be healthy, of how many.
fn desired(spec: &PodDisruptionBudgetSpec, expected: i32) -> i32 {
    let amount = |value: &IntOrString| match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from((i64::from(expected) * percent.clamp(0, 100) + 99) / 100).unwrap_or(0)
        }
    };
    match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => amount(least),
        (None, Some(most)) => (expected - amount(most)).max(0),
        (None, None) => 0,
    }
}

async fn reconcile(budget: Arc<PodDisruptionBudget>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let spec = budget.spec.clone().unwrap_or_default();
    let namespace = budget.namespace().unwrap_or_default();
    let selector = spec.selector.clone();
    let covered: Vec<Arc<Pod>> = pods::informer(&ctx)
        .in_namespace(&namespace)
        .into_iter()
        .filter(|pod| selector.as_ref().is_some_and(|selector| pods::selects(selector, pod.labels())))
        .filter(|pod| pods::is_active(pod))
        .collect();
    let now = ctx.clock.now();
    let mut status = budget.status.clone().unwrap_or_default();
    let pending: BTreeMap<_, _> = status
        .disrupted_pods
        .take()
        .unwrap_or_default()
        .into_iter()
        .filter(|(name, at)| {
            let recent = Duration::try_from(now.duration_since(at.0)).is_ok_and(|age| age < FORGET);
            recent && covered.iter().any(|pod| pod.name_any() == *name)
        })
        .collect();
    let expected = covered.len() as i32;
    let healthy =
        covered.iter().filter(|pod| pods::is_ready(pod) && !pending.contains_key(&pod.name_any())).count()
            as i32;
    let wanted = desired(&spec, expected);
    let next = if pending.is_empty() { Action::AwaitChange } else { Action::RequeueAfter(FORGET) };
    let status = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: wanted,
        expected_pods: expected,
        disruptions_allowed: (healthy - wanted).max(0),
        disrupted_pods: Some(pending).filter(|pending| !pending.is_empty()),
        observed_generation: budget.metadata.generation,
        ..status
    };
    let api: Api<PodDisruptionBudget> = Api::namespaced(ctx.client.clone(), &namespace);
    write::patch_status(&ctx, &api, &budget, &(), budget.status.as_ref(), &status, true).await?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_numbers_or_parts() {
        let spec = |least: Option<IntOrString>, most: Option<IntOrString>| PodDisruptionBudgetSpec {
            min_available: least,
            max_unavailable: most,
            ..PodDisruptionBudgetSpec::default()
        };
        let percent = |text: &str| Some(IntOrString::String(text.to_owned()));
        assert_eq!(desired(&spec(Some(IntOrString::Int(2)), None), 3), 2);
        assert_eq!(desired(&spec(percent("50%"), None), 3), 2);
        assert_eq!(desired(&spec(None, Some(IntOrString::Int(1))), 3), 2);
        assert_eq!(desired(&spec(None, Some(IntOrString::Int(9))), 3), 0);
    }
}
