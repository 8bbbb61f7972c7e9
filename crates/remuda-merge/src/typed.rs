//! Objects seen through their type: which parts are maps, lists and leaves, and how list items
//! are told apart.
//!
//! Walks over stored objects are lenient: a value that does not fit its type is a leaf, an item
//! without key is skipped, an undeclared field has the type its value suggests. Only
//! [`validate`] is strict, for applied configurations.

use std::borrow::Cow;

use remuda_schema::{Additional, ListType, Schema, Type};
use serde_json::{Map, Value};

use crate::{fields::PathElement, gotext, meta};

pub(crate) mod compare;
pub(crate) mod merge;
pub(crate) mod prune;
pub(crate) mod validate;

/// The type of a value.
#[derive(Clone, Copy)]
pub(crate) enum Typed<'a> {
    /// A whole object: `metadata` is known even where the schema says nothing about it.
    Root(Option<&'a Schema>),
    /// A declared type; the flag says that unknown fields are kept, which descendants inherit.
    Known(&'a Schema, bool),
    /// Deduced from the value: maps are granular, lists atomic.
    Free,
}

/// How a value is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Map,
    List,
    Leaf,
}

static ATOMIC: ListType = ListType::Atomic;

impl<'a> Typed<'a> {
    pub(crate) fn of(schema: &'a Schema) -> Self {
        Self::Known(schema, schema.preserve_unknown)
    }

    fn schema(self) -> Option<&'a Schema> {
        match self {
            Self::Root(schema) => schema,
            Self::Known(schema, _) => Some(schema),
            Self::Free => None,
        }
    }

    fn preserves(self) -> bool {
        match self {
            Self::Root(schema) => schema.is_none_or(|schema| schema.preserve_unknown),
            Self::Known(_, preserves) => preserves,
            Self::Free => true,
        }
    }

    /// How `value` is walked; `null` takes the form of the type.
    pub(crate) fn form(self, value: &Value) -> Form {
        let kind = self.kind();
        match value {
            Value::Object(_) if matches!(kind, Type::Object | Type::Any) => Form::Map,
            Value::Array(_) if matches!(kind, Type::Array | Type::Any) => Form::List,
            Value::Null if matches!(kind, Type::Object | Type::Any) => Form::Map,
            Value::Null if kind == Type::Array => Form::List,
            _ => Form::Leaf,
        }
    }

    fn kind(self) -> Type {
        match self {
            Self::Root(_) => Type::Object,
            Self::Known(schema, _) => schema.kind,
            Self::Free => Type::Any,
        }
    }

    /// Maps of this type are owned as a whole.
    pub(crate) fn atomic_map(self) -> bool {
        self.schema().is_some_and(|schema| schema.atomic_map)
    }

    pub(crate) fn list_type(self) -> &'a ListType {
        self.schema().map_or(&ATOMIC, |schema| &schema.list_type)
    }

    pub(crate) fn atomic_list(self) -> bool {
        *self.list_type() == ListType::Atomic
    }

    /// Declared to be owned as a whole, whatever the value.
    pub(crate) fn is_atomic(self) -> bool {
        match self.kind() {
            Type::Object => self.atomic_map(),
            Type::Array => self.atomic_list(),
            _ => false,
        }
    }

    /// The type of a declared field.
    pub(crate) fn declared(self, name: &str) -> Option<Typed<'a>> {
        if let Self::Root(_) = self {
            match name {
                "apiVersion" | "kind" => return Some(Typed::of(meta::text_type())),
                "metadata" => {
                    let own = self.schema().and_then(|schema| schema.properties.get(name));
                    let own = own.filter(|schema| !schema.properties.is_empty());
                    return Some(Typed::of(own.map_or(meta::object_meta_type(), AsRef::as_ref)));
                }
                _ => {}
            }
        }
        let field = self.schema()?.properties.get(name)?;
        Some(Typed::Known(field, self.preserves() || field.preserve_unknown))
    }

    /// The type of a field that is not declared, if such fields are allowed.
    pub(crate) fn undeclared(self) -> Option<Typed<'a>> {
        let Some(schema) = self.schema() else { return Some(Typed::Free) };
        match &schema.additional {
            Some(Additional::Schema(values)) => {
                Some(Typed::Known(values, self.preserves() || values.preserve_unknown))
            }
            Some(Additional::Any) => Some(Typed::Free),
            None if self.preserves() || schema.properties.is_empty() => Some(Typed::Free),
            None => None,
        }
    }

    /// The type of any field, leniently.
    pub(crate) fn field(self, name: &str) -> Typed<'a> {
        self.declared(name).or_else(|| self.undeclared()).unwrap_or(Typed::Free)
    }

    pub(crate) fn item(self) -> Typed<'a> {
        match self.schema().and_then(|schema| schema.items.as_ref()) {
            Some(items) => Typed::Known(items, self.preserves() || items.preserve_unknown),
            None => Typed::Free,
        }
    }

    /// What tells an item of this (not atomic) list apart, or why it has no identity.
    pub(crate) fn element(self, item: &'a Value) -> Result<PathElement<'a>, String> {
        match self.list_type() {
            ListType::Map(keys) if !keys.is_empty() => self.key(keys, item),
            ListType::Map(_) | ListType::Set => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(PathElement::Value(Cow::Borrowed(scalar))),
            },
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        }
    }

    fn key(self, keys: &'a [String], item: &'a Value) -> Result<PathElement<'a>, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let defaults = self.schema().and_then(|schema| schema.items.as_ref());
        let default = |name: &str| defaults.and_then(|items| items.properties.get(name)?.default.as_ref());
        let mut found: Vec<(Cow<'a, str>, Cow<'a, Value>)> = Vec::with_capacity(keys.len());
        for name in keys {
            if let Some(value) = map.get(name).or_else(|| default(name)) {
                found.push((Cow::Borrowed(name), Cow::Borrowed(value)));
            }
        }
        if found.is_empty() {
            let names: Vec<String> = keys.iter().map(|key| gotext::quoted(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        found.sort_by(|left, right| left.0.cmp(&right.0));
        Ok(PathElement::Key(found))
    }
}

/// The entries of a map; `null` counts as empty.
pub(crate) fn map_of(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|map| !map.is_empty())
}

/// The items of a list; `null` counts as empty.
pub(crate) fn list_of(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
