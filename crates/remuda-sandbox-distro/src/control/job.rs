//! `Job`: Pods until enough of them have succeeded, or too many have failed.
//!
//! Reads   the Job and its Pods.
//! Writes  Pods, and the Job's status.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PropagationPolicy},
};
use remuda_control::{Action, Controller, Ctx, drive, write};
use tokio_util::sync::CancellationToken;

use super::{Error, failed, is_gone, pods};

pub async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let controller = Controller::<Job>::new("job", &ctx).owns(&pods::informer(&ctx));
    drive(controller, reconcile, ctx, stop).await;
}

/// What a Job's Pods have come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    active: i32,
    succeeded: i32,
    failed: i32,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Start this many more.
    Start(i32),
    /// Stop this many.
    Stop(i32),
    Complete,
    Failed(&'static str, &'static str),
}

fn decide(spec: &JobSpec, tally: Tally, overdue: bool) -> Verdict {
    if tally.failed > spec.backoff_limit.unwrap_or(6) {
        return Verdict::Failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if overdue {
        return Verdict::Failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let parallelism = if spec.suspend.unwrap_or(false) { 0 } else { spec.parallelism.unwrap_or(1).max(0) };
    let wanted = match spec.completions {
        Some(completions) if tally.succeeded >= completions => return Verdict::Complete,
        Some(completions) => parallelism.min(completions - tally.succeeded),
        // Work is shared out by the Pods themselves: one success means that there is none left.
        None if tally.succeeded > 0 && tally.active == 0 => return Verdict::Complete,
        None if tally.succeeded > 0 => tally.active,
        None => parallelism,
    };
    if wanted >= tally.active {
        Verdict::Start(wanted - tally.active)
    } else {
        Verdict::Stop(tally.active - wanted)
    }
}

async fn reconcile(job: Arc<Job>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let now = ctx.clock.now();
    let spec = job.spec.clone().unwrap_or_default();
    let mut status = job.status.clone().unwrap_or_default();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &job.namespace().unwrap_or_default());
    if let Some(finished) = finished_at(&status) {
        return expire(&api, &job, &spec, finished, now).await;
    }
    let informer = pods::informer(&ctx);
    let owned = informer.by_index(pods::OWNER, &job.uid().unwrap_or_default());
    let tally = count(&owned);
    let started = status.start_time.get_or_insert(Time(now)).0;
    let deadline = spec.active_deadline_seconds.map(Duration::try_from_secs_i64);
    let left = deadline.map(|deadline| deadline.saturating_sub(since(started, now)));
    match decide(&spec, tally, left == Some(Duration::ZERO)) {
        Verdict::Start(more) => {
            for _ in 0..more.min(50) {
                let mut pod = pods::from_template(
                    &spec.template,
                    &pods::reference(&*job)?,
                    &job.namespace().unwrap_or_default(),
                );
                let labels = pod.metadata.labels.get_or_insert_default();
                labels.insert("job-name".to_owned(), job.name_any());
                labels.insert("batch.kubernetes.io/job-name".to_owned(), job.name_any());
                pods::create(&ctx, &informer, &pod).await?;
            }
        }
        Verdict::Stop(fewer) => {
            let active = owned.iter().filter(|pod| pods::is_active(pod));
            for pod in active.take(usize::try_from(fewer).unwrap_or(0)) {
                pods::delete(&ctx, &informer, pod, None).await?;
            }
        }
        Verdict::Complete => {
            status.completion_time = Some(Time(now));
            finish(
                &mut status,
                "SuccessCriteriaMet",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                now,
            );
            finish(
                &mut status,
                "Complete",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
                now,
            );
        }
        Verdict::Failed(reason, message) => {
            for pod in owned.iter().filter(|pod| pods::is_active(pod)) {
                pods::delete(&ctx, &informer, pod, None).await?;
            }
            finish(&mut status, "FailureTarget", reason, message, now);
            finish(&mut status, "Failed", reason, message, now);
        }
    }
    let owned = informer.by_index(pods::OWNER, &job.uid().unwrap_or_default());
    let tally = count(&owned);
    let over = finished_at(&status).is_some();
    status.active = Some(if over { 0 } else { tally.active }).filter(|count| *count > 0);
    status.ready = Some(if over {
        0
    } else {
        owned.iter().filter(|pod| pods::is_active(pod) && pods::is_ready(pod)).count() as i32
    });
    status.succeeded = Some(tally.succeeded).filter(|count| *count > 0);
    status.failed = Some(tally.failed).filter(|count| *count > 0);
    write::patch_status(&ctx, &api, &job, &(), job.status.as_ref(), &status, false).await?;
    Ok(left.map_or(Action::AwaitChange, Action::RequeueAfter))
}

fn count(owned: &[Arc<Pod>]) -> Tally {
    let count = |so: &dyn Fn(&Arc<Pod>) -> bool| owned.iter().filter(|pod| so(pod)).count() as i32;
    Tally {
        active: count(&|pod| pods::is_active(pod)),
        succeeded: count(&|pod| pods::phase(pod) == "Succeeded"),
        failed: count(&|pod| pods::phase(pod) == "Failed"),
    }
}

fn since(start: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(start)).unwrap_or_default()
}

