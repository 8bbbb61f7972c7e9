//! Writing DER, as far as certificates need it.
//!
//! Written here because the usual certificate builder keeps one value per attribute of a name, while a
//! client certificate needs one organization per group.

use jiff::{Timestamp, tz::TimeZone};

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Tag, length, content.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.extend(u8::try_from(length));
    } else {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let significant = &bytes[zeros..];
        out.extend(u8::try_from(0x80 | significant.len()));
        out.extend_from_slice(significant);
    }
    out.extend_from_slice(content);
    out
}

pub(crate) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    tlv(SEQUENCE, &parts.concat())
}

/// `[number]` around the content; constructed.
pub(crate) fn explicit(number: u8, content: &[u8]) -> Vec<u8> {
    tlv(0xa0 | number, content)
}

/// `[number]` in place of the type's own tag; primitive.
pub(crate) fn implicit(number: u8, content: &[u8]) -> Vec<u8> {
    tlv(0x80 | number, content)
}

pub(crate) fn boolean(value: bool) -> Vec<u8> {
    tlv(BOOLEAN, &[if value { 0xff } else { 0 }])
}

/// A number without sign, most significant byte first.
pub(crate) fn integer(magnitude: &[u8]) -> Vec<u8> {
    let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
    let mut content = magnitude[zeros..].to_vec();
    if content.first().is_none_or(|first| first & 0x80 != 0) {
        content.insert(0, 0);
    }
    tlv(INTEGER, &content)
}

pub(crate) fn bit_string(unused: u8, bits: &[u8]) -> Vec<u8> {
    tlv(BIT_STRING, &[&[unused], bits].concat())
}

pub(crate) fn octet_string(content: &[u8]) -> Vec<u8> {
    tlv(OCTET_STRING, content)
}

pub(crate) fn utf8_string(text: &str) -> Vec<u8> {
    tlv(UTF8_STRING, text.as_bytes())
}

pub(crate) fn oid(arcs: &[u32]) -> Vec<u8> {
    let mut content = Vec::with_capacity(arcs.len() + 4);
    let (first, rest) = match arcs {
        [a, b, rest @ ..] => (a * 40 + b, rest),
        _ => (0, &[][..]),
    };
    for arc in std::iter::once(&first).chain(rest) {
        let groups = (0..5).rev().map(|group| (arc >> (7 * group)) & 0x7f);
        let mut groups: Vec<u8> =
            groups.skip_while(|group| *group == 0).filter_map(|g| u8::try_from(g).ok()).collect();
        if groups.is_empty() {
            groups.push(0);
        }
        let last = groups.len() - 1;
        groups[..last].iter_mut().for_each(|group| *group |= 0x80);
        content.extend(groups);
    }
    tlv(OBJECT_IDENTIFIER, &content)
}

/// Two-digit years until 2049, four digits from then on, as X.509 prescribes.
pub(crate) fn time(time: Timestamp) -> Vec<u8> {
    let zoned = time.to_zoned(TimeZone::UTC);
    if (1950..2050).contains(&zoned.year()) {
        tlv(UTC_TIME, zoned.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        tlv(GENERALIZED_TIME, zoned.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_standard_says() {
        assert_eq!(tlv(4, &[1, 2]), [4, 2, 1, 2]);
        assert_eq!(tlv(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(tlv(4, &[0; 1000])[..4], [4, 0x82, 3, 232]);
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[]), [2, 1, 0]);
        assert_eq!(oid(&[1, 2, 840, 10045, 4, 3, 2]), [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
        assert_eq!(oid(&[2, 5, 29, 0]), [6, 3, 0x55, 0x1d, 0]);
        assert_eq!(time("2049-12-31T23:59:59Z".parse().unwrap()), b"\x17\x0d491231235959Z");
        assert_eq!(time("2050-01-01T00:00:00Z".parse().unwrap()), b"\x18\x0f20500101000000Z");
    }
}
