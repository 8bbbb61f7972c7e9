//! Conditions as Rancher's kinds have them: with the time they were written last, and a reason that may be empty.

use jiff::Timestamp;
use remuda_api::rke::Condition;

/// Reason of a condition that waits for something.
pub(crate) const WAITING: &str = "Waiting";
/// Reason of a condition that tells of a failure.
pub(crate) const ERROR: &str = "Error";

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Says {
    /// `Some(true)`, `Some(false)`, or unknown.
    pub(crate) status: Option<bool>,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Says {
    pub(crate) fn yes() -> Self {
        Self { status: Some(true), ..Self::default() }
    }

    pub(crate) fn no() -> Self {
        Self { status: Some(false), ..Self::default() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { status: Some(false), reason: ERROR.to_owned(), message: message.into() }
    }

    pub(crate) fn waiting(message: impl Into<String>) -> Self {
        Self { status: None, reason: WAITING.to_owned(), message: message.into() }
    }

    /// What another condition says.
    pub(crate) fn as_in(condition: &Condition) -> Self {
        let status = match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        };
        Self { status, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == Some(true)
    }
}

/// Sets a condition; times move only when something changes. A condition keeps its place in the list.
pub(crate) fn set(conditions: &mut Vec<Condition>, kind: &str, says: &Says, now: Timestamp) {
    let status = match says.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let now = text(now);
    let Some(known) = conditions.iter_mut().find(|condition| condition.kind == kind) else {
        conditions.push(Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            last_update_time: now.clone(),
            last_transition_time: now,
            reason: says.reason.clone(),
            message: says.message.clone(),
        });
        return;
    };
    if known.status == status && known.reason == says.reason && known.message == says.message {
        return;
    }
    if known.status != status {
        status.clone_into(&mut known.status);
        known.last_transition_time.clone_from(&now);
    }
    known.reason.clone_from(&says.reason);
    known.message.clone_from(&says.message);
    known.last_update_time = now;
}

pub(crate) fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// A condition that is not there is not true.
pub(crate) fn is_true(conditions: &[Condition], kind: &str) -> bool {
    get(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Whole seconds, as times in objects have them.
pub(crate) fn text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_move_only_with_what_is_said() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(&mut conditions, "Ready", &Says::waiting("a"), at(1));
        set(&mut conditions, "Ready", &Says::waiting("a"), at(2));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, "Ready", &Says::waiting("b"), at(3));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:03Z");
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, "Ready", &Says::yes(), at(4));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:04Z");
        assert!(is_true(&conditions, "Ready"));
        assert_eq!(Says::as_in(&conditions[0]), Says::yes());
    }
}
