use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Set, json::parse, path_text, raw};

fn set(value: &Value) -> Set<'_> {
    parse(value).expect("well-formed fields")
}

#[test]
fn a_set_reads_and_writes_its_wire_form() {
    for fields in [
        json!({}),
        json!({"f:spec": {"f:ports": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:port": {}}}, "f:set": {"v:\"x\"": {}}}}),
        json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"i:0": {}, "i:10": {}}, "f:d": {"v:1": {}, "v:true": {}, "v:\"a\\u0026b\"": {}}}),
        json!({"f:p": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}),
    ] {
        assert_eq!(set(&fields).to_json(), fields);
    }
}

#[test]
fn what_is_not_canonical_becomes_canonical() {
    let loose = json!({"f:a": {".": {}}, "f:p": {"k:{\"b\": 1, \"a\": 2}": {}}, "x:future": {"f:y": {}}, "f:v": {"v:1.0": {}}});
    assert_eq!(
        set(&loose).to_json(),
        json!({"f:a": {}, "f:p": {"k:{\"a\":2,\"b\":1}": {}}, "f:v": {"v:1": {}}})
    );
}

#[test]
fn broken_fields_are_refused() {
    for fields in [
        json!([]),
        json!({"f": {}}),
        json!({"fa": {}}),
        json!({"k:[]": {}}),
        json!({"v:{": {}}),
        json!({"i:x": {}}),
        json!({"f:a": 1}),
        json!({"é:": {}}),
    ] {
        assert!(parse(&fields).is_err(), "{fields}");
    }
}

#[test]
fn paths_read_as_messages_show_them() {
    let fields = json!({"f:spec": {"f:ports": {"k:{\"a\":1,\"name\":\"x\"}": {".": {}, "f:port": {}}}, "f:set": {"v:\"x\"": {}}, "f:l": {"i:3": {}}, "f:b": {}}});
    let texts: Vec<String> = set(&fields).paths().iter().map(|path| path_text(path)).collect();
    assert_eq!(
        texts,
        [
            ".spec.b",
            ".spec.l[3]",
            ".spec.ports[a=1,name=\"x\"]",
            ".spec.ports[a=1,name=\"x\"].port",
            ".spec.set[=\"x\"]"
        ]
    );
}

#[test]
fn removing_a_parent_leaves_its_children_unless_recursive() {
    let (all, parent) = (json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}), json!({"f:a": {}}));
    assert_eq!(set(&all).difference(&set(&parent)).to_json(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
    assert_eq!(set(&all).recursive_difference(&set(&parent)).to_json(), json!({"f:c": {}}));
    assert_eq!(set(&all).leaves().to_json(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
    assert!(set(&parent).is_subset(&set(&all)));
    assert!(!set(&all).is_subset(&set(&parent)));
}

fn element() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[abc]".prop_map(|name| format!("f:{name}")),
        1 => "[ab<]".prop_map(|name| format!("k:{}", json!({ "name": name }))),
        1 => (0..3).prop_map(|value| format!("v:{value}")),
    ]
}

/// Wire form of a random set.
fn fields() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    let nested = leaf.prop_recursive(3, 20, 3, |inner| {
        (any::<bool>(), prop::collection::btree_map(element(), inner, 0..4)).prop_map(|(own, map)| {
            let mut map: serde_json::Map<String, Value> = map.into_iter().collect();
            if own && !map.is_empty() {
                map.insert(".".to_owned(), json!({}));
            }
            Value::Object(map)
        })
    });
    nested.prop_map(|mut fields| {
        fields.as_object_mut().map(|map| map.remove("."));
        set(&fields).to_json()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn writing_what_was_read_changes_nothing(fields in fields()) {
        prop_assert_eq!(set(&fields).to_json(), fields);
    }

    #[test]
    fn the_algebra_obeys_its_laws(a in fields(), b in fields()) {
        let (left, right) = (set(&a), set(&b));
        prop_assert_eq!(left.union(&right), right.union(&left));
        prop_assert_eq!(left.union(&left), left.clone());
        prop_assert!(left.difference(&left).is_empty());
        prop_assert!(left.difference(&right).intersection(&right).is_empty());
        prop_assert_eq!(left.difference(&right).union(&left.intersection(&right)), left.clone());
        prop_assert!(left.is_subset(&left.union(&right)));
        prop_assert!(left.recursive_difference(&right).is_subset(&left.difference(&right)));
        prop_assert_eq!(left.is_subset(&right), left.difference(&right).is_empty());
        for path in left.paths() {
            prop_assert!(left.has(&path));
            prop_assert_eq!(left.difference(&right).has(&path), !right.has(&path));
        }
    }

    #[test]
    fn stored_sets_change_as_parsed_ones_do(a in fields(), b in fields()) {
        let (left, right) = (set(&a), set(&b));
        let stored = a.as_object().expect("fields are an object");
        let mut minus = stored.clone();
        let changed = raw::subtract(&mut minus, &right);
        prop_assert_eq!(Value::Object(minus), left.difference(&right).to_json());
        prop_assert_eq!(changed, left.difference(&right) != left);
        let mut plus = stored.clone();
        let changed = raw::unite(&mut plus, &right);
        prop_assert_eq!(Value::Object(plus), left.union(&right).to_json());
        prop_assert_eq!(changed, left.union(&right) != left);
        prop_assert_eq!(raw::intersect(stored, &right), left.intersection(&right));
    }

    #[test]
    fn random_keys_never_panic(key in "\\PC{0,6}", prefix in "[fkvi]:") {
        let _ = super::json::element(&key);
        let _ = super::json::element(&format!("{prefix}{key}"));
    }
}
