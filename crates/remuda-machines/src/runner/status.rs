//! The status of a Job: what it says, and what is to be written.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_names::{
    machines::{annotation, job_condition, label as machine_label},
    rancher::{annotation as rancher_annotation, label},
};
use serde_json::{Value, json};

use super::Runner;
use crate::error::{Error, is_missing};

/// Reason of a Job that made no further attempt because it was told not to.
pub(super) const CANCELLED: &str = "Cancelled";

/// What of a Job matters here.
pub(super) struct State {
    pub started: Option<Timestamp>,
    pub active: bool,
    /// When it completed or failed.
    pub ended: Option<Timestamp>,
    pub suspended: bool,
    /// No further attempt is made.
    pub cancelled: bool,
    /// Whether it says that it waits for a place.
    pub waiting: bool,
    pub deadline: Option<Timestamp>,
    /// How long it may take from its start.
    pub longest: Option<Duration>,
    pub failed: u8,
    limit: i32,
    /// Exit codes that are final.
    fatal: Vec<i32>,
}

/// What an exit code means.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Complete,
    Again,
    /// With the reason.
    Failed(&'static str),
}

/// How a Job ended.
pub(super) enum End {
    Complete,
    Failed { reason: &'static str, message: String },
}

impl State {
    pub(super) fn of(job: &Job) -> Self {
        let spec = job.spec.as_ref();
        let status = job.status.as_ref();
        let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let end = conditions.iter().find(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        let seconds = spec.and_then(|spec| spec.active_deadline_seconds);
        let deadline = started.zip(seconds).map(|(started, seconds)| {
            started.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
        });
        let rules =
            spec.and_then(|spec| spec.pod_failure_policy.as_ref()).map(|policy| policy.rules.as_slice());
        let fatal = rules
            .unwrap_or_default()
            .iter()
            .filter(|rule| rule.action == "FailJob")
            .filter_map(|rule| rule.on_exit_codes.as_ref())
            .filter(|codes| codes.operator == "In")
            .flat_map(|codes| codes.values.iter().copied())
            .collect();
        Self {
            started,
            active: status.and_then(|status| status.active).unwrap_or_default() > 0,
            ended: end
                .map(|end| end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)),
            waiting: conditions.iter().any(|condition| condition.type_ == job_condition::WAITING),
            cancelled: job.annotations().get(annotation::CANCELLED).is_some_and(|yes| yes == "true"),
            suspended: spec.and_then(|spec| spec.suspend).unwrap_or_default(),
            deadline,
            longest: seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs),
            failed: u8::try_from(status.and_then(|status| status.failed).unwrap_or_default())
                .unwrap_or(u8::MAX),
            limit: spec.and_then(|spec| spec.backoff_limit).unwrap_or(6),
            fatal,
        }
    }

    pub(super) fn verdict(&self, code: u8) -> Verdict {
        if code == 0 {
            Verdict::Complete
        } else if self.fatal.contains(&i32::from(code)) {
            Verdict::Failed("PodFailurePolicy")
        } else if self.cancelled {
            Verdict::Failed(CANCELLED)
        } else if i32::from(self.failed) >= self.limit {
            Verdict::Failed("BackoffLimitExceeded")
        } else {
            Verdict::Again
        }
    }
}

pub(super) fn started(job: &Job, now: Timestamp) -> Value {
    let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0);
    json!({"startTime": seconds(start), "active": 1, "ready": 1, "conditions": []})
}

/// A Job that has not been started for want of a place.
pub(super) fn without_place(limit: usize, now: Timestamp) -> Value {
    let message = format!("waiting for a job slot ({limit} of {limit} running)");
    waiting("NoPlace", &message, now)
}

/// A Job that has not been started because a Secret it names does not exist.
pub(super) fn without_secret(name: &str, now: Timestamp) -> Value {
    waiting("NoSecret", &format!("waiting for the Secret {name}, which does not exist"), now)
}

