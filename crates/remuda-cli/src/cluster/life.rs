//! `remuda cluster hibernate`, `wake` and `expire`: whether and for how long a cluster runs.

use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use remuda_names::provisioning::annotation::{
    EXPIRES, HIBERNATE, HIBERNATE_SCHEDULE, HIBERNATE_WITHOUT_SNAPSHOT, WAKE, WAKE_SCHEDULE,
};
use serde_json::{Map, Value, json};

use super::Wait;
use crate::{age, api, confirm::confirm, failure::Failure, gather, progress::Goal, session::Session};

#[derive(Args, Debug)]
pub struct Hibernate {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// Take no snapshot before
    #[arg(long)]
    pub no_snapshot: bool,

    /// Not now, but at these times: five fields of cron and a time zone, UTC if none is said
    #[arg(long, value_name = "CRON", conflicts_with_all = ["no_schedule", "wait"])]
    pub schedule: Option<String>,

    /// And start it again at these
    #[arg(long, value_name = "CRON", requires = "schedule")]
    pub wake_schedule: Option<String>,

    /// Forget its schedules; it stays as it is
    #[arg(long, conflicts_with_all = ["wait", "no_snapshot"])]
    pub no_schedule: bool,

    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,

    #[command(flatten)]
    pub wait: Wait,
}

#[derive(Args, Debug)]
pub struct Expire {
    /// Name of the cluster
    #[arg(value_name = "CLUSTER")]
    pub name: String,

    /// When it is deleted, such as 2026-12-24T18:00:00Z
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with_all = ["after", "never"],
        required_unless_present_any = ["after", "never"]
    )]
    pub at: Option<Timestamp>,

    /// How long it stays from now on, such as 8h or 30d
    #[arg(long = "in", id = "after", value_name = "TIME", conflicts_with = "never", value_parser = age::parse)]
    pub after: Option<Duration>,

    /// It has no end
    #[arg(long)]
    pub never: bool,
}

pub(super) async fn hibernate(session: &Session, arguments: Hibernate) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    gather::existing(session, &session.namespace, name).await?;
    let now = whole(Timestamp::now());
    if arguments.no_schedule {
        let changes = [(HIBERNATE_SCHEDULE, None), (WAKE_SCHEDULE, None)];
        return annotate(session, name, &changes, "follows no schedule any more").await;
    }
    let declined = |by: &str| arguments.no_snapshot.then(|| by.to_owned());
    if let Some(schedule) = arguments.schedule {
        // A time that has passed is none of this schedule: as long as nothing else is said, the cluster stays as it is.
        let cluster = gather::existing(session, &session.namespace, name).await?;
        let stopped = cluster.is(remuda_names::provisioning::condition::HIBERNATED);
        let mut changes = vec![
            (HIBERNATE_SCHEDULE, Some(schedule)),
            (WAKE_SCHEDULE, arguments.wake_schedule),
            (HIBERNATE_WITHOUT_SNAPSHOT, declined("true")),
        ];
        changes.push((if stopped { HIBERNATE } else { WAKE }, Some(now)));
        return annotate(session, name, &changes, "hibernates by its schedule from now on").await;
    }
    let snapshot = if arguments.no_snapshot { "takes no snapshot and" } else { "takes a snapshot and" };
    let doing = format!(
        "{snapshot} stops all machines of cluster {name}: nothing in it runs or can be reached until it is woken"
    );
    confirm(&doing, arguments.yes)?;
    let declined = declined(&now);
    let changes = [(HIBERNATE, Some(now)), (HIBERNATE_WITHOUT_SNAPSHOT, declined)];
    annotate(session, name, &changes, "is being hibernated").await?;
    arguments.wait.until(session, name, Goal::Hibernated).await
}

pub(super) async fn wake(session: &Session, name: &str, wait: Wait) -> Result<(), Failure> {
    gather::existing(session, &session.namespace, name).await?;
    annotate(session, name, &[(WAKE, Some(whole(Timestamp::now())))], "is being woken").await?;
    wait.until(session, name, Goal::Ready).await
}

pub(super) async fn expire(session: &Session, arguments: Expire) -> Result<(), Failure> {
    let name = arguments.name.as_str();
    gather::existing(session, &session.namespace, name).await?;
    let now = Timestamp::now();
    let end = match (arguments.at, arguments.after) {
        (Some(at), _) => Some(at),
        (None, Some(after)) => {
            let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
            Some(now.checked_add(after).map_err(|_| Failure::invalid("that is too far away"))?)
        }
        (None, None) => None,
    };
    match end {
        Some(end) if end <= now => {
            let failure = Failure::invalid(format!("{end} has passed"));
            Err(failure.hint(format!("to delete it now: remuda cluster delete {name}")))
        }
        Some(end) => {
            let end = whole(end);
            let said = format!("is deleted at {end}; it tells so for a week before");
            annotate(session, name, &[(EXPIRES, Some(end))], &said).await
        }
        None => annotate(session, name, &[(EXPIRES, None)], "has no end").await,
    }
}

fn whole(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

async fn annotate(
    session: &Session,
    name: &str,
    changes: &[(&str, Option<String>)],
    said: &str,
) -> Result<(), Failure> {
    let clusters = api::provisioning_clusters();
    let namespace = session.namespace.as_str();
    let changed = api::change(&session.client, &clusters, Some(namespace), name, false, |cluster| {
        Ok(write(&mut cluster.0["metadata"]["annotations"], changes))
    });
    let line = match changed.await? {
        Some(_) => format!("cluster {name} {said}"),
        None => format!("cluster {name} is told so already"),
    };
    session.out.line(&line);
    Ok(())
}

/// Says whether anything changed.
fn write(annotations: &mut Value, changes: &[(&str, Option<String>)]) -> bool {
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    let Some(annotations) = annotations.as_object_mut() else { return false };
    let before = annotations.clone();
    for (key, value) in changes {
        match value {
            Some(value) => annotations.insert((*key).to_owned(), json!(value)),
            None => annotations.remove(*key),
        };
    }
    *annotations != before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_written_and_taken_off() {
        let mut annotations = Value::Null;
        assert!(write(&mut annotations, &[(EXPIRES, Some("t".to_owned()))]));
        assert!(!write(&mut annotations, &[(EXPIRES, Some("t".to_owned())), (WAKE, None)]));
        assert!(write(&mut annotations, &[(EXPIRES, None)]));
        assert_eq!(annotations, json!({}));
    }
}
