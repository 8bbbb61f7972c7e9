//! Conditions as Rancher's kinds have them: with the time they were written last, and a reason that may be empty.

use jiff::Timestamp;
pub(crate) use remuda_api::rke::conditions::{get, is_true};
use remuda_api::rke::{Condition, conditions as rancher};

/// Reason of a condition that waits for something.
pub(crate) const WAITING: &str = "Waiting";
/// Reason of a condition that tells of a failure.
pub(crate) const ERROR: &str = "Error";

/// What a condition says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConditionUpdate {
    /// `Some(true)`, `Some(false)`, or unknown.
    pub(crate) status: Option<bool>,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ConditionUpdate {
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
        let status = rancher::status(condition);
        Self { status, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == Some(true)
    }
}

/// Sets a condition; times move only when something changes.
pub(crate) fn set(conditions: &mut Vec<Condition>, kind: &str, says: &ConditionUpdate, now: Timestamp) {
    let ConditionUpdate { status, reason, message } = says;
    rancher::set(conditions, rancher::Update { kind, status: *status, reason, message }, now);
}

/// Whole seconds, as times in objects have them.
pub(crate) fn text(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_read_back() {
        let mut conditions = Vec::new();
        for says in [
            ConditionUpdate::waiting("a"),
            ConditionUpdate::failed("b"),
            ConditionUpdate::no(),
            ConditionUpdate::yes(),
        ] {
            set(&mut conditions, "Ready", &says, Timestamp::UNIX_EPOCH);
            assert_eq!(ConditionUpdate::as_in(&conditions[0]), says);
            assert_eq!(is_true(&conditions, "Ready"), says.is_true());
        }
    }
}
