//! The protobuf wire format: reading fields of a message, and writing them.

use std::borrow::Cow;

use super::ProtoError;

/// The fields of one message, in the order of the bytes.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

/// A field's content as its wire type gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number =
            u32::try_from(tag >> 3).map_err(|_| ProtoError::Malformed("field number out of range"))?;
        if number == 0 {
            return Err(ProtoError::Malformed("field number zero"));
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtoError::Malformed("unsupported wire type")),
        };
        Ok(Some((number, payload)))
    }

    /// The next value of a packed list, which holds varints without tags.
    pub(crate) fn packed_varint(&mut self) -> Result<Option<u64>, ProtoError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) =
            self.rest.split_at_checked(length).ok_or(ProtoError::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtoError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ProtoError::Malformed("unexpected EOF"))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ProtoError::Malformed("integer overflow"))
    }
}

impl<'a> Payload<'a> {
    pub(crate) fn bytes(self) -> Result<&'a [u8], ProtoError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtoError::Malformed("wrong wire type")),
        }
    }

    /// Text; bytes that are not UTF-8 are replaced, as they would be on the way to JSON.
    pub(crate) fn text(self) -> Result<Cow<'a, str>, ProtoError> {
        self.bytes().map(String::from_utf8_lossy)
    }

    pub(crate) fn varint(self) -> Result<u64, ProtoError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(ProtoError::Malformed("wrong wire type")),
        }
    }
}

/// Appends a varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a varint field.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a 64-bit field.
pub(crate) fn put_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a length-delimited field.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
