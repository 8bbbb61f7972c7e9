//! Properties that hold for every schema and every value.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{check_crd, check_structural, compile, crd_warnings, default_crd};

const NAMES: [&str; 6] = ["a", "b", "c", "kind", "metadata", "name"];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5i64..5).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        "[a-c.:/%é\n\"]{0,5}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "maxLength": 2, "default": "d"})),
        Just(json!({"type": "string", "pattern": "^a"})),
        Just(json!({"type": "string", "nullable": true, "enum": ["a", "b"]})),
        Just(json!({"type": "string", "format": "date-time"})),
        Just(json!({"type": "integer", "minimum": 0, "maximum": 3, "multipleOf": 2})),
        Just(json!({"type": "number", "exclusiveMinimum": true, "minimum": 0.5, "format": "float"})),
        Just(json!({"type": "integer", "format": "int32", "default": 1})),
        Just(json!({"type": "boolean"})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "object", "additionalProperties": true})),
        Just(json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true})),
    ];
    leaf.prop_recursive(4, 30, 4, |inner| {
        let fields = prop::collection::btree_map(name(), inner.clone(), 0..4);
        prop_oneof![
            (fields, prop::collection::vec(name(), 0..2), any::<[bool; 3]>()).prop_map(
                |(fields, required, [preserve, embedded, rule])| {
                    let mut schema = json!({"type": "object", "properties": fields, "required": required,
                        "anyOf": [{"required": ["a"]}, {"not": {"required": ["b"]}}]});
                    if preserve {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    if embedded {
                        schema["x-kubernetes-embedded-resource"] = json!(true);
                    }
                    if rule {
                        schema["x-kubernetes-validations"] =
                            json!([{"rule": "has(self.a) || self == oldSelf"}]);
                    }
                    schema
                }
            ),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items, "maxItems": 2})),
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items, "x-kubernetes-list-type": "set"})),
            inner.clone().prop_map(|items| json!({"type": "array", "items": items,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]})),
            inner.prop_map(|value| json!({"type": "object", "additionalProperties": value})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pruning_and_defaulting_are_idempotent(schema in schema(), value in value()) {
        let schema = compile(&schema).unwrap();
        let mut once = value;
        schema.prune(&mut once, None);
        let mut twice = once.clone();
        let mut unknown = Vec::new();
        schema.prune(&mut twice, Some(&mut unknown));
        prop_assert_eq!(&once, &twice);
        prop_assert!(unknown.is_empty());
        schema.apply_defaults(&mut once);
        let mut twice = once.clone();
        schema.apply_defaults(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn validation_never_panics_and_unchanged_objects_stay_valid_enough(
        schema in schema(), old in value(), new in value()
    ) {
        let schema = compile(&schema).unwrap();
        let fresh = schema.validate(&new, None);
        let update = schema.validate(&new, Some(&old));
        let _ = (schema.validate_status(&new, &old), schema.coerce(&mut new.clone()));
        for error in fresh.iter().chain(&update) {
            prop_assert!(!error.message.is_empty() && !error.field.is_empty());
        }
    }

    #[test]
    fn any_json_may_be_offered_as_a_schema(schema in value(), value in value()) {
        let _ = check_structural(&schema, "s");
        if let Ok(schema) = compile(&schema) {
            let _ = schema.validate(&value, None);
        }
    }

    #[test]
    fn any_json_may_be_offered_as_a_definition(schema in schema(), odd in value(), old in value()) {
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "selectableFields": odd, "subresources": odd});
        let mut crd = json!({"spec": {"group": "x.io", "names": odd, "versions": [version, odd], "conversion": odd}});
        default_crd(&mut crd);
        let _ = (check_crd(&crd, None), check_crd(&crd, Some(&old)), crd_warnings(&crd, Some(&old)));
    }
}

/// A schema of about `size` bytes, shaped like those of large real definitions.
fn large_schema(size: usize) -> Value {
    let description = "What this field means, in a sentence of common length for generated definitions.";
    let leaf = |index: usize| match index % 4 {
        0 => {
            json!({"type": "string", "description": description, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"})
        }
        1 => json!({"type": "integer", "format": "int32", "minimum": 0, "description": description}),
        2 => json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "maxLength": 63},
                "value": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}}),
        _ => {
            json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description})
        }
    };
    let mut groups = Map::new();
    let mut bytes = 0;
    for group in 0.. {
        let mut fields = Map::new();
        for index in 0..20 {
            fields.insert(format!("field{index}"), leaf(index));
        }
        let inner = json!({"type": "object", "properties": fields});
        let nested = json!({"type": "object", "description": description, "properties": {"inner": inner}});
        bytes += nested.to_string().len();
        groups.insert(format!("group{group}"), nested);
        if bytes > size {
            break;
        }
    }
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": groups,
            "x-kubernetes-validations": [{"rule": "!has(self.group0) || has(self.group0.inner)"}]},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
}

#[test]
fn a_large_definition_compiles_and_its_objects_pass() {
    let json = large_schema(300_000);
    assert!(json.to_string().len() > 300_000);
    assert_eq!(check_structural(&json, "s"), []);
    let schema = compile(&json).unwrap();
    let inner =
        json!({"field0": "a", "field1": 1, "field2": [{"name": "x", "value": 5}], "field3": {"k": "v"}});
    let mut object = json!({"metadata": {"name": "n"}, "spec": {"group1": {"inner": inner, "odd": 1}}, "status": {"x": 1}});
    let mut unknown = Vec::new();
    schema.prune(&mut object, Some(&mut unknown));
    assert_eq!(unknown, ["spec.group1.odd"]);
    schema.apply_defaults(&mut object);
    assert_eq!(schema.validate(&object, None), []);
}
