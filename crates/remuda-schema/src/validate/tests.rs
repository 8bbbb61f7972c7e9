use serde_json::{Value, json};

use crate::{FieldError, compile};

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn check(spec: Value, value: Value, expected: &[&str]) {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let schema = compile(&schema).unwrap();
    assert_eq!(texts(&schema.validate(&json!({"spec": value}), None)), expected);
}

#[track_caller]
fn check_update(spec: Value, old: Value, new: Value, expected: &[&str]) {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let schema = compile(&schema).unwrap();
    let errors = schema.validate(&json!({"spec": new}), Some(&json!({"spec": old})));
    assert_eq!(texts(&errors), expected);
}

#[test]
fn types_are_checked() {
    check(
        json!({"type": "string"}),
        json!(5),
        &[r#"spec: Invalid value: "integer": spec in body must be of type string: "integer""#],
    );
    check(
        json!({"type": "object"}),
        json!(null),
        &[r#"spec: Invalid value: "null": spec in body must be of type object: "null""#],
    );
    check(json!({"type": "object", "nullable": true}), json!(null), &[]);
    check(json!({"type": "integer"}), json!(1.0), &[]);
    check(json!({"type": "number"}), json!(1), &[]);
    check(
        json!({"type": "integer"}),
        json!(1.5),
        &[
            r#"spec: Invalid value: "number": spec in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec"#,
        ],
    );
    check(
        json!({"type": "integer", "format": "int32"}),
        json!(3_000_000_000_i64),
        &[r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec"#],
    );
    check(
        json!({"type": "string", "format": "date-time"}),
        json!(1),
        &[r#"spec: Invalid value: "int64": spec in body must be of type date-time: "int64""#],
    );
}

#[test]
fn int_or_string_takes_both() {
    let schema = json!({"x-kubernetes-int-or-string": true});
    check(schema.clone(), json!(1), &[]);
    check(schema.clone(), json!("50%"), &[]);
    check(
        schema,
        json!(true),
        &[r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#],
    );
    let pattern =
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    check(pattern, json!("x"), &[]);
}

#[test]
fn numbers_have_bounds() {
    let schema = json!({"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 0, "maximum": 5}}});
    check(
        schema.clone(),
        json!({"replicas": -1}),
        &["spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"],
    );
    check(
        schema,
        json!({"replicas": 6}),
        &["spec.replicas: Invalid value: 6: spec.replicas in body should be less than or equal to 5"],
    );
    check(
        json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true}),
        json!(0.5),
        &["spec: Invalid value: 0.5: spec in body should be greater than 0.5"],
    );
    check(
        json!({"type": "integer", "multipleOf": 3}),
        json!(4),
        &["spec: Invalid value: 4: spec in body should be a multiple of 3"],
    );
    check(json!({"type": "number", "multipleOf": 0.1}), json!(0.3), &[]);
}

#[test]
fn strings_have_length_pattern_and_format() {
    check(
        json!({"type": "string", "maxLength": 3}),
        json!("abcd"),
        &["spec: Too long: may not be more than 3 bytes"],
    );
    check(json!({"type": "string", "maxLength": 3}), json!("äöü"), &[]);
    check(
        json!({"type": "string", "minLength": 3}),
        json!("a"),
        &[r#"spec: Invalid value: "a": spec in body should be at least 3 chars long"#],
    );
    check(
        json!({"type": "string", "pattern": "^a$"}),
        json!("b"),
        &[r#"spec: Invalid value: "b": spec in body should match '^a$'"#],
    );
    check(
        json!({"type": "string", "format": "ipv4"}),
        json!("x"),
        &[r#"spec: Invalid value: "x": spec in body must be of type ipv4: "x""#],
    );
    check(json!({"type": "string", "format": "made-up"}), json!("x"), &[]);
}

#[test]
fn enums_list_what_is_supported() {
    check(
        json!({"type": "string", "enum": ["red", "blue"]}),
        json!("green"),
        &[r#"spec: Unsupported value: "green": supported values: "red", "blue""#],
    );
    check(
        json!({"type": "integer", "enum": [1, 2]}),
        json!(3),
        &[r#"spec: Unsupported value: 3: supported values: "1", "2""#],
    );
    check(
        json!({"type": "string", "nullable": true, "enum": ["a"]}),
        json!(null),
        &[r#"spec: Unsupported value: null: supported values: "a""#],
    );
}

#[test]
fn objects_and_arrays_have_sizes() {
    check(
        json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}}),
        json!({"a": "x"}),
        &["spec.b: Required value"],
    );
    check(
        json!({"type": "array", "minItems": 2, "items": {"type": "string"}}),
        json!(["a"]),
        &["spec: Invalid value: 1: spec in body should have at least 2 items"],
    );
    check(
        json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
        json!(["a", "b"]),
        &["spec: Too many: 2: must have at most 1 item"],
    );
    check(
        json!({"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}),
        json!({"a": "x", "b": 1}),
        &[
            "spec: Too many: 2: must have at most 1 item",
            r#"spec.b: Invalid value: "integer": spec.b in body must be of type string: "integer""#,
        ],
    );
    check(
        json!({"type": "object", "minProperties": 1}),
        json!({}),
        &["spec: Invalid value: 0: spec in body should have at least 1 properties"],
    );
    check(
        json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}),
        json!([{"a": "x"}, {"a": 1}]),
        &[r#"spec[1].a: Invalid value: "integer": spec[1].a in body must be of type string: "integer""#],
    );
}

#[test]
fn junctors_report_the_closest_alternative() {
    let schema = json!({"type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        schema.clone(),
        json!({}),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a: Required value",
        ],
    );
    check(
        schema,
        json!({"a": "x", "b": "y"}),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]}),
        json!(5),
        &[
            r#"<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)"#,
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
        ],
    );
    check(
        json!({"type": "integer", "allOf": [{"minimum": 10}]}),
        json!(5),
        &[
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
            r#"<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated"#,
        ],
    );
    check(
        json!({"type": "integer", "not": {"enum": [5]}}),
        json!(5),
        &[r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#],
    );
}

#[test]
fn set_and_map_lists_hold_each_item_once() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    check(set.clone(), json!(["a", "b", "a", "a"]), &[r#"spec[2]: Duplicate value: "a""#]);
    check(set, json!(["a", "b"]), &[]);
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}});
    check(map.clone(), json!([{"name": "a"}, {"name": "a"}]), &[r#"spec[1]: Duplicate value: {"name":"a"}"#]);
    check_update(map, json!([{"name": "a"}, {"name": "a"}]), json!([{"name": "b"}, {"name": "b"}]), &[]);
}

#[test]
fn embedded_resources_need_a_type() {
    let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true});
    check(schema.clone(), json!({}), &["spec.apiVersion: Required value", "spec.kind: Required value"]);
    check(schema.clone(), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}), &[]);
    check(
        schema,
        json!({"apiVersion": "a/b/c", "kind": "Pod", "metadata": {"name": "a/b"}}),
        &[
            r#"spec.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            r#"spec.metadata.name: Invalid value: "a/b": may not contain '/'"#,
        ],
    );
}

#[test]
fn unchanged_values_are_not_reported_again() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1},
        "b": {"type": "string", "maxLength": 1},
    }});
    check_update(
        schema.clone(),
        json!({"a": "long", "b": "x"}),
        json!({"a": "long", "b": "long"}),
        &["spec.b: Too long: may not be more than 1 byte"],
    );
    check_update(schema, json!({"a": "long"}), json!({"a": "long"}), &[]);
}

