//! MutatingAdmissionPolicy.

use serde_json::{Value, json};

use crate::{
    custom::{FOOS, foo, foo_definition},
    harness::*,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings";

fn configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// A policy for ConfigMaps; `more` overrides fields of its spec.
fn policy(name: &str, mutations: Value, more: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
            "mutations": mutations, "reinvocationPolicy": "Never"},
    });
    for (key, value) in more.as_object().unwrap() {
        policy["spec"][key] = value.clone();
    }
    policy
}

fn binding(policy: &str, more: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{policy}-everywhere")}, "spec": {"policyName": policy},
    });
    for (key, value) in more.as_object().unwrap() {
        binding["spec"][key] = value.clone();
    }
    binding
}

/// What Pods run as.
async fn account(server: &Server) {
    let account = json!({"metadata": {"name": "default"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", account).await.expect(201);
}

async fn install(server: &Server, name: &str, mutations: Value, more: Value) {
    server.post(POLICIES, policy(name, mutations, more)).await.expect(201);
    server.post(BINDINGS, binding(name, json!({}))).await.expect(201);
}

#[tokio::test]
async fn objects_are_changed_by_configurations_and_patches_in_order() {
    let server = Server::quiet().await;
    let mutations = json!([
        configuration(
            "Object{metadata: Object.metadata{labels: Object.metadata.labels{team: variables.team}, \
             annotations: {'x.io/seen': 'no'}}}"
        ),
        configuration("Object{data: {'from': object.metadata.labels.team, 'by': request.userInfo.username}}"),
        patch(
            "[JSONPatch{op: 'replace', path: '/metadata/annotations/' + jsonpatch.escapeKey('x.io/seen'), value: 'yes'}, \
              JSONPatch{op: 'move', from: '/data/by', path: '/data/writer'}]"
        ),
        patch(
            "[JSONPatch{op: 'test', path: '/data/from', value: 'other'}, JSONPatch{op: 'remove', path: '/data/from'}]"
        ),
    ]);
    let variables = json!({"variables": [{"name": "team", "expression": "'blue'"}]});
    install(&server, "p", mutations, variables).await;
    let mut map = config_map("m", json!({"own": "1"}));
    map["metadata"]["labels"] = json!({"mine": "yes"});
    let made = server.post(MAPS, map).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"mine": "yes", "team": "blue"}));
    let writer = made["data"]["writer"].clone();
    assert!(writer.is_string(), "{made}");
    // The failed test kept its patch from applying, and nothing else.
    assert_eq!(made["data"], json!({"own": "1", "from": "blue", "writer": writer}));
    assert_eq!(made["metadata"]["annotations"], json!({"x.io/seen": "yes"}));
    // Updates, in whatever form, are changed too; what is written of something else is not.
    let patched = server
        .patch(&format!("{MAPS}/m"), MERGE_PATCH, json!({"metadata": {"labels": {"team": "red"}}}))
        .await
        .expect(200);
    assert_eq!(patched["metadata"]["labels"]["team"], "blue");
    let secret = json!({"metadata": {"name": "s"}});
    let secret = server.post("/api/v1/namespaces/default/secrets", secret).await.expect(201);
    assert_eq!(secret["metadata"]["labels"], Value::Null);
    server.delete(&format!("{MAPS}/m")).await.expect(200);
    // Without a binding nothing is changed.
    server.delete(&format!("{BINDINGS}/p-everywhere")).await.expect(200);
    let made = server.post(MAPS, config_map("n", json!({"own": "1"}))).await.expect(201);
    assert_eq!(made["data"], json!({"own": "1"}));
}

#[tokio::test]
async fn typed_objects_are_merged_by_their_types() {
    let server = Server::quiet().await;
    account(&server).await;
    let pods = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["pods"]}]}});
    let sidecar = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{\
        name: 'mesh', image: 'mesh:1', restartPolicy: 'Always'}], containers: object.spec.containers.map(c, \
        Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: 'MESH', value: 'on'}]})}}";
    install(&server, "mesh", json!([configuration(sidecar)]), pods).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"initContainers": [{"name": "first", "image": "i"}],
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "a"}]}]}});
    let made = server.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&made["spec"]["initContainers"]), ["first", "mesh"]);
    assert_eq!(names(&made["spec"]["containers"][0]["env"]), ["A", "MESH"]);
    // What was added has its defaults.
    assert_eq!(made["spec"]["initContainers"][1]["imagePullPolicy"], "IfNotPresent");
    foo_definition(&server).await;
    let foos = json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["x.io"], "apiVersions": ["*"],
        "operations": ["*"], "resources": ["foos"]}]}});
    let expression = "Object{spec: Object.spec{color: has(object.spec) && has(object.spec.color) ? object.spec.color : 'blue'}}";
    install(&server, "foos", json!([configuration(expression)]), foos).await;
    let made = server.post(FOOS, foo("f")).await.expect(201);
    assert_eq!(made["spec"]["color"], "blue");
}

#[tokio::test]
async fn a_policy_that_asks_for_it_sees_later_changes() {
    let server = Server::quiet().await;
    let count = "Object{data: {'count': string(size(object.data))}}";
    for (name, again) in [("a-once", "Never"), ("a-again", "IfNeeded")] {
        let field = name.replace('-', "");
        let mutation = configuration(&count.replace("count", &field));
        install(&server, name, json!([mutation]), json!({"reinvocationPolicy": again})).await;
    }
    install(&server, "b", json!([configuration("Object{data: {'b': 'x'}}")]), json!({})).await;
    let made = server.post(MAPS, config_map("m", json!({"own": "1"}))).await.expect(201);
    // In order of names: "a-again" first, and once more after the others.
    assert_eq!(made["data"], json!({"own": "1", "aagain": "4", "aonce": "2", "b": "x"}));
}

