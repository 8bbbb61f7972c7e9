//! Maps and objects: a view of JSON, made by the expression, or answered by the caller.

use std::{cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value as Json;

use super::{EvalError, Result, Text, Value};
use crate::{
    Budget,
    types::{MapType, ObjectType},
};

type JsonMap = serde_json::Map<String, Json>;

#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// Any key, all values of one type.
    Json(&'a JsonMap, &'a MapType),
    /// Declared fields only.
    Object(&'a JsonMap, &'a ObjectType),
    Owned(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// Of a named type, made by the expression.
    Message(Arc<str>, Arc<BTreeMap<Key<'a>, Value<'a>>>),
    Lazy(Arc<dyn Lazy<'a> + 'a>),
}

/// An object that the caller answers for, field by field.
pub trait Lazy<'a>: fmt::Debug + Send + Sync {
    /// The field, or `None` when there is no such one. Work done here is charged to `budget`.
    fn field(&self, name: &str, budget: &mut Budget) -> Option<std::result::Result<Value<'a>, EvalError>>;
}

/// A key of a map. Numbers are the same key when they are equal.
#[derive(Debug, Clone)]
pub enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl<'a> Key<'a> {
    /// Charges for comparing with the keys of a map.
    pub(crate) fn charge(&self, budget: &mut Budget) -> Result<()> {
        match self {
            Key::String(text) => budget.tenths(text.len() as u64 / 10),
            _ => Ok(()),
        }
    }

    /// `None` when values of that kind cannot be keys.
    pub(crate) fn from_value(value: &Value<'a>) -> Option<Self> {
        Some(match value {
            Value::Bool(bool) => Key::Bool(*bool),
            Value::Int(int) => Key::Int(*int),
            Value::Uint(uint) => Key::Uint(*uint),
            Value::String(text) => Key::String(text.clone()),
            Value::Double(double) => Key::Int(super::whole(*double)?),
            _ => return None,
        })
    }

    pub(crate) fn into_value(self) -> Value<'a> {
        match self {
            Key::Bool(bool) => Value::Bool(bool),
            Key::Int(int) => Value::Int(int),
            Key::Uint(uint) => Value::Uint(uint),
            Key::String(text) => Value::String(text),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) => 1,
            Key::String(_) => 2,
        }
    }

    fn number(&self) -> i128 {
        match self {
            Key::Int(int) => i128::from(*int),
            Key::Uint(uint) => i128::from(*uint),
            Key::Bool(bool) => i128::from(*bool),
            Key::String(_) => 0,
        }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Key::String(a), Key::String(b)) => (**a).cmp(&**b),
            _ => self.rank().cmp(&other.rank()).then_with(|| self.number().cmp(&other.number())),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key<'_> {}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Bool(bool) => bool.fmt(f),
            Key::Int(int) => int.fmt(f),
            Key::Uint(uint) => uint.fmt(f),
            Key::String(text) => f.write_str(super::excerpt(text)),
        }
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json(map, _) | Map::Object(map, _) => map.len(),
            Map::Owned(map) | Map::Message(_, map) => map.len(),
            Map::Lazy(_) => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, key: &Key<'_>, budget: &mut Budget) -> Result<Option<Value<'a>>> {
        match (self, key) {
            (_, Key::String(name)) => self.field(name, budget),
            (Map::Owned(map), _) => Ok(lookup(map, key)),
            _ => Ok(None),
        }
    }

    /// A value by a name as expressions spell it.
    pub fn field(&self, name: &str, budget: &mut Budget) -> Result<Option<Value<'a>>> {
        match self {
            Map::Json(map, ty) => map.get(name).map(|json| Value::json(json, &ty.value)).transpose(),
            Map::Object(map, object) => {
                let Some(field) = object.fields.get(name) else { return Ok(None) };
                present(map, &field.json).map(|json| Value::json(json, &field.ty)).transpose()
            }
            Map::Owned(map) | Map::Message(_, map) => Ok(lookup(map, &Key::String(Text::Borrowed(name)))),
            Map::Lazy(lazy) => lazy.field(name, budget).transpose(),
        }
    }

    /// Whether the key is there, without converting its value.
    pub(crate) fn has(&self, key: &Key<'_>, budget: &mut Budget) -> Result<bool> {
        match (self, key) {
            (Map::Json(map, _), Key::String(name)) => Ok(map.contains_key(&**name)),
            (Map::Object(map, object), Key::String(name)) => {
                Ok(object.fields.get(&**name).is_some_and(|field| present(map, &field.json).is_some()))
            }
            _ => Ok(self.get(key, budget)?.is_some()),
        }
    }

    /// All keys, in order.
    pub fn keys(&self) -> Result<Vec<Key<'a>>> {
        Ok(match self {
            Map::Json(map, _) => map.keys().map(|key| Key::String(Text::Borrowed(key))).collect(),
            Map::Object(map, object) => object
                .fields
                .iter()
                .filter(|(_, field)| present(map, &field.json).is_some())
                .map(|(name, _)| Key::String(Text::Borrowed(name)))
                .collect(),
            Map::Owned(map) | Map::Message(_, map) => map.keys().cloned().collect(),
            Map::Lazy(_) => return Err(EvalError::failed("fields of this object cannot be listed")),
        })
    }

    /// A value by its name in JSON.
    pub(super) fn json_field(&self, json: &str) -> Result<Option<Value<'a>>> {
        match self {
            Map::Object(map, object) => {
                let Some(value) = present(map, json) else { return Ok(None) };
                let field = object.fields.values().find(|field| field.json == json);
                field.map(|field| Value::json(value, &field.ty)).transpose()
            }
            Map::Json(map, ty) => map.get(json).map(|value| Value::json(value, &ty.value)).transpose(),
            Map::Owned(map) | Map::Message(_, map) => Ok(lookup(map, &Key::String(Text::Borrowed(json)))),
            Map::Lazy(_) => Ok(None),
        }
    }

    pub(super) fn json_name(&self, key: &Key<'_>) -> String {
        match (self, key) {
            (Map::Object(_, object), Key::String(name)) => {
                object.fields.get(&**name).map_or_else(|| name.to_string(), |field| field.json.clone())
            }
            (_, Key::String(name)) => name.to_string(),
            _ => key.to_string(),
        }
    }
}

/// Null in an object is the same as nothing.
pub(crate) fn present<'a>(map: &'a JsonMap, name: &str) -> Option<&'a Json> {
    map.get(name).filter(|json| !json.is_null())
}

/// The key may live shorter than those of the map.
fn lookup<'k, 'a>(map: &BTreeMap<Key<'k>, Value<'a>>, key: &Key<'k>) -> Option<Value<'a>> {
    map.get(key).cloned()
}
