//! Anything may come as a patch: the server answers, and never with a failure of its own.

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Value, json};

use crate::{
    custom::{FOOS, foo, foo_definition},
    harness::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Server},
};

/// Keys that mean something somewhere, so that random documents get past the first check.
const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "managedFields",
    "fieldsV1",
    "manager",
    "operation",
    "fieldsType",
    "time",
    "resourceVersion",
    "uid",
    "generation",
    "spec",
    "status",
    "color",
    "size",
    "replicas",
    "set",
    "ports",
    "port",
    "atomic",
    "containers",
    "template",
    "selector",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "op",
    "path",
    "value",
    "from",
    "f:spec",
    "k:{\"name\":\"a\"}",
    "v:1",
    ".",
    "",
    "data",
    "env",
    "ownerReferences",
    "conditions",
    "type",
];
const TEXTS: &[&str] = &[
    "a",
    "Foo",
    "x.io/v1",
    "apps/v1",
    "Deployment",
    "v1",
    "red",
    "replace",
    "delete",
    "add",
    "remove",
    "move",
    "copy",
    "test",
    "/spec",
    "/metadata/managedFields",
    "/spec/ports/0",
    "/spec/ports/-",
    "/",
    "",
    "Apply",
    "Update",
    "FieldsV1",
    "2026-01-01T00:00:00Z",
    "1",
    "-1",
    "x.io/f",
    "merge",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..100).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|float| json!(float)),
        prop::sample::select(TEXTS).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(KEYS), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(prop::sample::select(KEYS), value(), 0..5)
        .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn operations() -> impl Strategy<Value = Value> {
    prop::collection::vec(object(), 0..4).prop_map(|operations| {
        let paths = ["/spec", "/metadata/labels/a", "/spec/set/0", "/metadata/managedFields", "/status"];
        let filled = operations.into_iter().enumerate().map(|(index, mut operation)| {
            operation["op"] = ["add", "replace", "remove", "test", "copy"][index % 5].into();
            operation["path"] = paths[index % paths.len()].into();
            operation
        });
        filled.collect()
    })
}

/// As an applied configuration, with what is required of one.
fn configuration(mut object: Value, kind: &str, version: &str) -> Value {
    object["apiVersion"] = version.into();
    object["kind"] = kind.into();
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = "a".into();
    object
}

#[tokio::test]
async fn no_patch_makes_the_server_fail() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}},
        },
    });
    let mut custom = foo("a");
    custom["spec"] =
        json!({"color": "red", "set": ["x"], "ports": [{"name": "a", "port": 1}], "atomic": [1]});
    server.post(FOOS, custom).await.expect(201);
    server.post(deployments, deployment).await.expect(201);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    for round in 0..150 {
        let mut draw = |strategy: &dyn Fn(&mut TestRunner) -> Value| strategy(&mut runner);
        let any = draw(&|runner| value().new_tree(runner).unwrap().current());
        let map = draw(&|runner| object().new_tree(runner).unwrap().current());
        let steps = draw(&|runner| operations().new_tree(runner).unwrap().current());
        for (collection, kind, version) in [(FOOS, "Foo", "x.io/v1"), (deployments, "Deployment", "apps/v1")]
        {
            let applied = configuration(map.clone(), kind, version);
            for (patch, body) in [
                (MERGE_PATCH, &any),
                (MERGE_PATCH, &map),
                (STRATEGIC_PATCH, &map),
                (JSON_PATCH, &any),
                (JSON_PATCH, &steps),
                (APPLY_PATCH, &applied),
                (APPLY_PATCH, &any),
            ] {
                let endpoint = ["", "/status", "/scale"][round % 3];
                let mode = ["Strict", "Warn", "Ignore"][round % 3];
                let path =
                    format!("{collection}/a{endpoint}?fieldManager=m{}&fieldValidation={mode}", round % 4);
                let path = if patch == APPLY_PATCH { format!("{path}&force=true") } else { path };
                let answer = server.patch(&path, patch, body.clone()).await;
                assert!(answer.code < 500, "{patch} {body}: {answer:?}");
            }
            server.get(&format!("{collection}/a")).await.expect(200);
        }
    }
}
