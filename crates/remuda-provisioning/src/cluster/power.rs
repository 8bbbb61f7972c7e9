//! Whether a cluster is to run: as it was asked for last, by a person or by its schedules.

use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::{provisioning::Cluster, rke::RkeControlPlane};
use remuda_names::provisioning::annotation::{HIBERNATE, HIBERNATE_SCHEDULE, WAKE, WAKE_SCHEDULE};

use crate::{condition::ConditionUpdate, schedule::Schedule};

/// What is wanted now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Power {
    /// Since when it is to be stopped; nothing if it is to run.
    pub(super) hibernate: Option<String>,
    /// When that changes by itself.
    pub(super) next: Option<Timestamp>,
}

/// The last word counts, of a person or of a schedule. Times of schedules from before the cluster was made do not.
pub(super) fn wanted(cluster: &Cluster, now: Timestamp) -> Power {
    let text = |key: &str| cluster.annotations().get(key).map_or("", String::as_str);
    // What lies ahead is as good as a schedule of one time.
    let asked = |key: &str| text(key).parse::<Timestamp>().ok();
    let schedule = |key: &str| Schedule::parse(text(key)).ok();
    let made = cluster.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |made| made.0);
    let said = |key: &str, by: &Option<Schedule>| {
        let last = by.as_ref().and_then(|schedule| schedule.last(now)).filter(|last| *last >= made);
        asked(key).filter(|asked| *asked <= now).max(last)
    };
    let (stops, wakes) = (schedule(HIBERNATE_SCHEDULE), schedule(WAKE_SCHEDULE));
    let (stop, wake) = (said(HIBERNATE, &stops), said(WAKE, &wakes));
    let ahead = [asked(HIBERNATE), asked(WAKE)].into_iter().flatten().filter(|asked| *asked > now);
    let times = [stops, wakes].into_iter().flatten().filter_map(|schedule| schedule.next(now));
    Power {
        hibernate: stop.filter(|stop| wake.is_none_or(|wake| *stop > wake)).map(|stop| stop.to_string()),
        next: ahead.chain(times).min(),
    }
}

/// What is told of it: nothing of a cluster that runs and always did.
pub(super) fn says(
    wanted: &Power,
    control_plane: Option<&RkeControlPlane>,
    known: bool,
) -> Option<ConditionUpdate> {
    let status = control_plane.and_then(|found| found.status.as_ref());
    let found = status.and_then(|status| status.hibernation.as_ref());
    let told = |status, reason: &str, message: String| {
        Some(ConditionUpdate { status, reason: reason.to_owned(), message })
    };
    match (found, &wanted.hibernate) {
        (Some(found), _) if found.phase == "Hibernated" => {
            let since = found.since.as_ref().map(|since| since.0.to_string()).unwrap_or_default();
            told(Some(true), "", format!("hibernated since {since}"))
        }
        (Some(found), _) if !found.failure.is_empty() => told(Some(false), "Failed", found.failure.clone()),
        (Some(found), _) => told(None, &found.phase, String::new()),
        (None, Some(_)) => told(
            None,
            "Waiting",
            "begins when nothing else is under way and all machines are made".to_owned(),
        ),
        (None, None) => known.then(ConditionUpdate::no),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-11-18T12:00:00Z";

    #[track_caller]
    fn check(annotations: Value, hibernate: Option<&str>, next: &str) {
        let cluster: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "demo", "creationTimestamp": "2026-11-17T12:00:00Z", "annotations": annotations},
        }))
        .unwrap();
        let found = wanted(&cluster, NOW.parse().unwrap());
        assert_eq!(found.hibernate.as_deref(), hibernate);
        assert_eq!(found.next.map(|next| next.to_string()).unwrap_or_default(), next);
    }

    #[test]
    fn the_last_word_counts() {
        check(json!({}), None, "");
        let early = "2026-11-18T08:00:00Z";
        check(json!({HIBERNATE: early}), Some(early), "");
        check(json!({HIBERNATE: early, WAKE: "2026-11-18T09:00:00Z"}), None, "");
        check(json!({HIBERNATE: early, WAKE: early}), None, "");
        check(json!({HIBERNATE: "2026-11-18T09:00:00Z", WAKE: early}), Some("2026-11-18T09:00:00Z"), "");
        check(json!({HIBERNATE: "2026-11-19T00:00:00Z"}), None, "2026-11-19T00:00:00Z");
        check(json!({HIBERNATE: "soon"}), None, "");
    }

    #[test]
    fn schedules_and_people_have_their_say_in_turn() {
        let both = json!({HIBERNATE_SCHEDULE: "0 10 * * *", WAKE_SCHEDULE: "0 6 * * *"});
        check(both.clone(), Some("2026-11-18T10:00:00Z"), "2026-11-19T06:00:00Z");
        let mut woken = both;
        woken[WAKE] = json!("2026-11-18T11:00:00Z");
        check(woken, None, "2026-11-19T06:00:00Z");
        check(
            json!({HIBERNATE_SCHEDULE: "0 20 * * *", WAKE_SCHEDULE: "0 6 * * *"}),
            None,
            "2026-11-18T20:00:00Z",
        );
        // Before there was the cluster.
        check(json!({HIBERNATE_SCHEDULE: "0 0 15 * *"}), None, "2026-12-15T00:00:00Z");
    }

    #[test]
    fn what_is_told_of_it() {
        let control_plane = |hibernation: Value| -> RkeControlPlane {
            serde_json::from_value(json!({"status": {"hibernation": hibernation}})).unwrap()
        };
        let stop = Power { hibernate: Some(NOW.to_owned()), next: None };
        assert_eq!(says(&Power::default(), None, false), None);
        assert_eq!(says(&Power::default(), None, true), Some(ConditionUpdate::no()));
        assert_eq!(says(&stop, None, false).unwrap().reason, "Waiting");
        let told =
            says(&stop, Some(&control_plane(json!({"phase": "Hibernated", "since": NOW}))), true).unwrap();
        assert_eq!((told.status, told.message), (Some(true), format!("hibernated since {NOW}")));
        let told = says(&stop, Some(&control_plane(json!({"phase": "StopEtcd"}))), true).unwrap();
        assert_eq!((told.status, told.reason.as_str()), (None, "StopEtcd"));
        let failed = control_plane(json!({"phase": "Failed", "failure": "no driver"}));
        assert_eq!(says(&stop, Some(&failed), true).unwrap().message, "no driver");
    }
}
