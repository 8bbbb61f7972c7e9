use proptest::prelude::*;
use remuda_schema::Schema;
use serde_json::{Value, json};

use super::apply;
use crate::testing::schema;

fn pod() -> Schema {
    let text = || json!({"type": "string"});
    let list = |key: &str, item: Value| json!({"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": key, "items": item});
    let env = list("name", json!({"type": "object", "properties": {"name": text(), "value": text()}}));
    let ports = list(
        "containerPort",
        json!({"type": "object", "properties": {"containerPort": {"type": "integer"}, "name": text()}}),
    );
    let container = json!({"type": "object", "properties": {"name": text(), "image": text(), "env": env, "ports": ports,
        "args": {"type": "array", "items": text()}}});
    let mut volumes = list("name", json!({"type": "object", "properties": {"name": text()}}));
    volumes["x-kubernetes-patch-strategy"] = json!("merge,retainKeys");
    schema(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "containers": list("name", container), "volumes": volumes,
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "cidrs": {"type": "array", "x-kubernetes-patch-strategy": "merge", "items": text()},
        "selector": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
        "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys", "properties": {"type": text(), "rolling": {"type": "object"}}}
    }}}}))
}

fn check(spec: Value, patch: Value, expected: Value) {
    let mut object = json!({ "spec": spec });
    apply(&mut object, &json!({ "spec": patch }), &pod()).unwrap_or_else(|error| panic!("{patch}: {error}"));
    similar_asserts::assert_eq!(object, json!({ "spec": expected }), "{}", patch);
}

fn refused(spec: Value, patch: Value, status: u16, text: &str) {
    let mut object = json!({ "spec": spec });
    let error = apply(&mut object, &json!({ "spec": patch }), &pod()).expect_err("a bad patch");
    assert_eq!((error.status(), error.to_string().as_str()), (status, text));
}

#[test]
fn maps_merge_and_null_deletes() {
    check(
        json!({"a": {"b": 1, "c": 2}}),
        json!({"a": {"b": null, "d": {"e": null, "f": 1}}, "x": null}),
        json!({"a": {"c": 2, "d": {"f": 1}}}),
    );
    check(json!({"a": 1}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}}));
    check(json!({"selector": {"a": 1}}), json!({"selector": {"b": 1}}), json!({"selector": {"b": 1}}));
}

#[test]
fn lists_of_maps_merge_by_key() {
    check(
        json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]}),
        json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c", "image": null}]}),
        json!({"containers": [{"name": "a", "image": "2", "args": ["y"]}, {"name": "c"}, {"name": "b"}]}),
    );
    check(
        json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80, "name": "p"}]}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": null}], "ports": [{"containerPort": 80, "name": "q"}]}]}),
        json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X"}], "ports": [{"containerPort": 80, "name": "q"}]}]}),
    );
    check(
        json!({"tolerations": [{"a": 1}]}),
        json!({"tolerations": [{"b": 1}]}),
        json!({"tolerations": [{"b": 1}]}),
    );
}

#[test]
fn directives_delete_replace_and_retain() {
    let containers = || json!({"containers": [{"name": "a"}, {"name": "b", "image": "x"}, {"name": "a", "image": "twice"}]});
    check(
        containers(),
        json!({"containers": [{"$patch": "delete", "name": "a"}]}),
        json!({"containers": [{"name": "b", "image": "x"}]}),
    );
    check(
        containers(),
        json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
        json!({"containers": [{"name": "c"}]}),
    );
    check(
        containers(),
        json!({"containers": [{"name": "b", "$patch": "delete"}, {"name": "b", "image": "y"}]}),
        json!({"containers": [{"name": "b", "image": "y"}, {"name": "a"}, {"name": "a", "image": "twice"}]}),
    );
    check(
        json!({"strategy": {"type": "R", "rolling": {"a": 1}}}),
        json!({"strategy": {"$patch": "replace", "type": "X"}}),
        json!({"strategy": {"type": "X"}}),
    );
    check(
        json!({"strategy": {"type": "R"}, "x": 1}),
        json!({"strategy": {"$patch": "delete"}}),
        json!({"strategy": {}, "x": 1}),
    );
    check(json!({}), json!({"strategy": {"$patch": "delete"}}), json!({}));
    check(
        json!({"strategy": {"type": "R", "rolling": {"a": 1}}}),
        json!({"strategy": {"$retainKeys": ["type"], "type": "X"}}),
        json!({"strategy": {"type": "X"}}),
    );
    check(
        json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
        json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
    );
}

