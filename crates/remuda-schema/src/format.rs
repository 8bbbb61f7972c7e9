//! String formats, each as lenient or strict as the reference is.

use std::{net::Ipv6Addr, sync::LazyLock};

use regex::Regex;

/// A format that is enforced. Formats outside this list are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
    Int32,
    Int64,
    Float,
    Double,
}

impl Format {
    /// The format named `name` on a node of type `kind` (empty for none), if it means something there.
    pub fn of(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "" | "string" => Self::of_string(&name.replace('-', "")),
            "integer" => match name {
                "int32" => Some(Self::Int32),
                "int64" => Some(Self::Int64),
                _ => None,
            },
            "number" => match name {
                "float" => Some(Self::Float),
                "double" => Some(Self::Double),
                _ => None,
            },
            _ => None,
        }
    }

    fn of_string(normalized: &str) -> Option<Self> {
        Some(match normalized {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "datetime" => Self::DateTime,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    pub fn accepts(self, text: &str) -> bool {
        match self {
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Uri => is_request_uri(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.contains('.') && parse_ip(text).is_some(),
            Self::Ipv6 => text.contains(':') && parse_ip(text).is_some(),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Uuid => is_uuid(text, None),
            Self::Uuid3 => is_uuid(text, Some(b'3')),
            Self::Uuid4 => is_uuid(text, Some(b'4')),
            Self::Uuid5 => is_uuid(text, Some(b'5')),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => text.len() == 11 && SSN.is_match(text),
            Self::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
            }
            Self::RgbColor => RGB.is_match(text),
            Self::Byte => is_base64(text),
            Self::Date => is_date(text),
            Self::Duration => is_duration(text),
            Self::DateTime => is_date_time(text),
            Self::ShortName => text.len() <= 63 && is_label(text),
            Self::LongName => text.len() <= 253 && text.split('.').all(is_label),
            Self::Password | Self::Int32 | Self::Int64 | Self::Float | Self::Double => true,
        }
    }
}

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern that the tests compile")
}

static SSN: LazyLock<Regex> = LazyLock::new(|| fixed(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    fixed(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static CARD: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}",
        "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
});
static DURATION_PART: LazyLock<Regex> = LazyLock::new(|| fixed(r"([0-9]+)\s*([A-Za-zµ]+)"));
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|b| edge(b) || *b == b'-')
}

/// An absolute URI or an absolute path.
pub(crate) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" || text.starts_with('/') {
        return valid_escapes(text);
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut scheme = scheme.bytes();
    let valid_scheme = scheme.next().is_some_and(|b| b.is_ascii_alphabetic())
        && scheme.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if !valid_scheme || !rest.starts_with('/') {
        // A scheme without a slash is an opaque URI, which request URIs are not.
        return false;
    }
    let Some(rest) = rest.strip_prefix("//") else { return valid_escapes(rest) };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    valid_authority(authority) && valid_escapes(rest.split('?').next().unwrap_or_default())
}

fn valid_authority(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = if host.starts_with('[') {
        let Some((_, after)) = host.split_once(']') else { return false };
        after
    } else {
        host.find(':').map_or("", |at| &host[at..])
    };
    let port_ok =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    port_ok && !host.bytes().any(|b| b" <>\"\\^`{|}".contains(&b))
}

fn valid_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().all(|(at, b)| *b != b'%' || (hex(at + 1) && hex(at + 2)))
}

/// `a@b`, also with a display name and angle brackets.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(head) => match head.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
    };
    let quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || local.split('.').all(atom)) && (literal || domain.split('.').all(atom))
}

fn is_hostname(text: &str) -> bool {
    // Letters, digits and symbols of any script; dashes only inside; the last of several labels is
    // made of letters only.
    let plain =
        |c: char| c.is_ascii_alphanumeric() || (!c.is_ascii() && !c.is_whitespace() && !c.is_control());
    if text.is_empty() || text.len() > 255 {
        return false;
    }
    let labels: Vec<&str> = text.split('.').collect();
    let inner = |label: &str| {
        let mut chars = label.chars();
        let first = chars.next().is_some_and(plain);
        let last = label.chars().next_back().is_some_and(plain);
        label.len() <= 63 && first && last && chars.all(|c| plain(c) || c == '-')
    };
    match labels.as_slice() {
        [single] => inner(single),
        [start @ .., top] => {
            let letters = top.chars().all(char::is_alphabetic);
            start.iter().all(|label| inner(label)) && letters && (2..=63).contains(&top.chars().count())
        }
        [] => false,
    }
}