#[tokio::test]
async fn what_goes_wrong_refuses_the_write_or_is_passed_over() {
    let server = Server::quiet().await;
    account(&server).await;
    let wrong = [
        (
            configuration("Object{metadata: Object.wrong{}}"),
            "type mismatch: unexpected type name \"Object.wrong\", expected \"Object.metadata\", which matches field name path from root Object type",
        ),
        (
            configuration("Object{none: 1}"),
            "error applying patch: failed to convert patch object to typed object: ",
        ),
        (
            configuration("Object{metadata: Object.metadata{finalizers: object.metadata.none}}"),
            "expression 'Object{metadata: Object.metadata{finalizers: object.metadata.none}}' resulted in error: no such key: none",
        ),
        (patch("[JSONPatch{op: 'remove', path: '/data/none'}]"), "JSON Patch: "),
    ];
    for (index, (mutation, expected)) in wrong.into_iter().enumerate() {
        let name = format!("p{index}");
        install(&server, &name, json!([mutation]), json!({})).await;
        let refused = server.post(MAPS, config_map("m", json!({}))).await;
        let message = refused.fails(403, "Invalid");
        let start = format!("policy '{name}' with binding '{name}-everywhere' denied request: {expected}");
        assert!(message.starts_with(&start), "{message}");
        assert_eq!(refused.body["details"]["causes"], json!([{"message": message}]));
        let ignore = json!({"spec": {"failurePolicy": "Ignore"}});
        server.patch(&format!("{POLICIES}/{name}"), MERGE_PATCH, ignore).await.expect(200);
        let dry =
            server.ask("POST", &format!("{MAPS}?dryRun=All")).json(&config_map("m", json!({}))).send().await;
        dry.expect(201);
    }
    let pods = json!({"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["pods"]}]}});
    let atomic = "Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'k'}]}}";
    install(&server, "atomic", json!([configuration(atomic)]), pods).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let message = server.post("/api/v1/namespaces/default/pods", pod).await.fails(403, "Invalid");
    let expected = "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tolerations";
    assert!(message.contains(expected), "{message}");
}

#[tokio::test]
async fn conditions_parameters_and_selectors_say_where_a_policy_works() {
    let server = Server::quiet().await;
    let more = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "not-off", "expression": "params.data.level != 'off'"}],
    });
    let mutation = configuration("Object{data: {'level': params.data.level}}");
    server.post(POLICIES, policy("p", json!([mutation]), more)).await.expect(201);
    let reference = json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"},
        "matchResources": {"objectSelector": {"matchLabels": {"leveled": "yes"}}}});
    server.post(BINDINGS, binding("p", reference)).await.expect(201);
    let leveled = |name: &str| {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"leveled": "yes"});
        map
    };
    let message = server.post(MAPS, leveled("a")).await.fails(403, "Invalid");
    assert!(message.contains("failed to configure binding: no params found for policy binding"), "{message}");
    server.post(MAPS, config_map("params", json!({"level": "high"}))).await.expect(201);
    let made = server.post(MAPS, leveled("a")).await.expect(201);
    assert_eq!(made["data"]["level"], "high");
    let other = server.post(MAPS, config_map("b", json!({}))).await.expect(201);
    assert_eq!(other["data"], Value::Null);
    server.patch(&format!("{MAPS}/params"), MERGE_PATCH, json!({"data": {"level": "off"}})).await.expect(200);
    let made = server.post(MAPS, leveled("c")).await.expect(201);
    assert_eq!(made["data"], Value::Null);
}

#[tokio::test]
async fn expressions_are_checked_when_a_policy_is_written() {
    let server = Server::quiet().await;
    for (mutation, expected) in [
        (
            configuration("'text'"),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"'text'\": must evaluate to Object but got string",
        ),
        (
            patch("[1]"),
            "spec.mutations[0].jsonPatch.expression: Invalid value: \"[1]\": must evaluate to list(JSONPatch) but got list(int)",
        ),
        (
            patch("[JSONPatch{op: 1, path: ''}]"),
            "expected type of field 'op' is 'string' but provided type is 'int'",
        ),
        (patch("[JSONPatch{operation: 'add'}]"), "undefined field 'operation'"),
        (configuration("Other{}"), "undeclared reference to 'Other' (in container '')"),
        (json!({"patchType": "JSONPatch"}), "spec.mutations[0].jsonPatch: Required value"),
    ] {
        let refused = server.post(POLICIES, policy("p", json!([mutation]), json!({}))).await;
        let message = refused.fails(422, "Invalid");
        assert!(message.contains(expected), "{message}");
    }
    // Only what changes objects makes them.
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]);
    let validating = json!({"metadata": {"name": "v"}, "spec": {"matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "Object{} == Object{}"}]}});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let message = server.post(path, validating).await.fails(422, "Invalid");
    assert!(message.contains("undeclared reference to 'Object'"), "{message}");
}

#[tokio::test]
async fn a_broken_policy_does_not_keep_policies_from_being_mended() {
    let server = Server::quiet().await;
    let everything = json!({"matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"],
        "operations": ["*"], "resources": ["*"]}]}});
    install(&server, "p", json!([configuration("Object{none: object.metadata.none}")]), everything).await;
    server.post(MAPS, config_map("m", json!({}))).await.fails(403, "Invalid");
    server.delete(&format!("{POLICIES}/p")).await.expect(200);
    server.post(MAPS, config_map("m", json!({}))).await.expect(201);
}
