//! Values of expressions. Objects stay JSON: fields and items are converted when touched,
//! by their declared type.

mod equality;
mod list;
mod map;

use std::{fmt, net::IpAddr, ops::Deref, sync::Arc};

use base64::Engine as _;
use serde_json::Value as Json;

pub(crate) use self::equality::{compare, contains, equal};
pub(crate) use self::map::present;
pub use self::{
    list::List,
    map::{Key, Lazy, Map},
};
use crate::{
    Budget,
    ast::Literal,
    library::{authz::Access, format::NamedFormat, net::Cidr, quantity::Quantity, semver::Semver, url::Url},
    time::{self, Timestamp},
    types::{ListType, MapType, Type},
};

/// Why an evaluation has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// The budget is spent. Nothing in an expression can catch this.
    #[error("operation cancelled: actual cost limit exceeded")]
    Cost,
    #[error("{0}")]
    Failed(Box<str>),
    /// The arguments of a call fit none of its signatures.
    #[error("{0}")]
    NoOverload(Box<str>),
}

impl EvalError {
    pub fn failed(message: impl Into<Box<str>>) -> Self {
        EvalError::Failed(message.into())
    }

    pub(crate) fn no_overload() -> Self {
        EvalError::NoOverload("no such overload".into())
    }

    /// The same, with what was called.
    pub(crate) fn no_overload_of(call: impl std::fmt::Display) -> Self {
        EvalError::NoOverload(format!("no such overload: {call}").into())
    }
}

pub(crate) type Result<T> = std::result::Result<T, EvalError>;

/// A value, borrowing from the data and the program of an evaluation.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Arc<[u8]>),
    Timestamp(Timestamp),
    /// In nanoseconds.
    Duration(i64),
    Type(Text<'a>),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Arc<Value<'a>>>),
    Quantity(Arc<Quantity>),
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Semver(Arc<Semver>),
    Format(NamedFormat),
    Access(Arc<Access<'a>>),
}

