//! One-time codes by time: RFC 6238 with SHA-1, six digits and steps of 30 seconds, as authenticators have them.

use aws_lc_rs::hmac;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use subtle::ConstantTimeEq;

const STEP_SECONDS: i64 = 30;
const DIGITS: usize = 6;
const MODULUS: u32 = 1_000_000;
/// Clocks differ by this many steps.
const WINDOW: i64 = 1;
const ISSUER: &str = "Remuda";

/// Whether a text has the form of a code.
pub(super) fn is_code(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn code(secret: &[u8], step: u64) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    // RFC 4226, 5.3: the last four bits say where the number begins.
    let offset = usize::from(tag.last().copied().unwrap_or_default() & 0x0f);
    let number = tag.get(offset..offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let number = u32::from_be_bytes(number.unwrap_or_default()) & 0x7fff_ffff;
    format!("{:0width$}", number % MODULUS, width = DIGITS)
}

/// The step a code is of, if it is one of now and later than the last that was used.
pub(super) fn matching_step(secret: &[u8], given: &str, now: i64, last: u64) -> Option<u64> {
    if !is_code(given) {
        return None;
    }
    let current = now.div_euclid(STEP_SECONDS);
    let steps = (current - WINDOW..=current + WINDOW).filter_map(|step| u64::try_from(step).ok());
    let mut found = None;
    for step in steps.filter(|step| *step > last) {
        if bool::from(code(secret, step).as_bytes().ct_eq(given.as_bytes())) && found.is_none() {
            found = Some(step);
        }
    }
    found
}

/// What authenticators read.
pub(super) fn uri(secret: &[u8], username: &str) -> String {
    let username = utf8_percent_encode(username, NON_ALPHANUMERIC);
    format!(
        "otpauth://totp/{ISSUER}:{username}?secret={}&issuer={ISSUER}&algorithm=SHA1&digits={DIGITS}&period={STEP_SECONDS}",
        base32(secret)
    )
}

/// RFC 4648 without padding.
pub(super) fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = ((buffer << 8) | u32::from(*byte)) & 0xffff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[((buffer >> bits) & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[((buffer << (5 - bits)) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn codes_are_those_of_rfc_6238() {
        // Appendix B, the last six of eight digits.
        for (seconds, expected) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code(SECRET, seconds / 30), expected, "{seconds}");
            assert_eq!(matching_step(SECRET, expected, seconds as i64, 0), Some(seconds / 30));
        }
    }

    #[test]
    fn a_code_is_good_one_step_around_now_and_once() {
        let now = 1_234_567_890;
        let step = now / 30;
        let at = |step: i64| code(SECRET, step as u64);
        for (offset, good) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
            let found = matching_step(SECRET, &at(step + offset), now, 0);
            assert_eq!(found, good.then_some((step + offset) as u64), "{offset}");
        }
        assert_eq!(matching_step(SECRET, &at(step), now, step as u64), None, "it was used");
        assert_eq!(matching_step(SECRET, &at(step - 1), now, step as u64), None, "an earlier one is over");
        assert!(matching_step(SECRET, &at(step + 1), now, step as u64).is_some());
        for odd in ["", "12345", "1234567", "12345a", "\u{661}\u{662}\u{663}"] {
            assert_eq!(matching_step(SECRET, odd, now, 0), None);
        }
        assert_eq!(matching_step(SECRET, "000000", i64::MIN + 60, 0), None);
    }

    #[test]
    fn authenticators_read_the_secret() {
        for (bytes, text) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
        assert_eq!(
            uri(b"foobar", "ann@x"),
            "otpauth://totp/Remuda:ann%40x?secret=MZXW6YTBOI&issuer=Remuda&algorithm=SHA1&digits=6&period=30"
        );
    }
}
