use proptest::prelude::*;

use super::*;

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn schema() -> DynamicSchemaSpec {
    serde_json::from_value(json!({"resourceFields": {
        "image": {"type": "string", "default": {"stringValue": "ubuntu"}},
        "region": {"type": "string"},
        "size": {"type": "string"},
        "backups": {"type": "boolean"},
        "ipv6": {"type": "boolean", "default": {"boolValue": true}},
        "disk": {"type": "int", "default": {"intValue": 20}},
        "tags": {"type": "array[string]"},
    }}))
    .unwrap()
}

#[test]
fn the_hash_is_the_one_everywhere() {
    let fields = map(json!({"image": "ubuntu-24-04-x64", "region": "nyc3", "size": "s-2vcpu-4gb"}));
    assert_eq!(hash("demo-pool1", &fields), "1f235939");
    let mut padded = fields.clone();
    padded.extend(map(json!({"a": null, "b": "", "c": [], "common": {"labels": {"x": "y"}}})));
    assert_eq!(hash("demo-pool1", &padded), "1f235939");
    padded.insert("backups".into(), json!(false));
    assert_ne!(hash("demo-pool1", &padded), "1f235939");
    assert_eq!(escape_html("a<b>&c"), "a\\u003cb\\u003e\\u0026c");
}

fn same(one: &Map<String, Value>, other: &Map<String, Value>, schema: &DynamicSchemaSpec) -> bool {
    differences(one, other, schema).is_empty()
}

#[track_caller]
fn check(one: Value, other: Value, expected: bool) {
    assert_eq!(same(&map(one.clone()), &map(other.clone()), &schema()), expected, "{one} {other}");
    assert_eq!(same(&map(other), &map(one), &schema()), expected);
}

#[test]
fn only_what_means_something_else_is_another_content() {
    check(json!({"region": "a", "size": "b"}), json!({"size": "b", "region": "a"}), true);
    check(json!({"region": "a"}), json!({"region": "a", "backups": false, "tags": [], "size": ""}), true);
    check(json!({}), json!({"image": "ubuntu", "ipv6": true, "disk": 20}), true);
    check(json!({}), json!({"common": {"labels": {"a": "b"}}}), true);
    check(json!({}), json!({"ipv6": false}), false);
    check(json!({}), json!({"disk": 0}), false);
    check(json!({}), json!({"image": "debian"}), false);
    check(json!({"tags": ["a", "b"]}), json!({"tags": ["b", "a"]}), false);
    check(json!({"region": "a"}), json!({}), false);
}

#[test]
fn only_fields_the_driver_knew_reach_machines() {
    let config = json!({"apiVersion": "x", "kind": "y", "metadata": {}, "region": "a", "newer": 1});
    assert_eq!(fields(&config, &schema()), map(json!({"region": "a"})));
}

fn content() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("ubuntu")),
        Just(json!("b")),
        Just(json!(false)),
        Just(json!(true)),
        Just(json!(0)),
        Just(json!(20)),
        Just(json!([])),
        Just(json!(["a"])),
    ];
    let key = prop::sample::select(vec!["image", "region", "backups", "ipv6", "disk", "tags", "unknown"]);
    prop::collection::btree_map(key, value, 0..6)
        .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn equal_hashes_mean_the_same_and_sameness_is_an_equivalence(a in content(), b in content(), c in content()) {
        let schema = schema();
        prop_assert!(same(&a, &a, &schema));
        prop_assert_eq!(same(&a, &b, &schema), same(&b, &a, &schema));
        if hash("x", &a) == hash("x", &b) {
            prop_assert!(same(&a, &b, &schema));
        }
        if same(&a, &b, &schema) && same(&b, &c, &schema) {
            prop_assert!(same(&a, &c, &schema));
        }
    }
}
