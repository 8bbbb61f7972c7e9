//! Kubernetes quantities: a decimal number with a suffix, `500m`, `1.5Gi`, `2e3`.

use std::fmt;

/// Longer texts are refused: no quantity of use has them, and work grows with the length.
const MAX_TEXT: usize = 1024;

/// Why a text is no quantity; the wording is what clients of the original know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    Format,
    Suffix,
    Numeric,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Suffix => "unable to parse quantity's suffix",
            Self::Numeric => "unable to parse numeric part of quantity",
        })
    }
}

impl std::error::Error for QuantityError {}

/// What the number is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suffix {
    /// A power of ten with a letter, or none.
    Decimal(i32),
    /// A power of ten in digits.
    Exponent(i32),
    /// A power of two.
    Binary(u32),
}

impl Suffix {
    fn parse(text: &str) -> Option<Suffix> {
        Some(match text {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => Self::Exponent(text.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }
}

/// A quantity as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    pub negative: bool,
    /// Digits before the point.
    pub integer: &'a str,
    /// Digits behind it. One of both is not empty.
    pub fraction: &'a str,
    pub suffix: Suffix,
}

/// Takes a quantity apart.
pub fn split(text: &str) -> Result<Parts<'_>, QuantityError> {
    if text.is_empty() || text.len() > MAX_TEXT {
        return Err(QuantityError::Format);
    }
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (integer, rest) = rest.split_at(digits(rest));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    let letters = suffix.bytes().take_while(|byte| b"eEinumkKMGTP".contains(byte)).count();
    let tail = &suffix[letters..];
    let tail = tail.strip_prefix(['-', '+']).unwrap_or(tail);
    if !tail.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    let suffix = Suffix::parse(suffix).ok_or(QuantityError::Suffix)?;
    if integer.is_empty() && fraction.is_empty() {
        return Err(QuantityError::Numeric);
    }
    Ok(Parts { negative, integer, fraction, suffix })
}

/// The amount in billionths; `None` if the text is no quantity, or does not fit. What is finer is rounded away from
/// zero, as the original does.
pub fn nanos(text: &str) -> Option<i128> {
    /// Enough for the largest binary suffix to be exact to the billionth.
    const KEPT: usize = 27;
    let parts = split(text).ok()?;
    let fraction = parts.fraction.trim_end_matches('0');
    let (fraction, dropped) = fraction.split_at(fraction.len().min(KEPT));
    let mut value: i128 = 0;
    for digit in parts.integer.bytes().chain(fraction.bytes()) {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let mut scale = 9 - fraction.len() as i32;
    match parts.suffix {
        Suffix::Decimal(power) | Suffix::Exponent(power) => scale = scale.checked_add(power)?,
        Suffix::Binary(power) => value = value.checked_mul(1 << power)?,
    }
    if value != 0 && scale >= 0 {
        value = value.checked_mul(10_i128.checked_pow(scale.unsigned_abs())?)?;
    } else if value != 0 {
        value = match 10_i128.checked_pow(scale.unsigned_abs()) {
            Some(unit) => value / unit + i128::from(value % unit != 0 || !dropped.is_empty()),
            None => 1,
        };
    } else if !dropped.is_empty() {
        value = 1;
    }
    Some(if parts.negative { -value } else { value })
}

/// The canonical text of an amount in billionths; with binary suffixes, where it is a whole number that has one.
pub fn text(nanos: i128, binary: bool) -> String {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const UNIT: i128 = 1_000_000_000;
    if nanos == 0 {
        return "0".to_owned();
    }
    let (mut value, base, suffixes) = if binary && nanos % UNIT == 0 && nanos.abs() >= 1024 * UNIT {
        (nanos / UNIT, 1024, &BINARY[..])
    } else {
        (nanos, 1000, &DECIMAL[..])
    };
    let mut index = 0;
    while value % base == 0 && index + 1 < suffixes.len() {
        value /= base;
        index += 1;
    }
    format!("{value}{}", suffixes[index])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_written_with_the_largest_suffix_that_is_exact() {
        for (amount, binary, expected) in [
            ("0.5", false, "500m"),
            ("1500m", false, "1500m"),
            ("2000", false, "2k"),
            ("0", true, "0"),
            ("1024Mi", true, "1Gi"),
            ("1000", true, "1k"),
            ("1500", true, "1500"),
            ("1024Mi", false, "1073741824"),
            ("100m", true, "100m"),
            ("-3Ki", true, "-3Ki"),
        ] {
            assert_eq!(text(nanos(amount).unwrap(), binary), expected, "{amount}");
        }
    }

    #[test]
    fn equal_amounts_are_equal() {
        for (left, right) in [
            ("1", "1000m"),
            ("1Ki", "1024"),
            ("1.5", "1500m"),
            ("2e3", "2k"),
            ("0.5Gi", "512Mi"),
            (".5", "500m"),
            ("1.", "1"),
            ("+1", "1"),
            ("1E", "1000P"),
            ("1Ei", "1024Pi"),
            ("1u", "1000n"),
            ("1000000n", "1m"),
            ("1e-3", "1m"),
            ("-1k", "-1000"),
            ("0e99", "0"),
        ] {
            assert_eq!(nanos(left), nanos(right), "{left} {right}");
            assert!(nanos(left).is_some(), "{left}");
        }
    }

    #[test]
    fn what_is_finer_than_a_billionth_is_rounded_away_from_zero() {
        let tiny = format!("0.{}1", "0".repeat(60));
        for (text, expected) in
            [("0.1n", 1), ("-0.1n", -1), ("1e-20", 1), ("1.0000000001", 1_000_000_001), (&tiny, 1)]
        {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_quantities_are_refused_with_the_reason() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("x", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("1 ", QuantityError::Format),
            ("é", QuantityError::Format),
            ("1ki", QuantityError::Suffix),
            ("1KiB", QuantityError::Format),
            ("1e", QuantityError::Suffix),
            ("e3", QuantityError::Numeric),
            ("k", QuantityError::Numeric),
            ("-", QuantityError::Numeric),
        ] {
            assert_eq!(split(text), Err(error), "{text}");
        }
        assert_eq!((nanos("1e99"), nanos(&"9".repeat(60))), (None, None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+0-9.eEinumkKMGTP]{0,60}|\\PC{0,20}") {
            let _ = nanos(&text);
        }

        #[test]
        fn thousandths_are_exact(milli in 0_i64..i64::MAX) {
            prop_assert_eq!(nanos(&format!("{milli}m")), Some(i128::from(milli) * 1_000_000));
        }
    }
}
