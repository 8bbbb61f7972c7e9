//! The protocol's own types to bytes.
//!
//! Go interleaves type definitions with data. It also accepts all definitions in front of the first value
//! that needs them, which keeps every value in one message; that is what this encoder sends. The numbers of
//! our types are fixed, because a sender may choose them freely.

use crate::flags::{Flag, Flags, Kind, Value};

use super::{BOOL, BYTES, INT, INTERFACE, STRING, UINT};

/// The head of a request or, with `error`, of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub method: String,
    pub sequence: u64,
    pub error: String,
}

/// What follows a header.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    Empty,
    Int(i64),
    String(String),
    Bytes(Vec<u8>),
    FlagList(Vec<Flag>),
    FlagValues(Flags),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "{}",
            Self::Int(_) => "int",
            Self::String(_) => "string",
            Self::Bytes(_) => "[]byte",
            Self::FlagList(_) => "flag list",
            Self::FlagValues(_) => "flag values",
        })
    }
}

const REQUEST: i64 = 65;
const EMPTY: i64 = 66;
const FLAG_VALUES: i64 = 67;
const VALUE_MAP: i64 = 68;
const STRINGS: i64 = 69;
const RESPONSE: i64 = 70;
const FLAG_LIST: i64 = 71;
const STRING_FLAG: i64 = 72;
const INT_FLAG: i64 = 73;
const BOOL_FLAG: i64 = 74;
const LIST_FLAG: i64 = 75;

/// The sending end of one direction of a connection.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Bit `id - 65` is set once a type has been defined.
    defined: u16,
}

impl Encoder {
    pub fn request(&mut self, header: &Header, body: &Body, out: &mut Vec<u8>) {
        self.define(REQUEST, out);
        message(out, |message| {
            int(message, REQUEST);
            header_fields(message, header);
            message.push(0);
        });
        self.body(body, out);
    }

    pub fn response(&mut self, header: &Header, body: &Body, out: &mut Vec<u8>) {
        self.define(RESPONSE, out);
        message(out, |message| {
            int(message, RESPONSE);
            let mut delta = header_fields(message, header);
            if !header.error.is_empty() {
                delta += if header.sequence == 0 { 1 } else { 0 };
                uint(message, delta);
                string(message, &header.error);
            }
            message.push(0);
        });
        self.body(body, out);
    }

    fn body(&mut self, body: &Body, out: &mut Vec<u8>) {
        match body {
            Body::Empty => {
                self.define(EMPTY, out);
                message(out, |message| {
                    int(message, EMPTY);
                    message.push(0);
                });
            }
            Body::Int(number) => message(out, |message| {
                int(message, INT);
                message.push(0);
                int(message, *number);
            }),
            Body::String(text) => message(out, |message| {
                int(message, STRING);
                message.push(0);
                string(message, text);
            }),
            Body::Bytes(data) => message(out, |message| {
                int(message, BYTES);
                message.push(0);
                bytes(message, data);
            }),
            Body::FlagList(flags) => {
                for id in [FLAG_LIST, STRING_FLAG, INT_FLAG, BOOL_FLAG, STRINGS, LIST_FLAG] {
                    self.define(id, out);
                }
                message(out, |message| {
                    int(message, FLAG_LIST);
                    message.push(0);
                    uint(message, flags.len() as u64);
                    flags.iter().for_each(|one| flag(message, one));
                });
            }
            Body::FlagValues(values) => {
                for id in [FLAG_VALUES, VALUE_MAP, STRINGS] {
                    self.define(id, out);
                }
                message(out, |message| {
                    int(message, INTERFACE);
                    message.push(0);
                    flag_values(message, values);
                });
            }
        }
    }

    fn define(&mut self, id: i64, out: &mut Vec<u8>) {
        let bit = 1 << (id - REQUEST);
        if self.defined & bit != 0 {
            return;
        }
        self.defined |= bit;
        message(out, |message| {
            int(message, -id);
            definition(message, id);
        });
    }
}

/// The first two fields of both headers. Returns the distance from the last one written to the third.
fn header_fields(out: &mut Vec<u8>, header: &Header) -> u64 {
    out.push(1);
    string(out, &header.method);
    if header.sequence != 0 {
        out.push(1);
        uint(out, header.sequence);
    }
    1
}

