//! Conditions as Rancher's kinds have them.

use jiff::Timestamp;
use remuda_api::rke::Condition;

/// What a condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Is {
    True,
    False,
    Unknown,
}

impl Is {
    fn text(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Is {
    fn from(yes: bool) -> Self {
        if yes { Self::True } else { Self::False }
    }
}

pub(crate) fn get<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

pub(crate) fn status(conditions: &[Condition], kind: &str) -> Option<Is> {
    get(conditions, kind).map(|condition| match condition.status.as_str() {
        "True" => Is::True,
        "False" => Is::False,
        _ => Is::Unknown,
    })
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
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let wanted = Condition {
        kind: kind.to_owned(),
        status: is.text().to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_update_time: now.clone(),
        last_transition_time: now,
    };
    let Some(known) = conditions.iter_mut().find(|condition| condition.kind == kind) else {
        conditions.push(wanted);
        return;
    };
    let moved = known.status != wanted.status;
    if !moved && known.reason == wanted.reason && known.message == wanted.message {
        return;
    }
    let since = if moved { wanted.last_transition_time.clone() } else { known.last_transition_time.clone() };
    *known = Condition { last_transition_time: since, ..wanted };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_move_with_what_they_are_about() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut conditions = Vec::new();
        set(&mut conditions, "Ready", Is::Unknown, "", "making", at(1));
        set(&mut conditions, "Ready", Is::Unknown, "", "making", at(2));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, "Ready", Is::Unknown, "", "still making", at(3));
        assert_eq!(conditions[0].last_update_time, "1970-01-01T00:00:03Z");
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:01Z");
        set(&mut conditions, "Ready", Is::True, "", "", at(4));
        assert_eq!(conditions[0].last_transition_time, "1970-01-01T00:00:04Z");
        assert_eq!(status(&conditions, "Ready"), Some(Is::True));
        assert_eq!(status(&conditions, "Other"), None);
    }
}
