//! JSON, merge and strategic patches, and what field validation says of them.

use serde_json::{Value, json};

use crate::{
    custom::{FOOS, foo, foo_definition},
    harness::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Server, config_map},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn with_map() -> Server {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({"k": "v", "l": "w"}))).await.expect(201);
    server
}

#[tokio::test]
async fn json_patches_run_their_operations_in_order() {
    let server = with_map().await;
    let patch = json!([
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "add", "path": "/data/new", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "move", "from": "/data/l", "path": "/data/moved"},
        {"op": "copy", "from": "/data/new", "path": "/data/copied"},
        {"op": "remove", "path": "/data/new"},
    ]);
    let patched = server.patch(&format!("{MAPS}/a"), JSON_PATCH, patch).await.expect(200);
    assert_eq!(patched["data"], json!({"k": "2", "moved": "w", "copied": "1"}));
}

#[tokio::test]
async fn a_json_patch_that_does_not_fit_is_unprocessable_without_details() {
    let server = with_map().await;
    for operation in [
        json!({"op": "test", "path": "/data/k", "value": "other"}),
        json!({"op": "remove", "path": "/data/none"}),
        json!({"op": "replace", "path": "/none/deep", "value": "x"}),
        json!({"op": "add", "path": "/none/deep", "value": "x"}),
    ] {
        let answer = server.patch(&format!("{MAPS}/a"), JSON_PATCH, json!([operation])).await;
        let message = answer.fails(422, "Invalid");
        assert_eq!(message, "the server rejected our request due to an error in our request");
        assert_eq!(answer.body["details"], json!({}));
    }
}

#[tokio::test]
async fn a_json_patch_is_an_array_of_at_most_ten_thousand_operations() {
    let server = with_map().await;
    let answer = server.patch(&format!("{MAPS}/a"), JSON_PATCH, json!({"op": "add"})).await;
    assert!(answer.fails(400, "BadRequest").starts_with("error decoding patch: "));
    let many: Vec<Value> = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    let answer = server.patch(&format!("{MAPS}/a"), JSON_PATCH, many.into()).await;
    let message = answer.fails(413, "RequestEntityTooLarge");
    assert!(message.contains("maximum operations in a JSON patch is 10000, got 10001"), "{message}");
}

#[tokio::test]
async fn merge_patches_delete_with_null_and_replace_arrays() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let mut object = foo("a");
    object["spec"] = json!({"color": "red", "set": ["x", "y"]});
    server.post(FOOS, object).await.expect(201);
    let patch = json!({"spec": {"color": null, "absent": null, "set": ["z"]}});
    let patched = server.patch(&format!("{FOOS}/a"), MERGE_PATCH, patch).await.expect(200);
    assert_eq!(patched["spec"], json!({"set": ["z"], "replicas": 1}));
}

#[tokio::test]
async fn a_patch_may_not_take_the_name_away() {
    let server = with_map().await;
    for (kind, patch) in [
        (MERGE_PATCH, json!({"metadata": null})),
        (MERGE_PATCH, json!({"metadata": {"name": null}})),
        (JSON_PATCH, json!([{"op": "remove", "path": "/metadata"}])),
    ] {
        let message = server.patch(&format!("{MAPS}/a"), kind, patch).await.fails(400, "BadRequest");
        assert_eq!(
            message,
            "the name of the object (a based on URL) was undeterminable: name must be provided"
        );
    }
}

#[tokio::test]
async fn a_version_in_a_patch_is_a_precondition() {
    let server = with_map().await;
    let patch = json!({"metadata": {"resourceVersion": "1"}, "data": {"k": "x"}});
    let answer = server.patch(&format!("{MAPS}/a"), MERGE_PATCH, patch).await;
    answer.fails(409, "Conflict");
    let answer = server.patch(&format!("{MAPS}/none"), MERGE_PATCH, json!({})).await;
    answer.fails(404, "NotFound");
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [
                    {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 80}]},
                    {"name": "b", "image": "b:1"},
                ]},
            },
        },
    })
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_keys() {
    let server = Server::start().await;
    server.post(DEPLOYMENTS, deployment()).await.expect(201);
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}],
        "containers": [
            {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}]},
            {"name": "b", "$patch": "delete"},
            {"name": "c", "image": "c:1"},
        ],
    }}}});
    let patched = server.patch(&format!("{DEPLOYMENTS}/web"), STRATEGIC_PATCH, patch).await.expect(200);
    let containers = patched["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let names: Vec<&Value> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(containers[0]["image"], "a:2");
    assert_eq!(containers[0]["env"], json!([{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]));
    assert_eq!(containers[0]["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));

    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let patched = server.patch(&format!("{DEPLOYMENTS}/web"), STRATEGIC_PATCH, patch).await.expect(200);
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}));

    let patch = json!({"metadata": {"finalizers": ["x.io/a", "x.io/b"]}});
    server.patch(&format!("{DEPLOYMENTS}/web"), STRATEGIC_PATCH, patch).await.expect(200);
    let patch =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"], "finalizers": ["x.io/c"]}});
    let patched = server.patch(&format!("{DEPLOYMENTS}/web"), STRATEGIC_PATCH, patch).await.expect(200);
    assert_eq!(patched["metadata"]["finalizers"], json!(["x.io/c", "x.io/b"]));
}

