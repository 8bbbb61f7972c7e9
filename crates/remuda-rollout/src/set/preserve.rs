//! Machines that failed and are kept to look at, instead of deleted.
//!
//! Such a Machine belongs to its set and goes with it, but is not counted: another one takes its place.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// What `remuda.io/preserve-failed` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserve {
    /// How many at a time.
    pub max: usize,
    /// How long each.
    pub lifetime: SignedDuration,
}

/// Why a text asks for nothing that could be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadPreserve {
    NotAnObject,
    Unknown(String),
    Max,
    For,
}

impl fmt::Display for BadPreserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("must be a JSON object such as {\"max\": 1, \"for\": \"24h\"}"),
            Self::Unknown(key) => write!(f, "has no field {key:?}: it has \"max\" and \"for\""),
            Self::Max => f.write_str("\"max\" must be a whole number from 0 to 1000"),
            Self::For => {
                f.write_str("\"for\" must be a duration such as \"24h\", longer than 0 and at most \"8760h\"")
            }
        }
    }
}

const MOST: u64 = 1000;
const LONGEST: i64 = 8760 * 3600;

impl Preserve {
    pub fn parse(text: &str) -> Result<Preserve, BadPreserve> {
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
            return Err(BadPreserve::NotAnObject);
        };
        if let Some(key) = fields.keys().find(|key| !["max", "for"].contains(&key.as_str())) {
            return Err(BadPreserve::Unknown(key.clone()));
        }
        let max = fields.get("max").and_then(Value::as_u64).filter(|max| *max <= MOST);
        let max = max.and_then(|max| usize::try_from(max).ok()).ok_or(BadPreserve::Max)?;
        let seconds = fields.get("for").and_then(Value::as_str).and_then(remuda_base::duration::seconds);
        let seconds = seconds.filter(|seconds| (1..=LONGEST).contains(seconds)).ok_or(BadPreserve::For)?;
        Ok(Preserve { max, lifetime: SignedDuration::from_secs(seconds) })
    }
}

/// A Machine that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub name: String,
    pub until: Timestamp,
}

/// Those of `kept` whose time is over, and those that are more than a policy allows: what would end first goes first.
/// Without a policy the others stay until their time.
pub fn expired(policy: Option<Preserve>, kept: &[Kept], now: Timestamp) -> Vec<String> {
    let mut left: Vec<&Kept> = kept.iter().filter(|kept| kept.until > now).collect();
    left.sort_by(|a, b| (a.until, &a.name).cmp(&(b.until, &b.name)));
    let surplus = policy.map_or(0, |policy| left.len().saturating_sub(policy.max));
    let over = kept.iter().filter(|kept| kept.until <= now);
    over.chain(left.into_iter().take(surplus)).map(|kept| kept.name.clone()).collect()
}

/// When the next one's time is over.
pub fn next_expiry(kept: &[Kept], now: Timestamp) -> Option<SignedDuration> {
    let left = kept.iter().map(|kept| kept.until.duration_since(now));
    left.filter(|left| *left > SignedDuration::ZERO).min()
}

/// Of a Machine that would be deleted for being unhealthy: until when it is kept instead.
///
/// One with a member of etcd, or of the control plane, is never kept: it would go on to vote.
pub fn keep(policy: Option<Preserve>, kept: usize, is_server: bool, now: Timestamp) -> Option<Timestamp> {
    let policy = policy.filter(|policy| kept < policy.max && !is_server)?;
    now.checked_add(policy.lifetime).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    #[test]
    fn what_is_asked_for_is_read_or_refused() {
        let day = SignedDuration::from_hours(24);
        assert_eq!(Preserve::parse(r#"{"max": 2, "for": "24h"}"#), Ok(Preserve { max: 2, lifetime: day }));
        for (text, expected) in [
            ("", BadPreserve::NotAnObject),
            ("2", BadPreserve::NotAnObject),
            ("max: 1", BadPreserve::NotAnObject),
            (r#"{"max": 1, "for": "1h", "then": 1}"#, BadPreserve::Unknown("then".into())),
            (r#"{"for": "1h"}"#, BadPreserve::Max),
            (r#"{"max": -1, "for": "1h"}"#, BadPreserve::Max),
            (r#"{"max": 1001, "for": "1h"}"#, BadPreserve::Max),
            (r#"{"max": "1", "for": "1h"}"#, BadPreserve::Max),
            (r#"{"max": 1}"#, BadPreserve::For),
            (r#"{"max": 1, "for": 3600}"#, BadPreserve::For),
            (r#"{"max": 1, "for": "0"}"#, BadPreserve::For),
            (r#"{"max": 1, "for": "-1h"}"#, BadPreserve::For),
            (r#"{"max": 1, "for": "9000h"}"#, BadPreserve::For),
        ] {
            assert_eq!(Preserve::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn kept_machines_go_when_their_time_is_over_or_there_are_too_many() {
        let policy = |max| Some(Preserve { max, lifetime: SignedDuration::from_secs(60) });
        let kept: Vec<Kept> = [("a", 100), ("b", 50), ("c", 10)]
            .map(|(name, until)| Kept { name: name.to_owned(), until: at(until) })
            .into();
        assert_eq!(expired(policy(3), &kept, at(0)), [""; 0]);
        assert_eq!(expired(policy(3), &kept, at(10)), ["c"]);
        assert_eq!(expired(policy(1), &kept, at(10)), ["c", "b"]);
        assert_eq!(expired(policy(0), &kept, at(0)), ["c", "b", "a"]);
        assert_eq!(expired(None, &kept, at(10)), ["c"], "what is kept stays until its time");
        assert_eq!(next_expiry(&kept, at(10)), Some(SignedDuration::from_secs(40)));
        assert_eq!(next_expiry(&kept, at(100)), None);
    }

    #[test]
    fn as_many_are_kept_as_allowed_and_never_a_server() {
        let policy = Some(Preserve { max: 2, lifetime: SignedDuration::from_secs(60) });
        assert_eq!(keep(policy, 0, false, at(5)), Some(at(65)));
        assert_eq!(keep(policy, 1, false, at(5)), Some(at(65)));
        assert_eq!(keep(policy, 2, false, at(5)), None);
        assert_eq!(keep(policy, 0, true, at(5)), None);
        assert_eq!(keep(None, 0, false, at(5)), None);
    }
}
