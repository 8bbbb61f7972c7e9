//! Bytes to values.
//!
//! A value may be spread over several messages, because Go writes the definition of a type at the moment it
//! first meets it inside an interface. Whether a value is complete is only known by reading it, so an
//! attempt that runs out of messages is undone and repeated when the next one is there; `Limits::rework`
//! bounds what that can cost.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::{Buf, Bytes, BytesMut};

use super::{BOOL, BYTES, Error, FIRST_USER_TYPE, FLOAT, INT, INTERFACE, Limits, STRING, UINT, Value};

#[derive(Debug)]
enum Type {
    List { element: i64 },
    Map { key: i64, element: i64 },
    Struct { fields: Arc<[(Arc<str>, i64)]> },
}

/// The receiving end of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    partial: BytesMut,
    messages: VecDeque<Bytes>,
    types: HashMap<i64, Type>,
    rework: usize,
    failed: Option<Error>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Decoder {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            partial: BytesMut::new(),
            messages: VecDeque::new(),
            types: HashMap::new(),
            rework: 0,
            failed: None,
        }
    }

    /// Takes bytes from the connection.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// The next complete value, if all of it has arrived. An error is final.
    pub fn next_value(&mut self) -> Result<Option<Value>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let outcome = self.try_next();
        if let Err(error) = &outcome {
            self.failed = Some(error.clone());
            self.partial.clear();
            self.messages.clear();
        }
        outcome
    }

    /// Whether the stream stands between two values, as it should when it ends.
    pub fn is_idle(&self) -> bool {
        self.partial.is_empty() && self.messages.is_empty()
    }

    fn try_next(&mut self) -> Result<Option<Value>, Error> {
        self.split()?;
        if self.messages.is_empty() {
            return Ok(None);
        }
        let mut attempt = Attempt {
            limits: self.limits,
            messages: &self.messages,
            taken: 0,
            current: &[],
            types: &mut self.types,
            defined: Vec::new(),
            parts: 0,
        };
        let outcome = attempt.top();
        let (taken, defined) = (attempt.taken, std::mem::take(&mut attempt.defined));
        match outcome {
            Ok(value) => {
                self.messages.drain(..taken);
                self.rework = 0;
                Ok(Some(value))
            }
            Err(Stop::Starved) => {
                for id in defined {
                    self.types.remove(&id);
                }
                let pending: usize = self.messages.iter().map(Bytes::len).sum();
                if pending > self.limits.bytes {
                    return Err(Error::TooLong { length: pending as u64, limit: self.limits.bytes });
                }
                self.rework += pending;
                if self.rework > self.limits.rework {
                    return Err(Error::TooSplit);
                }
                Ok(None)
            }
            Err(Stop::Bad(error)) => Err(error),
        }
    }

    /// Cuts what has arrived into messages.
    fn split(&mut self) -> Result<(), Error> {
        loop {
            let mut rest = &self.partial[..];
            let length = match uint(&mut rest) {
                Ok(length) => length,
                Err(Error::Truncated) => return Ok(()),
                Err(error) => return Err(error),
            };
            let header = self.partial.len() - rest.len();
            let limit = self.limits.bytes;
            let size = usize::try_from(length).unwrap_or(usize::MAX);
            if size > limit {
                return Err(Error::TooLong { length, limit });
            }
            if size == 0 {
                return Err(Error::Truncated);
            }
            if rest.len() < size {
                return Ok(());
            }
            self.partial.advance(header);
            let message = self.partial.split_to(size).freeze();
            self.messages.push_back(message);
        }
    }
}

enum Stop {
    /// The value goes on in a message that has not arrived.
    Starved,
    Bad(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}

struct Attempt<'a> {
    limits: Limits,
    messages: &'a VecDeque<Bytes>,
    taken: usize,
    current: &'a [u8],
    types: &'a mut HashMap<i64, Type>,
    defined: Vec<i64>,
    parts: usize,
}

