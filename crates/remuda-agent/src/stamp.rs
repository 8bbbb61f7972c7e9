//! Times as the protocol writes them.
//!
//! `Mon Aug  3 09:05:07 UTC 2026` in reports, `20260803-090507` in file names. The agent writes UTC;
//! predecessors on the same node may have written any zone abbreviation.

use std::time::{SystemTime, UNIX_EPOCH};

use remuda_base::calendar::{from_days, to_days};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Stamp(pub i64);

impl Stamp {
    /// The present second. A clock before 1970 reads as 1970.
    pub fn now() -> Self {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX))
    }

    /// Seconds that passed since `earlier`; `None` when that lies in the future, which happens when
    /// the clock was set back or a predecessor wrote local time. Nothing should wait for such a time.
    pub fn since(self, earlier: Self) -> Option<i64> {
        self.0.checked_sub(earlier.0).filter(|elapsed| *elapsed >= 0)
    }

    /// As reports carry it.
    pub fn unix_date(self) -> String {
        let civil = Civil::from(self);
        let weekday = DAYS[usize::try_from(self.0.div_euclid(86_400).rem_euclid(7)).unwrap_or(0)];
        let month = MONTHS[civil.month as usize - 1];
        let Civil { year, day, hour, minute, second, .. } = civil;
        format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} UTC {year}")
    }

    /// As file names carry it.
    pub fn compact(self) -> String {
        let Civil { year, month, day, hour, minute, second } = Civil::from(self);
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }

    /// Reads what `unix_date` or another agent wrote. An abbreviation says nothing certain about its
    /// offset and is read as UTC; numeric zones count.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let weekday = words.next()?;
        if !DAYS.contains(&weekday) {
            return None;
        }
        let name = words.next()?;
        let month = u32::try_from(MONTHS.iter().position(|month| *month == name)?).ok()? + 1;
        let day = number(words.next()?, 1..=2)?;
        let mut clock = words.next()?.split(':');
        let hour = number(clock.next()?, 2..=2)?;
        let minute = number(clock.next()?, 2..=2)?;
        let second = number(clock.next()?, 2..=2)?;
        let offset = offset(words.next()?)?;
        let year = i64::from(number(words.next()?, 4..=4)?);
        if words.next().is_some()
            || clock.next().is_some()
            || !(1..=31).contains(&day)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        let days = to_days(year, i64::from(month), i64::from(day));
        Some(Self(
            days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second) - offset,
        ))
    }
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    (digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

fn offset(zone: &str) -> Option<i64> {
    let Some(digits) = zone.strip_prefix(['+', '-']) else {
        return (zone.len() >= 3 && zone.bytes().all(|byte| byte.is_ascii_uppercase())).then_some(0);
    };
    let (hours, minutes) = match digits.len() {
        2 => (number(digits, 2..=2)?, 0),
        4 if digits.is_ascii() => (number(&digits[..2], 2..=2)?, number(&digits[2..], 2..=2)?),
        _ => return None,
    };
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    Some(if zone.starts_with('-') { -seconds } else { seconds })
}

struct Civil {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl From<Stamp> for Civil {
    fn from(stamp: Stamp) -> Self {
        let (days, rest) = (stamp.0.div_euclid(86_400), stamp.0.rem_euclid(86_400));
        let rest = u32::try_from(rest).unwrap_or(0);
        let (year, month, day) = from_days(days);
        let small = |number: i64| u32::try_from(number).unwrap_or(1);
        let (month, day) = (small(month), small(day));
        Self { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reference_time_reads_and_writes() {
        let stamp = Stamp(1_785_747_907);
        assert_eq!(stamp.unix_date(), "Mon Aug  3 09:05:07 UTC 2026");
        assert_eq!(stamp.compact(), "20260803-090507");
        assert_eq!(Stamp::parse("Mon Aug  3 09:05:07 CEST 2026"), Some(stamp));
        assert_eq!(Stamp::parse("Mon Aug  3 11:05:07 +02 2026"), Some(stamp));
        assert_eq!(Stamp::parse("Mon Aug  3 05:35:07 -0330 2026"), Some(stamp));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "Mon Aug 3 9:05:07 UTC 2026",
            "Mon Foo  3 09:05:07 UTC 2026",
            "Mon Aug  3 25:05:07 UTC 2026",
            "Mon Aug  3 09:05:07 UTC 2026 more",
            "Mon Aug  3 09:05:07 2026",
            "Mon Aug 33 09:05:07 UTC 2026",
        ] {
            assert_eq!(Stamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_waits_for_a_time_in_the_future() {
        assert_eq!(Stamp(10).since(Stamp(11)), None);
        assert_eq!(Stamp(10).since(Stamp(4)), Some(6));
    }

    proptest! {
        #[test]
        fn every_second_of_nine_thousand_years_survives_the_round_trip(seconds in 0i64..220_000_000_000) {
            prop_assert_eq!(Stamp::parse(&Stamp(seconds).unix_date()), Some(Stamp(seconds)));
        }

        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = Stamp::parse(&text);
        }
    }
}
