//! Reading stored objects only as far as needed.
//!
//! A Table shows a few fields of each of thousands of objects. Parsing those fields and skipping
//! the rest costs a fraction of parsing everything, and metadata is passed on as the bytes it is.

use std::{collections::BTreeMap, fmt};

use remuda_objects::jsonpath::JsonPath;
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

/// Which fields of an object to read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Need {
    Everything,
    /// Everything but this field.
    But(&'static str),
    Fields(BTreeMap<String, Need>),
}

impl Need {
    pub(crate) fn nothing() -> Self {
        Self::Fields(BTreeMap::new())
    }

    /// What these paths can reach, and the name.
    pub(crate) fn of_paths<'a>(paths: impl Iterator<Item = &'a JsonPath>) -> Self {
        let mut need = Self::nothing();
        need.add(["metadata", "name"].into_iter());
        for path in paths {
            need.add(path.leading_fields());
        }
        need
    }

    /// And what is at this path.
    pub(crate) fn add<'a>(&mut self, mut path: impl Iterator<Item = &'a str>) {
        let Self::Fields(fields) = self else { return };
        match path.next() {
            None => *self = Self::Everything,
            Some(field) => {
                fields.entry(field.to_owned()).or_insert_with(Self::nothing).add(path);
            }
        }
    }

    fn of(&self, field: &str) -> Option<&Need> {
        match self {
            Self::Everything => Some(&Self::Everything),
            Self::But(skipped) => (*skipped != field).then_some(&Self::Everything),
            Self::Fields(fields) => fields.get(field),
        }
    }
}

/// An object read in part: the needed fields as a value, and its metadata as it is stored.
pub(crate) struct Lean<'a> {
    pub(crate) object: Value,
    pub(crate) metadata: &'a str,
}

/// Reads the needed fields of a stored object.
pub(crate) fn read<'a>(bytes: &'a [u8], need: &Need) -> Result<Lean<'a>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    (&mut deserializer).deserialize_map(Top { need })
}

struct Top<'n> {
    need: &'n Need,
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = Lean<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Lean<'de>, A::Error> {
        let mut object = Map::new();
        let mut metadata = "{}";
        while let Some(key) = access.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == "metadata" {
                let raw: &'de RawValue = access.next_value()?;
                metadata = raw.get();
                let need = match self.need.of("metadata") {
                    Some(Need::Everything) => Some(&Need::But("managedFields")),
                    other => other,
                };
                if let Some(need) = need {
                    let mut inner = serde_json::Deserializer::from_str(metadata);
                    let value = Part { need }.deserialize(&mut inner).map_err(serde::de::Error::custom)?;
                    object.insert(key.into_owned(), value);
                }
            } else if let Some(need) = self.need.of(&key) {
                object.insert(key.into_owned(), access.next_value_seed(Part { need })?);
            } else {
                access.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Lean { object: Value::Object(object), metadata })
    }
}

/// A value below the top, read as far as needed.
struct Part<'n> {
    need: &'n Need,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.need {
            Need::Everything => serde::Deserialize::deserialize(deserializer),
            Need::But(_) | Need::Fields(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.need.of(&key) {
                Some(need) => {
                    map.insert(key.into_owned(), access.next_value_seed(Part { need })?);
                }
                None => {
                    access.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(map))
    }

    // A path that expects an object here reaches nothing in anything else.

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_paths_reach_is_read() {
        let paths: Vec<JsonPath> =
            [".spec.replicas", ".status.conditions[?(@.type==\"Ready\")].status", ".spec.a.b"]
                .iter()
                .map(|path| JsonPath::parse(path).unwrap())
                .collect();
        let need = Need::of_paths(paths.iter());
        let bytes = br#"{"apiVersion":"x/v1","metadata":{"name":"n","managedFields":[{}],"uid":"u"},
            "spec":{"replicas":3,"payload":"long","a":[1]},"status":{"conditions":[{"type":"Ready"}],"phase":"x"}}"#;
        let lean = read(bytes, &need).unwrap();
        let expected = json!({
            "metadata": {"name": "n"}, "spec": {"replicas": 3, "a": null},
            "status": {"conditions": [{"type": "Ready"}]},
        });
        assert_eq!(lean.object, expected);
        assert_eq!(lean.metadata, r#"{"name":"n","managedFields":[{}],"uid":"u"}"#);
    }

    #[test]
    fn everything_leaves_out_only_managed_fields() {
        let bytes = br#"{"kind":"K","metadata":{"name":"n","managedFields":[{}]},"data":{"a":"b"}}"#;
        let lean = read(bytes, &Need::Everything).unwrap();
        assert_eq!(lean.object, json!({"kind": "K", "metadata": {"name": "n"}, "data": {"a": "b"}}));
    }
}
