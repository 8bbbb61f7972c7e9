//! Amounts of resources (`100m`, `2Gi`, `1e3`), as far as they must be compared.

/// The amount in billionths, `None` when the text is no quantity or does not fit.
pub fn parse(text: &str) -> Option<i128> {
    const NANO: i128 = 1_000_000_000;
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut value: i128 = 0;
    for digit in whole.bytes() {
        value = value.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    value = value.checked_mul(NANO)?;
    let mut place = NANO;
    for digit in fraction.bytes() {
        place /= 10;
        value = value.checked_add(i128::from(digit - b'0') * place)?;
    }
    let value = match suffix {
        "" => value,
        "n" => value / 1_000_000_000,
        "u" => value / 1_000_000,
        "m" => value / 1_000,
        "k" => value.checked_mul(1_000)?,
        "M" => value.checked_mul(1_000_000)?,
        "G" => value.checked_mul(1_000_000_000)?,
        "T" => value.checked_mul(1_000_000_000_000)?,
        "P" => value.checked_mul(1_000_000_000_000_000)?,
        "E" => value.checked_mul(1_000_000_000_000_000_000)?,
        "Ki" => value.checked_mul(1 << 10)?,
        "Mi" => value.checked_mul(1 << 20)?,
        "Gi" => value.checked_mul(1 << 30)?,
        "Ti" => value.checked_mul(1 << 40)?,
        "Pi" => value.checked_mul(1 << 50)?,
        "Ei" => value.checked_mul(1 << 60)?,
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { value / power } else { value.checked_mul(power)? }
        }
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse;

    #[test]
    fn equal_amounts_are_equal() {
        for (left, right) in [
            ("1", "1000m"),
            ("1Ki", "1024"),
            ("1.5", "1500m"),
            ("2e3", "2k"),
            ("0.5Gi", "512Mi"),
            (".5", "500m"),
        ] {
            assert_eq!(parse(left), parse(right), "{left} {right}");
            assert!(parse(left).is_some());
        }
        for bad in ["", "x", "1x", "1.2.3", "-", "1 ", "e3", "1e99"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+0-9.eEKimn]{0,50}|.{0,10}") {
            parse(&text);
        }
    }
}
