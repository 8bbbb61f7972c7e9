//! Durations as Go's `time` reads and writes them.
//!
//! Decisions, where readers used to differ: a sign is allowed, a number may begin or end with its point, `µ` may be
//! either of its two characters, and what does not fit 64 bits of nanoseconds is no duration. Units above the hour,
//! spaces and bare numbers other than `0` are refused.

use std::time::Duration;

const NANOS: i64 = 1_000_000_000;
/// No duration is longer; what is, is not looked at.
const MAX_TEXT: usize = 200;

/// Nanoseconds of `1h30m`, `-1.5s`, `300ms`, `0`; `None` for anything else.
pub fn nanos(text: &str) -> Option<i64> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (part, after) = part(rest)?;
        total += part;
        if total > 1 << 63 {
            return None;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The first number with its unit, and what follows.
fn part(text: &str) -> Option<(i128, &str)> {
    let (digits, after) = text.split_at(digits(text));
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => after.split_at(self::digits(after)),
        None => ("", after),
    };
    if (digits.is_empty() && fraction.is_empty()) || digits.len() > 19 {
        return None;
    }
    let end = after.bytes().take_while(|byte| *byte != b'.' && !byte.is_ascii_digit()).count();
    let (unit, after) = after.split_at(end);
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let mut nanos = digits.parse::<i128>().unwrap_or(0) * unit;
    let kept = &fraction[..fraction.len().min(18)];
    if !kept.is_empty() {
        nanos += kept.parse::<i128>().ok()? * unit / 10i128.pow(kept.len() as u32);
    }
    Some((nanos, after))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// The same as a span of time, which has no sign.
pub fn parse(text: &str) -> Option<Duration> {
    nanos(text).and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

/// Whole seconds, cut towards zero.
pub fn seconds(text: &str) -> Option<i64> {
    nanos(text).map(|nanos| nanos / NANOS)
}

/// Whole seconds as Go writes them: `30s`, `5m0s`, `1h0m0s`.
pub fn text(seconds: i64) -> String {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0s", Some(0)),
            ("1s", Some(NANOS)),
            ("1h30m", Some(5400 * NANOS)),
            ("1h30m0s", Some(5400 * NANOS)),
            ("+5s", Some(5 * NANOS)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1.5h", Some(5400 * NANOS)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(NANOS)),
            ("1us", Some(1000)),
            ("1µs", Some(1000)),
            ("1μs", Some(1000)),
            ("1m1m", Some(120 * NANOS)),
            ("2562047h47m16.854775807s", Some(i64::MAX)),
            ("", None),
            ("-", None),
            (".", None),
            (".s", None),
            ("1", None),
            ("90", None),
            ("s", None),
            ("1d", None),
            ("10 m", None),
            (" 1s", None),
            ("1..2s", None),
            ("1h-2m", None),
            ("9e9h", None),
            ("9999999999h", None),
            ("1hé", None),
            ("é", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
        assert_eq!(parse("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse("-1s"), None);
        assert_eq!((seconds("1.9s"), seconds("-1.9s"), seconds("900ms")), (Some(1), Some(-1), Some(0)));
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let all: Vec<_> = [0, 30, 300, 600, 3600, 3661, -90].into_iter().map(text).collect();
        assert_eq!(all, ["0s", "30s", "5m0s", "10m0s", "1h0m0s", "1h1m1s", "-1m30s"]);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(whole in -2_000_000_000_i64..2_000_000_000) {
            prop_assert_eq!(seconds(&text(whole)), Some(whole));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.hmsuµn]{0,40}|\\PC{0,20}") {
            let _ = nanos(&text);
        }
    }
}
