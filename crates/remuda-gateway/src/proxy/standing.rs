//! Whether somebody may still have what they were given.
//!
//! A watch, a log that is followed or a shell goes on for hours, and roles may be taken away meanwhile. Whenever they
//! change, what is under way is judged again: by what was decided, by the rules of the roles that are left, and where
//! those say nothing, by the cluster. What could not be asked for now ends.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use remuda_auth::{rbac::rule::Rule, request_info::RequestInfo};
use remuda_names::gateway::impersonation;
use serde_json::json;
use tokio::{sync::watch, time::timeout};

use super::abroad;
use crate::{
    access::{Caller, Decision, Role},
    gateway::Shared,
};

/// For a cluster to say whether somebody may go on. It is less than the second in which they must not any more.
const PATIENCE: Duration = Duration::from_millis(800);

/// Somebody in a cluster, with what they asked for there.
pub(super) struct Standing {
    pub(super) shared: Arc<Shared>,
    pub(super) caller: Caller,
    pub(super) cluster: String,
    pub(super) decision: Decision,
    pub(super) asks: RequestInfo,
    /// From before it was decided.
    pub(super) changes: watch::Receiver<()>,
}

impl Standing {
    /// Returns when they may no longer have it.
    pub(super) async fn lost(mut self) {
        while self.changes.changed().await.is_ok() {
            if !self.holds().await {
                let (user, cluster) = (&self.caller.name, &self.cluster);
                tracing::info!(user, cluster, asks = ?self.asks.attributes(), "rights were taken away from what is under way");
                return;
            }
        }
        // Nobody tells any more: the server stops.
        std::future::pending::<()>().await;
    }

    async fn holds(&mut self) -> bool {
        let decided = self.shared.authorize.authorize(&self.caller, &self.cluster).await;
        let Ok(now) = decided.inspect_err(|error| {
            tracing::warn!(
                cluster = self.cluster,
                user = self.caller.name,
                error,
                "access cannot be decided"
            );
        }) else {
            return false;
        };
        let holds = now.allowed
            && (includes(&now, &self.decision)
                || allows(&now.roles, &self.asks)
                || self.cluster_allows(&now).await);
        self.decision = now;
        holds
    }

    /// Asks the cluster about what is not in rules of ours: those it may not have heard of yet.
    async fn cluster_allows(&self, now: &Decision) -> bool {
        let Ok(route) = self.shared.route(&self.cluster) else { return false };
        let roles = now.roles.iter().filter(|role| role.rules.is_none()).cloned().collect();
        let who = abroad(&self.caller, &Decision { roles, ..now.clone() });
        let review = self.asks.review(&who.user, who.groups.iter());
        let Ok(review) = serde_json::from_value::<SubjectAccessReview>(review) else { return false };
        let reviews: Api<SubjectAccessReview> = Api::all(Client::new(route, impersonation::NAMESPACE));
        let answer = timeout(PATIENCE, reviews.create(&PostParams::default(), &review)).await;
        answer
            .is_ok_and(|answer| answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed)))
    }
}

/// Whether nothing was taken away.
fn includes(now: &Decision, before: &Decision) -> bool {
    let kept = |role: &Role| {
        now.roles.iter().any(|known| {
            known.name == role.name
                && match (&known.rules, &role.rules) {
                    (None, None) => true,
                    (Some(now), Some(before)) => before.iter().all(|rule| now.contains(rule)),
                    _ => false,
                }
        })
    };
    before.groups.iter().all(|group| now.groups.contains(group)) && before.roles.iter().all(kept)
}

/// Whether roles with rules allow something by themselves.
fn allows(roles: &[Role], asks: &RequestInfo) -> bool {
    let rules = roles.iter().filter_map(|role| role.rules.as_ref()).flatten();
    rules.map(|rule| Rule::parse(&json!(rule))).any(|rule| rule.allows(&asks.attributes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, resources: &[&str]) -> Role {
        let rule = |resource: &&str| json!({"apiGroups": [""], "resources": [resource], "verbs": ["watch"]});
        let rules = json!(resources.iter().map(rule).collect::<Vec<_>>());
        Role { name: name.to_owned(), rules: Some(serde_json::from_value(rules).unwrap()) }
    }

    fn given(roles: &[Role]) -> Decision {
        Decision::allow().with_roles(roles.to_vec())
    }

    #[test]
    fn what_is_added_takes_nothing_away() {
        let borrowed = Role { name: "view".to_owned(), rules: None };
        let before = given(&[role("a", &["pods"]), borrowed.clone()]);
        assert!(includes(&before, &before));
        assert!(includes(
            &given(&[borrowed.clone(), role("b", &[]), role("a", &["nodes", "pods"])]),
            &before
        ));
        assert!(!includes(&given(&[role("a", &["pods"])]), &before));
        assert!(!includes(&given(&[role("a", &["nodes"]), borrowed]), &before));
        assert!(!includes(&given(&[role("a", &["pods"]), role("view", &["pods"])]), &before));
        assert!(includes(&Decision::owner(), &Decision::allow()));
        assert!(!includes(&Decision::allow(), &Decision::owner()));
    }

    #[test]
    fn rules_that_are_left_may_do() {
        let asks = RequestInfo::parse("GET", "/api/v1/nodes", Some("watch=1"));
        assert!(allows(&[role("a", &["pods"]), role("b", &["nodes"])], &asks));
        assert!(!allows(&[role("a", &["pods"])], &asks));
        assert!(!allows(&[Role { name: "view".to_owned(), rules: None }], &asks));
    }
}
