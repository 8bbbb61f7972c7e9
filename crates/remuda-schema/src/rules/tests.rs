use serde_json::{Value, json};

use crate::{check_structural, compile};

fn object(properties: Value, rules: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules})
}

fn root(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

#[track_caller]
fn check(schema: &Value, old: Option<Value>, new: Value, expected: &[&str]) {
    assert_eq!(check_structural(schema, "s"), [], "the schema itself is fine");
    let schema = compile(schema).unwrap();
    let found: Vec<String> = schema.validate(&new, old.as_ref()).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_schema(schema: &Value, expected: &[(&str, &str)]) {
    let found = check_structural(schema, "s");
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (error, (field, message)) in found.iter().zip(expected) {
        assert_eq!(error.field, *field);
        assert!(error.message.contains(message), "{error} should contain {message}");
    }
}

fn replicas(rule: Value) -> Value {
    let int = json!({"type": "integer"});
    root(object(json!({"replicas": int, "max": int}), json!([rule])))
}

#[test]
fn a_broken_rule_is_reported_with_its_message() {
    let value = json!({"spec": {"replicas": 5, "max": 3}});
    let rule = "self.replicas <= self.max";
    check(
        &replicas(json!({"rule": rule})),
        None,
        value.clone(),
        &["spec: Invalid value: failed rule: self.replicas <= self.max"],
    );
    check(
        &replicas(json!({"rule": rule, "message": "too many"})),
        None,
        value.clone(),
        &["spec: Invalid value: too many"],
    );
    check(
        &replicas(
            json!({"rule": rule, "message": "too many", "reason": "FieldValueForbidden", "fieldPath": ".replicas"}),
        ),
        None,
        value.clone(),
        &["spec.replicas: Forbidden: too many"],
    );
    check(
        &replicas(json!({"rule": rule, "messageExpression": "'at most %d'.format([self.max])"})),
        None,
        value,
        &["spec: Invalid value: at most 3"],
    );
    check(&replicas(json!({"rule": rule})), None, json!({"spec": {"replicas": 1, "max": 3}}), &[]);
}

#[test]
fn scalars_are_shown() {
    let schema = root(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.size() > 3"}]}));
    check(
        &schema,
        None,
        json!({"spec": "ab"}),
        &[r#"spec: Invalid value: "ab": failed rule: self.size() > 3"#],
    );
}

#[test]
fn errors_while_evaluating_are_failures() {
    let value = json!({"spec": {"replicas": 5}});
    check(
        &replicas(json!({"rule": "self.replicas <= self.max"})),
        None,
        value,
        &[r#"spec: Invalid value: "object": no such key: max evaluating rule: self.replicas <= self.max"#],
    );
}

#[test]
fn transition_rules_run_on_updates_only() {
    let schema = root(object(
        json!({"name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]}}),
        json!([]),
    ));
    let with = |name: &str| json!({"spec": {"name": name}});
    check(&schema, None, with("a"), &[]);
    check(&schema, Some(with("a")), with("a"), &[]);
    check(&schema, Some(with("a")), with("b"), &[r#"spec.name: Invalid value: "b": is immutable"#]);
    check(&schema, Some(json!({"spec": {}})), with("b"), &[]);
}

#[test]
fn optional_old_values_run_always() {
    let rule = json!({"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true});
    let schema = root(json!({"type": "string", "x-kubernetes-validations": [rule]}));
    check(&schema, None, json!({"spec": "first"}), &[]);
    let failed = r#"spec: Invalid value: "x": failed rule: oldSelf.hasValue() || self == 'first'"#;
    check(&schema, None, json!({"spec": "x"}), &[failed]);
    check(&schema, Some(json!({"spec": "y"})), json!({"spec": "x"}), &[]);
}

#[test]
fn unchanged_values_are_forgiven_unless_the_rule_compares() {
    let schema = root(object(
        json!({
            "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 2"}]},
            "b": {"type": "string"},
        }),
        json!([]),
    ));
    let old = json!({"spec": {"a": "long", "b": "x"}});
    check(&schema, Some(old.clone()), json!({"spec": {"a": "long", "b": "y"}}), &[]);
    check(
        &schema,
        Some(old),
        json!({"spec": {"a": "other"}}),
        &[r#"spec.a: Invalid value: "other": failed rule: self.size() < 2"#],
    );
}

#[test]
fn items_of_map_lists_meet_their_old_selves() {
    let item = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v"}]});
    let schema = root(json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"], "items": item}));
    check(
        &schema,
        Some(json!({"spec": [{"name": "a", "v": 5}, {"name": "b", "v": 1}]})),
        json!({"spec": [{"name": "b", "v": 2}, {"name": "a", "v": 4}, {"name": "c", "v": 0}]}),
        &["spec[1]: Invalid value: failed rule: self.v >= oldSelf.v"],
    );
}

#[test]
fn the_root_sees_type_and_names() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name == 'main' && self.kind == 'K'", "message": "singleton"}]});
    let named = |name: &str| json!({"apiVersion": "x/v1", "kind": "K", "metadata": {"name": name}});
    check(&schema, None, named("main"), &[]);
    check(&schema, None, named("other"), &["<nil>: Invalid value: singleton"]);
}

#[test]
fn schema_errors_keep_rules_from_running() {
    let skipped = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    check(
        &replicas(json!({"rule": "self.replicas <= self.max"})),
        None,
        json!({"spec": {"replicas": "x", "max": 1}}),
        &[
            r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
            skipped,
        ],
    );
}

#[test]
fn rules_must_compile() {
    let rule = "s.properties[spec].x-kubernetes-validations[0].rule";
    check_schema(&replicas(json!({"rule": "self.none == 1"})), &[(rule, "compilation failed: ")]);
    check_schema(&replicas(json!({"rule": "self.none == 1"})), &[(rule, "undefined field 'none'")]);
    check_schema(&replicas(json!({"rule": "self.max"})), &[(rule, "cel expression must evaluate to a bool")]);
    check_schema(&replicas(json!({"rule": " "})), &[(rule, "rule is not specified")]);
    check_schema(
        &replicas(json!({"rule": "true", "messageExpression": "1"})),
        &[(
            "s.properties[spec].x-kubernetes-validations[0].messageExpression",
            "messageExpression must evaluate to a string",
        )],
    );
    check_schema(
        &replicas(json!({"rule": "true", "fieldPath": ".nope"})),
        &[("s.properties[spec].x-kubernetes-validations[0].fieldPath", "must be a valid path")],
    );
    check_schema(
        &replicas(json!({"rule": "true", "reason": "Because"})),
        &[(
            "s.properties[spec].x-kubernetes-validations[0].reason",
            "supported values: \"FieldValueDuplicate\"",
        )],
    );
    check_schema(
        &replicas(json!({"rule": "true", "optionalOldSelf": true})),
        &[(
            "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        )],
    );
}

#[test]
fn preserved_data_is_invisible_and_lists_without_keys_have_no_past() {
    let schema = root(object(
        json!({"free": {"x-kubernetes-preserve-unknown-fields": true}}),
        json!([{"rule": "has(self.free)"}]),
    ));
    check_schema(
        &schema,
        &[("s.properties[spec].x-kubernetes-validations[0].rule", "undefined field 'free'")],
    );
    let list = root(json!({"type": "array", "items":
        {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}));
    check_schema(
        &list,
        &[(
            "s.properties[spec].items.x-kubernetes-validations[0].rule",
            "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec]",
        )],
    );
}

#[test]
fn types_follow_the_schema() {
    let schema = root(object(
        json!({
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "port": {"x-kubernetes-int-or-string": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ratio": {"type": "number"},
            "my-field": {"type": "string"},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }),
        json!([
            {"rule": "self.when > timestamp('2000-01-01T00:00:00Z')"},
            {"rule": "self.wait < duration('1h')"},
            {"rule": "type(self.port) == int || self.port.endsWith('%')"},
            {"rule": "self.labels.all(key, self.labels[key].size() > 0)"},
            {"rule": "self.ratio < 0.5"},
            {"rule": "self.my__dash__field == 'x'"},
            {"rule": "self.set == ['b', 'a']"},
        ]),
    ));
    check(
        &schema,
        None,
        json!({"spec": {"when": "2024-01-01T00:00:00Z", "wait": "5m", "port": "50%", "labels": {"a": "b"},
            "ratio": 0, "my-field": "x", "set": ["a", "b"]}}),
        &[],
    );
}

#[test]
fn defaults_obey_rules() {
    let schema = root(
        json!({"type": "string", "default": "ab", "x-kubernetes-validations": [{"rule": "self.size() > 3"}]}),
    );
    check_schema(&schema, &[("s.properties[spec].default", "failed rule: self.size() > 3")]);
}

#[test]
fn expensive_rules_are_stopped() {
    let list = json!({"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"}, {"rule": "false"}]});
    let schema = compile(&root(list)).unwrap();
    let found = schema.validate(&json!({"spec": vec![1; 500]}), None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .message
            .contains("no further validation rules will be run due to call cost exceeds limit for rule")
    );
}