#[test]
fn primitive_lists_unite_or_lose_items() {
    check(json!({"cidrs": ["a", "b"]}), json!({"cidrs": ["c", "b"]}), json!({"cidrs": ["c", "a", "b"]}));
    check(
        json!({"cidrs": ["a", "b"]}),
        json!({"$deleteFromPrimitiveList/cidrs": ["a", "x"]}),
        json!({"cidrs": ["b"]}),
    );
    check(json!({"x": 1}), json!({"$deleteFromPrimitiveList/cidrs": ["a"]}), json!({"x": 1}));
    check(
        json!({"cidrs": ["a", "b", "c"]}),
        json!({"$setElementOrder/cidrs": ["d", "b", "a"], "$deleteFromPrimitiveList/cidrs": ["c"], "cidrs": ["d"]}),
        json!({"cidrs": ["d", "b", "a"]}),
    );
    let mut object =
        json!({"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}]}});
    let patch = json!({"metadata": {"finalizers": ["b"], "ownerReferences": [{"uid": "1", "name": "y"}, {"uid": "2"}]}});
    apply(&mut object, &patch, &pod()).expect("a good patch");
    assert_eq!(
        object,
        json!({"metadata": {"finalizers": ["b", "a"], "ownerReferences": [{"uid": "1", "name": "y"}, {"uid": "2"}]}})
    );
}

#[test]
fn an_order_directive_sorts_what_it_names() {
    let names =
        |names: &str| -> Value { names.chars().map(|name| json!({"name": name.to_string()})).collect() };
    check(
        json!({"containers": names("abc")}),
        json!({"$setElementOrder/containers": names("cba")}),
        json!({"containers": names("cba")}),
    );
    check(
        json!({"containers": names("abcx")}),
        json!({"$setElementOrder/containers": names("dba"), "containers": names("d")}),
        json!({"containers": names("dbacx")}),
    );
    check(
        json!({"containers": names("xab")}),
        json!({"$setElementOrder/containers": names("ba")}),
        json!({"containers": names("xba")}),
    );
    check(
        json!({}),
        json!({"$setElementOrder/containers": names("ba"), "containers": names("ba")}),
        json!({"containers": names("ba")}),
    );
    check(json!({}), json!({"$setElementOrder/containers": names("ba")}), json!({}));
    check(
        json!({"containers": names("abc")}),
        json!({"$setElementOrder/containers": names("ca"), "containers": [{"$patch": "delete", "name": "b"}]}),
        json!({"containers": names("ca")}),
    );
}

#[test]
fn bad_directives_are_refused_with_the_words_of_the_reference() {
    let spec = || json!({"containers": [{"name": "a"}], "cidrs": ["a"], "strategy": {"type": "x"}});
    refused(
        spec(),
        json!({"strategy": {"$patch": "merge"}}),
        500,
        "unknown patch type: merge in map: map[$patch:merge]",
    );
    refused(
        spec(),
        json!({"containers": [{"$patch": "x", "name": "a"}]}),
        500,
        "unknown patch type: x in map: map[$patch:x name:a]",
    );
    refused(
        spec(),
        json!({"containers": [{"image": "x"}]}),
        500,
        "map: map[image:x] does not contain declared merge key: name",
    );
    refused(
        spec(),
        json!({"containers": [{"$patch": "delete"}]}),
        500,
        "map: map[$patch:delete] does not contain declared merge key: name",
    );
    refused(
        spec(),
        json!({"strategy": {"$retainKeys": ["type"], "rolling": {}}}),
        400,
        "invalid patch format of retainKeys",
    );
    refused(spec(), json!({"strategy": {"$retainKeys": 1}}), 400, "invalid patch format of retainKeys");
    refused(
        spec(),
        json!({"$deleteFromPrimitiveList": ["a"]}),
        400,
        "invalid patch format of primitive list",
    );
    refused(spec(), json!({"$setElementOrder": []}), 400, "invalid patch format of setElementOrder list");
    refused(spec(), json!({"cidrs": [1]}), 500, "list element types are not identical: [[a] [1]]");
    refused(json!({"cidrs": [["a"]]}), json!({"cidrs": [["b"]]}), 422, "lists of lists are not supported");
    refused(
        spec(),
        json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}),
        500,
        "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
    );
    assert_eq!(apply(&mut json!({}), &json!([]), &pod()).expect_err("not an object").status(), 400);
}

fn part() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..2).prop_map(Value::from),
        "[ab]|delete|replace".prop_map(Value::from)
    ];
    let key = prop::sample::select(vec![
        "containers",
        "volumes",
        "cidrs",
        "strategy",
        "selector",
        "name",
        "env",
        "image",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/cidrs",
        "$deleteFromPrimitiveList/cidrs",
        "$setElementOrder/env",
    ]);
    leaf.prop_recursive(4, 32, 4, move |inner| {
        let map = prop::collection::vec((key.clone(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            map.prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_patches_never_panic(spec in part(), patch in part()) {
        let mut object = json!({"spec": spec});
        let _ = apply(&mut object, &json!({"spec": patch}), &pod());
    }
}