fn definition(out: &mut Vec<u8>, id: i64) {
    const NAME: (&str, i64) = ("Name", STRING);
    const USAGE: (&str, i64) = ("Usage", STRING);
    const ENV: (&str, i64) = ("EnvVar", STRING);
    match id {
        REQUEST => structure(out, "Request", id, &[("ServiceMethod", STRING), ("Seq", UINT)]),
        RESPONSE => {
            let fields = [("ServiceMethod", STRING), ("Seq", UINT), ("Error", STRING)];
            structure(out, "Response", id, &fields);
        }
        EMPTY => structure(out, "", id, &[]),
        FLAG_VALUES => structure(out, "RPCFlags", id, &[("Values", VALUE_MAP)]),
        VALUE_MAP => {
            out.push(4);
            common(out, "map[string]interface {}", id);
            out.push(1);
            int(out, STRING);
            out.push(1);
            int(out, INTERFACE);
            out.extend([0, 0]);
        }
        STRINGS => list(out, "[]string", id, STRING),
        FLAG_LIST => list(out, "", id, INTERFACE),
        STRING_FLAG => structure(out, "StringFlag", id, &[NAME, USAGE, ENV, ("Value", STRING)]),
        INT_FLAG => structure(out, "IntFlag", id, &[NAME, USAGE, ENV, ("Value", INT)]),
        BOOL_FLAG => structure(out, "BoolFlag", id, &[NAME, USAGE, ENV]),
        LIST_FLAG => structure(out, "StringSliceFlag", id, &[NAME, USAGE, ENV, ("Value", STRINGS)]),
        other => unreachable!("type {other} is not one of ours"),
    }
}

fn common(out: &mut Vec<u8>, name: &str, id: i64) {
    out.push(1);
    if name.is_empty() {
        out.push(2);
    } else {
        out.push(1);
        string(out, name);
        out.push(1);
    }
    int(out, id);
    out.push(0);
}

fn list(out: &mut Vec<u8>, name: &str, id: i64, element: i64) {
    out.push(2);
    common(out, name, id);
    out.push(1);
    int(out, element);
    out.extend([0, 0]);
}

fn structure(out: &mut Vec<u8>, name: &str, id: i64, fields: &[(&str, i64)]) {
    out.push(3);
    common(out, name, id);
    if !fields.is_empty() {
        out.push(1);
        uint(out, fields.len() as u64);
        for (name, id) in fields {
            out.push(1);
            string(out, name);
            out.push(1);
            int(out, *id);
            out.push(0);
        }
    }
    out.extend([0, 0]);
}

fn flag(out: &mut Vec<u8>, flag: &Flag) {
    let (name, id) = match &flag.kind {
        Kind::String(_) => ("*mcnflag.StringFlag", STRING_FLAG),
        Kind::Int(_) => ("*mcnflag.IntFlag", INT_FLAG),
        Kind::Bool => ("*mcnflag.BoolFlag", BOOL_FLAG),
        Kind::List(_) => ("*mcnflag.StringSliceFlag", LIST_FLAG),
    };
    string(out, name);
    int(out, id);
    counted(out, |out| {
        let mut delta = 1;
        for text in [&flag.name, &flag.usage, &flag.env] {
            if !text.is_empty() {
                uint(out, delta);
                string(out, text);
                delta = 0;
            }
            delta += 1;
        }
        match &flag.kind {
            Kind::String(default) if !default.is_empty() => {
                uint(out, delta);
                string(out, default);
            }
            Kind::Int(default) if *default != 0 => {
                uint(out, delta);
                int(out, *default);
            }
            Kind::List(default) if !default.is_empty() => {
                uint(out, delta);
                strings(out, default);
            }
            _ => {}
        }
        out.push(0);
    });
}

fn flag_values(out: &mut Vec<u8>, values: &Flags) {
    string(out, "*rpcdriver.RPCFlags");
    int(out, FLAG_VALUES);
    counted(out, |out| {
        let values = values.iter();
        if values.len() > 0 {
            out.push(1);
            uint(out, values.len() as u64);
            for (name, value) in values {
                string(out, name);
                flag_value(out, value);
            }
        }
        out.push(0);
    });
}

fn flag_value(out: &mut Vec<u8>, value: &Value) {
    let (name, id) = match value {
        Value::String(_) => ("string", STRING),
        Value::Int(_) => ("int", INT),
        Value::Bool(_) => ("bool", BOOL),
        Value::List(_) => ("[]string", STRINGS),
    };
    string(out, name);
    int(out, id);
    counted(out, |out| {
        out.push(0);
        match value {
            Value::String(text) => string(out, text),
            Value::Int(number) => int(out, *number),
            Value::Bool(yes) => uint(out, u64::from(*yes)),
            Value::List(items) => strings(out, items),
        }
    });
}

pub(super) fn uint(out: &mut Vec<u8>, number: u64) {
    if number < 128 {
        out.push(number as u8);
        return;
    }
    let width = 8 - number.leading_zeros() as usize / 8;
    out.push((256 - width) as u8);
    out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
}

pub(super) fn int(out: &mut Vec<u8>, number: i64) {
    let raw = if number < 0 { (!number as u64) << 1 | 1 } else { (number as u64) << 1 };
    uint(out, raw);
}

fn bytes(out: &mut Vec<u8>, data: &[u8]) {
    uint(out, data.len() as u64);
    out.extend_from_slice(data);
}

pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    bytes(out, text.as_bytes());
}

fn strings(out: &mut Vec<u8>, items: &[String]) {
    uint(out, items.len() as u64);
    items.iter().for_each(|item| string(out, item));
}

/// Writes something with its length in front.
fn counted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, &inner);
}

fn message(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    counted(out, write);
}
