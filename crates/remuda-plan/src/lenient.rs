//! Structs read as Go reads them.

use std::{fmt, sync::Arc};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// Implements `Deserialize` for a struct from its keys. `null` is the default value, for the struct and for
/// each field; a list in place of the object is refused, though serde would take it field by field.
macro_rules! lenient {
    ($type:ident { $($key:literal => $field:ident $(by $read:path)?,)* }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<$type, D::Error> {
                struct Fields;

                impl<'de> serde::de::Visitor<'de> for Fields {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_unit<E: serde::de::Error>(self) -> Result<$type, E> {
                        Ok($type::default())
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
                        const KEYS: &[&str] = &[$($key),*];
                        let mut value = $type::default();
                        while let Some(key) = map.next_key_seed($crate::lenient::Key(KEYS))? {
                            match key {
                                $($key => value.$field = lenient!(@read map $($read)?),)*
                                _ => drop(map.next_value::<serde::de::IgnoredAny>()?),
                            }
                        }
                        Ok(value)
                    }
                }

                input.deserialize_any(Fields)
            }
        }
    };
    (@read $map:ident) => { $crate::lenient::nullable(&mut $map)? };
    (@read $map:ident $read:path) => { $read(&mut $map)? };
}
pub(crate) use lenient;

/// Reads a key as the one of these it is equal to but for case; anything else is nothing of interest.
pub(crate) struct Key(pub(crate) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<&'static str, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<&'static str, E> {
        let exact = self.0.iter().find(|known| **known == key);
        let known = exact.or_else(|| self.0.iter().find(|known| known.eq_ignore_ascii_case(key)));
        Ok(known.copied().unwrap_or_default())
    }
}

/// A value or nothing.
pub(crate) fn nullable<'de, A: MapAccess<'de>, T: Default + Deserialize<'de>>(
    map: &mut A,
) -> Result<T, A::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

/// A list of strings or nothings.
pub(crate) fn texts<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<String>, A::Error> {
    let texts = nullable::<A, Vec<Option<String>>>(map)?;
    Ok(texts.into_iter().map(Option::unwrap_or_default).collect())
}

/// A long text, copied once.
pub(crate) fn shared<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Arc<str>, A::Error> {
    map.next_value_seed(Shared)
}

struct Shared;

impl<'de> DeserializeSeed<'de> for Shared {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Arc<str>, D::Error> {
        input.deserialize_any(self)
    }
}

impl Visitor<'_> for Shared {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Arc<str>, E> {
        Ok(Arc::default())
    }
}
