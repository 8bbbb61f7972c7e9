//! Points in time and spans, with the ranges and formats CEL has.
//!
//! A timestamp is kept as seconds and nanoseconds rather than as jiff's type, because CEL
//! reaches to the last second of the year 9999 and jiff stops a day earlier.

use std::fmt;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use remuda_base::{
    calendar::{self, SECONDS_PER_DAY, days_in, from_days, to_days},
    duration,
};

/// 0001-01-01T00:00:00Z
pub(crate) const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const MAX_SECONDS: i64 = 253_402_300_799;
pub(crate) const NANOS: i64 = 1_000_000_000;
/// No date or duration is longer; what is, is not looked at.
const MAX_TEXT: usize = 200;

/// A point in time between the years 1 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
}

impl Timestamp {
    /// `None` outside of the years 1 to 9999.
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        let valid = (MIN_SECONDS..=MAX_SECONDS).contains(&seconds) && i64::from(nanos) < NANOS;
        valid.then_some(Self { seconds, nanos })
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// RFC 3339 with a zone.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = split_date(text)?;
        parse_time(date, time, false)
    }

    /// What `format: date` and `format: date-time` allow: a date alone, or a time that may lack
    /// its zone.
    pub(crate) fn parse_lenient(text: &str) -> Option<Self> {
        match split_date(text) {
            Some((date, time)) => parse_time(date, time, true),
            None => Self::new(parse_date(text)?.checked_mul(SECONDS_PER_DAY)?, 0),
        }
    }

    pub(crate) fn add_nanos(self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(i128::from(NANOS))).ok()?;
        Self::new(seconds, total.rem_euclid(i128::from(NANOS)) as u32)
    }

    /// The span from `earlier`, when it fits.
    pub(crate) fn since(self, earlier: Self) -> Option<i64> {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanos = i128::from(self.nanos) - i128::from(earlier.nanos);
        i64::try_from(seconds * i128::from(NANOS) + nanos).ok()
    }

    /// The fields of the calendar and clock at `zone`.
    pub(crate) fn civil(self, zone: &Zone) -> Civil {
        let local = self.seconds + zone.offset(self.seconds);
        let days = local.div_euclid(SECONDS_PER_DAY);
        let (year, month, day) = from_days(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - to_days(year, 1, 1),
            // The first of January 1970 was a Thursday; Sunday is 0.
            weekday: (days + 4).rem_euclid(7),
            second: local.rem_euclid(SECONDS_PER_DAY),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&calendar::civil(self.seconds))?;
        if self.nanos != 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

pub(crate) struct Civil {
    pub(crate) year: i64,
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    pub(crate) weekday: i64,
    /// Of the day.
    pub(crate) second: i64,
}

pub(crate) enum Zone {
    /// Seconds east of Greenwich.
    Fixed(i64),
    Named(TimeZone),
}

impl Zone {
    /// A name of the IANA database, or an offset such as `-08:00` or `02:00`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text == "UTC" || text == "Z" {
            return Some(Zone::Fixed(0));
        }
        if let Some((hours, minutes)) = text.split_once(':') {
            let (sign, hours) = match hours.strip_prefix('-') {
                Some(hours) => (-1, hours),
                None => (1, hours.strip_prefix('+').unwrap_or(hours)),
            };
            let (hours, minutes) = (number(hours, 1..=2)?, number(minutes, 1..=2)?);
            return (hours < 24 && minutes < 60).then_some(Zone::Fixed(sign * (hours * 3600 + minutes * 60)));
        }
        // The compiled-in database: no files are read.
        static ZONES: std::sync::LazyLock<TimeZoneDatabase> =
            std::sync::LazyLock::new(TimeZoneDatabase::bundled);
        ZONES.get(text).ok().map(Zone::Named)
    }

    fn offset(&self, seconds: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                let (min, max) = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
                let at = jiff::Timestamp::from_second(seconds.clamp(min, max)).unwrap_or_default();
                i64::from(zone.to_offset(at).seconds())
            }
        }
    }
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let valid = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if valid { text.parse().ok() } else { None }
}

fn split_date(text: &str) -> Option<(&str, &str)> {
    if text.len() < 11
        || text.len() > MAX_TEXT
        || !text.is_ascii()
        || !matches!(text.as_bytes()[10], b'T' | b't' | b' ')
    {
        return None;
    }
    Some((&text[..10], &text[11..]))
}