#[tokio::test]
async fn custom_objects_take_no_strategic_patches() {
    let server = Server::start().await;
    foo_definition(&server).await;
    server.post(FOOS, foo("a")).await.expect(201);
    let answer = server.patch(&format!("{FOOS}/a"), STRATEGIC_PATCH, json!({})).await;
    answer.fails(415, "UnsupportedMediaType");
}

const BOGUS: &str = r#"{"apiVersion":"x.io/v1","kind":"Foo","metadata":{"name":"a","foo":1},
    "spec":{"color":"red","color":"blue","zeta":1,"ports":[{"name":"p","port":1,"x":2}],"bogus":1}}"#;
const BOGUS_LIST: &str = r#"duplicate field "spec.color", unknown field "metadata.foo", unknown field "spec.bogus", unknown field "spec.ports[0].x", unknown field "spec.zeta""#;

#[tokio::test]
async fn field_validation_refuses_warns_or_says_nothing() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let post = |mode: &str| {
        let path = format!("{FOOS}?dryRun=All&fieldValidation={mode}");
        server.ask("POST", &path).body("application/json", BOGUS).send()
    };
    let message = post("Strict").await.fails(400, "BadRequest");
    let start = r#"Foo in version "v1" cannot be handled as a Foo: strict decoding error: "#;
    assert_eq!(message, format!("{start}{BOGUS_LIST}"));
    let answer = post("Warn").await;
    let expected: Vec<String> = BOGUS_LIST.split(", ").map(|text| format!("299 - {text:?}")).collect();
    assert_eq!(answer.warnings(), expected);
    assert_eq!(answer.expect(201)["spec"]["color"], "blue");
    let answer = post("Ignore").await;
    assert!(answer.warnings().is_empty());
    answer.expect(201);
    let message = post("Loose").await.fails(422, "Invalid");
    assert!(message.contains("fieldValidation: Unsupported value: \"Loose\""), "{message}");
}

#[tokio::test]
async fn field_validation_of_a_put_is_that_of_a_post() {
    let server = Server::start().await;
    foo_definition(&server).await;
    server.post(FOOS, foo("a")).await.expect(201);
    let path = format!("{FOOS}/a?fieldValidation=Strict");
    let answer = server.ask("PUT", &path).body("application/json", BOGUS).send().await;
    assert!(answer.fails(400, "BadRequest").ends_with(BOGUS_LIST));
}