impl Attempt<'_> {
    fn top(&mut self) -> Result<Value, Stop> {
        let id = self.type_sequence(false)?;
        let value = self.standalone(id, 0)?;
        if !self.current.is_empty() {
            return Err(Error::LeftOver(self.current.len()).into());
        }
        Ok(value)
    }

    /// Definitions, as many as there are, then the number of the type that follows.
    fn type_sequence(&mut self, inside_interface: bool) -> Result<i64, Stop> {
        loop {
            if self.current.is_empty() {
                let message = self.messages.get(self.taken).ok_or(Stop::Starved)?;
                self.current = message;
                self.taken += 1;
            }
            let id = int(&mut self.current)?;
            if id >= 0 {
                return Ok(id);
            }
            let id = id.checked_neg().ok_or(Error::Number)?;
            self.define(id)?;
            if !self.current.is_empty() {
                if !inside_interface {
                    return Err(Error::LeftOver(self.current.len()).into());
                }
                uint(&mut self.current)?;
            }
        }
    }

    fn define(&mut self, id: i64) -> Result<(), Error> {
        if id < FIRST_USER_TYPE || self.types.contains_key(&id) {
            return Err(Error::Redefined(id));
        }
        if self.types.len() >= self.limits.types {
            return Err(Error::TooManyTypes { limit: self.limits.types });
        }
        let definition = wire_type(&mut self.current, self.limits.parts)?;
        self.types.insert(id, definition);
        self.defined.push(id);
        Ok(())
    }

    /// A value at the top or in an interface: anything but a struct has a zero byte in front.
    fn standalone(&mut self, id: i64, depth: usize) -> Result<Value, Stop> {
        if !matches!(self.types.get(&id), Some(Type::Struct { .. })) && uint(&mut self.current)? != 0 {
            return Err(Error::Number.into());
        }
        self.value(id, depth)
    }

    fn value(&mut self, id: i64, depth: usize) -> Result<Value, Stop> {
        if depth >= self.limits.depth {
            return Err(Error::TooDeep { limit: self.limits.depth }.into());
        }
        self.parts += 1;
        if self.parts > self.limits.parts {
            return Err(Error::TooMany { limit: self.limits.parts }.into());
        }
        Ok(match id {
            BOOL => Value::Bool(uint(&mut self.current)? != 0),
            INT => Value::Int(int(&mut self.current)?),
            UINT => Value::Uint(uint(&mut self.current)?),
            // Floats travel with their bytes reversed, so that round numbers are short.
            FLOAT => Value::Float(f64::from_bits(uint(&mut self.current)?.swap_bytes())),
            BYTES => Value::Bytes(chunk(&mut self.current)?.to_vec()),
            STRING => Value::String(text(&mut self.current)?),
            INTERFACE => self.interface(depth)?,
            _ => match self.types.get(&id).ok_or(Error::UnknownType(id))? {
                Type::List { element } => {
                    let element = *element;
                    let count = uint(&mut self.current)?;
                    let mut items = Vec::new();
                    for _ in 0..count {
                        items.push(self.value(element, depth + 1)?);
                    }
                    Value::List(items)
                }
                Type::Map { key, element } => {
                    let (key, element) = (*key, *element);
                    let count = uint(&mut self.current)?;
                    let mut pairs = Vec::new();
                    for _ in 0..count {
                        let name = self.value(key, depth + 1)?;
                        pairs.push((name, self.value(element, depth + 1)?));
                    }
                    Value::Map(pairs)
                }
                Type::Struct { fields } => {
                    let fields = fields.clone();
                    self.structure(&fields, depth)?
                }
            },
        })
    }

    fn structure(&mut self, fields: &[(Arc<str>, i64)], depth: usize) -> Result<Value, Stop> {
        let mut values = Vec::new();
        let mut next = 0u64;
        loop {
            let delta = uint(&mut self.current)?;
            if delta == 0 {
                return Ok(Value::Struct(values));
            }
            let number = next.checked_add(delta - 1).ok_or(Error::Number)?;
            let at = usize::try_from(number).ok().and_then(|at| fields.get(at));
            let (name, id) = at.ok_or(Error::Field(number))?;
            values.push((name.clone(), self.value(*id, depth + 1)?));
            next = number + 1;
        }
    }

    fn interface(&mut self, depth: usize) -> Result<Value, Stop> {
        let name = text(&mut self.current)?;
        if name.is_empty() {
            return Ok(Value::Interface(None));
        }
        if name.len() > 1024 {
            return Err(Error::TooLong { length: name.len() as u64, limit: 1024 }.into());
        }
        let id = self.type_sequence(true)?;
        // A byte count; when a definition came in between it covers only a part, so it is no help.
        uint(&mut self.current)?;
        let value = self.standalone(id, depth + 1)?;
        Ok(Value::Interface(Some(Box::new((name, value)))))
    }
}

