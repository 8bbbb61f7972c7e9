//! Maintenance windows: when what disrupts a cluster and starts by itself may begin.
//!
//! ```text
//! Sat 01:00-05:00 Europe/Berlin; Mon-Fri 22:00-02:00
//! ```
//!
//! Days, from when to when on the clocks of a place, and which place; every day and UTC where nothing is said. A window
//! that ends before it begins ends on the next day. Where clocks are set forward over its beginning or its end, that is
//! as much later; where they are set back, the first of the two times counts. So no window is longer than it says.

use std::{fmt, sync::LazyLock};

use jiff::{
    Timestamp,
    civil::{Date, Time, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};

/// One for each day is more than anybody has.
const MOST: usize = 16;
const LONGEST: usize = 1024;
const DAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("there is no window in it")]
    Empty,
    #[error("there are more than {MOST} windows, or more than {LONGEST} letters")]
    TooMany,
    #[error("{0:?} is not of the form: Sat 01:00-05:00 Europe/Berlin")]
    Form(String),
    #[error("{0:?} is neither a day (Mon), days (Mon-Fri) nor daily")]
    Day(String),
    #[error("{0:?} is no time from 00:00 to 24:00")]
    Time(String),
    #[error("{0:?} is no time zone, such as Europe/Berlin or UTC")]
    Zone(String),
    #[error("{0:?} ends when it begins")]
    NoLength(String),
}

/// Windows, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows(Vec<Window>);

#[derive(Clone, PartialEq, Eq)]
struct Window {
    /// From Monday on.
    days: [bool; 7],
    from: Time,
    to: Time,
    /// It ends on the day after the one it begins on.
    overnight: bool,
    zone: TimeZone,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.iana_name().unwrap_or_default();
        write!(f, "{:?} {}-{} {zone}", self.days, self.from, self.to)
    }
}

/// Whether a window is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The one that is open the longest.
    Open { since: Timestamp, until: Timestamp },
    Closed {
        /// `None` if there is none within two weeks.
        next: Option<Timestamp>,
    },
}

impl Windows {
    /// Reads windows, separated by commas or semicolons. The error is what the user reads.
    pub fn parse(text: &str) -> Result<Windows, WindowError> {
        let parts: Vec<&str> =
            text.split([',', ';']).map(str::trim).filter(|part| !part.is_empty()).collect();
        if parts.len() > MOST || text.len() > LONGEST {
            return Err(WindowError::TooMany);
        }
        if parts.is_empty() {
            return Err(WindowError::Empty);
        }
        parts.into_iter().map(Window::parse).collect::<Result<_, _>>().map(Windows)
    }

    /// How it is now, and when one opens next after those that are open.
    pub fn at(&self, now: Timestamp) -> Opening {
        let open = self.spans(now).filter(|(since, until)| (*since..*until).contains(&now));
        match open.max_by_key(|(_, until)| *until) {
            Some((since, until)) => Opening::Open { since, until },
            None => Opening::Closed { next: self.next(now) },
        }
    }

    /// When one opens next.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.spans(now).map(|(since, _)| since).filter(|since| *since > now).min()
    }

    /// Those of the days around this time, beginnings and ends.
    fn spans(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.0.iter().flat_map(move |window| {
            let today = now.to_zoned(window.zone.clone()).date();
            let first = today.yesterday().unwrap_or(today);
            first.series(jiff::Span::new().days(1)).take(16).filter_map(|date| window.on(date))
        })
    }
}

impl Window {
    fn parse(text: &str) -> Result<Window, WindowError> {
        let form = || WindowError::Form(text.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| word.contains(':')).ok_or_else(form)?;
        let days = match &words[..at] {
            [] => [true; 7],
            [days] => parse_days(days)?,
            _ => return Err(form()),
        };
        let zone = match &words[at + 1..] {
            [] => TimeZone::UTC,
            [zone] => self::zone(zone)?,
            _ => return Err(form()),
        };
        let (from, to) = words[at].split_once('-').ok_or_else(form)?;
        let ((from, from_is_end), (to, to_is_end)) = (parse_time(from)?, parse_time(to)?);
        if from_is_end {
            return Err(WindowError::Time(words[at].to_owned()));
        }
        if from == to && !to_is_end {
            return Err(WindowError::NoLength(text.to_owned()));
        }
        Ok(Window { days, from, to, overnight: to <= from, zone })
    }

