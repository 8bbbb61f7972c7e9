//! Strategic merge patch: a merge patch that knows how to merge lists.
//!
//! A patch may contain directives: `$patch` (`replace` or `delete`, in a map or as a list item),
//! `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`. What the patch
//! adds is written without its nulls and directives, which typed decoding would drop as well.

use std::collections::BTreeSet;

use remuda_schema::{Additional, Schema};
use serde_json::{Map, Value};

use crate::{gotext, meta};

mod list;
#[cfg(test)]
mod tests;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    #[error("invalid JSON document")]
    NotAnObject,
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("unknown patch type: {0} in map: {1}")]
    UnknownPatchType(String, String),
    #[error("map: {0} does not contain declared merge key: {1}")]
    NoMergeKey(String, String),
    #[error("{0}")]
    Other(String),
}

impl StrategicError {
    /// The HTTP status of the answer. The reference has no answer but 500 for most of what a
    /// client can get wrong here.
    pub fn status(&self) -> u16 {
        match self {
            Self::NotAnObject | Self::PrimitiveList | Self::RetainKeys | Self::SetElementOrder => 400,
            Self::ListOfLists => 422,
            Self::UnknownPatchType(..) | Self::NoMergeKey(..) | Self::Other(_) => 500,
        }
    }
}

/// Applies `patch` to `target`. On error `target` may be half patched: the caller patches a copy.
pub fn apply(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), StrategicError> {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => merge_map(target, patch, Place::Root(schema)),
        _ => Err(StrategicError::NotAnObject),
    }
}

/// Where in the type tree a merge is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root(&'a Schema),
    Known(&'a Schema),
    /// Undeclared: maps merge, lists are replaced.
    Unknown,
}

impl<'a> Place<'a> {
    fn of(schema: Option<&'a Schema>) -> Self {
        schema.map_or(Place::Unknown, Place::Known)
    }

    fn schema(self) -> Option<&'a Schema> {
        match self {
            Place::Root(schema) | Place::Known(schema) => Some(schema),
            Place::Unknown => None,
        }
    }

    fn field(self, name: &str) -> Option<&'a Schema> {
        let schema = self.schema()?;
        let field = schema.properties.get(name).map(AsRef::as_ref);
        match (self, field) {
            (Place::Root(_), field)
                if name == "metadata" && field.is_none_or(|own| own.properties.is_empty()) =>
            {
                Some(meta::object_meta_type())
            }
            (_, Some(field)) => Some(field),
            (_, None) => match &schema.additional {
                Some(Additional::Schema(values)) => Some(values),
                _ => None,
            },
        }
    }
}

fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    place: Place<'_>,
) -> Result<(), StrategicError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => *target = cleaned_map(patch),
            Some("delete") => target.clear(),
            _ => return Err(unknown(directive, patch)),
        }
        return Ok(());
    }
    retain_keys(target, patch)?;
    let ordered = ordered_lists(target, patch, place)?;
    for (key, value) in patch {
        if key == RETAIN_KEYS || key.starts_with(SET_ORDER) || ordered.contains(key.as_str()) {
            continue;
        }
        let delete = key.starts_with(DELETE_FROM);
        let name = if delete { target_of(key, DELETE_FROM)? } else { key };
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let field = place.field(name);
        match (target.get_mut(name), value) {
            (Some(Value::Object(current)), Value::Object(patch)) => {
                if field.is_some_and(|field| field.patch.replace) {
                    *current = cleaned_map(patch);
                } else {
                    merge_map(current, patch, Place::of(field))?;
                }
            }
            (Some(Value::Array(current)), Value::Array(patch)) => {
                list::merge(current, patch, field, name, delete)?;
            }
            // Deleting from a list that is not there.
            _ if delete => {}
            (_, value) => match cleaned(value) {
                Some(value) => {
                    target.insert(name.to_owned(), value);
                }
                None => {
                    target.remove(name);
                }
            },
        }
    }
    Ok(())
}

/// Drops the keys that the patch does not retain.
fn retain_keys(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), StrategicError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(StrategicError::RetainKeys)?;
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let stray = patch.iter().any(|(key, value)| {
        let exempt = value.is_null()
            || key == RETAIN_KEYS
            || key.starts_with(DELETE_FROM)
            || key.starts_with(SET_ORDER);
        !exempt && !keys.contains(key.as_str())
    });
    if stray {
        return Err(StrategicError::RetainKeys);
    }
    target.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// Merges the lists whose order the patch sets, and returns their names.
fn ordered_lists<'p>(
    target: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    place: Place<'_>,
) -> Result<BTreeSet<&'p str>, StrategicError> {
    let mut done = BTreeSet::new();
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(SET_ORDER)) {
        let order = order.as_array().ok_or_else(|| not_a_list(order))?;
        let name = target_of(key, SET_ORDER)?;
        let field = place.field(name);
        let changes = match patch.get(name) {
            None => None,
            Some(Value::Array(changes)) => Some(changes),
            Some(other) => return Err(not_a_list(other)),
        };
        match target.get_mut(name) {
            None if changes.is_none() => continue,
            None => {
                let changes = changes.map(Vec::as_slice).unwrap_or_default();
                let mut added = Vec::new();
                list::merge_ordered(&mut added, Some(changes), order, field, name)?;
                target.insert(name.to_owned(), Value::Array(added));
            }
            Some(Value::Array(current)) => {
                list::merge_ordered(current, changes.map(Vec::as_slice), order, field, name)?;
            }
            Some(other) => return Err(not_a_list(other)),
        }
        done.insert(name);
    }
    Ok(done)
}

/// The field a directive like `$setElementOrder/containers` is about.
fn target_of<'k>(key: &'k str, prefix: &str) -> Result<&'k str, StrategicError> {
    match key.split_once('/') {
        Some((found, name)) if found == prefix => Ok(name),
        _ if prefix == DELETE_FROM => Err(StrategicError::PrimitiveList),
        _ => Err(StrategicError::SetElementOrder),
    }
}

fn unknown(directive: &Value, map: &Map<String, Value>) -> StrategicError {
    StrategicError::UnknownPatchType(gotext::plain(directive), map_text(map))
}

fn not_a_list(value: &Value) -> StrategicError {
    StrategicError::Other(format!("expected a []interface {{}}, but received a {}", gotext::type_name(value)))
}

fn map_text(map: &Map<String, Value>) -> String {
    gotext::plain(&Value::Object(map.clone()))
}

/// What a patch value means where nothing was: without nulls and directives. `None` is a map that
/// is itself a directive.
fn cleaned(value: &Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(Value::Object(cleaned_map(map))),
        Value::Array(items) => Some(items.iter().filter_map(cleaned).collect()),
        scalar => Some(scalar.clone()),
    }
}

fn cleaned_map(map: &Map<String, Value>) -> Map<String, Value> {
    let directive = |key: &str| {
        key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM)
    };
    let kept = map.iter().filter(|(key, value)| !value.is_null() && !directive(key));
    kept.filter_map(|(key, value)| Some((key.clone(), cleaned(value)?))).collect()
}