enum Ip {
    V4,
    V6,
}

/// Leading zeros in IPv4 parts are tolerated, as everywhere in the reference.
fn parse_ip(text: &str) -> Option<Ip> {
    if text.contains(':') {
        let sloppy = match text.rsplit_once(':') {
            Some((head, tail)) if tail.contains('.') => format!("{head}:{}", trim_zeros(tail)?),
            _ => text.to_owned(),
        };
        return sloppy.parse::<Ipv6Addr>().ok().map(|_| Ip::V6);
    }
    trim_zeros(text).map(|_| Ip::V4)
}

fn trim_zeros(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() != 4 {
        return None;
    }
    let mut numbers = Vec::with_capacity(4);
    for part in parts {
        if part.is_empty() || part.len() > 20 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        numbers.push(part.parse::<u64>().ok().filter(|n| *n < 256)?.to_string());
    }
    Some(numbers.join("."))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    if bits.is_empty() || bits.len() > 3 || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let bits: u32 = bits.parse().unwrap_or(u32::MAX);
    match parse_ip(address) {
        Some(Ip::V4) => bits <= 32,
        Some(Ip::V6) => bits <= 128,
        None => false,
    }
}

fn is_mac(text: &str) -> bool {
    let hex = |part: &str, width: usize| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit());
    if text.contains('.') {
        let parts: Vec<&str> = text.split('.').collect();
        return matches!(parts.len(), 3 | 4 | 10) && parts.iter().all(|part| hex(part, 4));
    }
    let separator = if text.contains(':') { ':' } else { '-' };
    let parts: Vec<&str> = text.split(separator).collect();
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|part| hex(part, 2))
}

/// Dashes are optional one by one; versions 4 and 5 also fix the variant digit.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bytes = text.as_bytes();
    let mut digits = [0u8; 32];
    let mut count = 0;
    let mut at = 0;
    for length in [8usize, 4, 4, 4, 12] {
        if count > 0 && bytes.get(at) == Some(&b'-') {
            at += 1;
        }
        for _ in 0..length {
            let Some(digit) = bytes.get(at).filter(|b| b.is_ascii_hexdigit()) else { return false };
            digits[count] = digit.to_ascii_lowercase();
            count += 1;
            at += 1;
        }
    }
    let version_ok = version.is_none_or(|version| digits[12] == version);
    let variant_ok = !matches!(version, Some(b'4' | b'5')) || b"89ab".contains(&digits[16]);
    at == bytes.len() && version_ok && variant_ok
}

fn isbn_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    let bytes = digits.as_bytes();
    if bytes.len() != 10 || !bytes[..9].iter().all(u8::is_ascii_digit) {
        return false;
    }
    let last = match bytes[9] {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    let sum: u32 = (1u32..).zip(&bytes[..9]).map(|(factor, digit)| factor * u32::from(digit - b'0')).sum();
    (sum + 10 * last).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    if digits.len() != 13 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return false;
    }
    let sum: u32 =
        digits.bytes().enumerate().map(|(i, b)| u32::from(b - b'0') * if i % 2 == 0 { 1 } else { 3 }).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !CARD.is_match(&digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let digit = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            digit / 10 + digit % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.as_bytes()[4] == b'-'
        && text.as_bytes()[7] == b'-'
        && text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        && text.parse::<jiff::civil::Date>().is_ok()
}

/// A date, `T`, a time with seconds, an optional fraction after any character, and a zone.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_at_checked(10) else { return false };
    let Some(time) = time.strip_prefix(['T', 't']) else { return false };
    let bytes = time.as_bytes();
    let two = |at: usize, limit: u8| match bytes.get(at..at + 2) {
        Some([tens, ones]) => {
            tens.is_ascii_digit() && ones.is_ascii_digit() && (tens - b'0') * 10 + (ones - b'0') <= limit
        }
        _ => false,
    };
    let clock = two(0, 23) && two(3, 59) && two(6, 59) && bytes[2] == b':' && bytes[5] == b':';
    if !clock || !is_date(date) {
        return false;
    }
    let rest = &time[8..];
    let zone_at = rest.find(['z', 'Z', '+', '-']).unwrap_or(rest.len());
    let (fraction, zone) = rest.split_at(zone_at);
    let mut fraction = fraction.chars();
    let fraction_ok =
        fraction.next().is_none() || (!fraction.as_str().is_empty() && fraction.all(|c| c.is_ascii_digit()));
    fraction_ok && is_zone(zone)
}

