//! Messages of the type table.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Number, Value};

use super::{
    ProtoError,
    wire::{Fields, Payload},
};
use crate::{
    decode::{is_omitted, schema_props, whole_number},
    scalar::{quantity, time::Instant},
    table::{Field, Ty, TypeDef, table},
};

/// Nesting beyond this is refused. Only JSON schemas inside definitions can nest without end.
const MAX_DEPTH: usize = 100;

/// Decodes the fields of a message into an object that may have some already.
pub(super) fn decode_into(
    ty: &TypeDef,
    bytes: &[u8],
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::TooDeep);
    }
    let mut fields = Fields::new(bytes);
    while let Some((number, payload)) = fields.next()? {
        // Fields of newer versions are skipped: an older server drops what it does not know.
        let Some(field) = ty.by_number(number) else { continue };
        match &field.ty {
            Ty::Message(id) if field.inline => {
                decode_into(table().get(*id), payload.bytes()?, object, depth + 1)?;
            }
            _ => decode_field(field, payload, object, depth)?,
        }
    }
    Ok(())
}

fn decode_field(
    field: &Field,
    payload: Payload<'_>,
    object: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    match &field.ty {
        Ty::List(item) => {
            if let Value::Array(list) = slot(object, field.name, || Value::Array(Vec::new())) {
                list_item(field, item, payload, list, depth)?;
            }
        }
        Ty::Map(item) => {
            if let Value::Object(map) = slot(object, field.name, || Value::Object(Map::new())) {
                map_entry(field, item, payload, map, depth)?;
            }
        }
        Ty::Message(id) => {
            if let Value::Object(inner) = slot(object, field.name, || Value::Object(Map::new())) {
                decode_into(table().get(*id), payload.bytes()?, inner, depth + 1)?;
            }
        }
        ty => {
            let value = single(field, ty, payload, depth)?;
            if is_omitted(field, &value) {
                object.remove(field.name);
            } else {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

/// The value under a name, made first if need be. Names repeat once per list item, so they are not copied
/// each time.
fn slot<'a>(object: &'a mut Map<String, Value>, name: &str, make: impl FnOnce() -> Value) -> &'a mut Value {
    if !object.contains_key(name) {
        object.insert(name.to_owned(), make());
    }
    &mut object[name]
}

fn list_item(
    field: &Field,
    item: &Ty,
    payload: Payload<'_>,
    list: &mut Vec<Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    if let (Ty::Int32 | Ty::Int64 | Ty::Bool, Payload::Bytes(packed)) = (item, payload) {
        let mut values = Fields::new(packed);
        while let Some(value) = values.packed_varint()? {
            list.push(single(field, item, Payload::Varint(value), depth)?);
        }
        return Ok(());
    }
    list.push(single(field, item, payload, depth)?);
    Ok(())
}

fn map_entry(
    field: &Field,
    item: &Ty,
    payload: Payload<'_>,
    map: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtoError> {
    let mut key = String::new();
    let mut value = None;
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => key = payload.text()?.into_owned(),
            2 => value = Some(single(field, item, payload, depth)?),
            _ => {}
        }
    }
    let value = match value {
        Some(value) => value,
        // Encoders may leave out an empty value.
        None => single(field, item, empty(item), depth)?,
    };
    map.insert(key, value);
    Ok(())
}

fn empty(ty: &Ty) -> Payload<'static> {
    match ty {
        Ty::Bool | Ty::Int32 | Ty::Int64 => Payload::Varint(0),
        Ty::Double => Payload::Fixed64(0),
        _ => Payload::Bytes(&[]),
    }
}

fn single(field: &Field, ty: &Ty, payload: Payload<'_>, depth: usize) -> Result<Value, ProtoError> {
    if depth > MAX_DEPTH {
        return Err(ProtoError::TooDeep);
    }
    let value = match ty {
        Ty::String => Value::String(payload.text()?.into_owned()),
        Ty::Bool => Value::Bool(payload.varint()? != 0),
        // Negative numbers are sign-extended to 64 bits on the wire.
        Ty::Int32 => Value::from(payload.varint()? as i32),
        Ty::Int64 => Value::from(payload.varint()? as i64),
        Ty::Double => double(field, payload)?,
        Ty::Bytes => Value::String(STANDARD.encode(payload.bytes()?)),
        Ty::Time => instant(field, payload)?.map_or(Value::Null, |instant| instant.to_seconds_text().into()),
        Ty::MicroTime => {
            instant(field, payload)?.map_or(Value::Null, |instant| instant.to_micros_text().into())
        }
        Ty::Quantity => quantity_text(field, payload)?,
        Ty::IntOrString => int_or_string(payload)?,
        Ty::Fields | Ty::Raw | Ty::Json => embedded(field, payload)?,
        Ty::Strings => strings(payload, 1)?,
        Ty::Message(id) => {
            let mut object = Map::new();
            decode_into(table().get(*id), payload.bytes()?, &mut object, depth + 1)?;
            Value::Object(object)
        }
        Ty::SchemaOrBool => schema_or(field, payload, depth, &Other::Bool)?,
        Ty::SchemaOrArray => schema_or(field, payload, depth, &Other::Schemas)?,
        Ty::SchemaOrStrings => schema_or(field, payload, depth, &Other::Strings)?,
        // Lists of lists and maps of maps do not exist in the table.
        Ty::List(_) | Ty::Map(_) => return Err(ProtoError::Malformed("nested list")),
    };
    Ok(value)
}