/// A string that is borrowed when it can be.
#[derive(Clone)]
pub enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a> Value<'a> {
    /// A string of its own.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Shared(text.into()))
    }

    pub fn list(items: Vec<Value<'a>>) -> Self {
        Value::List(List::Owned(Arc::new(items), None))
    }

    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    /// An object whose fields are found when asked for, such as `variables` of a policy.
    pub fn lazy(fields: Arc<dyn Lazy<'a> + 'a>) -> Self {
        Value::Map(Map::Lazy(fields))
    }

    /// JSON as declared. Costs nothing for objects and lists: they are converted when touched.
    pub fn json(json: &'a Json, ty: &'a Type) -> Result<Self> {
        Ok(match (json, ty) {
            (Json::String(text), Type::String | Type::Dyn) => Value::String(Text::Borrowed(text)),
            (Json::Object(map), Type::Object(object)) => Value::Map(Map::Object(map, object)),
            (Json::Object(map), Type::Map(ty)) => Value::Map(Map::Json(map, ty)),
            (Json::Array(items), Type::List(list)) => Value::List(List::Json(items, list)),
            (Json::Bool(bool), Type::Bool | Type::Dyn) => Value::Bool(*bool),
            (Json::Number(number), Type::Int) => match number.as_i64().or_else(|| whole(number.as_f64()?)) {
                Some(int) => Value::Int(int),
                None => return Err(mismatch("int", json)),
            },
            (Json::Number(number), Type::Double) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            (Json::Number(number), Type::Uint) => match number.as_u64() {
                Some(uint) => Value::Uint(uint),
                None => return Err(mismatch("uint", json)),
            },
            // Null in a list or map is a value; in an object it is an absent field.
            (Json::Null, _) => Value::Null,
            (Json::Number(number), Type::Dyn) => match number.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            (Json::Array(items), Type::Dyn) => Value::List(List::Json(items, &DYN_LIST)),
            (Json::Object(map), Type::Dyn) => Value::Map(Map::Json(map, &DYN_MAP)),
            (Json::String(text), Type::Timestamp) => match Timestamp::parse_lenient(text) {
                Some(time) => Value::Timestamp(time),
                None => {
                    return Err(EvalError::failed(format!(
                        "Invalid date-time formatted string {}",
                        excerpt(text)
                    )));
                }
            },
            (Json::String(text), Type::Duration) => match time::parse_duration_lenient(text) {
                Some(nanos) => Value::Duration(nanos),
                None => return Err(EvalError::failed(format!("Invalid duration {}", excerpt(text)))),
            },
            (Json::String(text), Type::Bytes) => match base64::engine::general_purpose::STANDARD.decode(text)
            {
                Ok(bytes) => Value::Bytes(bytes.into()),
                Err(_) => {
                    return Err(EvalError::failed(format!(
                        "Invalid byte formatted string {}",
                        excerpt(text)
                    )));
                }
            },
            (_, Type::Optional(inner)) => Value::some(Self::json(json, inner)?),
            _ => return Err(mismatch(&ty.to_string(), json)),
        })
    }

    pub(crate) fn literal(literal: &'a Literal) -> Self {
        match literal {
            Literal::Null => Value::Null,
            Literal::Bool(bool) => Value::Bool(*bool),
            Literal::Int(int) => Value::Int(*int),
            Literal::Uint(uint) => Value::Uint(*uint),
            Literal::Double(double) => Value::Double(*double),
            Literal::String(text) => Value::String(Text::Borrowed(text)),
            Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
        }
    }

    /// The name `type()` gives.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Type(_) => "type",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Url(_) => "kubernetes.URL",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Format(_) => "kubernetes.NamedFormat",
            Value::Access(access) => access.ty().name(),
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(bool) => Some(*bool),
            _ => None,
        }
    }

    /// Charges for a value that was converted when it was read.
    pub(crate) fn charge_read(&self, budget: &mut Budget) -> Result<()> {
        match self {
            Value::Bytes(bytes) => budget.tenths(bytes.len() as u64),
            _ => Ok(()),
        }
    }

    /// Whether lists, maps and optionals that are not JSON nest at most that deep.
    pub(crate) fn nests_within(&self, levels: u32, budget: &mut Budget) -> Result<bool> {
        budget.tenths(1)?;
        let items: Vec<&Value<'a>> = match self {
            Value::List(List::Owned(items, _)) => items.iter().collect(),
            Value::Map(Map::Owned(map) | Map::Message(_, map)) => map.values().collect(),
            Value::Optional(Some(inner)) => vec![inner],
            _ => return Ok(true),
        };
        for item in items {
            if levels == 0 || !item.nests_within(levels - 1, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn str_arg(&self) -> Result<&str> {
        self.as_str().ok_or_else(EvalError::no_overload)
    }

    pub(crate) fn int_arg(&self) -> Result<i64> {
        match self {
            Value::Int(int) => Ok(*int),
            _ => Err(EvalError::no_overload()),
        }
    }

    pub(crate) fn list_arg(&self) -> Result<&List<'a>> {
        match self {
            Value::List(list) => Ok(list),
            _ => Err(EvalError::no_overload()),
        }
    }

    /// Builds plain JSON, for patches and annotations. Bytes become base64, times and spans
    /// strings; `None` for values JSON has no place for. Charges by size.
    pub fn to_json(&self, budget: &mut Budget) -> Result<Option<Json>> {
        budget.tenths(1)?;
        Ok(Some(match self {
            Value::Null => Json::Null,
            Value::Bool(bool) => Json::Bool(*bool),
            Value::Int(int) => Json::from(*int),
            Value::Uint(uint) => Json::from(*uint),
            Value::Double(double) => match serde_json::Number::from_f64(*double) {
                Some(number) => Json::Number(number),
                None => return Ok(None),
            },
            Value::String(text) => {
                budget.bytes(text.len())?;
                Json::String(text.to_string())
            }
            Value::Bytes(bytes) => {
                budget.bytes(bytes.len())?;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Value::Timestamp(time) => Json::String(time.to_string()),
            Value::Duration(nanos) => Json::String(time::format_duration(*nanos)),
            Value::Optional(Some(inner)) => return inner.to_json(budget),
            Value::Optional(None) => Json::Null,
            Value::List(list) => {
                let mut out = Vec::new();
                for index in 0..list.len() {
                    match list.get(index)?.to_json(budget)? {
                        Some(item) => out.push(item),
                        None => return Ok(None),
                    }
                }
                Json::Array(out)
            }
            Value::Map(map) => {
                let mut out = serde_json::Map::new();
                for key in map.keys()? {
                    let Some(value) = map.get(&key, budget)? else { continue };
                    match value.to_json(budget)? {
                        Some(value) => out.insert(map.json_name(&key), value),
                        None => return Ok(None),
                    };
                }
                Json::Object(out)
            }
            _ => return Ok(None),
        }))
    }
}

pub(crate) static DYN_LIST: ListType =
    ListType { item: Type::Dyn, semantics: crate::types::ListSemantics::Ordered };
pub(crate) static DYN_MAP: MapType = MapType { key: Type::String, value: Type::Dyn };

/// The integer a JSON number such as `1.0` means.
fn whole(double: f64) -> Option<i64> {
    let fits = double.fract() == 0.0 && double >= -(2f64.powi(63)) && double < 2f64.powi(63);
    fits.then_some(double as i64)
}

/// The beginning of a text, for messages: an error must not cost more than what caused it.
pub(crate) fn excerpt(text: &str) -> &str {
    const MOST: usize = 200;
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MOST).last();
    if text.len() <= MOST { text } else { &text[..end.unwrap_or(0)] }
}

fn mismatch(expected: &str, json: &Json) -> EvalError {
    let got = match json {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    };
    EvalError::failed(format!("invalid data, expected {expected}, got {got}"))
}