fn finished_at(status: &JobStatus) -> Option<Timestamp> {
    let conditions = status.conditions.iter().flatten();
    let over = |condition: &&JobCondition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    };
    conditions.filter(over).find_map(|condition| condition.last_transition_time.as_ref().map(|at| at.0))
}

fn finish(status: &mut JobStatus, kind: &str, reason: &str, message: &str, now: Timestamp) {
    status.conditions.get_or_insert_default().push(JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
        last_probe_time: Some(Time(now)),
    });
}

/// Deletes a finished Job when its time is over.
async fn expire(
    api: &Api<Job>,
    job: &Job,
    spec: &JobSpec,
    finished: Timestamp,
    now: Timestamp,
) -> Result<Action, Error> {
    let Some(ttl) = spec.ttl_seconds_after_finished else { return Ok(Action::AwaitChange) };
    let left = Duration::from_secs(u64::try_from(ttl).unwrap_or(0)).saturating_sub(since(finished, now));
    if !left.is_zero() {
        return Ok(Action::RequeueAfter(left));
    }
    let params =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() };
    match api.delete(&job.name_any(), &params).await {
        Err(error) if !is_gone(&error) => Err(failed("delete", format!("job {}", job.name_any()))(error)),
        _ => Ok(Action::AwaitChange),
    }
}

/// Negative durations are none.
trait FromSeconds {
    fn try_from_secs_i64(seconds: i64) -> Duration;
}

impl FromSeconds for Duration {
    fn try_from_secs_i64(seconds: i64) -> Duration {
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(completions: Option<i32>, parallelism: i32) -> JobSpec {
        JobSpec { completions, parallelism: Some(parallelism), backoff_limit: Some(1), ..JobSpec::default() }
    }

    fn tally(active: i32, succeeded: i32, failed: i32) -> Tally {
        Tally { active, succeeded, failed }
    }

    #[test]
    fn pods_are_started_up_to_what_is_missing() {
        assert_eq!(decide(&spec(Some(3), 2), tally(0, 0, 0), false), Verdict::Start(2));
        assert_eq!(decide(&spec(Some(3), 2), tally(0, 2, 0), false), Verdict::Start(1));
        assert_eq!(decide(&spec(Some(3), 2), tally(2, 2, 0), false), Verdict::Stop(1));
    }

    #[test]
    fn a_job_ends_by_success_failure_or_time() {
        assert_eq!(decide(&spec(Some(1), 1), tally(0, 1, 0), false), Verdict::Complete);
        assert!(matches!(
            decide(&spec(Some(1), 1), tally(0, 0, 2), false),
            Verdict::Failed("BackoffLimitExceeded", _)
        ));
        assert!(matches!(
            decide(&spec(Some(1), 1), tally(1, 0, 0), true),
            Verdict::Failed("DeadlineExceeded", _)
        ));
    }

    #[test]
    fn a_suspended_job_has_no_pods() {
        let suspended = JobSpec { suspend: Some(true), ..spec(Some(1), 1) };
        assert_eq!(decide(&suspended, tally(1, 0, 0), false), Verdict::Stop(1));
    }
}
