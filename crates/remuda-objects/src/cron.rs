//! The syntax of cron schedules: five fields, or a descriptor such as `@daily`.

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

/// A minute of the calendar. Sunday is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    pub minute: u32,
    pub hour: u32,
    pub day: u32,
    pub month: u32,
    pub weekday: u32,
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

    /// Whether this minute is one of the schedule. `None` for those that go by intervals.
    pub fn is_due(&self, at: Minute) -> Option<bool> {
        let Schedule::Fields { bits, days, weekdays } = self else { return None };
        let has = |field: usize, value: u32| bits[field] >> value.min(63) & 1 == 1;
        let (day, weekday) = (has(2, at.day), has(4, at.weekday));
        let either = if *days && *weekdays { day || weekday } else { day && weekday };
        Some(has(0, at.minute) && has(1, at.hour) && has(3, at.month) && either)
    }
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
    use super::{Minute, Schedule, check};

    #[test]
    fn a_schedule_says_which_minutes_are_its_own() {
        // Tuesday, the 17th of November, 12:30.
        let at = Minute { minute: 30, hour: 12, day: 17, month: 11, weekday: 2 };
        for (schedule, due) in [
            ("* * * * *", true),
            ("30 */12 * * *", true),
            ("0 */12 * * *", false),
            ("*/15 12 * nov tue", true),
            ("30 12 1 * tue", true),
            ("30 12 1 * *", false),
            ("@hourly", false),
        ] {
            assert_eq!(Schedule::parse(schedule).unwrap().is_due(at), Some(due), "{schedule}");
        }
        assert_eq!(Schedule::parse("@every 90s").unwrap(), Schedule::Every { seconds: 90 });
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
