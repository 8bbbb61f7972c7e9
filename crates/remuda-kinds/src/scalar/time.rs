//! Times in the two text forms Kubernetes writes: whole seconds and microseconds, always UTC.

use remuda_base::calendar::{self, days_in, to_days};

/// A point in time: seconds since 1970 and nanoseconds within that second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    pub seconds: i64,
    pub nanos: u32,
}

/// Seconds of `0001-01-01T00:00:00Z`, which Go calls the zero time and writes as null.
const ZERO: i64 = -62_135_596_800;
/// Seconds of `9999-12-31T23:59:59Z`, the last year RFC 3339 can write.
const LAST: i64 = 253_402_300_799;
/// Seconds of `0000-01-01T00:00:00Z`.
const FIRST: i64 = -62_167_219_200;

impl Instant {
    /// From a protobuf timestamp; `None` outside the years 0 to 9999.
    pub fn new(seconds: i64, nanos: i32) -> Option<Self> {
        let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        (FIRST..=LAST).contains(&seconds).then_some(Self { seconds, nanos })
    }

    /// The value that stands for "not set".
    pub fn is_zero(self) -> bool {
        self.seconds == ZERO && self.nanos == 0
    }

    /// `2026-11-15T18:07:22Z`.
    pub fn to_seconds_text(self) -> String {
        calendar::rfc3339(self.seconds)
    }

    /// `2026-11-15T18:07:22.000000Z`.
    pub fn to_micros_text(self) -> String {
        format!("{}.{:06}Z", calendar::civil(self.seconds), self.nanos / 1000)
    }
}

/// Reads RFC 3339 as Go does: `T` and `Z` in capitals, optional fraction of any length.
pub fn parse_rfc3339(text: &str) -> Option<Instant> {
    parse(text).map(|(instant, _)| instant)
}

/// Reads RFC 3339 with exactly six fractional digits, the only form `MicroTime` accepts.
pub fn parse_micros(text: &str) -> Option<Instant> {
    parse(text).filter(|(_, digits)| *digits == 6).map(|(instant, _)| instant)
}

fn parse(text: &str) -> Option<(Instant, usize)> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !bytes.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        bytes
            .get(from..to)?
            .iter()
            .try_fold(0i64, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0')))
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let valid = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return None;
    }
    let mut at = 19;
    let (mut nanos, mut digits) = (0u32, 0usize);
    if bytes[at] == b'.' || bytes[at] == b',' {
        at += 1;
        while let Some(byte) = bytes.get(at).filter(|byte| byte.is_ascii_digit()) {
            if digits < 9 {
                nanos = nanos * 10 + u32::from(byte - b'0');
            }
            digits += 1;
            at += 1;
        }
        if digits == 0 {
            return None;
        }
        for _ in digits..9 {
            nanos *= 10;
        }
    }
    let offset = match *bytes.get(at)? {
        b'Z' if bytes.len() == at + 1 => 0,
        sign @ (b'+' | b'-') if bytes.len() == at + 6 && bytes[at + 3] == b':' => {
            let (hours, minutes) = (number(at + 1, at + 3)?, number(at + 4, at + 6)?);
            if hours > 24 || minutes > 60 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            if sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = to_days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    (FIRST..=LAST).contains(&seconds).then_some((Instant { seconds, nanos }, digits))
}

/// The layouts of the two forms, as Go writes them.
pub(crate) const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
pub(crate) const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Where a text leaves its layout: what is left of the text, and the element of the layout it should be.
/// `None` if the form is right, so that only a value can be out of range.
pub(crate) fn complaint<'a>(text: &'a str, layout: &str) -> Option<(&'a str, &'static str)> {
    let mut rest = text;
    let elements = ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"];
    for element in elements {
        let width = element.len();
        let fits = rest.get(..width).is_some_and(|part| {
            part == element || (width > 1 && part.bytes().all(|byte| byte.is_ascii_digit()))
        });
        if !fits {
            return Some((rest, element));
        }
        rest = &rest[width..];
    }
    let fraction = rest
        .strip_prefix(['.', ','])
        .map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    if layout == MICROS {
        if fraction < 6 {
            return Some((rest, ".000000"));
        }
        rest = &rest[7..];
    } else if fraction > 0 {
        rest = &rest[fraction + 1..];
    }
    let zone = rest == "Z"
        || (rest.len() == 6
            && rest.starts_with(['+', '-'])
            && rest.bytes().enumerate().skip(1).all(|(at, byte)| match at {
                3 => byte == b':',
                _ => byte.is_ascii_digit(),
            }));
    (!zone).then_some((rest, "Z07:00"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_normalised_to_utc_seconds() {
        for (text, seconds) in [
            ("2026-11-15T18:07:22Z", "2026-11-15T18:07:22Z"),
            ("2026-11-15T18:07:22.999999999Z", "2026-11-15T18:07:22Z"),
            ("2026-11-15T18:07:22+02:30", "2026-11-15T15:37:22Z"),
            ("2024-02-29T23:59:59-00:01", "2024-03-01T00:00:59Z"),
            ("1969-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(parse_rfc3339(text).unwrap().to_seconds_text(), seconds);
        }
        assert!(parse_rfc3339("0001-01-01T00:00:00Z").unwrap().is_zero());
    }

    #[test]
    fn malformed_times_are_refused() {
        for text in [
            "",
            "2026-11-15",
            "2026-11-15 18:07:22Z",
            "2026-11-15t18:07:22Z",
            "2026-13-15T18:07:22Z",
            "2025-02-29T18:07:22Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T18:07:60Z",
            "2026-11-15T18:07:22",
            "2026-11-15T18:07:22.Z",
            "2026-11-15T18:07:22+0200",
            "2026-11-15T18:07:22Zx",
            "2026-11-15T18:07:2\u{662}Z",
        ] {
            assert!(parse_rfc3339(text).is_none(), "{text}");
        }
    }

    #[test]
    fn micro_times_need_exactly_six_digits() {
        assert_eq!(
            parse_micros("2026-11-15T18:07:22.123456+01:00").unwrap().to_micros_text(),
            "2026-11-15T17:07:22.123456Z"
        );
        for text in ["2026-11-15T18:07:22Z", "2026-11-15T18:07:22.123Z", "2026-11-15T18:07:22.1234567Z"] {
            assert!(parse_micros(text).is_none(), "{text}");
        }
    }

    #[test]
    fn complaints_name_the_part_that_does_not_fit() {
        for (text, layout, rest, element) in [
            ("x", SECONDS, "x", "2006"),
            ("2026-11-15 18:07:22Z", SECONDS, " 18:07:22Z", "T"),
            ("2026-11-15T18:07:22Z", MICROS, "Z", ".000000"),
            ("2026-11-15T18:07:22.1234567Z", MICROS, "7Z", "Z07:00"),
            ("2026-11-15T18:07:22", SECONDS, "", "Z07:00"),
        ] {
            assert_eq!(complaint(text, layout), Some((rest, element)), "{text}");
        }
        assert_eq!(complaint("2026-13-15T18:07:22Z", SECONDS), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_instant_survives_a_round_trip(seconds in FIRST..=LAST, micros in 0i32..1_000_000) {
            let instant = Instant::new(seconds, micros * 1000).unwrap();
            prop_assert_eq!(parse_micros(&instant.to_micros_text()), Some(instant));
            if let Ok(theirs) = jiff::Timestamp::from_second(seconds) {
                prop_assert_eq!(theirs.to_string(), instant.to_seconds_text());
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = parse_rfc3339(&text);
            let _ = (complaint(&text, SECONDS), complaint(&text, MICROS));
        }
    }
}
