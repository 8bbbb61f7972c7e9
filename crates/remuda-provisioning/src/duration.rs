//! Durations as whole seconds.

/// Whole seconds of a duration such as `1h30m0s`, cut to what fits; `None` if it is none.
pub(crate) fn seconds(text: &str) -> Option<i32> {
    let seconds = remuda_base::duration::seconds(text)?;
    Some(seconds.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, expected) in [
            ("10m", Some(600)),
            ("1h30m0s", Some(5400)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1.5h", Some(5400)),
            ("900ms", Some(0)),
            ("-5s", Some(-5)),
            ("2562047h", Some(i32::MAX)),
            // More than 64 bits of nanoseconds.
            ("999999999h", None),
            ("", None),
            ("10", None),
            ("m", None),
            ("10 m", None),
            ("10x", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
