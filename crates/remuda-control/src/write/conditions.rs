//! Conditions as every Kubernetes status has them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// What a condition says, without when it began to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionUpdate<'a> {
    pub kind: &'a str,
    /// `Some(true)`, `Some(false)`, or unknown.
    pub status: Option<bool>,
    /// A CamelCase word; the API wants one.
    pub reason: &'a str,
    pub message: &'a str,
    /// The generation of the object this was decided on.
    pub generation: Option<i64>,
}

fn status_text(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// Sets a condition and tells whether anything changed. The transition time moves only when the
/// status does; a condition keeps its place in the list.
pub fn set(conditions: &mut Vec<Condition>, says: ConditionUpdate<'_>, now: Timestamp) -> bool {
    let status = status_text(says.status);
    // A condition time has whole seconds on the wire; more would never compare equal again.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let Some(known) = conditions.iter_mut().find(|condition| condition.type_ == says.kind) else {
        conditions.push(Condition {
            type_: says.kind.to_owned(),
            status: status.to_owned(),
            reason: says.reason.to_owned(),
            message: says.message.to_owned(),
            observed_generation: says.generation,
            last_transition_time: now,
        });
        return true;
    };
    let mut changed = false;
    if known.status != status {
        status.clone_into(&mut known.status);
        known.last_transition_time = now;
        changed = true;
    }
    if known.reason != says.reason {
        says.reason.clone_into(&mut known.reason);
        changed = true;
    }
    if known.message != says.message {
        says.message.clone_into(&mut known.message);
        changed = true;
    }
    if known.observed_generation != says.generation {
        known.observed_generation = says.generation;
        changed = true;
    }
    changed
}

pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// A condition that is not there is not true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Tells whether there was one.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Option<bool>, message: &str) -> ConditionUpdate<'_> {
        ConditionUpdate { kind: "Ready", status, reason: "Waiting", message, generation: Some(1) }
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, ready(Some(false), "waiting for a machine"), at(10)));
        assert!(!set(&mut conditions, ready(Some(false), "waiting for a machine"), at(20)));
        assert!(set(&mut conditions, ready(Some(false), "waiting for another"), at(30)));
        assert_eq!(conditions[0].last_transition_time.0, at(10));
        assert!(set(&mut conditions, ready(Some(true), ""), at(40)));
        assert_eq!(conditions[0].last_transition_time.0, at(40));
        assert!(is_true(&conditions, "Ready"));
        assert!(set(&mut conditions, ready(None, ""), at(50)));
        assert_eq!(get(&conditions, "Ready").unwrap().status, "Unknown");
    }

    #[test]
    fn times_survive_a_round_trip() {
        let mut conditions = Vec::new();
        set(&mut conditions, ready(Some(true), ""), Timestamp::from_millisecond(1_500).unwrap());
        let text = serde_json::to_string(&conditions).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Condition>>(&text).unwrap(), conditions);
    }

    #[test]
    fn conditions_keep_their_order() {
        let mut conditions = Vec::new();
        for kind in ["A", "B"] {
            set(&mut conditions, ConditionUpdate { kind, ..ready(Some(true), "") }, at(1));
        }
        set(&mut conditions, ConditionUpdate { kind: "A", ..ready(Some(false), "") }, at(2));
        assert_eq!(conditions.iter().map(|condition| condition.type_.as_str()).collect::<String>(), "AB");
        assert!(remove(&mut conditions, "A"));
        assert!(!remove(&mut conditions, "A"));
    }
}
