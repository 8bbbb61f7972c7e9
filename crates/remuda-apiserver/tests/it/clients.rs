//! Requests as well-known clients send them, where they once went wrong.

use serde_json::json;

use crate::harness::{MERGE_PATCH, Server};

/// What kubectl accepts when it prints for people.
const KUBECTL_TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

async fn server_with_a_pod() -> Server {
    let server = Server::quiet().await;
    server.namespace("ns").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/ns/serviceaccounts", account).await.expect(201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "a", "image": "nginx"}]}});
    server.post("/api/v1/namespaces/ns/pods", pod).await.expect(201);
    server
}

#[tokio::test]
async fn kubectl_logs_and_exec_hear_that_nothing_runs_behind_a_pod() {
    let server = server_with_a_pod().await;
    let pod = "/api/v1/namespaces/ns/pods/web";
    let unavailable =
        |what: &str| format!("pod \"web\" runs on no node of this server: {what} is not available");
    let logs = server.get(&format!("{pod}/log?container=a")).await;
    assert_eq!(logs.fails(400, "BadRequest"), unavailable("log"));
    for (method, what) in
        [("POST", "exec"), ("GET", "exec"), ("POST", "attach"), ("POST", "portforward"), ("GET", "proxy")]
    {
        let answer = server.ask(method, &format!("{pod}/{what}?command=ls")).send().await;
        assert_eq!(answer.fails(400, "BadRequest"), unavailable(what));
    }
    let missing = server.get("/api/v1/namespaces/ns/pods/nope/log").await;
    assert_eq!(missing.fails(404, "NotFound"), "pods \"nope\" not found");
    let unknown = server.get(&format!("{pod}/nope")).await;
    assert_eq!(unknown.fails(404, "NotFound"), "the server could not find the requested resource");
}

#[tokio::test]
async fn kubectl_get_prints_a_scale_with_the_columns_of_a_scale() {
    let server = Server::quiet().await;
    server.namespace("ns").await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}}});
    server.post("/apis/apps/v1/namespaces/ns/deployments", deployment).await.expect(201);
    let scale = "/apis/apps/v1/namespaces/ns/deployments/web/scale";
    let table = server.ask("GET", scale).accept(KUBECTL_TABLE).send().await.expect(200);
    assert_eq!(table["kind"], "Table");
    let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("web"), json!(2), json!(0)]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let patch = server.ask("PATCH", scale).accept(KUBECTL_TABLE);
    let patched = patch.body(MERGE_PATCH, r#"{"spec":{"replicas":5}}"#).send().await.expect(200);
    assert_eq!(patched["rows"][0]["cells"][1], 5);
    assert_eq!(server.get(scale).await.expect(200)["spec"]["replicas"], 5);
}

#[tokio::test]
async fn kubectl_create_of_an_empty_deployment_lists_only_what_people_must_say() {
    let server = Server::quiet().await;
    server.namespace("ns").await;
    let empty =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}});
    let answer = server.post("/apis/apps/v1/namespaces/ns/deployments", empty).await;
    answer.fails(422, "Invalid");
    let causes = answer.body["details"]["causes"].as_array().unwrap();
    let causes: Vec<_> = causes.iter().map(|c| (c["field"].as_str().unwrap(), &c["message"])).collect();
    let mismatch = "Invalid value: null: `selector` does not match template `labels`";
    assert_eq!(
        causes,
        [
            ("spec.selector", &json!("Required value")),
            ("spec.template.metadata.labels", &json!(mismatch)),
            ("spec.template.spec.containers", &json!("Required value")),
        ]
    );
}