/// A Job of a machine on the host of another server, which has not run it.
pub(super) fn without_host(job: &Job, host: &str, now: Timestamp) -> Value {
    let id = job.labels().get(machine_label::HOST).map(String::as_str).unwrap_or_default();
    let mut message = format!(
        "waiting for the server on host {host} (identity {id}), where the machine is and which alone can reach it"
    );
    if job.labels().get(label::INFRA_REMOVE).is_some_and(|removes| removes == "true") {
        let kind = job.labels().get(label::INFRA_MACHINE_KIND).map(String::as_str).unwrap_or_default();
        let name = job.labels().get(label::INFRA_MACHINE_NAME).map(String::as_str).unwrap_or_default();
        message += &format!(
            "; start that server, or, if it is gone for good, set the annotation {}: \"true\" on {kind} {name}",
            rancher_annotation::FORCE_MACHINE_REMOVE
        );
    }
    waiting(job_condition::NO_HOST, &message, now)
}

/// Why a Job has not been started.
fn waiting(reason: &str, message: &str, now: Timestamp) -> Value {
    let at = seconds(now);
    json!({"conditions": [{
        "type": job_condition::WAITING, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": at, "lastTransitionTime": at,
    }]})
}

pub(super) fn failed(_: &Job, failed: u8) -> Value {
    json!({"failed": failed, "active": 0, "ready": 0})
}

pub(super) fn ended(job: &Job, end: &End, now: Timestamp) -> Value {
    let (at, status) = (seconds(now), job.status.clone().unwrap_or_default());
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": at, "lastTransitionTime": at,
        })
    };
    let start = status.start_time.map_or(now, |time| time.0);
    match end {
        End::Complete => json!({
            "startTime": seconds(start), "completionTime": at, "active": 0, "ready": 0, "succeeded": 1,
            "conditions": [
                condition("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"),
                condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods"),
            ],
        }),
        End::Failed { reason, message } => json!({
            "startTime": seconds(start), "active": 0, "ready": 0,
            "failed": status.failed.unwrap_or_default() + 1,
            "conditions": [condition("FailureTarget", reason, message), condition("Failed", reason, message)],
        }),
    }
}

fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// A Job that is gone, or another of that name, is none of our business.
pub(super) async fn write(runner: &Runner, job: &Job, status: Value) -> Result<(), Error> {
    patch(runner, job, json!({"metadata": {"uid": job.uid()}, "status": status})).await
}

/// As [`write`], unless the Job has changed meanwhile: another server may have begun with it.
pub(super) async fn write_over(runner: &Runner, job: &Job, status: Value) -> Result<(), Error> {
    let version = job.resource_version();
    patch(runner, job, json!({"metadata": {"uid": job.uid(), "resourceVersion": version}, "status": status}))
        .await
}

async fn patch(runner: &Runner, job: &Job, patch: Value) -> Result<(), Error> {
    let api = runner.api(job);
    match api.patch_status(&job.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(written) => {
            let version = written.resource_version().unwrap_or_default();
            runner.jobs.wait_for(&version, Duration::from_secs(5)).await;
            Ok(())
        }
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(Error::api("write status of Job", job.name_any())(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_judged_by_policy_and_limit() {
        let job = |failed: i32| -> Job {
            serde_json::from_value(json!({
                "spec": {
                    "backoffLimit": 2, "template": {}, "activeDeadlineSeconds": 60,
                    "podFailurePolicy": {"rules": [{
                        "action": "FailJob",
                        "onExitCodes": {"containerName": "machine", "operator": "In", "values": [1, 3]},
                    }]},
                },
                "status": {"failed": failed, "startTime": "1970-01-01T00:00:10Z"},
            }))
            .unwrap()
        };
        let state = State::of(&job(0));
        assert_eq!(state.verdict(0), Verdict::Complete);
        assert_eq!(state.verdict(3), Verdict::Failed("PodFailurePolicy"));
        assert_eq!(state.verdict(75), Verdict::Again);
        assert_eq!(State::of(&job(2)).verdict(137), Verdict::Failed("BackoffLimitExceeded"));
        assert_eq!(state.deadline.unwrap().as_second(), 70);
    }
}
