//! The part of Go's gob encoding that the plugin protocol uses, without I/O.
//!
//! [`Decoder`] takes bytes as they arrive and gives whole values; [`Encoder`](encode::Encoder) writes the
//! protocol's own types. Both keep the state of one direction of one connection: type definitions are sent
//! once and numbered by the sender.
//!
//! The peer is a foreign binary, so everything it can make large is bounded by [`Limits`].

pub mod decode;
pub mod encode;

#[cfg(test)]
mod vectors;

use std::{fmt, sync::Arc};

pub use decode::Decoder;
pub use encode::Encoder;

/// Why a stream cannot be understood. After any of these the connection is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("message of {length} bytes is longer than {limit}")]
    TooLong { length: u64, limit: usize },
    #[error("value has more than {limit} parts")]
    TooMany { limit: usize },
    #[error("value is nested deeper than {limit}")]
    TooDeep { limit: usize },
    #[error("value is split into too many pieces")]
    TooSplit,
    #[error("more than {limit} type definitions")]
    TooManyTypes { limit: usize },
    #[error("message ends inside a value")]
    Truncated,
    #[error("{0} bytes are left over after a value")]
    LeftOver(usize),
    #[error("malformed number")]
    Number,
    #[error("type {0} is not defined")]
    UnknownType(i64),
    #[error("type {0} is defined twice or reserved")]
    Redefined(i64),
    #[error("type definition of an unsupported shape")]
    UnsupportedType,
    #[error("field number {0} does not exist")]
    Field(u64),
    #[error("expected {expected}, got {got}")]
    Unexpected { expected: &'static str, got: &'static str },
}

/// Bounds on what one value may cost the receiver.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one message, and of all messages one value is split into.
    pub bytes: usize,
    /// Parts (fields, elements) of one value.
    pub parts: usize,
    pub depth: usize,
    /// Type definitions of a connection.
    pub types: usize,
    /// Bytes looked at again because a value was not complete yet.
    pub rework: usize,
}

impl Default for Limits {
    /// Room for records and flag lists many times larger than any driver has.
    fn default() -> Self {
        Self { bytes: 4 << 20, parts: 100_000, depth: 16, types: 256, rework: 32 << 20 }
    }
}

/// A decoded value.
#[derive(Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Bytes(Vec<u8>),
    String(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Struct(Vec<(Arc<str>, Value)>),
    /// A concrete type's registered name and its value.
    Interface(Option<Box<(String, Value)>>),
}

impl Value {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Float(_) => "float",
            Self::Bytes(_) => "[]byte",
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Struct(_) => "struct",
            Self::Interface(_) => "interface",
        }
    }

    pub fn unexpected(&self, expected: &'static str) -> Error {
        Error::Unexpected { expected, got: self.kind() }
    }

    /// Takes a field out of a struct; fields at their zero value are not sent.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        let Self::Struct(fields) = self else { return None };
        let at = fields.iter().position(|(name, _)| &**name == field)?;
        Some(fields.swap_remove(at).1)
    }

    pub fn into_string(self) -> Result<String, Error> {
        match self {
            Self::String(text) => Ok(text),
            other => Err(other.unexpected("string")),
        }
    }

    pub fn into_int(self) -> Result<i64, Error> {
        match self {
            Self::Int(number) => Ok(number),
            other => Err(other.unexpected("int")),
        }
    }

    pub fn into_uint(self) -> Result<u64, Error> {
        match self {
            Self::Uint(number) => Ok(number),
            other => Err(other.unexpected("uint")),
        }
    }

    pub fn into_bytes(self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.unexpected("[]byte")),
        }
    }

    pub fn into_list(self) -> Result<Vec<Value>, Error> {
        match self {
            Self::List(items) => Ok(items),
            other => Err(other.unexpected("list")),
        }
    }
}

/// Values carry records and flags, so only their kind is shown.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

pub(crate) const BOOL: i64 = 1;
pub(crate) const INT: i64 = 2;
pub(crate) const UINT: i64 = 3;
pub(crate) const FLOAT: i64 = 4;
pub(crate) const BYTES: i64 = 5;
pub(crate) const STRING: i64 = 6;
pub(crate) const INTERFACE: i64 = 8;
/// The first number a sender may give to a type of its own.
pub(crate) const FIRST_USER_TYPE: i64 = 64;
