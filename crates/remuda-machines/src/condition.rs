//! Conditions as Rancher's kinds have them.

use jiff::Timestamp;
pub(crate) use remuda_api::rke::conditions::get;
use remuda_api::rke::{Condition, conditions as rancher};

/// What a condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    True,
    False,
    Unknown,
}

impl From<bool> for Is {
    fn from(yes: bool) -> Self {
        if yes { Self::True } else { Self::False }
    }
}

pub(crate) fn status(conditions: &[Condition], kind: &str) -> Option<Is> {
    get(conditions, kind).map(|condition| rancher::status(condition).map_or(Is::Unknown, Is::from))
}

/// Sets a condition. Times move only when something else does.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    is: Is,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let status = match is {
        Is::True => Some(true),
        Is::False => Some(false),
        Is::Unknown => None,
    };
    rancher::set(conditions, rancher::Update { kind, status, reason, message }, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_read_back() {
        let mut conditions = Vec::new();
        for is in [Is::Unknown, Is::True, Is::False] {
            set(&mut conditions, "Ready", is, "", "making", Timestamp::UNIX_EPOCH);
            assert_eq!(status(&conditions, "Ready"), Some(is));
        }
        assert_eq!(status(&conditions, "Other"), None);
    }
}
