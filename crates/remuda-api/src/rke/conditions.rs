//! Conditions as Rancher's kinds have them: they also say when they were written last, and a reason may be empty.

use k8s_openapi::jiff::Timestamp;

use super::Condition;

/// What a condition says, without when it began to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    pub kind: &'a str,
    /// `Some(true)`, `Some(false)`, or unknown.
    pub status: Option<bool>,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Sets a condition; times move only when something else does. A condition keeps its place in the list.
pub fn set(conditions: &mut Vec<Condition>, update: Update<'_>, now: Timestamp) {
    let status = match update.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let at = conditions.iter().position(|known| known.kind == update.kind).unwrap_or_else(|| {
        conditions.push(Condition { kind: update.kind.to_owned(), ..Condition::default() });
        conditions.len() - 1
    });
    let known = &mut conditions[at];
    if known.status == status && known.reason == update.reason && known.message == update.message {
        return;
    }
    let time = remuda_base::rfc3339(now.as_second());
    if known.status != status {
        known.last_transition_time.clone_from(&time);
    }
    known.status = status.to_owned();
    known.reason = update.reason.to_owned();
    known.message = update.message.to_owned();
    known.last_update_time = time;
}

pub fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// `Some(true)`, `Some(false)`, or unknown.
pub fn status(condition: &Condition) -> Option<bool> {
    match condition.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// A condition that is not there is not true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|condition| status(condition) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_condition_move_only_on_change() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let waiting = |message| Update { kind: "Ready", status: None, reason: "Waiting", message };
        let mut conditions = Vec::new();
        set(&mut conditions, waiting("a"), at(1));
        let first = conditions.clone();
        assert_eq!(first[0].last_transition_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, waiting("a"), at(2));
        assert_eq!(conditions, first);
        set(&mut conditions, waiting("b"), at(3));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:03Z");
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, Update { status: Some(true), ..waiting("b") }, at(4));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:04Z");
        assert!(is_true(&conditions, "Ready") && !is_true(&conditions, "Other"));
        let other = Update { kind: "Other", status: Some(false), reason: "", message: "" };
        set(&mut conditions, other, at(5));
        set(&mut conditions, Update { status: None, ..waiting("c") }, at(6));
        let kinds: Vec<&str> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready", "Other"]);
        assert_eq!(status(&conditions[1]), Some(false));
    }
}
