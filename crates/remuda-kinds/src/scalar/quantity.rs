//! Resource quantities (`500m`, `1Gi`, `1e3`) and their canonical text.
//!
//! Values are decimal digit strings, so no input loses precision or overflows: the canonical form has an
//! integer mantissa and the largest suffix that keeps it one. Fractions below a nano round away from zero.

pub use remuda_base::quantity::QuantityError;
use remuda_base::quantity::{Parts, Suffix, split};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// The canonical text of a quantity.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let text = text.trim();
    let parts = split(text)?;
    let (format, exponent) = match parts.suffix {
        Suffix::Decimal(power) => (Format::Decimal, i64::from(power)),
        Suffix::Exponent(power) => (Format::Exponent, i64::from(power)),
        Suffix::Binary(power) => (Format::Binary, i64::from(power)),
    };
    if is_kept(&parts, format, exponent) {
        return Ok(text.to_owned());
    }
    let mut number = Decimal::new(parts.integer, parts.fraction);
    let mut format = format;
    match format {
        Format::Binary => (0..exponent).for_each(|_| number.double()),
        Format::Decimal | Format::Exponent => number.exponent += exponent,
    }
    number.round_up_to_nano();
    if number.is_zero() {
        return Ok("0".to_owned());
    }
    let sign = if parts.negative { "-" } else { "" };
    if format == Format::Binary {
        match number.to_capped_integer() {
            Some(value) if value >= 1024 => return Ok(format!("{sign}{}", binary_text(value))),
            _ => format = Format::Decimal,
        }
    }
    let (mantissa, exponent) = number.into_thousands();
    Ok(format!("{sign}{mantissa}{}", decimal_suffix(exponent, format)))
}

/// Texts the original takes as canonical already and therefore returns unchanged, although a few are not
/// (`1.500`). Changing them would show as a difference to whoever applied them.
fn is_kept(parts: &Parts<'_>, format: Format, exponent: i64) -> bool {
    let integer = parts.integer.trim_start_matches('0');
    let integer = if integer.is_empty() { "0" } else { integer };
    let length = integer.len() + parts.fraction.len();
    if format == Format::Binary {
        let bits = i64::try_from(length).unwrap_or(i64::MAX).saturating_add(exponent * 3 / 10);
        let odd = integer.parse::<u64>().is_ok_and(|value| value & 7 != 0);
        return parts.fraction.is_empty() && bits <= 14 && odd;
    }
    let scale = exponent - i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    let digits_end_in_zeros = {
        let zeros = |text: &str| text.bytes().rev().take_while(|byte| *byte == b'0').count();
        let fraction = zeros(parts.fraction);
        let all = if fraction == parts.fraction.len() { fraction + zeros(integer) } else { fraction };
        all >= 3
    };
    length <= 18 && scale >= -9 && scale % 3 == 0 && !digits_end_in_zeros && !integer.starts_with('0')
}

/// An unsigned decimal: digits without leading zeros, times ten to the exponent.
struct Decimal {
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    fn new(integer: &str, fraction: &str) -> Self {
        let digits: Vec<u8> = integer
            .bytes()
            .chain(fraction.bytes())
            .map(|byte| byte - b'0')
            .skip_while(|digit| *digit == 0)
            .collect();
        Self { digits, exponent: -i64::try_from(fraction.len()).unwrap_or(i64::MAX) }
    }

    fn is_zero(&self) -> bool {
        self.digits.iter().all(|digit| *digit == 0)
    }

    fn double(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().rev() {
            let value = *digit * 2 + carry;
            *digit = value % 10;
            carry = value / 10;
        }
        if carry > 0 {
            self.digits.insert(0, carry);
        }
    }

    fn add_one(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    fn round_up_to_nano(&mut self) {
        if self.is_zero() || self.exponent >= -9 {
            return;
        }
        let cut = usize::try_from(-9 - self.exponent).unwrap_or(usize::MAX).min(self.digits.len());
        let dropped = self.digits.split_off(self.digits.len() - cut);
        self.exponent = -9;
        if dropped.iter().any(|digit| *digit != 0) {
            self.add_one();
        }
    }

    fn strip_zeros(&mut self) {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
    }

    /// The value if it is a whole number, at most `i64::MAX`.
    fn to_capped_integer(&self) -> Option<i64> {
        let fraction = usize::try_from(-self.exponent).unwrap_or(0).min(self.digits.len());
        let (whole, rest) = self.digits.split_at(self.digits.len() - fraction);
        if rest.iter().any(|digit| *digit != 0) {
            return None;
        }
        let value = whole
            .iter()
            .try_fold(0i64, |sum, digit| sum.checked_mul(10)?.checked_add(i64::from(*digit)))
            .unwrap_or(i64::MAX);
        Some(value)
    }

    /// Digits and an exponent that is a multiple of three.
    fn into_thousands(mut self) -> (String, i64) {
        self.strip_zeros();
        while self.exponent.rem_euclid(3) != 0 {
            self.digits.push(0);
            self.exponent -= 1;
        }
        (self.digits.iter().map(|digit| char::from(b'0' + digit)).collect(), self.exponent)
    }
}

fn binary_text(mut value: i64) -> String {
    let mut steps = 0;
    while value % 1024 == 0 && steps < 6 {
        value /= 1024;
        steps += 1;
    }
    format!("{value}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][steps])
}

fn decimal_suffix(exponent: i64, format: Format) -> String {
    if exponent == 0 {
        return String::new();
    }
    let known = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    };
    if format == Format::Exponent || known.is_empty() { format!("e{exponent}") } else { known.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_become_canonical() {
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("100000", "100k"),
            ("0", "0"),
            ("0.0", "0"),
            ("-1000m", "-1"),
            ("1024Mi", "1Gi"),
            ("512Mi", "512Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1025", "1025"),
            ("1.3Ki", "1331200m"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1000e3", "1e6"),
            ("0.0000000001", "1n"),
            ("1.0000000001", "1000000001n"),
            ("100Ei", "9223372036854775807"),
            ("1.500", "1.500"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("1.G", "1.G"),
            (".5", "500m"),
            ("+2", "+2"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn canonical_texts_are_those_of_go() {
        // Without the few above exa, where Go drops the suffix and with it the value.
        for line in include_str!("../../testdata/quantities.txt").lines() {
            let (text, expected) = line.split_once(' ').unwrap();
            match expected {
                "!" => assert!(canonical(text).is_err(), "{text}"),
                _ => assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}"),
            }
        }
    }

    #[test]
    fn texts_that_are_no_quantities_are_refused() {
        assert_eq!(canonical(""), Err(QuantityError::Format));
        assert_eq!(canonical("1 Gi"), Err(QuantityError::Format));
        assert_eq!(canonical("1Zi"), Err(QuantityError::Format));
        assert_eq!(canonical("1kk"), Err(QuantityError::Suffix));
        assert_eq!(canonical("1e"), Err(QuantityError::Suffix));
        assert_eq!(canonical("."), Err(QuantityError::Numeric));
        assert!(canonical(&"9".repeat(2000)).is_err());
        assert!(canonical("1e99999999999").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn canonical_text_is_stable(text in "[+-]?[0-9]{1,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?") {
            let once = canonical(&text).unwrap();
            prop_assert_eq!(canonical(&once).unwrap(), once);
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = canonical(&text);
        }
    }
}
