//! The syntax of cron schedules: five fields, or a descriptor such as `@daily`.

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use remuda_base::duration;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
    /// Number of the first name.
    first: u32,
}

const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[], first: 0 },
    Bounds { low: 0, high: 23, names: &[], first: 0 },
    Bounds { low: 1, high: 31, names: &[], first: 0 },
    Bounds { low: 1, high: 12, names: &MONTHS, first: 1 },
    Bounds { low: 0, high: 6, names: &DAYS, first: 0 },
];

/// A schedule that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// Minutes, hours, days, months and days of the week, one bit each. The two flags say whether days and days of the
    /// week are given: if both are, either is enough.
    Fields { bits: [u64; 5], days: bool, weekdays: bool },
    /// So many seconds after the last time.
    Every { seconds: u64 },
}

impl Schedule {
    /// The error is what the user reads.
    pub fn parse(schedule: &str) -> Result<Schedule, String> {
        if schedule.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if let Some(rest) = schedule.strip_prefix("@every ") {
            let nanos =
                duration::nanos(rest.trim()).ok_or_else(|| format!("failed to parse duration {schedule}"))?;
            let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or_default();
            return Ok(Schedule::Every { seconds: seconds.max(1) });
        }
        let schedule = match schedule {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(format!("unrecognized descriptor: {other}")),
            fields => fields,
        };
        let fields: Vec<&str> = schedule.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        }
        let mut bits = [0; 5];
        for ((field, bounds), bits) in fields.iter().zip(&FIELDS).zip(&mut bits) {
            for part in field.split(',') {
                *bits |= range(part, bounds)?;
            }
        }
        let given = |at: usize| !fields[at].starts_with(['*', '?']);
        Ok(Schedule::Fields { bits, days: given(2), weekdays: given(4) })
    }

    /// The first time of the schedule after this one, in UTC. `None` if there is none in eight years, within which the
    /// 29th of February comes.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        const DAYS: usize = 8 * 366 + 1;
        let Schedule::Fields { bits, .. } = self else {
            let Schedule::Every { seconds } = self else { return None };
            return after.checked_add(i64::try_from(*seconds).ok()?.seconds()).ok();
        };
        let has = |field: usize, value: i8| has(bits[field], value);
        let first = after.checked_add(1.minute()).ok()?.to_zoned(TimeZone::UTC);
        let (mut date, mut from) = (first.date(), (first.hour(), first.minute()));
        for _ in 0..DAYS {
            if self.has_day(date) {
                let (hour, minute) = from;
                let hours = (hour..24).filter(|at| has(1, *at));
                let mut times = hours.flat_map(|at| {
                    let minutes = if at == hour { minute } else { 0 };
                    (minutes..60).map(move |minute| (at, minute))
                });
                if let Some((hour, minute)) = times.find(|(_, minute)| has(0, *minute)) {
                    return Some(date.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?.timestamp());
                }
            }
            (date, from) = (date.tomorrow().ok()?, (0, 0));
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let Schedule::Fields { bits, days, weekdays } = self else { return false };
        let weekday = has(bits[4], date.weekday().to_sunday_zero_offset());
        let day = has(bits[2], date.day());
        let either = if *days && *weekdays { day || weekday } else { day && weekday };
        has(bits[3], date.month()) && either
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> u32::try_from(value).unwrap_or_default().min(63) & 1 == 1
}

/// Checks a schedule; the error is what the user reads.
pub fn check(schedule: &str) -> Result<(), String> {
    Schedule::parse(schedule).map(drop)
}

fn range(part: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut halves = part.split('/');
    let span = halves.next().unwrap_or_default();
    let step = halves.next();
    if halves.next().is_some() {
        return Err(format!("too many slashes: {part}"));
    }
    let mut ends = span.split('-');
    let start_text = ends.next().unwrap_or_default();
    let end_text = ends.next();
    if ends.next().is_some() {
        return Err(format!("too many hyphens: {part}"));
    }
    let (start, mut end) = if start_text == "*" || start_text == "?" {
        (bounds.low, bounds.high)
    } else {
        let start = number_or_name(start_text, bounds)?;
        (start, end_text.map_or(Ok(start), |text| number_or_name(text, bounds))?)
    };
    let mut every = 1;
    if let Some(step) = step {
        every = number(step)?;
        if every == 0 {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        if end_text.is_none() {
            end = bounds.high;
        }
    }
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {part}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {part}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {part}"));
    }
    let steps = (start..=end).step_by(usize::try_from(every).unwrap_or(usize::MAX));
    Ok(steps.fold(0, |bits, value| bits | 1 << value))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u32, String> {
    match bounds.names.iter().zip(bounds.first..).find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        Some((_, number)) => Ok(number),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    if text.starts_with('-') {
        return Err(format!("negative number ({text}) not allowed: {text}"));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{Schedule, check};

    #[test]
    fn a_schedule_says_when_it_is_next() {
        // A Tuesday.
        let after: Timestamp = "2026-11-17T12:30:20Z".parse().unwrap();
        for (schedule, next) in [
            ("* * * * *", "2026-11-17T12:31:00Z"),
            ("30 */12 * * *", "2026-11-18T00:30:00Z"),
            ("0 */12 * * *", "2026-11-18T00:00:00Z"),
            ("*/15 12 * nov tue", "2026-11-17T12:45:00Z"),
            ("30 12 1 * tue", "2026-11-24T12:30:00Z"),
            ("30 12 1 * *", "2026-12-01T12:30:00Z"),
            ("0 12 * * sun", "2026-11-22T12:00:00Z"),
            ("@hourly", "2026-11-17T13:00:00Z"),
            ("0 3 29 2 *", "2028-02-29T03:00:00Z"),
            ("@every 90s", "2026-11-17T12:31:50Z"),
        ] {
            let found = Schedule::parse(schedule).unwrap().next(after);
            assert_eq!(found, Some(next.parse().unwrap()), "{schedule}");
        }
        assert_eq!(Schedule::parse("0 0 30 2 *").unwrap().next(after), None);
        let whole: Timestamp = "2026-11-17T12:30:00Z".parse().unwrap();
        let minutely = Schedule::parse("* * * * *").unwrap();
        assert_eq!(minutely.next(whole), Some("2026-11-17T12:31:00Z".parse().unwrap()));
    }

    #[test]
    fn schedules_follow_cron() {
        for good in ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "0 0 ? * 0", "@daily", "@every 1h30m"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@never", "unrecognized descriptor: @never"),
        ];
        for (schedule, expected) in bad {
            assert_eq!(check(schedule), Err(expected.to_owned()));
        }
        assert!(check("@every x").is_err());
    }
}
