//! Inputs of the targets: JSON documents, one per line.

use serde_json::{Value, json};

/// The documents of an input, as many as asked for; what does not parse is null.
pub fn documents<const N: usize>(data: &[u8]) -> [Value; N] {
    let mut lines = data.split(|byte| *byte == b'\n');
    std::array::from_fn(|_| lines.next().and_then(|line| serde_json::from_slice(line).ok()).unwrap_or_default())
}

/// A schema with every kind of list and map.
pub fn sample_schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": {"type": "string", "maxLength": 20},
        "count": {"type": "integer", "default": 1, "minimum": 0},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "atomic": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "port": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "keyed": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "kind": {"type": "string", "default": "a"}, "value": {"type": "integer"},
            }},
        },
    }}}})
}
