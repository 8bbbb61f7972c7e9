//! When a registration token is replaced, and for how long its predecessor is still good.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::condition::text;

/// Shortest lifetime of a token, in minutes.
const SHORTEST: i64 = 30;
/// Shortest time the token before stays good, in minutes.
const SHORTEST_GRACE: i64 = 10;
/// Ten years, in minutes: longer is for ever.
const LONGEST: i64 = 10 * 366 * 24 * 60;

/// In minutes, as somebody asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lifetime {
    /// None, or nothing above zero, is for ever.
    pub(super) ttl: Option<i64>,
    pub(super) grace: Option<i64>,
}

impl Lifetime {
    pub(super) fn is_forever(self) -> bool {
        self.minutes().is_none()
    }

    fn minutes(self) -> Option<(i64, i64)> {
        let ttl = self.ttl.filter(|ttl| *ttl > 0 && *ttl <= LONGEST)?.max(SHORTEST);
        let grace = self.grace.unwrap_or_default().max(SHORTEST_GRACE);
        Some((ttl, if grace < ttl { grace } else { ttl * 8 / 10 }))
    }
}

/// What the Secret of a token holds. Times are texts; empty ones are never.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) token: String,
    pub(super) previous: String,
    pub(super) expires_at: String,
    pub(super) grace_expires_at: String,
}

impl Tokens {
    /// What it should hold now; `None` if it does already.
    pub(super) fn rotated(
        &self,
        lifetime: Lifetime,
        now: Timestamp,
        fresh: impl FnOnce() -> String,
    ) -> Option<Self> {
        let mut after = self.clone();
        let passed = |text: &str| text.parse::<Timestamp>().is_ok_and(|at| at <= now);
        if after.token.is_empty() {
            after.token = fresh();
            after.expires_at.clear();
            return Some(after.dated(lifetime, now));
        }
        if passed(&after.grace_expires_at) || !after.previous.is_empty() && after.grace_expires_at.is_empty()
        {
            after.previous.clear();
            after.grace_expires_at.clear();
        }
        match lifetime.minutes() {
            None => after.expires_at.clear(),
            Some((_, grace)) if passed(&after.expires_at) => {
                after.previous = std::mem::replace(&mut after.token, fresh());
                after.grace_expires_at = later(now, grace);
                after.expires_at.clear();
                after = after.dated(lifetime, now);
            }
            Some(_) => after = after.dated(lifetime, now),
        }
        (after != *self).then_some(after)
    }

    fn dated(mut self, lifetime: Lifetime, now: Timestamp) -> Self {
        // A time nobody can read counts as none.
        let known = self.expires_at.parse::<Timestamp>().is_ok();
        if let (false, Some((ttl, _))) = (known, lifetime.minutes()) {
            self.expires_at = later(now, ttl);
        }
        self
    }

    /// After how long there is something to do.
    pub(super) fn next(&self, now: Timestamp) -> Option<Duration> {
        let times = [&self.expires_at, &self.grace_expires_at];
        let times = times.into_iter().filter_map(|text| text.parse::<Timestamp>().ok());
        let left = times.map(|at| at.duration_since(now)).min()?;
        Some(Duration::try_from(left).unwrap_or_default() + Duration::from_secs(1))
    }
}

fn later(now: Timestamp, minutes: i64) -> String {
    text(now.saturating_add(SignedDuration::from_mins(minutes)).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn tokens(token: &str) -> Tokens {
        Tokens { token: token.into(), ..Tokens::default() }
    }

    #[test]
    fn a_token_without_a_lifetime_stays() {
        let forever = Lifetime::default();
        assert_eq!(tokens("a").rotated(forever, at(1_000_000), || unreachable!()), None);
        assert_eq!(tokens("").rotated(forever, at(0), || "a".into()), Some(tokens("a")));
        assert_eq!(tokens("a").next(at(0)), None);
    }

    #[test]
    fn a_token_is_replaced_and_its_predecessor_stays_good_for_a_while() {
        let hour = Lifetime { ttl: Some(60), grace: Some(1) };
        let first = tokens("").rotated(hour, at(0), || "a".into()).unwrap();
        assert_eq!(first.expires_at, "1970-01-01T01:00:00Z");
        assert_eq!(first.rotated(hour, at(59), || unreachable!()), None);
        let second = first.rotated(hour, at(60), || "b".into()).unwrap();
        assert_eq!((second.token.as_str(), second.previous.as_str()), ("b", "a"));
        assert_eq!(second.grace_expires_at, "1970-01-01T01:10:00Z");
        assert_eq!(second.expires_at, "1970-01-01T02:00:00Z");
        assert_eq!(second.next(at(60)), Some(Duration::from_secs(601)));
        let third = second.rotated(hour, at(70), || unreachable!()).unwrap();
        assert_eq!((third.token.as_str(), third.previous.as_str()), ("b", ""));
        let forever = third.rotated(Lifetime::default(), at(71), || unreachable!()).unwrap();
        assert_eq!(forever, tokens("b"));
    }

    #[test]
    fn lifetimes_have_their_limits() {
        let minutes = |ttl, grace| Lifetime { ttl: Some(ttl), grace: Some(grace) }.minutes();
        assert_eq!(minutes(1, 1), Some((30, 10)));
        assert_eq!(minutes(100, 200), Some((100, 80)));
        assert_eq!(minutes(-1, 1), None);
        assert_eq!(minutes(i64::MAX, i64::MAX), None);
    }
}
