//! Between bytes and objects: request bodies in, storage templates and answers out.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use remuda_store::Template;
use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

use crate::{
    negotiate::{BodyType, Encoding, body_type},
    status::{ApiError, ApiResult},
};

/// Parses JSON as the Go decoder does: the last of duplicate keys wins (each is reported),
/// integral floats become integers.
pub(crate) fn parse_json(bytes: &[u8], duplicates: &mut Vec<String>) -> Result<Value, serde_json::Error> {
    let mut path = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &mut path, duplicates }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads the body of a request that is of a kind of the API itself, in whichever form it comes.
pub(crate) fn read_body(headers: &HeaderMap, body: &[u8], kind: &str) -> ApiResult<Value> {
    let unreadable = |cause: String| ApiError::bad_request(format!("couldn't decode {kind}: {cause}"));
    let ignored = &mut Vec::new();
    match body_type(headers) {
        BodyType::Json => parse_json(body, ignored).map_err(|error| unreadable(error.to_string())),
        BodyType::Yaml => parse_yaml(body, ignored).map_err(unreadable),
        BodyType::Protobuf => {
            remuda_kinds::decode_protobuf(body).map_err(|error| unreadable(error.to_string()))
        }
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Parses one YAML document as `sigs.k8s.io/yaml` does. JSON is YAML. Duplicates in a map that has numbers for
/// keys go unreported: the parser settles them itself.
pub(crate) fn parse_yaml(bytes: &[u8], duplicates: &mut Vec<String>) -> Result<Value, String> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(value) = parse_json(bytes, duplicates)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
    };
    let mut path = Vec::new();
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        Node { path: &mut path, duplicates }.deserialize(deserializer)
    })
    .map_err(|error| error.to_string())
}

fn whole(float: f64) -> Option<Number> {
    (float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0).then(|| Number::from(float as i64))
}

enum Step {
    Key(String),
    Index(usize),
}

struct Node<'a> {
    path: &'a mut Vec<Step>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(whole(value).map_or_else(|| Value::from(value), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        self.path.push(Step::Index(0));
        while let Some(item) =
            access.next_element_seed(Node { path: self.path, duplicates: self.duplicates })?
        {
            items.push(item);
            if let Some(Step::Index(index)) = self.path.last_mut() {
                *index += 1;
            }
        }
        self.path.pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let seen = map.contains_key(&key);
            self.path.push(Step::Key(key));
            if seen && self.duplicates.len() < 100 {
                self.duplicates.push(path_text(self.path));
            }
            let value = access.next_value_seed(Node { path: self.path, duplicates: self.duplicates })?;
            if let Some(Step::Key(key)) = self.path.pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}

fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// The stored form of an object: compact JSON with a slot for the resourceVersion.
pub(crate) fn encode(object: &Value) -> Template {
    let mut out = Vec::with_capacity(2048);
    let mut slot = None;
    match object {
        Value::Object(map) => write_map(&mut out, map, &mut |out, key, value| {
            if key == "metadata"
                && let Value::Object(metadata) = value
            {
                slot = Some(write_metadata(out, metadata));
            } else {
                write_value(out, value);
            }
        }),
        other => write_value(&mut out, other),
    }
    Template { bytes: Bytes::from(out), slot }
}

fn write_map(out: &mut Vec<u8>, map: &Map<String, Value>, each: &mut dyn FnMut(&mut Vec<u8>, &str, &Value)) {
    out.push(b'{');
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_key(out, key);
        each(out, key, value);
    }
    out.push(b'}');
}

/// Writes metadata with `resourceVersion` at its place in the sorted keys; returns the slot.
fn write_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>) -> u32 {
    const KEY: &str = "resourceVersion";
    let mut slot = None;
    let mut first = true;
    out.push(b'{');
    let mut place = |out: &mut Vec<u8>, first: &mut bool| {
        if !std::mem::take(first) {
            out.push(b',');
        }
        out.extend_from_slice(b"\"resourceVersion\":\"");
        slot = Some(out.len() as u32);
        out.push(b'"');
    };
    let mut placed = false;
    for (key, value) in metadata {
        if key == KEY {
            continue;
        }
        if !placed && key.as_str() > KEY {
            place(out, &mut first);
            placed = true;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write_key(out, key);
        write_value(out, value);
    }
    if !placed {
        place(out, &mut first);
    }
    out.push(b'}');
    slot.expect("the slot is placed in or after the loop")
}

fn write_key(out: &mut Vec<u8>, key: &str) {
    serde_json::to_writer(&mut *out, key).expect("writing to memory cannot fail");
    out.push(b':');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(&mut *out, value).expect("writing to memory cannot fail");
}

/// An answer's bytes in the asked encoding.
pub(crate) fn render(value: &Value, encoding: Encoding, pretty: bool) -> Vec<u8> {
    match (encoding, pretty) {
        (Encoding::Json, false) => serde_json::to_vec(value).unwrap_or_default(),
        (Encoding::Json, true) => {
            let mut out = serde_json::to_vec_pretty(value).unwrap_or_default();
            out.push(b'\n');
            out
        }
        (Encoding::Yaml, _) => serde_saphyr::to_string(value).unwrap_or_default().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_slot_is_where_the_resource_version_belongs() {
        for object in [
            json!({"apiVersion": "v1", "metadata": {"name": "a", "uid": "u", "resourceVersion": "9"}, "zeta": 1}),
            json!({"metadata": {}}),
            json!({"metadata": {"name": "a"}}),
        ] {
            let template = encode(&object);
            let slot = template.slot.expect("has metadata") as usize;
            let mut bytes = template.bytes.to_vec();
            bytes.splice(slot..slot, b"42".iter().copied());
            let back: Value = serde_json::from_slice(&bytes).unwrap();
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!("42");
            assert_eq!(back, expected);
            assert_eq!(serde_json::to_vec(&back).unwrap(), bytes, "keys stay sorted");
        }
    }

    #[test]
    fn duplicates_are_found_where_they_are_and_the_last_wins() {
        let mut duplicates = Vec::new();
        let value =
            parse_json(br#"{"spec":{"a":1,"a":2,"list":[{"x":1},{"y":1,"y":2.0}]}}"#, &mut duplicates)
                .unwrap();
        assert_eq!(value, json!({"spec": {"a": 2, "list": [{"x": 1}, {"y": 2}]}}));
        assert_eq!(duplicates, ["spec.a", "spec.list[1].y"]);
        assert!(parse_json(b"{} x", &mut duplicates).is_err());
    }

    #[test]
    fn yaml_reads_as_kubernetes_reads_it() {
        let value = parse_yaml(b"a: yes\nb: 0644\nc: 1.0\nd: \"1\"\n", &mut Vec::new()).unwrap();
        assert_eq!(value, json!({"a": true, "b": 420, "c": 1, "d": "1"}));
        let mut duplicates = Vec::new();
        let text = b"spec:\n  a: 1\n  a: 2\n  list:\n  - {x: 1}\n  - {y: 1, y: ~}\n";
        let value = parse_yaml(text, &mut duplicates).unwrap();
        assert_eq!(value, json!({"spec": {"a": 2, "list": [{"x": 1}, {"y": null}]}}));
        assert_eq!(duplicates, ["spec.a", "spec.list[1].y"]);
        assert_eq!(parse_yaml(b"", &mut Vec::new()), Ok(Value::Null));
        for bad in ["a: b: c", "a: 1\n---\nb: 2\n"] {
            assert!(parse_yaml(bad.as_bytes(), &mut Vec::new()).is_err(), "{bad}");
        }
    }
}
