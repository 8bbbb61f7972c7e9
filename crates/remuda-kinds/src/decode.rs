//! Decoding JSON of a built-in kind the way the original's typed decoder does.
//!
//! The value is changed in place into the form the original would write back: unknown fields and nulls go,
//! times, quantities and base64 are checked and normalised, and empty values of fields that are only written
//! when set disappear. Absent fields are not added, except `metadata` of a whole object.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    scalar::{base64_error, quantity, time},
    table::{Field, Ty, TypeDef, table},
};

/// Nesting beyond this is refused. Only JSON schemas inside definitions can nest without end.
const MAX_DEPTH: usize = 128;

/// Unknown fields beyond these are dropped silently, as the original does; it also bounds the text that a
/// hostile body can make us write.
const MAX_UNKNOWN: usize = 100;
/// Longer names of unknown fields are cut in reports.
const MAX_NAME: usize = 256;

/// Why a body does not fit its kind; the text is what the original says, without a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// Decodes a whole object of this type in place. Paths of unknown fields (`spec.ports[0].x`) are appended to
/// `unknown`, depth first, until it holds a hundred.
pub fn decode(ty: &TypeDef, value: &mut Value, unknown: &mut Vec<String>) -> Result<(), DecodeError> {
    let mut decoder = Decoder { unknown };
    decoder.message(ty, value, &Path { parent: None, step: Step::Root }, ty.name, 0)?;
    if ty.has_kind
        && ty.field("metadata").is_some()
        && let Value::Object(object) = value
    {
        object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    }
    Ok(())
}

/// A place in the value, linked to its parents on the stack: text is only made when it is reported.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Root,
    Key(&'a str),
    /// A key of a map, which Go's decoder leaves out of its messages.
    Entry(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    fn entry(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Entry(key) }
    }

    fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// Struct fields only, joined by dots, as Go's decoder names a place.
    fn fields(&self, ty: &TypeDef) -> String {
        let mut names = Vec::new();
        let mut node = Some(self);
        while let Some(path) = node {
            if let Step::Key(key) = path.step {
                names.push(key);
            }
            node = path.parent;
        }
        names.push(ty.name);
        names.reverse();
        names.join(".")
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) | Step::Entry(key) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.step, Step::Root));
                let shown = key.get(..key.floor_char_boundary(MAX_NAME)).unwrap_or(key);
                write!(f, "{}{shown}", if first { "" } else { "." })
            }
        }
    }
}

/// Where in a type a value sits, for messages.
struct Place<'a> {
    owner: &'a TypeDef,
    path: &'a Path<'a>,
}

impl Place<'_> {
    fn mismatch(&self, value: &Value, ty: &Ty) -> DecodeError {
        let found = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
            Value::Number(number) if matches!(ty, Ty::Int32 | Ty::Int64 | Ty::IntOrString) => {
                format!("number {number}")
            }
            Value::Number(_) => "number".to_owned(),
        };
        DecodeError(format!(
            "json: cannot unmarshal {found} into Go struct field {} of type {}",
            self.path.fields(self.owner),
            go_type(ty)
        ))
    }
}

struct Decoder<'u> {
    unknown: &'u mut Vec<String>,
}