fn invalid(field: &Field, message: impl ToString) -> ProtoError {
    ProtoError::Value { field: field.name, message: message.to_string() }
}

fn double(field: &Field, payload: Payload<'_>) -> Result<Value, ProtoError> {
    let Payload::Fixed64(bits) = payload else { return Err(ProtoError::Malformed("wrong wire type")) };
    let number = f64::from_bits(bits);
    if let Some(whole) = whole_number(number) {
        return Ok(Value::from(whole));
    }
    Number::from_f64(number).map(Value::Number).ok_or_else(|| invalid(field, "not a number"))
}

fn instant(field: &Field, payload: Payload<'_>) -> Result<Option<Instant>, ProtoError> {
    let (mut seconds, mut nanos) = (0i64, 0i32);
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => seconds = payload.varint()? as i64,
            2 => nanos = payload.varint()? as i32,
            _ => {}
        }
    }
    if seconds == 0 && nanos == 0 {
        return Ok(None);
    }
    let instant = Instant::new(seconds, nanos).ok_or_else(|| invalid(field, "time out of range"))?;
    Ok((!instant.is_zero()).then_some(instant))
}

fn quantity_text(field: &Field, payload: Payload<'_>) -> Result<Value, ProtoError> {
    let mut text = "".into();
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            text = payload.text()?;
        }
    }
    if text.is_empty() {
        return Ok("0".into());
    }
    quantity::canonical(&text).map(Value::String).map_err(|error| invalid(field, error))
}

fn int_or_string(payload: Payload<'_>) -> Result<Value, ProtoError> {
    let (mut is_text, mut number, mut text) = (false, 0i32, String::new());
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((field, payload)) = fields.next()? {
        match field {
            1 => is_text = payload.varint()? != 0,
            2 => number = payload.varint()? as i32,
            3 => text = payload.text()?.into_owned(),
            _ => {}
        }
    }
    Ok(if is_text { Value::String(text) } else { Value::from(number) })
}

fn embedded(field: &Field, payload: Payload<'_>) -> Result<Value, ProtoError> {
    let mut raw: &[u8] = &[];
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            raw = payload.bytes()?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| invalid(field, error))
}

fn strings(payload: Payload<'_>, wanted: u32) -> Result<Value, ProtoError> {
    let mut items = Vec::new();
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        if number == wanted {
            items.push(Value::String(payload.text()?.into_owned()));
        }
    }
    Ok(Value::Array(items))
}

/// The alternative to a schema in a JSON Schema union.
enum Other {
    /// `1 allows, 2 schema`
    Bool,
    /// `1 schema, 2 schemas`
    Schemas,
    /// `1 schema, 2 property`
    Strings,
}

fn schema_or(field: &Field, payload: Payload<'_>, depth: usize, other: &Other) -> Result<Value, ProtoError> {
    let props = schema_props();
    let (mut schema, mut allows, mut items) = (Value::Null, false, Vec::new());
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        match (other, number) {
            (Other::Bool, 1) => allows = payload.varint()? != 0,
            (Other::Bool, 2) | (Other::Schemas | Other::Strings, 1) => {
                schema = single(field, &props, payload, depth + 1)?;
            }
            (Other::Schemas, 2) => items.push(single(field, &props, payload, depth + 1)?),
            (Other::Strings, 2) => items.push(Value::String(payload.text()?.into_owned())),
            _ => {}
        }
    }
    Ok(match other {
        Other::Bool if schema.is_null() => Value::Bool(allows),
        Other::Schemas | Other::Strings if !items.is_empty() => Value::Array(items),
        _ => schema,
    })
}
