use serde_json::{Value, json};

use super::check_structural;

#[track_caller]
fn check(schema: Value, expected: &[&str]) {
    let found: Vec<String> = check_structural(&schema, "s").iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

/// A root object with one property `a`.
#[track_caller]
fn check_field(field: Value, expected: &[&str]) {
    check(json!({"type": "object", "properties": {"a": field}}), expected);
}

#[test]
fn types_are_needed_at_every_level() {
    check(json!({}), &["s.type: Required value: must not be empty at the root"]);
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        &[r#"s.type: Invalid value: "array": must be object at the root"#],
    );
    check_field(
        json!({}),
        &["s.properties[a].type: Required value: must not be empty for specified object fields"],
    );
    check_field(
        json!({"type": "array", "items": {}}),
        &["s.properties[a].items.type: Required value: must not be empty for specified array items"],
    );
    check_field(json!({"type": "array"}), &["s.properties[a].items: Required value: must be specified"]);
    check_field(json!({"x-kubernetes-preserve-unknown-fields": true}), &[]);
    check_field(json!({"x-kubernetes-int-or-string": true}), &[]);
    check_field(
        json!({"type": "text"}),
        &[
            r#"s.properties[a].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
}

#[test]
fn junctors_hold_only_value_validations() {
    check_field(
        json!({"type": "string", "anyOf": [{"type": "string", "description": "x"}]}),
        &[
            "s.properties[a].anyOf[0].description: Forbidden: must be empty to be structural",
            "s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    // Only what junctors of the root talk about must be declared, as in the reference.
    check(
        json!({"type": "object", "oneOf": [{"properties": {"b": {"minimum": 1}}}]}),
        &["s.properties[b]: Required value: because it is defined in s.oneOf[0].properties[b]"],
    );
    check_field(
        json!({"type": "object", "not": {"additionalProperties": true, "nullable": true}}),
        &[
            "s.properties[a].not.additionalProperties: Forbidden: must be undefined to be structural",
            "s.properties[a].not.nullable: Forbidden: must be false to be structural",
        ],
    );
    let types = json!([{"type": "integer"}, {"type": "string"}]);
    check_field(json!({"x-kubernetes-int-or-string": true, "anyOf": types}), &[]);
    check_field(
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": types}, {"pattern": "^a"}]}),
        &[],
    );
}

#[test]
fn unsupported_keywords_are_named() {
    check_field(json!({"$ref": "#/x"}), &["s.properties[a].$ref: Forbidden: $ref is not supported"]);
    check_field(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        &[
            "s.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    );
    check_field(
        json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        &[
            "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        &["s.additionalProperties: Forbidden: must not be used at the root"],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
        &[
            "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ],
    );
    check(
        json!({"type": "object", "nullable": true}),
        &["s.nullable: Forbidden: nullable cannot be true at the root"],
    );
    let found = check_structural(
        &json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
        "s",
    );
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].field, "s.properties[a].pattern");
    assert!(
        found[0].message.starts_with("Invalid value: \"(\": must be a valid regular expression, but isn't: ")
    );
}

#[test]
fn root_metadata_only_restricts_names() {
    let metadata = |metadata: Value| json!({"type": "object", "properties": {"metadata": metadata}});
    check(
        metadata(json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}})),
        &[],
    );
    check(
        metadata(json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        &[
            "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ],
    );
    check(
        metadata(json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}})),
        &[
            "s.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
        ],
    );
}

#[test]
fn embedded_resources_are_objects() {
    check_field(
        json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
        &["s.properties[a].type: Required value: must be object if x-kubernetes-embedded-resource is true"],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        &[
            "s.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ],
    );
}

#[test]
fn list_types_have_rules() {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let map = |keys: Value, items: &Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    check_field(
        map(json!(["name"]), &item),
        &[
            "s.properties[a].items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ],
    );
    check_field(
        map(json!(["other"]), &item),
        &[
            r#"s.properties[a].x-kubernetes-list-map-keys: Invalid value: ["other"]: entries must all be names of item properties"#,
        ],
    );
    check_field(
        json!({"type": "array", "x-kubernetes-list-type": "map", "items": item}),
        &[
            "s.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ],
    );
    check_field(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": item}),
        &[
            "s.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ],
    );
    check_field(
        json!({"type": "string", "x-kubernetes-list-type": "bag"}),
        &[
            r#"s.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
            r#"s.properties[a].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
        ],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-map-type": "odd"}),
        &[
            r#"s.properties[a].x-kubernetes-map-type: Unsupported value: "odd": supported values: "atomic", "granular""#,
        ],
    );
}

#[test]
fn defaults_are_valid_and_pruned() {
    check_field(
        json!({"type": "integer", "default": "x"}),
        &[r#"s.properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check_field(
        json!({"type": "object", "default": {"b": 1}, "properties": {"c": {"type": "string"}}}),
        &[r#"s.properties[a].default: Invalid value: {"b":1}: must not have unknown fields"#],
    );
    check_field(
        json!({"type": "object", "default": {"c": "long"}, "properties": {"c": {"type": "string", "maxLength": 1}}}),
        &["s.properties[a].default.c: Too long: may not be more than 1 byte"],
    );
    check_field(
        json!({"type": "object", "default": {}, "properties": {"c": {"type": "string", "default": "x"}}}),
        &[],
    );
}

#[test]
fn json_that_is_no_schema_is_refused() {
    check(json!(5), &["s: Invalid value: 5: must be an object"]);
    check(json!({"type": 5}), &["s.type: Invalid value: must be a string"]);
    check_field(
        json!({"type": "string", "maxLength": "x"}),
        &["s.properties[a].maxLength: Invalid value: must be an integer"],
    );
    let mut deep = json!({"type": "string"});
    for _ in 0..1000 {
        deep = json!({"type": "array", "items": deep});
    }
    let found = check_structural(&json!({"type": "object", "properties": {"a": deep}}), "s");
    assert_eq!(found.len(), 1);
    assert!(found[0].message.contains("nested too deeply"));
}
