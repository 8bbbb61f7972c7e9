//! Decoding of protobuf request bodies into the JSON the rest of the server works with.
//!
//! Driven by the type table: nothing is generated. The result has the same form that [`crate::decode`] gives
//! JSON bodies, so an object is stored alike whichever way it was sent.

mod message;
pub(crate) mod wire;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::table::type_of;

/// What every body starts with.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Why a body could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProtoError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotEnveloped,
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind { api_version: String, kind: String },
    #[error("unable to decode: {0}")]
    Malformed(&'static str),
    #[error("unable to decode {field}: {message}")]
    Value { field: &'static str, message: String },
    #[error("unable to decode: nested too deeply")]
    TooDeep,
    #[error("content encoding \"{0}\" is not supported")]
    Encoding(String),
}

/// Group, version and kind an undeclared body is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

/// Decodes an enveloped object of any built-in kind; `apiVersion` and `kind` are set in the result.
pub fn decode_protobuf(body: &[u8]) -> Result<Value, ProtoError> {
    decode_protobuf_as(body, None)
}

/// Like [`decode_protobuf`]; a body that does not say what it is, is taken for `expected`.
pub fn decode_protobuf_as(body: &[u8], expected: Option<Expected<'_>>) -> Result<Value, ProtoError> {
    let envelope = Envelope::read(body)?;
    let (mut api_version, mut kind) = (envelope.api_version.into_owned(), envelope.kind.into_owned());
    if let Some(expected) = expected {
        if api_version.is_empty() {
            api_version = if expected.group.is_empty() {
                expected.version.to_owned()
            } else {
                format!("{}/{}", expected.group, expected.version)
            };
        }
        if kind.is_empty() {
            expected.kind.clone_into(&mut kind);
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(ty) = type_of(group, version, &kind) else {
        return Err(ProtoError::UnknownKind { api_version, kind });
    };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), Value::String(api_version));
    object.insert("kind".to_owned(), Value::String(kind));
    if ty.field("metadata").is_some() {
        object.insert("metadata".to_owned(), Value::Object(Map::new()));
    }
    message::decode_into(ty, envelope.raw, &mut object, 0)?;
    Ok(Value::Object(object))
}

struct Envelope<'a> {
    api_version: std::borrow::Cow<'a, str>,
    kind: std::borrow::Cow<'a, str>,
    raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, ProtoError> {
        let body = body.strip_prefix(&MAGIC).ok_or(ProtoError::NotEnveloped)?;
        let mut envelope = Self { api_version: "".into(), kind: "".into(), raw: &[] };
        let mut fields = wire::Fields::new(body);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => {
                    let mut meta = wire::Fields::new(payload.bytes()?);
                    while let Some((number, payload)) = meta.next()? {
                        match number {
                            1 => envelope.api_version = payload.text()?,
                            2 => envelope.kind = payload.text()?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = payload.bytes()?,
                3 => {
                    let encoding = payload.text()?;
                    if !encoding.is_empty() {
                        return Err(ProtoError::Encoding(encoding.chars().take(64).collect()));
                    }
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

#[cfg(test)]
mod tests;