    /// From when to when it is open that begins on this day. Nothing if there is no such window, or clocks leave it
    /// out.
    fn on(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        let day = usize::try_from(date.weekday().to_monday_zero_offset()).ok()?;
        if !self.days[day] {
            return None;
        }
        let last = if self.overnight { date.tomorrow().ok()? } else { date };
        let moment = |date: Date, time: Time| {
            Some(date.to_datetime(time).to_zoned(self.zone.clone()).ok()?.timestamp())
        };
        let (since, until) = (moment(date, self.from)?, moment(last, self.to)?);
        (since < until).then_some((since, until))
    }
}

fn parse_days(text: &str) -> Result<[bool; 7], WindowError> {
    if text.eq_ignore_ascii_case("daily") {
        return Ok([true; 7]);
    }
    let wrong = || WindowError::Day(text.to_owned());
    let day = |name: &str| {
        DAYS.iter().position(|(short, weekday)| {
            name.eq_ignore_ascii_case(short) || name.eq_ignore_ascii_case(&format!("{weekday:?}"))
        })
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (day(first).ok_or_else(wrong)?, day(last).ok_or_else(wrong)?);
    let mut days = [false; 7];
    // Sat-Mon goes over the end of the week.
    let count = (last + 7 - first) % 7;
    (0..=count).for_each(|offset| days[(first + offset) % 7] = true);
    Ok(days)
}

/// A time, and whether it is the end of a day, which is the beginning of the next.
fn parse_time(text: &str) -> Result<(Time, bool), WindowError> {
    let wrong = || WindowError::Time(text.to_owned());
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<i8>().ok()).flatten()
    };
    let (hour, minute) = (number(hour).ok_or_else(wrong)?, number(minute).ok_or_else(wrong)?);
    match (hour, minute) {
        (24, 0) => Ok((Time::midnight(), true)),
        _ => Time::new(hour, minute, 0, 0).map(|time| (time, false)).map_err(|_| wrong()),
    }
}