#[tokio::test]
async fn strict_patches_are_unprocessable_and_show_what_they_made() {
    let server = Server::start().await;
    foo_definition(&server).await;
    server.post(FOOS, foo("a")).await.expect(201);
    let path = format!("{FOOS}/a?fieldValidation=Strict");
    let body = r#"{"spec":{"color":"red","color":"blue","bogus":1}}"#;
    let answer = server.ask("PATCH", &path).body(MERGE_PATCH, body).send().await;
    let message = answer.fails(422, "Invalid");
    assert!(
        message.starts_with(r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"x.io/v1\""#),
        "{message}"
    );
    let end = r#": strict decoding error: duplicate field "spec.color", unknown field "spec.bogus""#;
    assert!(message.ends_with(end), "{message}");
    assert_eq!(answer.body["details"]["causes"][0]["field"], "patch");
    assert_eq!(answer.body["details"]["causes"][0]["reason"], "FieldValueInvalid");

    let body = r#"[{"op":"add","path":"/spec","value":{"bogus":1},"foo":2,"op":"add"}]"#;
    let answer = server.ask("PATCH", &path).body(JSON_PATCH, body).send().await;
    let end = r#"strict decoding error: json patch duplicate field "[0].op", json patch unknown field "[0].foo", unknown field "spec.bogus""#;
    assert!(answer.fails(422, "Invalid").ends_with(end), "{answer:?}");

    let path = format!("{FOOS}/a");
    let answer = server.ask("PATCH", &path).body(MERGE_PATCH, r#"{"spec":{"bogus":1}}"#).send().await;
    assert_eq!(answer.warnings(), [r#"299 - "unknown field \"spec.bogus\"""#]);
    answer.expect(200);
}

#[tokio::test]
async fn strict_strategic_patches_show_the_patch() {
    let server = with_map().await;
    let path = format!("{MAPS}/a?fieldValidation=Strict");
    let answer =
        server.ask("PATCH", &path).body(STRATEGIC_PATCH, r#"{"bogus":{"a":[1,"x",null]}}"#).send().await;
    assert_eq!(
        answer.fails(422, "Invalid"),
        r#" "" is invalid: patch: Invalid value: "map[bogus:map[a:[1 x <nil>]]]": strict decoding error: unknown field "bogus""#
    );
    let answer = server.patch(&path, MERGE_PATCH, json!({"data": {"k": 1}})).await;
    let message = answer.fails(422, "Invalid");
    assert!(message.starts_with(r#" "" is invalid: patch: Invalid value: "#), "{message}");
}

#[tokio::test]
async fn applied_keys_given_twice_are_seen_in_strict_mode() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let body = r#"{"apiVersion":"x.io/v1","kind":"Foo","metadata":{"name":"a"},"spec":{"color":"red","color":"blue"}}"#;
    let path = format!("{FOOS}/a?fieldManager=m&fieldValidation=");
    let ask = |mode: &str| server.ask("PATCH", &format!("{path}{mode}")).body(APPLY_PATCH, body).send();
    let message = ask("Strict").await.fails(400, "BadRequest");
    assert_eq!(message, r#"error strict decoding patch: duplicate field "spec.color""#);
    let answer = ask("Warn").await;
    assert_eq!(answer.warnings(), [r#"299 - "duplicate field \"spec.color\"""#]);
    answer.expect(201);
}

#[tokio::test]
async fn what_is_the_servers_cannot_be_patched() {
    let server = with_map().await;
    let path = format!("{MAPS}/a");
    let live = server.get(&path).await.expect(200);
    let fields =
        [("deletionTimestamp", json!("2001-01-01T00:00:00Z")), ("deletionGracePeriodSeconds", json!(3))];
    for (field, value) in fields {
        let refused = server.patch(&path, MERGE_PATCH, json!({"metadata": {field: value}})).await;
        let message = refused.fails(422, "Invalid");
        assert!(message.contains(&format!("metadata.{field}: Invalid value")), "{message}");
        assert!(message.ends_with(": field is immutable"), "{message}");
    }
    // Leaving it out is no change, and another time of creation is not looked at.
    let born = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}});
    let kept = server.patch(&path, MERGE_PATCH, born).await.expect(200);
    assert_eq!(kept["metadata"]["creationTimestamp"], live["metadata"]["creationTimestamp"]);
    let kept = server.patch(&path, MERGE_PATCH, json!({"metadata": {"uid": null}})).await.expect(200);
    assert_eq!(kept["metadata"]["uid"], live["metadata"]["uid"]);
    let changed = json!({"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}});
    let text = server.patch(&path, MERGE_PATCH, changed).await.fails(422, "Invalid");
    assert!(
        text.ends_with(
            "metadata.uid: Invalid value: \"11111111-1111-1111-1111-111111111111\": field is immutable"
        ),
        "{text}"
    );
    // A whole object with another uid is another object.
    let mut other = live.clone();
    other["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    server.put(&path, other).await.fails(409, "Conflict");
}

#[tokio::test]
async fn a_patch_cannot_make_another_kind_of_an_object() {
    let server = with_map().await;
    let refused = server.patch(&format!("{MAPS}/a"), MERGE_PATCH, json!({"kind": "Secret"})).await;
    assert!(refused.fails(422, "Invalid").contains("is invalid: patch: Invalid value: "), "{refused:?}");
    // A strategic one is merged into what it is.
    let patched =
        server.patch(&format!("{MAPS}/a"), STRATEGIC_PATCH, json!({"kind": "Secret"})).await.expect(200);
    assert_eq!(patched["kind"], "ConfigMap");
    foo_definition(&server).await;
    server.post(FOOS, foo("f")).await.expect(201);
    server.patch(&format!("{FOOS}/f"), MERGE_PATCH, json!({"kind": "Bar"})).await.fails(422, "Invalid");
}

#[tokio::test]
async fn a_scale_is_patched_with_numbers_only() {
    let server = Server::quiet().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    server.post(deployments, deployment()).await.expect(201);
    let name = deployment()["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{deployments}/{name}/scale");
    let before = server.get(&path).await.expect(200)["spec"].clone();
    for replicas in [json!("x"), json!(1.5), json!({})] {
        let refused = server.patch(&path, MERGE_PATCH, json!({"spec": {"replicas": replicas}})).await;
        assert!(refused.fails(422, "Invalid").contains("patch: Invalid value"), "{refused:?}");
    }
    assert_eq!(server.get(&path).await.expect(200)["spec"], before);
}
