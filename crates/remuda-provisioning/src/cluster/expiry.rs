//! Clusters with an end: they say so for a week, and are then deleted as a person would delete them.
//!
//! Nothing goes that was not told to go: a cluster whose end is written too late for that, or by mistake, stays for an
//! hour after it was first told.

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use remuda_api::provisioning::Cluster;
use remuda_names::provisioning::{annotation::EXPIRES, condition::EXPIRING};

use crate::condition::{ConditionUpdate, get};

/// How long before its end it is told.
const NOTICE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long it is told at least.
const LEAST: SignedDuration = SignedDuration::from_hours(1);

/// What is to be said and done about it now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expiry {
    pub(super) says: Option<ConditionUpdate>,
    /// Its end has come.
    pub(super) delete: bool,
    /// When time alone changes this.
    pub(super) next: Option<Timestamp>,
}

/// `refusal` says why it could not be deleted.
pub(super) fn decide(cluster: &Cluster, refusal: Option<&str>, now: Timestamp) -> Expiry {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let known = get(conditions, EXPIRING);
    let end = cluster.annotations().get(EXPIRES).and_then(|text| text.parse::<Timestamp>().ok());
    let over = known.map(|_| ConditionUpdate::no());
    let Some(end) = end else { return Expiry { says: over, ..Expiry::default() } };
    let notice = end.saturating_sub(NOTICE).unwrap_or(Timestamp::MIN);
    if now < notice {
        return Expiry { says: over, delete: false, next: Some(notice) };
    }
    let told = known.filter(|known| known.status == "True");
    let told = told.map(|known| known.last_transition_time.parse::<Timestamp>().unwrap_or(now));
    let end = end.max(told.unwrap_or(now).saturating_add(LEAST).unwrap_or(end));
    let message = match refusal {
        Some(refusal) if now >= end => format!("expired at {end}, and is not deleted: {refusal}"),
        Some(refusal) => format!("expires at {end}, and will not be deleted then: {refusal}"),
        None if now >= end => format!("expired at {end} and is being deleted"),
        None => format!("is deleted at {end}; remuda cluster expire {} moves that", cluster.name_any()),
    };
    Expiry {
        says: Some(ConditionUpdate { status: Some(true), reason: "Expires".to_owned(), message }),
        delete: now >= end && refusal.is_none() && told.is_some(),
        next: (now < end).then_some(end),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const END: &str = "2026-11-20T00:00:00Z";

    fn cluster(expires: &str, told: Option<(&str, &str)>) -> Cluster {
        let conditions: Vec<Value> = told
            .iter()
            .map(|(status, since)| json!({"type": EXPIRING, "status": status, "lastTransitionTime": since}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": "demo", "annotations": {EXPIRES: expires}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(cluster: &Cluster, refusal: Option<&str>, now: &str, expected: &str) {
        let found = decide(cluster, refusal, now.parse().unwrap());
        let mut told = found
            .says
            .map_or_else(String::new, |says| format!("{:?} {}", says.status, says.message).trim().to_owned());
        if found.delete {
            told += " | delete";
        }
        if let Some(next) = found.next {
            told += &format!(" | next {next}");
        }
        assert_eq!(told.trim(), expected);
    }

    #[test]
    fn an_end_is_told_for_a_week_and_then_comes() {
        let told = Some(("True", "2026-11-13T00:00:00Z"));
        check(&cluster("", None), None, END, "");
        check(&cluster(END, None), None, "2026-11-12T23:59:59Z", "| next 2026-11-13T00:00:00Z");
        let soon =
            format!("Some(true) is deleted at {END}; remuda cluster expire demo moves that | next {END}");
        check(&cluster(END, None), None, "2026-11-13T00:00:00Z", &soon);
        check(&cluster(END, told), None, "2026-11-19T23:59:59Z", &soon);
        check(
            &cluster(END, told),
            None,
            END,
            &format!("Some(true) expired at {END} and is being deleted | delete"),
        );
        // Moved away, or taken off.
        check(&cluster("2027-01-01T00:00:00Z", told), None, END, "Some(false) | next 2026-12-25T00:00:00Z");
        check(&cluster("", told), None, END, "Some(false)");
    }

    #[test]
    fn nothing_goes_untold_or_against_its_protection() {
        let late = "Some(true) is deleted at 2026-11-20T01:00:00Z; remuda cluster expire demo moves that | next \
                    2026-11-20T01:00:00Z";
        check(&cluster(END, None), None, END, late);
        check(&cluster("2020-01-01T00:00:00Z", None), None, END, late);
        check(&cluster(END, Some(("False", "2026-11-01T00:00:00Z"))), None, END, late);
        let told = Some(("True", "2026-11-13T00:00:00Z"));
        let kept = format!("Some(true) expired at {END}, and is not deleted: it is protected");
        check(&cluster(END, told), Some("it is protected"), "2026-11-21T00:00:00Z", &kept);
        let kept = format!(
            "Some(true) expires at {END}, and will not be deleted then: it is protected | next {END}"
        );
        check(&cluster(END, told), Some("it is protected"), "2026-11-14T00:00:00Z", &kept);
    }
}
