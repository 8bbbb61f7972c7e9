//! Schedules of people: when something is done, on the clocks of a place.
//!
//! ```text
//! 0 20 * * 1-5 Europe/Berlin
//! ```
//!
//! Where clocks are set forward over a time, it is as much later; where they are set back, the first of the two counts.

use jiff::{
    SignedDuration, Timestamp,
    tz::{Disambiguation, TimeZone},
};
use remuda_distro::maintenance;
use remuda_objects::cron;

const LONGEST: usize = 256;
const EVERY: &str = "must name times, not how long is between them";
/// How far back the last time is looked for.
const BACK: SignedDuration = SignedDuration::from_hours(367 * 24);

/// A schedule with its time zone.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    times: cron::Schedule,
    zone: TimeZone,
}

impl Schedule {
    /// The error is what the user reads.
    pub(crate) fn parse(text: &str) -> Result<Schedule, String> {
        if text.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} letters"));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.first() == Some(&"@every") {
            return Err(EVERY.to_owned());
        }
        let fields = if text.trim_start().starts_with('@') { 1 } else { 5 };
        let (times, zone) = match words.len() {
            count if count == fields => (words.as_slice(), TimeZone::UTC),
            count if count == fields + 1 => {
                let zone = maintenance::zone(words[fields]).map_err(|error| error.to_string())?;
                (&words[..fields], zone)
            }
            _ => return Err("is not of the form: 0 20 * * 1-5 Europe/Berlin".to_owned()),
        };
        let times = cron::Schedule::parse(&times.join(" "))?;
        match times {
            cron::Schedule::Every { .. } => Err(EVERY.to_owned()),
            times => Ok(Schedule { times, zone }),
        }
    }

    /// The first time after this one.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let mut clock = self.clock(after)?;
        // Around a change of clocks a later time there may be an earlier one, or the same.
        for _ in 0..200 {
            clock = self.times.next(clock)?;
            if let Some(found) = self.time(clock).filter(|found| *found > after) {
                return Some(found);
            }
        }
        None
    }

    /// The last time up to this one, within a year. It is closed in on from both sides, as there may be one each minute.
    pub(crate) fn last(&self, now: Timestamp) -> Option<Timestamp> {
        let come = |from: Timestamp| self.next(from).filter(|found| *found <= now);
        let mut from = now.checked_sub(BACK).ok()?;
        let mut last = come(from)?;
        let mut to = now;
        while to.as_second() - from.as_second() > 1 {
            let between = Timestamp::from_second(from.as_second().midpoint(to.as_second())).ok()?;
            match come(between) {
                Some(found) => (last, from) = (found, between),
                None => to = between,
            }
        }
        Some(last)
    }

    /// What clocks there show, as if it were UTC.
    fn clock(&self, at: Timestamp) -> Option<Timestamp> {
        let shown = at.to_zoned(self.zone.clone()).datetime();
        Some(shown.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }

    fn time(&self, clock: Timestamp) -> Option<Timestamp> {
        let shown = clock.to_zoned(TimeZone::UTC).datetime();
        let found = self.zone.to_ambiguous_zoned(shown).disambiguate(Disambiguation::Compatible).ok()?;
        Some(found.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(schedule: &str, now: &str, last: &str, next: &str) {
        let schedule = Schedule::parse(schedule).unwrap();
        let told = |found: Option<Timestamp>| found.map_or_else(String::new, |found| found.to_string());
        assert_eq!((told(schedule.last(at(now))), told(schedule.next(at(now)))), (last.into(), next.into()));
    }

    #[test]
    fn times_are_those_of_clocks_there() {
        let evenings = "0 20 * * 1-5 Europe/Berlin";
        // A Saturday, a Wednesday in winter and one in summer.
        check(evenings, "2026-10-24T12:00:00Z", "2026-10-23T18:00:00Z", "2026-10-26T19:00:00Z");
        check(evenings, "2026-11-18T19:00:00Z", "2026-11-18T19:00:00Z", "2026-11-19T19:00:00Z");
        check(evenings, "2026-07-15T17:59:59Z", "2026-07-14T18:00:00Z", "2026-07-15T18:00:00Z");
        check("@daily", "2026-11-18T19:00:00Z", "2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z");
        check("0 0 1 1 * UTC", "2026-11-18T19:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("* * * * *", "2026-11-18T19:00:30Z", "2026-11-18T19:00:00Z", "2026-11-18T19:01:00Z");
        check("* * * 1 *", "2026-11-18T19:00:30Z", "2026-01-31T23:59:00Z", "2027-01-01T00:00:00Z");
    }

    #[test]
    fn a_time_that_clocks_pass_over_or_show_twice_is_one_time() {
        // 02:30 does not exist on 29 March, and exists twice on 25 October.
        check(
            "30 2 * * * Europe/Berlin",
            "2026-03-29T00:00:00Z",
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:30:00Z",
        );
        check(
            "30 2 * * * Europe/Berlin",
            "2026-10-25T01:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-26T01:30:00Z",
        );
    }

    #[test]
    fn what_is_no_schedule_says_why() {
        for (text, why) in [
            ("", "is not of the form"),
            ("0 20 * * *  Europe/Atlantis", "is no time zone"),
            ("0 25 * * *", "25"),
            ("@every 1h", "must name times"),
            ("0 20 * * * Europe/Berlin x", "is not of the form"),
        ] {
            let told = Schedule::parse(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert_eq!(Schedule::parse("0 0 30 2 *").unwrap().next(at("2026-01-01T00:00:00Z")), None);
    }
}