/// Days since 1970.
fn parse_date(text: &str) -> Option<i64> {
    if text.len() != 10 || !text.is_ascii() || text.as_bytes()[4] != b'-' || text.as_bytes()[7] != b'-' {
        return None;
    }
    let (year, month, day) =
        (number(&text[..4], 4..=4)?, number(&text[5..7], 2..=2)?, number(&text[8..], 2..=2)?);
    (1..=days_in(year, month)).contains(&day).then(|| to_days(year, month, day))
}

fn parse_time(date: &str, time: &str, lenient: bool) -> Option<Timestamp> {
    let days = parse_date(date)?;
    let bytes = time.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) =
        (number(&time[..2], 2..=2)?, number(&time[3..5], 2..=2)?, number(&time[6..8], 2..=2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut rest = &time[8..];
    let mut nanos = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        // Beyond nanoseconds digits are dropped.
        let kept = &fraction[..digits.min(9)];
        nanos = kept.parse::<u32>().ok()? * 10u32.pow(9 - kept.len() as u32);
        rest = &fraction[digits..];
    }
    let offset = match rest {
        "Z" | "z" => 0,
        "" if lenient => 0,
        _ => {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = rest[1..].split_once(':')?;
            let (hours, minutes) = (number(hours, 2..=2)?, number(minutes, 2..=2)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            sign * (hours * 3600 + minutes * 60)
        }
    };
    Timestamp::new(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second - offset, nanos)
}

/// What `format: duration` allows besides: whole numbers of units with spaces and long names,
/// such as `3 days` or `2w`.
pub(crate) fn parse_duration_lenient(text: &str) -> Option<i64> {
    if let Some(nanos) = duration::nanos(text) {
        return Some(nanos);
    }
    if text.len() > MAX_TEXT {
        return None;
    }
    let mut rest = text.trim();
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let word = after.find(|char: char| !char.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(word);
        let unit: i64 = match unit.strip_suffix('s').filter(|unit| unit.len() > 1).unwrap_or(unit) {
            "ns" | "nano" | "nanosecond" => 1,
            "us" | "µs" | "micro" | "microsecond" => 1_000,
            "ms" | "milli" | "millisecond" => 1_000_000,
            "s" | "sec" | "second" => NANOS,
            "m" | "min" | "minute" => 60 * NANOS,
            "h" | "hr" | "hour" => 3600 * NANOS,
            "d" | "day" => 86_400 * NANOS,
            "w" | "wk" | "week" => 7 * 86_400 * NANOS,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
        rest = after.trim_start();
    }
    (!text.trim().is_empty()).then_some(total)
}

/// Seconds with as many decimals as needed: `3600s`, `0.25s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, fraction) = (magnitude / NANOS as u64, magnitude % NANOS as u64);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    format!("{sign}{seconds}.{}s", format!("{fraction:09}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_back_as_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2000-02-29T12:34:56.5Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(Timestamp::parse(text).map(|time| time.to_string()).as_deref(), Some(text));
        }
        assert_eq!(
            Timestamp::parse("2020-01-01T00:00:00+02:00").unwrap().to_string(),
            "2019-12-31T22:00:00Z"
        );
        for text in
            ["", "2020-01-01", "2021-02-29T00:00:00Z", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00", "é"]
        {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
        assert!(Timestamp::parse_lenient("2020-01-01").is_some());
        assert!(Timestamp::parse_lenient("2020-01-01T00:00:00").is_some());
    }

    #[test]
    fn durations_follow_the_syntax_of_go() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1s", Some(NANOS)),
            ("1h30m", Some(5400 * NANOS)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1us", Some(1000)),
            (".5s", Some(500_000_000)),
            ("1", None),
            ("", None),
            ("s", None),
            ("1d", None),
            ("9999999999h", None),
            ("é", None),
        ] {
            assert_eq!(duration::nanos(text), nanos, "{text}");
        }
        for (text, seconds) in [
            ("1h30m", Some(5400)),
            ("3 days", Some(3 * 86_400)),
            ("2w", Some(14 * 86_400)),
            ("1 day 2 hours", Some(93_600)),
            ("5 ms", Some(0)),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse_duration_lenient(text).map(|nanos| nanos / NANOS), seconds, "{text}");
        }
        assert_eq!(format_duration(-1_500_000_000), "-1.5s");
        assert_eq!(format_duration(3600 * NANOS), "3600s");
        assert_eq!(format_duration(i64::MIN), "-9223372036.854775808s");
    }
}
