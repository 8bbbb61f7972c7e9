//! Durations as Go writes them.

/// Whole seconds of a duration such as `1h30m0s`, cut to what fits; `None` if it is none.
pub(crate) fn seconds(text: &str) -> Option<i32> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    // A cast to an integer stops at what fits.
    Some((sign * total).trunc() as i32)
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
            ("999999999h", Some(i32::MAX)),
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