fn byte(input: &mut &[u8]) -> Result<u8, Error> {
    let (first, rest) = input.split_first().ok_or(Error::Truncated)?;
    *input = rest;
    Ok(*first)
}

fn uint(input: &mut &[u8]) -> Result<u64, Error> {
    let first = byte(input)?;
    if first < 128 {
        return Ok(u64::from(first));
    }
    let width = 256 - usize::from(first);
    if width > 8 {
        return Err(Error::Number);
    }
    if input.len() < width {
        return Err(Error::Truncated);
    }
    let (digits, rest) = input.split_at(width);
    *input = rest;
    Ok(digits.iter().fold(0, |number, digit| number << 8 | u64::from(*digit)))
}

fn int(input: &mut &[u8]) -> Result<i64, Error> {
    let raw = uint(input)?;
    let half = (raw >> 1) as i64;
    Ok(if raw & 1 == 1 { !half } else { half })
}

fn chunk<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let length = usize::try_from(uint(input)?).map_err(|_| Error::Number)?;
    if input.len() < length {
        return Err(Error::Truncated);
    }
    let (head, rest) = input.split_at(length);
    *input = rest;
    Ok(head)
}

/// Go strings may hold any bytes; ours are repaired rather than refused.
fn text(input: &mut &[u8]) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(chunk(input)?).into_owned())
}

