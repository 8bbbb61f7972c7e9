//! The status of a Job: what it says, and what is to be written.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_names::machines::job_condition;
use serde_json::{Value, json};

use super::Runner;
use crate::error::{Error, is_missing};

/// What of a Job matters here.
pub(super) struct State {
    pub started: Option<Timestamp>,
    pub active: bool,
    /// When it completed or failed.
    pub ended: Option<Timestamp>,
    pub suspended: bool,
    /// Whether it says that it waits for a place.
    pub waiting: bool,
    pub deadline: Option<Timestamp>,
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
            suspended: spec.and_then(|spec| spec.suspend).unwrap_or_default(),
            deadline,
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

/// Why a Job has not been started.
pub(super) fn waiting(limit: usize, now: Timestamp) -> Value {
    let at = seconds(now);
    let message = format!("waiting because {limit} jobs of machines are running, which is as many as may");
    json!({"conditions": [{
        "type": job_condition::WAITING, "status": "True", "reason": "NoPlace", "message": message,
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
    let patch = json!({"metadata": {"uid": job.uid()}, "status": status});
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
