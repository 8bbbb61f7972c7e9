//! Conditions of Rancher's kinds, which also say when they were written last.

use jiff::Timestamp;
use remuda_api::rke::Condition;

/// Whole seconds in UTC, as Kubernetes writes times.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    remuda_base::rfc3339(time.as_second())
}

/// What a condition says, without when it began to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Says<'a> {
    pub(crate) kind: &'a str,
    /// `Some(true)`, `Some(false)`, or unknown.
    pub(crate) status: Option<bool>,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Sets a condition; times move only when something else does.
pub(crate) fn set(conditions: &mut Vec<Condition>, says: Says<'_>, now: Timestamp) {
    let status = match says.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let at = conditions.iter().position(|known| known.kind == says.kind).unwrap_or_else(|| {
        conditions.push(Condition { kind: says.kind.to_owned(), ..Condition::default() });
        conditions.len() - 1
    });
    let known = &mut conditions[at];
    if known.status == status && known.reason == says.reason && known.message == says.message {
        return;
    }
    let time = rfc3339(now);
    if known.status != status {
        known.last_transition_time.clone_from(&time);
    }
    known.status = status.to_owned();
    known.reason = says.reason.to_owned();
    known.message = says.message.to_owned();
    known.last_update_time = time;
}

pub(crate) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|known| known.kind == kind && known.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_condition_move_only_on_change() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let says = |message| Says { kind: "Ready", status: None, reason: "Waiting", message };
        let mut conditions = Vec::new();
        set(&mut conditions, says("a"), at(1));
        let first = conditions.clone();
        set(&mut conditions, says("a"), at(2));
        assert_eq!(conditions, first);
        set(&mut conditions, says("b"), at(3));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:03Z");
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, Says { status: Some(true), ..says("b") }, at(4));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:04Z");
        assert!(is_true(&conditions, "Ready") && !is_true(&conditions, "Other"));
    }
}