/// Zones that come with the program: what a window means must not depend on the host.
pub fn zone(text: &str) -> Result<TimeZone, WindowError> {
    static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    ZONES.get(text).map_err(|_| WindowError::Zone(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(windows: &str, now: &str, expected: &str) {
        let found = match Windows::parse(windows).unwrap().at(at(now)) {
            Opening::Open { since, until } => format!("{since} to {until}"),
            Opening::Closed { next: Some(next) } => format!("next {next}"),
            Opening::Closed { next: None } => "never".to_owned(),
        };
        assert_eq!(found, expected, "{windows} at {now}");
    }

    #[test]
    fn a_window_is_open_from_its_first_second_up_to_its_last() {
        let saturdays = "Sat 01:00-05:00 Europe/Berlin";
        check(saturdays, "2026-11-19T12:00:00Z", "next 2026-11-21T00:00:00Z");
        check(saturdays, "2026-11-20T23:59:59Z", "next 2026-11-21T00:00:00Z");
        check(saturdays, "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z to 2026-11-21T04:00:00Z");
        check(saturdays, "2026-11-21T03:59:59Z", "2026-11-21T00:00:00Z to 2026-11-21T04:00:00Z");
        check(saturdays, "2026-11-21T04:00:00Z", "next 2026-11-28T00:00:00Z");
        // In summer it is an hour earlier in UTC.
        check(saturdays, "2026-07-01T00:00:00Z", "next 2026-07-03T23:00:00Z");
    }

    #[test]
    fn windows_go_over_midnight_and_the_end_of_the_week() {
        check("22:00-02:00", "2026-11-19T01:00:00Z", "2026-11-18T22:00:00Z to 2026-11-19T02:00:00Z");
        check("Fri 22:00-02:00", "2026-11-21T01:00:00Z", "2026-11-20T22:00:00Z to 2026-11-21T02:00:00Z");
        check("Fri 22:00-02:00", "2026-11-20T01:00:00Z", "next 2026-11-20T22:00:00Z");
        check("Sat-Mon 01:00-02:00", "2026-11-19T00:00:00Z", "next 2026-11-21T01:00:00Z");
        check("Sat-Mon 01:00-02:00", "2026-11-22T02:00:00Z", "next 2026-11-23T01:00:00Z");
        check("daily 00:00-24:00", "2026-11-19T12:00:00Z", "2026-11-19T00:00:00Z to 2026-11-20T00:00:00Z");
        check("Thursday 23:00-24:00", "2026-11-19T12:00:00Z", "next 2026-11-19T23:00:00Z");
    }

    #[test]
    fn of_several_windows_the_longest_counts_and_the_next_is_the_nearest() {
        let several = "Sat 01:00-05:00, sat 04:00-06:00 UTC; Wed 3:00-4:00 America/New_York";
        check(several, "2026-11-21T04:30:00Z", "2026-11-21T04:00:00Z to 2026-11-21T06:00:00Z");
        check(several, "2026-11-22T00:00:00Z", "next 2026-11-25T08:00:00Z");
        let next = Windows::parse(several).unwrap().next(at("2026-11-21T01:30:00Z"));
        assert_eq!(next, Some(at("2026-11-21T04:00:00Z")));
    }

    #[test]
    fn where_clocks_are_set_no_window_is_longer_than_it_says() {
        // Forward from 2 to 3, on the 28th of March, 2027.
        let before = "2027-03-27T12:00:00Z";
        for (window, expected) in [
            ("Sun 01:30-02:30 Europe/Berlin", "2027-03-28T00:30:00Z to 2027-03-28T01:30:00Z"),
            ("Sun 02:15-02:45 Europe/Berlin", "2027-03-28T01:15:00Z to 2027-03-28T01:45:00Z"),
            ("Sun 01:00-05:00 Europe/Berlin", "2027-03-28T00:00:00Z to 2027-03-28T03:00:00Z"),
            // Back from 3 to 2, on the 25th of October, 2026.
            ("Sun 01:30-02:30 Europe/Berlin", "2026-10-24T23:30:00Z to 2026-10-25T00:30:00Z"),
            ("Sun 02:15-02:45 Europe/Berlin", "2026-10-25T00:15:00Z to 2026-10-25T00:45:00Z"),
        ] {
            let begins = expected.split(' ').next().unwrap();
            check(window, begins, expected);
        }
        // It would end before it begins, so it is left out that day.
        check("Sun 02:30-03:15 Europe/Berlin", before, "next 2027-04-04T00:30:00Z");
        // The second half past two of that night is outside.
        check("Sun 02:15-02:45 Europe/Berlin", "2026-10-25T01:30:00Z", "next 2026-11-01T01:15:00Z");
        // A place where that Friday was left out.
        check("Fri 01:00-02:00 Pacific/Apia", "2011-12-29T12:00:00Z", "next 2011-12-30T11:00:00Z");
    }

    #[test]
    fn what_is_no_window_is_refused_with_what_is_wrong() {
        let many = vec!["Sat 01:00-05:00"; MOST + 1].join(",");
        for (text, expected) in [
            ("", "there is no window in it"),
            (" ;, ", "there is no window in it"),
            ("Sat", "\"Sat\" is not of the form: Sat 01:00-05:00 Europe/Berlin"),
            ("Sat 01:00", "\"Sat 01:00\" is not of the form: Sat 01:00-05:00 Europe/Berlin"),
            (
                "Sat night 01:00-02:00",
                "\"Sat night 01:00-02:00\" is not of the form: Sat 01:00-05:00 Europe/Berlin",
            ),
            ("Caturday 01:00-05:00", "\"Caturday\" is neither a day (Mon), days (Mon-Fri) nor daily"),
            ("Sat 01:00-25:00", "\"25:00\" is no time from 00:00 to 24:00"),
            ("Sat 24:00-02:00", "\"24:00-02:00\" is no time from 00:00 to 24:00"),
            ("Sat +1:00-02:00", "\"+1:00\" is no time from 00:00 to 24:00"),
            ("Sat 01:60-02:00", "\"01:60\" is no time from 00:00 to 24:00"),
            ("Sat 01:00-01:00", "\"Sat 01:00-01:00\" ends when it begins"),
            (
                "Sat 01:00-05:00 Europe/Atlantis",
                "\"Europe/Atlantis\" is no time zone, such as Europe/Berlin or UTC",
            ),
            ("Sat 01:00-05:00, Sun", "\"Sun\" is not of the form: Sat 01:00-05:00 Europe/Berlin"),
            (&many, "there are more than 16 windows, or more than 1024 letters"),
        ] {
            assert_eq!(Windows::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
