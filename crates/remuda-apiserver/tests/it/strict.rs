//! Groups whose unknown fields are refused unless the client says otherwise.

use remuda_auth::identity::{GROUP_CONTROLLERS, GROUP_MASTERS, User};
use serde_json::{Value, json};

use crate::{
    custom::{CRDS, FOOS, definition, foo},
    harness::{JSON_PATCH, MERGE_PATCH, Server},
};

const A: &str = "/apis/x.io/v1/namespaces/default/foos/a";

fn schema(more: Value) -> Value {
    let mut fields = json!({"size": {"type": "string"}, "pools": {"type": "array", "items":
        {"type": "object", "properties": {"quantity": {"type": "integer"}}}}});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}})
}

async fn server() -> Server {
    let server = Server::with(|config| {
        config.strict_fields = |group, user| group == "x.io" && !user.is_controller();
    })
    .await;
    let old = schema(json!({"former": {"type": "string"}}));
    server.post(CRDS, definition("foos", "Foo", old, json!({}))).await.expect(201);
    server
}

fn with(spec: Value) -> Value {
    let mut object = foo("a");
    object["spec"] = spec;
    object
}

/// The object as it is to be, at the version it has now.
async fn next(server: &Server, spec: Value) -> Value {
    let mut object = with(spec);
    let version = server.get(A).await.expect(200)["metadata"]["resourceVersion"].take();
    object["metadata"]["resourceVersion"] = version;
    object
}

#[tokio::test]
async fn a_field_that_would_be_dropped_is_refused_with_what_was_probably_meant() {
    let server = server().await;
    let message = server
        .post(FOOS, with(json!({"sise": "big", "pools": [{"quantty": 1}], "odd": 1})))
        .await
        .fails(400, "BadRequest");
    assert_eq!(
        message,
        "Foo in version \"v1\" cannot be handled as a Foo: strict decoding error: unknown field \"spec.odd\", \
         unknown field \"spec.pools[0].quantty\" (did you mean \"quantity\"?), \
         unknown field \"spec.sise\" (did you mean \"size\"?); \
         send fieldValidation=Warn (kubectl: --validate=warn) to have such fields dropped instead"
    );
    server.get(A).await.fails(404, "NotFound");
    // An empty parameter says nothing either; Strict gets the same advice.
    for query in ["?fieldValidation=", "?fieldValidation=Strict"] {
        let message = server.post(&format!("{FOOS}{query}"), with(json!({"sise": "big"}))).await;
        assert!(message.fails(400, "BadRequest").contains("did you mean \"size\"?"));
    }
}

#[tokio::test]
async fn whoever_asks_for_it_gets_the_default_of_kubernetes() {
    let server = server().await;
    let warned = server.post(&format!("{FOOS}?fieldValidation=Warn"), with(json!({"sise": "big"}))).await;
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"spec.sise\"""#]);
    assert_eq!(warned.expect(201)["spec"], json!({}));
    let ignored =
        server.put(&format!("{A}?fieldValidation=Ignore"), next(&server, json!({"sise": "big"})).await).await;
    assert!(ignored.warnings().is_empty());
    ignored.expect(200);
    // Controllers of the server, and other groups.
    let controller = server.by(User::new("c", [GROUP_CONTROLLERS, GROUP_MASTERS]));
    let warned = controller.put(A, next(&server, json!({"sise": "big"})).await).await;
    assert_eq!(warned.warnings().len(), 1);
    warned.expect(200);
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "dota": {}});
    server.post(maps, map).await.expect(201);
}

#[tokio::test]
async fn patches_are_judged_by_what_they_make() {
    let server = server().await;
    server.post(FOOS, with(json!({"size": "big"}))).await.expect(201);
    for (kind, patch) in [
        (MERGE_PATCH, json!({"spec": {"sise": "small"}})),
        (JSON_PATCH, json!([{"op": "add", "path": "/spec/sise", "value": "small"}])),
    ] {
        let message = server.patch(A, kind, patch).await.fails(422, "Invalid");
        assert!(message.contains("unknown field \"spec.sise\" (did you mean \"size\"?)"), "{message}");
    }
    let applied = with(json!({"sise": "small"}));
    let message = server.apply(A, "m", applied).await.fails(400, "BadRequest");
    assert!(message.contains(".spec.sise: field not declared in schema"), "{message}");
    assert_eq!(server.get(A).await.expect(200)["spec"], json!({"size": "big"}));
}

#[tokio::test]
async fn what_a_definition_has_dropped_since_keeps_no_one_from_writing() {
    let server = server().await;
    server.post(FOOS, with(json!({"size": "big", "former": "x"}))).await.expect(201);
    let crd = format!("{CRDS}/foos.x.io");
    let mut definition = server.get(&crd).await.expect(200);
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema(json!({}));
    server.put(&crd, definition).await.expect(200);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    server.patch(&format!("{A}?dryRun=All"), MERGE_PATCH, label).await.expect(200);
    // As read before the definition changed.
    let back = {
        let stale = next(&server, json!({"size": "small", "former": "x"})).await;
        server.put(&format!("{A}?dryRun=All"), stale).await
    };
    assert_eq!(back.expect(200)["spec"], json!({"size": "small"}));
    let message = server
        .put(A, next(&server, json!({"former": "x", "sise": "y"})).await)
        .await
        .fails(400, "BadRequest");
    assert!(message.contains("spec.sise") && !message.contains("spec.former"), "{message}");
    // Nothing is excused that is not there.
    server
        .post(
            FOOS,
            json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "b"},
        "spec": {"former": "x"}}),
        )
        .await
        .fails(400, "BadRequest");
}