#[test]
fn items_are_forgiven_by_key_but_not_in_atomic_lists() {
    let items = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items});
    let old = json!([{"name": "a", "v": 9}, {"name": "b", "v": 1}]);
    let new = json!([{"name": "b", "v": 9}, {"name": "a", "v": 9}]);
    check_update(
        map,
        old.clone(),
        new.clone(),
        &["spec[0].v: Invalid value: 9: spec[0].v in body should be less than or equal to 1"],
    );
    let atomic = json!({"type": "array", "items": items});
    check_update(
        atomic.clone(),
        old.clone(),
        new,
        &[
            "spec[0].v: Invalid value: 9: spec[0].v in body should be less than or equal to 1",
            "spec[1].v: Invalid value: 9: spec[1].v in body should be less than or equal to 1",
        ],
    );
    check_update(atomic, old.clone(), old, &[]);
}

#[test]
fn status_writes_only_see_the_status() {
    let schema = compile(&json!({"type": "object", "properties": {
        "spec": {"type": "string"},
        "status": {"type": "object", "required": ["a"], "properties": {"b": {"type": "string"}}},
    }}))
    .unwrap();
    let errors = schema.validate_status(&json!({"spec": 1, "status": {"b": 1}}), &json!({"spec": 1}));
    assert_eq!(
        texts(&errors),
        [
            r#"status.b: Invalid value: "integer": b in body must be of type string: "integer""#,
            "status.a: Required value",
        ]
    );
}

#[test]
fn the_number_of_errors_is_bounded() {
    let schema = compile(&json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string"}}}}))
    .unwrap();
    let value = json!({"l": vec![1; 100_000]});
    assert_eq!(schema.validate(&value, None).len(), super::MAX_ERRORS);
}
