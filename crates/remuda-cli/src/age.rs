//! Durations as people write and read them.

use std::time::Duration;

use jiff::Timestamp;

/// How long ago, as `kubectl` writes it: two units while they matter, one later on.
pub(crate) fn ago(then: Option<Timestamp>, now: Timestamp) -> String {
    match then {
        Some(then) => short(now.as_second().saturating_sub(then.as_second())),
        None => "-".to_owned(),
    }
}

/// Seconds in words of a few letters. A time that is yet to come is now.
pub(crate) fn short(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, 'y', days % 365, 'd'),
    }
}

/// `90`, `90s`, `10m`, `1h30m`, `500ms`; a bare number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write it as 90s, 10m or 1h30m");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let (mut rest, mut total) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len() - tail.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).len();
        let (unit, tail) = tail.split_at(letters);
        let number: u32 = number.parse().map_err(|_| wrong())?;
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            "d" => Duration::from_secs(86_400),
            _ => return Err(wrong()),
        };
        let part = unit.checked_mul(number).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_get_coarser_as_they_get_longer() {
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (192, "3m12s"),
            (600, "10m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (700_000, "8d"),
            (70_000_000, "2y80d"),
        ];
        for (seconds, text) in cases {
            assert_eq!(short(seconds), text);
        }
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        for text in ["", "m", "10x", "-1s", "1h 2m", "99999999999s", "ä", "4294967295d4294967295d1µ"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