impl Decoder<'_> {
    fn message(
        &mut self,
        ty: &TypeDef,
        value: &mut Value,
        path: &Path<'_>,
        root: &str,
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError("exceeded max depth".to_owned()));
        }
        let Value::Object(object) = value else {
            let found = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            return Err(DecodeError(format!(
                "json: cannot unmarshal {found} into Go value of type v1.{root}"
            )));
        };
        self.fields(ty, object, path, depth)
    }

    fn fields(
        &mut self,
        ty: &TypeDef,
        object: &mut Map<String, Value>,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError("exceeded max depth".to_owned()));
        }
        let mut failed = None;
        object.retain(|key, value| {
            if failed.is_some() {
                return true;
            }
            let path = path.key(key);
            match self.member(ty, key, value, &path, depth) {
                Ok(keep) => keep,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Decodes one member of a struct; false if it must go.
    fn member(
        &mut self,
        ty: &TypeDef,
        key: &str,
        value: &mut Value,
        path: &Path<'_>,
        depth: usize,
    ) -> Result<bool, DecodeError> {
        let Some(field) = ty.field(key) else {
            if ty.has_kind && (key == "apiVersion" || key == "kind") {
                let place = Place { owner: ty, path };
                return match value {
                    Value::String(text) => Ok(!text.is_empty()),
                    Value::Null => Ok(false),
                    _ => Err(place.mismatch(value, &Ty::String)),
                };
            }
            if self.unknown.len() < MAX_UNKNOWN {
                self.unknown.push(path.to_string());
            }
            return Ok(false);
        };
        if value.is_null() {
            return Ok(false);
        }
        self.value(&field.ty, value, &Place { owner: ty, path }, depth + 1)?;
        Ok(!is_omitted(field, value))
    }

    fn value(
        &mut self,
        ty: &Ty,
        value: &mut Value,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        match ty {
            Ty::String if value.is_string() => Ok(()),
            Ty::Bool if value.is_boolean() => Ok(()),
            Ty::Int64 if value.is_i64() => Ok(()),
            Ty::Int32 if is_int32(value) => Ok(()),
            Ty::Double if value.is_number() => {
                if let Some(whole) = value.as_f64().and_then(whole_number).filter(|_| value.is_f64()) {
                    *value = whole.into();
                }
                Ok(())
            }
            Ty::IntOrString if value.is_string() || is_int32(value) => Ok(()),
            Ty::Raw | Ty::Json | Ty::Fields => Ok(()),
            Ty::Bytes => bytes(value, place),
            Ty::Time => self::time(value, place),
            Ty::MicroTime => micro_time(value, place),
            Ty::Quantity => self::quantity(value),
            Ty::Strings => self.list(&Ty::String, value, place, depth),
            Ty::List(item) => self.list(item, value, place, depth),
            Ty::Map(item) => self.map(item, value, place, depth),
            Ty::Message(id) => {
                let inner = table().get(*id);
                let Value::Object(object) = value else { return Err(place.mismatch(value, ty)) };
                self.fields(inner, object, place.path, depth)
            }
            Ty::SchemaOrBool if value.is_boolean() => Ok(()),
            Ty::SchemaOrBool if !value.is_object() => {
                Err(DecodeError("boolean or JSON schema expected".to_owned()))
            }
            Ty::SchemaOrBool | Ty::SchemaOrArray | Ty::SchemaOrStrings => self.union(ty, value, place, depth),
            Ty::String | Ty::Bool | Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => {
                Err(place.mismatch(value, ty))
            }
        }
    }

    /// The unions of JSON schemas decode themselves, and in there the original does not look for unknown
    /// fields: reporting them would refuse definitions it accepts.
    fn union(
        &mut self,
        ty: &Ty,
        value: &mut Value,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let mut unreported = Vec::new();
        let mut inner = Decoder { unknown: &mut unreported };
        match ty {
            Ty::SchemaOrArray if value.is_array() => inner.list(&schema_props(), value, place, depth),
            Ty::SchemaOrStrings if value.is_array() => inner.list(&Ty::String, value, place, depth),
            _ => inner.value(&schema_props(), value, place, depth),
        }
    }

    fn list(
        &mut self,
        item: &Ty,
        value: &mut Value,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let Value::Array(values) = value else {
            return Err(place.mismatch(value, &Ty::List(Box::new(item.clone()))));
        };
        for (index, value) in values.iter_mut().enumerate() {
            if value.is_null() {
                *value = zero(item);
                continue;
            }
            let path = place.path.index(index);
            self.value(item, value, &Place { owner: place.owner, path: &path }, depth + 1)?;
        }
        Ok(())
    }

    fn map(
        &mut self,
        item: &Ty,
        value: &mut Value,
        place: &Place<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        let Value::Object(object) = value else {
            return Err(place.mismatch(value, &Ty::Map(Box::new(item.clone()))));
        };
        for (key, value) in object.iter_mut() {
            if value.is_null() {
                *value = zero(item);
                continue;
            }
            let path = place.path.entry(key);
            self.value(item, value, &Place { owner: place.owner, path: &path }, depth + 1)?;
        }
        Ok(())
    }
}

pub(crate) fn schema_props() -> Ty {
    let ty = table().find("apiextensions/v1", "JSONSchemaProps").expect("the table has JSONSchemaProps");
    Ty::Message(ty.id)
}

fn is_int32(value: &Value) -> bool {
    value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}

/// Go writes whole floating-point numbers without a fraction.
pub(crate) fn whole_number(number: f64) -> Option<i64> {
    // Beyond this not every integer has a floating-point form.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// What Go makes of a null inside a list or map.
fn zero(ty: &Ty) -> Value {
    match ty {
        Ty::Bool => Value::Bool(false),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => 0.into(),
        Ty::String | Ty::Bytes => "".into(),
        Ty::Quantity => "0".into(),
        Ty::Message(_) | Ty::Map(_) => Value::Object(Map::new()),
        Ty::Strings | Ty::List(_) => Value::Array(Vec::new()),
        _ => Value::Null,
    }
}

/// What Go writes for a kind nobody has filled in: its structs and the fields that are never left out.
pub fn zero_object(ty: &TypeDef) -> Value {
    zero_fields(ty, MAX_ZERO_DEPTH)
}

/// Deeper than the structs of any kind; types that contain themselves do so by pointer.
const MAX_ZERO_DEPTH: usize = 12;

fn zero_fields(ty: &TypeDef, depth: usize) -> Value {
    let mut object = Map::new();
    for field in
        ty.json_fields().filter(|field| !field.pointer && !matches!(field.name, "apiVersion" | "kind"))
    {
        let value = match &field.ty {
            Ty::Message(id) if depth > 0 => zero_fields(table().get(*id), depth - 1),
            ty if field.keep => zero(ty),
            _ => continue,
        };
        object.insert(field.name.to_owned(), value);
    }
    Value::Object(object)
}

/// True for a value that is not written because the field is only written when set.
pub(crate) fn is_omitted(field: &Field, value: &Value) -> bool {
    match value {
        Value::Null => true,
        _ if field.keep || field.pointer => false,
        Value::Bool(set) => !set,
        Value::Number(number) => {
            number.as_f64() == Some(0.0) && !matches!(field.ty, Ty::IntOrString | Ty::Json)
        }
        Value::String(text) => text.is_empty() && matches!(field.ty, Ty::String | Ty::Bytes),
        Value::Array(items) => items.is_empty() && !matches!(field.ty, Ty::Json | Ty::Raw),
        Value::Object(object) => object.is_empty() && matches!(field.ty, Ty::Map(_)),
    }
}

fn bytes(value: &mut Value, place: &Place<'_>) -> Result<(), DecodeError> {
    let Value::String(text) = value else { return Err(place.mismatch(value, &Ty::Bytes)) };
    match base64_error(text) {
        Some(at) => Err(DecodeError(format!("illegal base64 data at input byte {at}"))),
        None => {
            if text.contains(['\r', '\n']) {
                text.retain(|character| character != '\r' && character != '\n');
            }
            Ok(())
        }
    }
}

fn time(value: &mut Value, place: &Place<'_>) -> Result<(), DecodeError> {
    let Value::String(text) = value else { return Err(place.mismatch(value, &Ty::Time)) };
    let instant = time::parse_rfc3339(text).ok_or_else(|| time_error(text, time::SECONDS))?;
    *value = if instant.is_zero() { Value::Null } else { instant.to_seconds_text().into() };
    Ok(())
}

fn micro_time(value: &mut Value, place: &Place<'_>) -> Result<(), DecodeError> {
    let Value::String(text) = value else { return Err(place.mismatch(value, &Ty::MicroTime)) };
    let instant = time::parse_micros(text).ok_or_else(|| time_error(text, time::MICROS))?;
    *value = if instant.is_zero() { Value::Null } else { instant.to_micros_text().into() };
    Ok(())
}

fn time_error(text: &str, layout: &str) -> DecodeError {
    let shown: String = text.chars().take(64).collect();
    match time::complaint(&shown, layout) {
        Some((rest, element)) => {
            DecodeError(format!("parsing time {shown:?} as {layout:?}: cannot parse {rest:?} as {element:?}"))
        }
        None => DecodeError(format!("parsing time {shown:?}: value out of range")),
    }
}

fn quantity(value: &mut Value) -> Result<(), DecodeError> {
    let canonical = match value {
        Value::String(text) => quantity::canonical(text),
        Value::Number(number) => quantity::canonical(&number.to_string()),
        _ => Err(quantity::QuantityError::Format),
    };
    *value = canonical.map_err(|error| DecodeError(error.to_string()))?.into();
    Ok(())
}

/// The Go name of a type as decoding errors show it.
fn go_type(ty: &Ty) -> String {
    let name = match ty {
        Ty::String => "string",
        Ty::Bool => "bool",
        Ty::Int32 | Ty::IntOrString => "int32",
        Ty::Int64 => "int64",
        Ty::Double => "float64",
        Ty::Bytes => "[]uint8",
        // These decode themselves from a string or a number.
        Ty::Time | Ty::MicroTime => "string",
        Ty::Quantity => "resource.Quantity",
        Ty::Fields => "v1.FieldsV1",
        Ty::Raw => "runtime.RawExtension",
        Ty::Json => "v1.JSON",
        Ty::Strings => "[]string",
        Ty::SchemaOrBool => "v1.JSONSchemaPropsOrBool",
        Ty::SchemaOrArray => "v1.JSONSchemaPropsOrArray",
        Ty::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray",
        Ty::Message(id) => return format!("v1.{}", table().get(*id).name),
        Ty::List(item) => return format!("[]{}", go_type(item)),
        Ty::Map(item) => return format!("map[string]{}", go_type(item)),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