/// The numbers of the fields a struct on the wire has, in order.
fn fields(
    input: &mut &[u8],
    mut each: impl FnMut(&mut &[u8], u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut next = 0u64;
    loop {
        let delta = uint(input)?;
        if delta == 0 {
            return Ok(());
        }
        let number = next.checked_add(delta - 1).ok_or(Error::Number)?;
        each(input, number)?;
        next = number.checked_add(1).ok_or(Error::Number)?;
    }
}

/// A type's name and number; both are informative only.
fn common(input: &mut &[u8]) -> Result<(), Error> {
    fields(input, |input, number| match number {
        0 => chunk(input).map(drop),
        1 => int(input).map(drop),
        other => Err(Error::Field(other)),
    })
}

fn wire_type(input: &mut &[u8], limit: usize) -> Result<Type, Error> {
    let mut found = None;
    fields(input, |input, number| {
        if found.is_some() {
            return Err(Error::UnsupportedType);
        }
        found = Some(match number {
            1 => {
                let mut element = 0;
                fields(input, |input, number| match number {
                    0 => common(input),
                    1 => int(input).map(|id| element = id),
                    other => Err(Error::Field(other)),
                })?;
                Type::List { element }
            }
            2 => {
                let mut members = Vec::new();
                fields(input, |input, number| match number {
                    0 => common(input),
                    1 => members_of(input, &mut members, limit),
                    other => Err(Error::Field(other)),
                })?;
                Type::Struct { fields: members.into() }
            }
            3 => {
                let (mut key, mut element) = (0, 0);
                fields(input, |input, number| match number {
                    0 => common(input),
                    1 => int(input).map(|id| key = id),
                    2 => int(input).map(|id| element = id),
                    other => Err(Error::Field(other)),
                })?;
                Type::Map { key, element }
            }
            // Arrays and types that marshal themselves do not occur in this protocol.
            _ => return Err(Error::UnsupportedType),
        });
        Ok(())
    })?;
    found.ok_or(Error::UnsupportedType)
}

fn members_of(input: &mut &[u8], members: &mut Vec<(Arc<str>, i64)>, limit: usize) -> Result<(), Error> {
    let count = uint(input)?;
    for _ in 0..count {
        if members.len() >= limit {
            return Err(Error::TooMany { limit });
        }
        let (mut name, mut id) = (String::new(), 0);
        fields(input, |input, number| match number {
            0 => text(input).map(|value| name = value),
            1 => int(input).map(|value| id = value),
            other => Err(Error::Field(other)),
        })?;
        members.push((name.into(), id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(bytes: &[u8]) -> Result<Option<Value>, Error> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        decoder.next_value()
    }

    #[test]
    fn huge_lengths_are_refused_before_anything_is_read() {
        assert!(matches!(decode(&[0xf8, 0x7f, 0, 0, 0, 0, 0, 0, 0]), Err(Error::TooLong { .. })));
        assert_eq!(decode(&[0xf0]), Err(Error::Number));
        // A string that claims to be longer than its message.
        assert_eq!(decode(&[0x04, 0x0c, 0x00, 0x7f, 0x41]), Err(Error::Truncated));
        assert_eq!(decode(&[0x00]), Err(Error::Truncated));
    }

    #[test]
    fn a_list_of_empty_structs_cannot_blow_up() {
        // Type 65: struct{}, type 66: []struct{}; then a list that claims 2^40 elements.
        let mut bytes = vec![0x0a, 0xff, 0x81, 0x03, 0x01, 0x02, 0xff, 0x82, 0, 0, 0];
        bytes.extend([0x0e, 0xff, 0x83, 0x02, 0x01, 0x02, 0xff, 0x84, 0, 0x01, 0xff, 0x82, 0, 0, 0]);
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        assert!(decoder.next_value().is_err(), "left over bytes in the definition");

        let mut bytes = vec![0x0a, 0xff, 0x81, 0x03, 0x01, 0x02, 0xff, 0x82, 0, 0, 0];
        bytes.extend([0x0d, 0xff, 0x83, 0x02, 0x01, 0x02, 0xff, 0x84, 0, 0x01, 0xff, 0x82, 0, 0]);
        let body = 1 << 20;
        let head = [0xff, 0x84, 0x00, 0xf9, 0x01, 0, 0, 0, 0, 0, 0];
        bytes.extend([0xfd]);
        bytes.extend(&u32::try_from(body + head.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend(head);
        bytes.resize(bytes.len() + body, 0);
        assert_eq!(decode(&bytes), Err(Error::TooMany { limit: 100_000 }));
    }

    #[test]
    fn a_type_that_holds_itself_ends_at_the_depth_limit() {
        // Type 65: []65, value: one list in another.
        let mut bytes = vec![0x0d, 0xff, 0x81, 0x02, 0x01, 0x02, 0xff, 0x82, 0, 0x01, 0xff, 0x82, 0, 0];
        bytes.extend([0x23, 0xff, 0x82, 0x00]);
        bytes.resize(bytes.len() + 32, 1);
        assert_eq!(decode(&bytes), Err(Error::TooDeep { limit: 16 }));
    }

    #[test]
    fn types_are_defined_once_and_only_above_the_reserved_numbers() {
        let empty = [0x0a, 0xff, 0x81, 0x03, 0x01, 0x02, 0xff, 0x82, 0, 0, 0];
        let mut decoder = Decoder::default();
        decoder.feed(&empty);
        assert_eq!(decoder.next_value(), Ok(None));
        decoder.feed(&empty);
        assert_eq!(decoder.next_value(), Err(Error::Redefined(65)));
        assert_eq!(decoder.next_value(), Err(Error::Redefined(65)), "an error stays");
        assert_eq!(decode(&[0x07, 0x0b, 0x03, 0x01, 0x02, 0x0c, 0, 0]), Err(Error::Redefined(6)));
    }

    #[test]
    fn endless_definitions_stop() {
        let mut decoder = Decoder::default();
        let outcome = (64..1000i64).try_for_each(|id| {
            let raw = (((-id) as u64) << 1 ^ u64::MAX) as u16;
            let mut body = vec![0xfe];
            body.extend(raw.to_be_bytes());
            body.extend([0x03, 0x01, 0x00, 0x00, 0x00]);
            decoder.feed(&[body.len() as u8]);
            decoder.feed(&body);
            decoder.next_value().map(|_| ())
        });
        assert_eq!(outcome, Err(Error::TooManyTypes { limit: 256 }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        /// Framed as messages with plausible beginnings, noise reaches deeper.
        #[test]
        fn framed_noise_is_survived(
            messages in proptest::collection::vec(
                (prop_oneof![Just(vec![0xff, 0x81u8]), Just(vec![0xff, 0x82]), Just(vec![0x10, 0]), Just(vec![0x0c, 0])],
                 proptest::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..60)),
                1..6)
        ) {
            let mut decoder = Decoder::default();
            for (head, body) in messages {
                decoder.feed(&[(head.len() + body.len()) as u8]);
                decoder.feed(&head);
                decoder.feed(&body);
                while let Ok(Some(_)) = decoder.next_value() {}
            }
        }
    }
}