fn is_zone(zone: &str) -> bool {
    match zone.as_bytes() {
        [b'z' | b'Z'] => true,
        [b'+' | b'-', digits @ ..] => {
            matches!(digits, [a, b, b':', c, d] if [a, b, c, d].iter().all(|digit| digit.is_ascii_digit()))
        }
        _ => false,
    }
}

fn is_duration(text: &str) -> bool {
    remuda_base::duration::nanos(text).is_some()
        || DURATION_PART.captures_iter(text).any(|part| part[1].parse::<i64>().is_ok() && is_unit(&part[2]))
}

fn is_unit(unit: &str) -> bool {
    const NAMES: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const STEMS: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let unit = unit.to_lowercase();
    NAMES.contains(&unit.as_str()) || STEMS.iter().any(|stem| unit.starts_with(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, good: &[&str], bad: &[&str]) {
        let parsed = Format::of("string", format).expect("a known format");
        for text in good {
            assert!(parsed.accepts(text), "{format} should accept {text:?}");
        }
        for text in bad {
            assert!(!parsed.accepts(text), "{format} should refuse {text:?}");
        }
    }

    #[test]
    fn formats_accept_and_refuse_what_the_reference_does() {
        check("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77"]);
        check(
            "uri",
            &["http://a.b/c?d=e", "/path", "https://[::1]:80/"],
            &["", "a/b", "mailto:x", "http://a b/"],
        );
        check("email", &["a@b.c", "A B <a@b.c>"], &["a", "@b", "a@"]);
        check("hostname", &["a", "a-b.example.com", "1.com"], &["", "-a", "a.b1", "a_b"]);
        check("ipv4", &["1.2.3.4", "01.2.3.4"], &["1.2.3", "::1", "256.1.1.1"]);
        check("ipv6", &["::1", "fe80::1", "::ffff:1.2.3.4"], &["1.2.3.4", ":::"]);
        check("cidr", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33"]);
        check("mac", &["01:23:45:67:89:ab", "01-23-45-67-89-ab", "0123.4567.89ab"], &["01:23"]);
        check(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"],
            &["123"],
        );
        check("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]);
        check("isbn10", &["0321751043"], &["0321751044"]);
        check("isbn", &["978-0321751041", "0321751043"], &["978-0321751042"]);
        check("creditcard", &["4111-1111-1111-1111"], &["4111-1111-1111-1112"]);
        check("ssn", &["111-22-3333"], &["111223333"]);
        check("hexcolor", &["#fff", "ABCDEF"], &["#ff", "ggg"]);
        check("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2)", "rgb(256,1,1)"]);
        check("byte", &["YWJj", "YQ=="], &["", "YQ", "Y==="]);
        check("password", &["anything"], &[]);
        check("date", &["2024-02-29"], &["2023-02-29", "2024-2-1"]);
        check(
            "date-time",
            &["2024-02-29T10:00:00Z", "2024-02-29t10:00:00.5+01:00", "2024-02-29T10:00:00,123-01:30"],
            &[
                "2024-02-29",
                "2024-02-29T25:00:00Z",
                "2024-02-29T10:00:00",
                "2024-02-29T10:00:00.Z",
                "2024-02-29T1:00:00Zx",
            ],
        );
        check("datetime", &["2024-02-29T10:00:00Z"], &["x"]);
        check("duration", &["1h30m", "22 ns", "1.5s", "3 days", "0"], &["", "x", "5"]);
        check("k8s-short-name", &["a-b1"], &["A", "a.b", "-a"]);
        check("k8s-long-name", &["a.b-c.d"], &["a..b", "a_b"]);
    }

    #[test]
    fn formats_belong_to_types() {
        assert_eq!(Format::of("integer", "int32"), Some(Format::Int32));
        assert_eq!(Format::of("string", "int32"), None);
        assert_eq!(Format::of("object", "uri"), None);
        assert_eq!(Format::of("", "date-time"), Some(Format::DateTime));
        assert_eq!(Format::of("string", "made-up"), None);
    }

    #[test]
    fn constant_patterns_compile() {
        for pattern in [&SSN, &RGB, &CARD, &DURATION_PART] {
            assert!(!pattern.as_str().is_empty());
        }
    }
}
