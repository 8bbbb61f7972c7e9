//! What came of a drain, and how the Deleting condition tells it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Plan, PodKey};
use crate::text;

/// Names per line, and lines about failures.
const NAMES: usize = 3;
const FAILURES: usize = 5;
const BUDGET: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
const BUDGET_TOLD: &str = "cannot evict pod as it would violate the pod's disruption budget.";

/// What came of a plan's evictions, as `namespace/name`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Told to go, now or before.
    pub deleting: Vec<PodKey>,
    /// By the message of the refusal.
    pub failed: BTreeMap<String, Vec<PodKey>>,
    pub later: Vec<PodKey>,
    pub waiting: Vec<PodKey>,
    pub waiting_later: Vec<PodKey>,
}

impl Outcome {
    /// What is known before the first eviction.
    pub fn of(plan: &Plan) -> Self {
        Outcome {
            deleting: plan.deleting.clone(),
            failed: BTreeMap::new(),
            later: plan.evict_later.clone(),
            waiting: plan.wait.clone(),
            waiting_later: plan.wait_later.clone(),
        }
    }

    pub fn evicted(&mut self, pod: PodKey) {
        self.deleting.push(pod);
    }

    /// The API refused; `causes` are those of its answer.
    pub fn refused(&mut self, pod: PodKey, message: &str, causes: &[String]) {
        let message =
            if causes.is_empty() { message.to_owned() } else { format!("{message} {}", causes.join(",")) };
        self.failed.entry(message).or_default().push(pod);
    }

    /// The pod's namespace is going; deleting its pods is somebody else's job.
    pub fn terminating(&mut self, pod: PodKey) {
        let message = "Cannot evict pod from terminating namespace: unable to create eviction \
                       (kube-controller-manager should set deletionTimestamp)";
        self.failed.entry(message.into()).or_default().push(pod);
    }

    /// There was no time left in this pass.
    pub fn out_of_time(&mut self, pod: PodKey) {
        let message = "eviction timeout of 10s reached, eviction will be retried";
        self.failed.entry(message.into()).or_default().push(pod);
    }

    pub fn is_done(&self) -> bool {
        *self == Outcome::default()
    }

    /// Message of the Deleting condition; empty when done.
    pub fn message(&self, started: Timestamp) -> String {
        if self.is_done() {
            return String::new();
        }
        let mut message = format!("Drain not completed yet (started at {}):", text::time(started));
        if !self.deleting.is_empty() {
            line(&mut message, &self.deleting, "deletionTimestamp set, but still not removed from the Node");
        }
        for (refusal, pods) in self.failed.iter().take(FAILURES) {
            let refusal = refusal.replace(BUDGET, BUDGET_TOLD);
            if refusal.starts_with(BUDGET_TOLD) {
                line(&mut message, pods, &refusal);
            } else {
                line(&mut message, pods, &format!("failed to evict Pod, {refusal}"));
            }
        }
        if self.failed.len() > FAILURES {
            let others: usize = self.failed.values().skip(FAILURES).map(Vec::len).sum();
            let noun = if others == 1 { "Pod" } else { "Pods" };
            message.push_str(&format!("\n* {others} {noun} with other issues"));
        }
        if !self.waiting.is_empty() {
            line(&mut message, &self.waiting, "waiting for completion");
        }
        let after = "After above Pods have been removed from the Node,";
        if !self.later.is_empty() {
            let pods = text::list(&self.later, NAMES);
            message.push_str(&format!("\n{after} the following Pods will be evicted: {pods}"));
        }
        if !self.waiting_later.is_empty() {
            let pods = text::list(&self.waiting_later, NAMES);
            message.push_str(&format!(
                "\n{after} waiting for the following Pods to complete without eviction: {pods}"
            ));
        }
        message
    }
}

fn line(message: &mut String, pods: &[PodKey], what: &str) {
    let noun = if pods.len() == 1 { "Pod" } else { "Pods" };
    message.push_str(&format!("\n* {noun} {}: {what}", text::list(pods, NAMES)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    #[test]
    fn every_group_has_its_line() {
        let mut outcome = Outcome {
            waiting: vec!["ns/job".into()],
            later: vec!["ns/db".into()],
            waiting_later: vec!["ns/last".into()],
            ..Outcome::default()
        };
        outcome.evicted("web/a".into());
        outcome.evicted("web/b".into());
        let causes = ["The disruption budget api needs 2 healthy pods and has 2 currently".to_owned()];
        outcome.refused("web/api-0".into(), BUDGET, &causes);
        outcome.refused("web/odd".into(), "internal error", &[]);
        assert_eq!(
            outcome.message(at(0)),
            "Drain not completed yet (started at 1970-01-01T00:00:00Z):\n\
             * Pods web/a, web/b: deletionTimestamp set, but still not removed from the Node\n\
             * Pod web/api-0: cannot evict pod as it would violate the pod's disruption budget. The disruption budget api needs 2 healthy pods and has 2 currently\n\
             * Pod web/odd: failed to evict Pod, internal error\n\
             * Pod ns/job: waiting for completion\n\
             After above Pods have been removed from the Node, the following Pods will be evicted: ns/db\n\
             After above Pods have been removed from the Node, waiting for the following Pods to complete without eviction: ns/last"
        );
    }

    #[test]
    fn many_failures_are_counted() {
        let mut outcome = Outcome::default();
        for number in 0..7 {
            outcome.refused(format!("ns/p{number}"), &format!("error {number}"), &[]);
        }
        assert!(outcome.message(at(0)).ends_with("failed to evict Pod, error 4\n* 2 Pods with other issues"));
    }

    #[test]
    fn a_finished_drain_says_nothing() {
        assert_eq!(Outcome::default().message(at(0)), "");
    }
}
