//! Calls on the wire: a header and a body each way, as typed values.

use crate::{
    flags::{Flag, Flags, Kind, Value as FlagValue},
    gob::{Decoder, Error, Limits, Value, encode::Header},
};

/// Which kind of header a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Requests,
    Responses,
}

/// The receiving half of a connection: bytes in, calls out.
#[derive(Debug)]
pub struct Arrival {
    side: Side,
    decoder: Decoder,
    header: Option<Header>,
}

impl Arrival {
    pub fn new(side: Side, limits: Limits) -> Self {
        Self { side, decoder: Decoder::new(limits), header: None }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    /// The next header with its body, when both are complete.
    pub fn next_call(&mut self) -> Result<Option<(Header, Received)>, Error> {
        if self.header.is_none() {
            let Some(value) = self.decoder.next_value()? else { return Ok(None) };
            self.header = Some(header(value, self.side)?);
        }
        let Some(body) = self.decoder.next_value()? else { return Ok(None) };
        Ok(self.header.take().map(|header| (header, Received(body))))
    }
}

fn header(mut value: Value, side: Side) -> Result<Header, Error> {
    if !matches!(value, Value::Struct(_)) {
        return Err(value.unexpected("a header"));
    }
    let mut text = |field| value.take(field).map_or(Ok(String::new()), Value::into_string);
    let method = text("ServiceMethod")?;
    let error = if side == Side::Responses { text("Error")? } else { String::new() };
    let sequence = value.take("Seq").map_or(Ok(0), Value::into_uint)?;
    Ok(Header { method, sequence, error })
}

/// A body whose type only the method knows.
#[derive(Debug, Clone)]
pub struct Received(Value);

impl Received {
    pub fn into_empty(self) -> Result<(), Error> {
        match self.0 {
            Value::Struct(_) => Ok(()),
            other => Err(other.unexpected("an empty struct")),
        }
    }

    pub fn into_int(self) -> Result<i64, Error> {
        self.0.into_int()
    }

    pub fn into_string(self) -> Result<String, Error> {
        self.0.into_string()
    }

    pub fn into_bytes(self) -> Result<Vec<u8>, Error> {
        self.0.into_bytes()
    }

    pub fn into_flag_list(self) -> Result<Vec<Flag>, Error> {
        self.0.into_list()?.into_iter().map(flag).collect()
    }

    pub fn into_flag_values(self) -> Result<Flags, Error> {
        let (name, mut value) = held(self.0)?;
        if name != "*rpcdriver.RPCFlags" {
            return Err(Error::Unexpected { expected: "*rpcdriver.RPCFlags", got: "another type" });
        }
        match value.take("Values") {
            None => Ok(Flags::default()),
            Some(Value::Map(pairs)) => pairs
                .into_iter()
                .map(|(name, value)| Ok((name.into_string()?, flag_value(held(value)?.1)?)))
                .collect(),
            Some(other) => Err(other.unexpected("map")),
        }
    }
}

/// What an interface holds; nil is never meaningful here.
fn held(value: Value) -> Result<(String, Value), Error> {
    match value {
        Value::Interface(Some(held)) => Ok(*held),
        Value::Interface(None) => Err(Error::Unexpected { expected: "a value", got: "nil" }),
        other => Err(other.unexpected("interface")),
    }
}

fn strings(value: Value) -> Result<Vec<String>, Error> {
    value.into_list()?.into_iter().map(Value::into_string).collect()
}

fn flag(value: Value) -> Result<Flag, Error> {
    let (name, mut value) = held(value)?;
    let default = value.take("Value");
    let kind = match name.as_str() {
        "*mcnflag.StringFlag" => Kind::String(default.map_or(Ok(String::new()), Value::into_string)?),
        "*mcnflag.IntFlag" => Kind::Int(default.map_or(Ok(0), Value::into_int)?),
        "*mcnflag.BoolFlag" => Kind::Bool,
        "*mcnflag.StringSliceFlag" => Kind::List(default.map_or(Ok(Vec::new()), strings)?),
        _ => return Err(Error::Unexpected { expected: "a flag", got: "another type" }),
    };
    let mut text = |field| value.take(field).map_or(Ok(String::new()), Value::into_string);
    Ok(Flag { name: text("Name")?, usage: text("Usage")?, env: text("EnvVar")?, kind })
}

fn flag_value(value: Value) -> Result<FlagValue, Error> {
    Ok(match value {
        Value::String(text) => FlagValue::String(text),
        Value::Int(number) => FlagValue::Int(number),
        Value::Bool(yes) => FlagValue::Bool(yes),
        Value::List(_) => FlagValue::List(strings(value)?),
        other => return Err(other.unexpected("string, int, bool or []string")),
    })
}
