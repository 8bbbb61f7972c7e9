//! Durations as Go writes them, against whole seconds.

/// Whole seconds of a duration such as `1h30m` or `-1.5s`, cut to what fits; `None` if it is none.
pub(super) fn to_seconds(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut seconds = 0.0_f64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    let whole = (sign * seconds).trunc();
    Some((whole as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
}

/// A duration of whole seconds as Go writes it.
pub(super) fn from_seconds(seconds: i64) -> String {
    let sign = if seconds < 0 { "-" } else { "" };
    let rest = seconds.unsigned_abs();
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_in_go() {
        for (text, seconds) in
            [("0", 0), ("10s", 10), ("1h30m", 5400), ("1.5s", 1), ("-2m", -120), ("90000ms", 90)]
        {
            assert_eq!(to_seconds(text), Some(seconds), "{text}");
        }
        for text in ["", "s", "10", "1x", "1..2s", "-"] {
            assert_eq!(to_seconds(text), None, "{text}");
        }
        assert_eq!(to_seconds("999999999h"), Some(i64::from(i32::MAX)));
        for seconds in [0, 59, 60, 600, 3600, 86_399, i64::from(i32::MAX)] {
            assert_eq!(to_seconds(&from_seconds(seconds)), Some(seconds));
        }
        assert_eq!(from_seconds(5400), "1h30m0s");
    }
}
