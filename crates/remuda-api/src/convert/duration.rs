//! Durations against the whole seconds that newer versions have.

pub(super) use remuda_base::duration::text as from_seconds;

/// Whole seconds of a duration such as `1h30m` or `-1.5s`, cut to what fits; `None` if it is none.
pub(super) fn to_seconds(text: &str) -> Option<i64> {
    let seconds = remuda_base::duration::seconds(text)?;
    Some(seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
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
        // The last is more than 64 bits of nanoseconds, which is no duration in Go either.
        for text in ["", "s", "10", "1x", "1..2s", "-", "999999999h"] {
            assert_eq!(to_seconds(text), None, "{text}");
        }
        assert_eq!(to_seconds("2562047h"), Some(i64::from(i32::MAX)));
        for seconds in [0, 59, 60, 600, 3600, 86_399, i64::from(i32::MAX)] {
            assert_eq!(to_seconds(&from_seconds(seconds)), Some(seconds));
        }
        assert_eq!(from_seconds(5400), "1h30m0s");
    }
}
