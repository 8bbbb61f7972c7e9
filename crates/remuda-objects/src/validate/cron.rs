//! The syntax of cron schedules: five fields, or a descriptor such as `@daily`.

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

/// Checks a schedule; the error is what the user reads.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if let Some(rest) = schedule.strip_prefix("@every ") {
        return duration(rest.trim()).ok_or_else(|| format!("failed to parse duration {schedule}"));
    }
    if schedule.starts_with('@') {
        return match schedule {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            other => Err(format!("unrecognized descriptor: {other}")),
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields
        .iter()
        .zip(&FIELDS)
        .try_for_each(|(field, bounds)| field.split(',').try_for_each(|part| range(part, bounds)))
}

fn range(part: &str, bounds: &Bounds) -> Result<(), String> {
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
    if let Some(step) = step {
        let step = number(step)?;
        if step == 0 {
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
    Ok(())
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

/// A Go duration: numbers with units, `1h30m`.
fn duration(text: &str) -> Option<()> {
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        rest = &rest[digits..];
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"]
            .into_iter()
            .filter(|unit| rest.starts_with(unit))
            .max_by_key(|unit| unit.len())?;
        rest = &rest[unit.len()..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::check;

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
