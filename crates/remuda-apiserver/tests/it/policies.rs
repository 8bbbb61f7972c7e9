//! ValidatingAdmissionPolicy.

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A policy for ConfigMaps; `more` overrides fields of its spec.
fn policy(name: &str, more: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}]}, "validations": []},
    });
    for (key, value) in more.as_object().unwrap() {
        policy["spec"][key] = value.clone();
    }
    policy
}

fn binding(name: &str, policy: &str, actions: &[&str], more: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": policy, "validationActions": actions},
    });
    for (key, value) in more.as_object().unwrap() {
        binding["spec"][key] = value.clone();
    }
    binding
}

async fn install(server: &Server, more: Value, actions: &[&str]) {
    server.post(POLICIES, policy("p", more)).await.expect(201);
    server.post(BINDINGS, binding("b", "p", actions, json!({}))).await.expect(201);
}

#[tokio::test]
async fn a_policy_refuses_what_its_expressions_do_not_like() {
    let server = Server::start().await;
    let validations = json!({"variables": [{"name": "small", "expression": "has(object.data) && size(object.data) < 3"}],
        "validations": [
            {"expression": "request.operation == 'DELETE' || variables.small"},
            {"expression": "request.operation == 'DELETE' || !('bad' in object.data)", "message": "no bad data", "reason": "Forbidden"},
            {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "messageExpression": "'keep ' + oldObject.metadata.name"}]});
    install(&server, validations, &["Deny"]).await;
    server.post(MAPS, config_map("kept", json!({"a": "b"}))).await.expect(201);
    let answer = server.post(MAPS, config_map("x", json!({"a": "", "b": "", "c": ""}))).await;
    let text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: request.operation == 'DELETE' || variables.small";
    assert_eq!(answer.fails(422, "Invalid"), format!("configmaps \"x\" is forbidden: {text}"));
    assert_eq!(answer.body["details"]["causes"], json!([{"message": text}]));
    let message = server.post(MAPS, config_map("x", json!({"bad": ""}))).await.fails(403, "Forbidden");
    assert!(message.ends_with("denied request: no bad data"), "{message}");
    let message = server.delete(&format!("{MAPS}/kept")).await.fails(422, "Invalid");
    assert!(message.ends_with("denied request: keep kept"), "{message}");
    // Without a binding nobody is refused.
    server.delete(&format!("{BINDINGS}/b")).await.expect(200);
    server.delete(&format!("{MAPS}/kept")).await.expect(200);
}

#[tokio::test]
async fn a_binding_may_only_warn() {
    let server = Server::start().await;
    let validations = json!({"validations": [{"expression": "false", "message": "one"}, {"expression": "false", "message": "two"}]});
    install(&server, validations, &["Warn", "Audit"]).await;
    let made = server.post(MAPS, config_map("x", json!({}))).await;
    assert_eq!(
        made.warnings(),
        [
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': one\"",
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': two\""
        ]
    );
    made.expect(201);
}

#[tokio::test]
async fn an_expression_that_fails_counts_as_the_policy_says() {
    let server = Server::start().await;
    install(&server, json!({"validations": [{"expression": "object.data.missing == 'x'"}]}), &["Deny"]).await;
    let message = server.post(MAPS, config_map("x", json!({"a": "b"}))).await.fails(422, "Invalid");
    assert!(message.contains("expression 'object.data.missing == 'x'' resulted in error"), "{message}");
    server
        .patch(&format!("{POLICIES}/p"), MERGE_PATCH, json!({"spec": {"failurePolicy": "Ignore"}}))
        .await
        .expect(200);
    server.post(MAPS, config_map("x", json!({"a": "b"}))).await.expect(201);
    // A condition that fails is told the same way, whatever the binding does about it.
    let conditions = json!({"spec": {"failurePolicy": "Fail", "validations": [{"expression": "true"}],
        "matchConditions": [{"name": "c", "expression": "object.data.missing == 'x'"}]}});
    server.patch(&format!("{POLICIES}/p"), MERGE_PATCH, conditions).await.expect(200);
    server.post(MAPS, config_map("y", json!({"a": "b"}))).await.fails(422, "Invalid");
    server
        .patch(&format!("{BINDINGS}/b"), MERGE_PATCH, json!({"spec": {"validationActions": ["Warn"]}}))
        .await
        .expect(200);
    let made = server.post(MAPS, config_map("y", json!({"a": "b"}))).await;
    assert_eq!(made.warnings().len(), 1);
    made.expect(201);
}

#[tokio::test]
async fn conditions_and_selectors_limit_a_policy() {
    let server = Server::start().await;
    server.namespace("other").await;
    let more = json!({"validations": [{"expression": "false"}], "matchConditions": [{"name": "strict", "expression": "request.userInfo.username == 'admin'"}]});
    server.post(POLICIES, policy("p", more)).await.expect(201);
    let matches = json!({"matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}},
        "objectSelector": {"matchLabels": {"strict": "yes"}}}});
    server.post(BINDINGS, binding("b", "p", &["Deny"], matches)).await.expect(201);
    let mut strict = config_map("x", json!({}));
    strict["metadata"]["labels"] = json!({"strict": "yes"});
    server.post(MAPS, strict.clone()).await.expect(201);
    server.post("/api/v1/namespaces/other/configmaps", config_map("x", json!({}))).await.expect(201);
    strict["metadata"]["name"] = "y".into();
    server.post("/api/v1/namespaces/other/configmaps", strict.clone()).await.fails(422, "Invalid");
    let other = server.by(remuda_auth::identity::User::new("chief", ["system:masters"]));
    other.post("/api/v1/namespaces/other/configmaps", strict).await.expect(201);
}

#[tokio::test]
async fn parameters_come_from_objects() {
    let server = Server::start().await;
    let more = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "others", "expression": "!object.metadata.name.startsWith('limit')"}],
        "validations": [{"expression": "size(object.data) <= int(params.data.most)", "messageExpression": "'at most ' + params.data.most"}]});
    server.post(POLICIES, policy("p", more)).await.expect(201);
    let param =
        json!({"paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    server.post(BINDINGS, binding("b", "p", &["Deny"], param)).await.expect(201);
    let message = server.post(MAPS, config_map("x", json!({"a": "b"}))).await.fails(422, "Invalid");
    assert!(
        message.contains("no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{message}"
    );
    server.post(MAPS, config_map("limit", json!({"most": "1"}))).await.expect(201);
    server.post(MAPS, config_map("x", json!({"a": "b"}))).await.expect(201);
    let message = server.post(MAPS, config_map("y", json!({"a": "b", "c": "d"}))).await.fails(422, "Invalid");
    assert!(message.ends_with("at most 1"), "{message}");
    // All that a selector finds must agree.
    let selected = json!({"spec": {"paramRef": {"name": null, "selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}}});
    server.patch(&format!("{BINDINGS}/b"), MERGE_PATCH, selected).await.expect(200);
    server.post(MAPS, config_map("y", json!({"a": "b", "c": "d"}))).await.expect(201);
    for (name, most) in [("limit-a", "5"), ("limit-b", "0")] {
        let mut limit = config_map(name, json!({"most": most}));
        limit["metadata"]["labels"] = json!({"limit": "yes"});
        server.post(MAPS, limit).await.expect(201);
    }
    let message = server.post(MAPS, config_map("z", json!({"a": "b"}))).await.fails(422, "Invalid");
    assert!(message.ends_with("at most 0"), "{message}");
}

#[tokio::test]
async fn policies_see_the_namespace_and_may_grow_long() {
    let server = Server::start().await;
    let mut variables = vec![json!({"name": "v0", "expression": "1"})];
    for index in 1..40 {
        variables.push(
            json!({"name": format!("v{index}"), "expression": format!("variables.v{} + 1", index - 1)}),
        );
    }
    let more = json!({"variables": variables, "validations": [
        {"expression": "namespaceObject.metadata.name == 'default'"}, {"expression": "variables.v39 == 40"}]});
    install(&server, more, &["Deny"]).await;
    server.post(MAPS, config_map("x", json!({}))).await.expect(201);
}

#[tokio::test]
async fn what_does_not_compile_is_refused_and_hostile_expressions_end() {
    let server = Server::start().await;
    for (field, more) in [
        ("spec.validations[0].expression", json!({"validations": [{"expression": "object.("}]})),
        (
            "spec.validations[0].messageExpression",
            json!({"validations": [{"expression": "true", "messageExpression": "1 +"}]}),
        ),
        (
            "spec.variables[0].expression",
            json!({"variables": [{"name": "a", "expression": "nothing.here"}], "validations": [{"expression": "true"}]}),
        ),
        (
            "spec.matchConditions[0].expression",
            json!({"matchConditions": [{"name": "a", "expression": "variables.x"}], "validations": [{"expression": "true"}]}),
        ),
        (
            "spec.validations[0].expression",
            json!({"validations": [{"expression": "authorizer.group('').resource('pods').allowed()"}]}),
        ),
    ] {
        let message = server.post(POLICIES, policy("p", more)).await.fails(422, "Invalid");
        assert!(message.contains(&format!("{field}: Invalid value")), "{message}");
        assert!(message.contains("compilation failed"), "{message}");
    }
    // What compiles must also be able to give what is asked of it.
    for (more, expected) in [
        (
            json!({"validations": [{"expression": "1"}]}),
            "spec.validations[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
        ),
        (
            json!({"validations": [{"expression": "true", "messageExpression": "size(object.data)"}]}),
            "spec.validations[0].messageExpression: Invalid value: \"size(object.data)\": must evaluate to string but got int",
        ),
        (
            json!({"validations": [], "auditAnnotations": [{"key": "k", "valueExpression": "true"}]}),
            "spec.auditAnnotations[0].valueExpression: Invalid value: \"true\": must evaluate to one of [string null_type] but got bool",
        ),
        (
            json!({"matchConditions": [{"name": "a", "expression": "'x'"}], "validations": [{"expression": "true"}]}),
            "spec.matchConditions[0].expression: Invalid value: \"'x'\": must evaluate to bool but got string",
        ),
        (json!({"validations": [{"expression": "params.x == 1"}]}), "undeclared reference to 'params'"),
        (json!({"validations": [{"expression": "variables.x == 1"}]}), "undeclared reference to 'variables'"),
        (
            json!({"variables": [{"name": "b", "expression": "variables.a"}, {"name": "a", "expression": "1"}],
                "validations": [{"expression": "true"}]}),
            "undeclared reference to 'variables'",
        ),
        (
            json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.b == 1"}]}),
            "undefined field 'b'",
        ),
        (
            json!({"variables": [{"name": "a b", "expression": "1"}], "validations": [{"expression": "true"}]}),
            "spec.variables[0].name: Invalid value: \"a b\": must be a valid CEL identifier",
        ),
        (
            json!({"validations": [{"expression": "true", "message": "a\nb"}]}),
            "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
        ),
    ] {
        let message = server.post(POLICIES, policy("p", more)).await.fails(422, "Invalid");
        assert!(message.contains(expected), "{message}");
    }
    let deep = format!("{}true{}", "(".repeat(5000), ")".repeat(5000));
    server
        .post(POLICIES, policy("p", json!({"validations": [{"expression": deep}]})))
        .await
        .fails(422, "Invalid");
    let costly = "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, [1,2,3,4,5,6,7,8,9].all(h, true))))))))";
    install(&server, json!({"validations": [{"expression": costly}]}), &["Deny"]).await;
    server.post(MAPS, config_map("x", json!({}))).await.fails(422, "Invalid");
}

/// Rights of a user on ConfigMaps in `default`.
async fn may_read_maps(server: &Server, user: &str) {
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]}]});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "r"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    let place = format!("/apis/{group}/v1/namespaces/default");
    server.post(&format!("{place}/roles"), role).await.expect(201);
    server.post(&format!("{place}/rolebindings"), binding).await.expect(201);
}

#[tokio::test]
async fn expressions_ask_what_the_caller_may_do() {
    let server = Server::start().await;
    may_read_maps(&server, "ann").await;
    let check = |what: &str| format!("authorizer.{what}.allowed()");
    let validations: Vec<Value> = [
        check("requestResource.check('create')"),
        check("group('').resource('configmaps').namespace('default').check('get')"),
        format!("!{}", check("group('').resource('configmaps').namespace('other').check('get')")),
        format!("!{}", check("group('').resource('secrets').namespace('default').check('get')")),
        check("path('/healthz').check('get')"),
        check("serviceAccount('default', 'robot').group('').resource('configmaps').namespace('default').check('update')"),
        "authorizer.group('').resource('configmaps').namespace('default').check('get').reason().contains('RoleBinding')".to_owned(),
    ]
    .iter()
    .map(|source| json!({"expression": source}))
    .collect();
    install(&server, json!({"validations": validations}), &["Deny"]).await;
    let ann = server.by(remuda_auth::identity::User::new("ann", ["system:authenticated"]));
    ann.post(MAPS, config_map("x", json!({}))).await.expect(201);
    // An administrator may do what the policy forbids to be allowed to.
    let message = server.post(MAPS, config_map("y", json!({}))).await.fails(422, "Invalid");
    assert!(
        message
            .contains("failed expression: !authorizer.group('').resource('configmaps').namespace('other')"),
        "{message}"
    );
}

#[tokio::test]
async fn conditions_and_variables_ask_too_and_three_checks_are_too_many() {
    let server = Server::start().await;
    may_read_maps(&server, "ann").await;
    let ann = server.by(remuda_auth::identity::User::new("ann", ["system:authenticated"]));
    // Who may do something special is passed over, as in Kubernetes' own example.
    let breakglass = "!authorizer.group('example.com').resource('breakglass').check('use').allowed()";
    let more = json!({"matchConditions": [{"name": "c", "expression": breakglass}],
        "variables": [{"name": "special", "expression": "authorizer.requestResource.check('delete').allowed()"}],
        "validations": [{"expression": "variables.special", "messageExpression": "'no right for ' + request.userInfo.username"}]});
    install(&server, more, &["Deny"]).await;
    server.post(MAPS, config_map("x", json!({}))).await.expect(201);
    let message = ann.post(MAPS, config_map("y", json!({}))).await.fails(422, "Invalid");
    assert!(message.ends_with("no right for ann"), "{message}");
    let one = "authorizer.requestResource.check('create').allowed()";
    let spec = |count: usize| {
        let source = vec![one; count].join(" && ");
        json!({"spec": {"matchConditions": null, "variables": null, "validations": [{"expression": source}]}})
    };
    let path = format!("{POLICIES}/p");
    server.patch(&path, MERGE_PATCH, spec(2)).await.expect(200);
    ann.post(MAPS, config_map("y", json!({}))).await.expect(201);
    server.patch(&path, MERGE_PATCH, spec(3)).await.expect(200);
    let message = ann.post(MAPS, config_map("z", json!({}))).await.fails(422, "Invalid");
    assert!(message.contains("operation cancelled: actual cost limit exceeded"), "{message}");
}

#[tokio::test]
async fn a_message_does_not_ask_and_requests_have_types() {
    let server = Server::start().await;
    for (validation, field, text) in [
        (
            json!({"expression": "true", "messageExpression": "string(authorizer.path('/').check('get').allowed())"}),
            "spec.validations[0].messageExpression",
            "undeclared reference to 'authorizer'",
        ),
        (
            json!({"expression": "request.missing == 'x'"}),
            "spec.validations[0].expression",
            "undefined field 'missing'",
        ),
        (
            json!({"expression": "namespaceObject.spec.replicas == 1"}),
            "spec.validations[0].expression",
            "undefined field 'replicas'",
        ),
        (
            json!({"expression": "authorizer.allowed()"}),
            "spec.validations[0].expression",
            "found no matching overload for 'allowed'",
        ),
    ] {
        let answer = server.post(POLICIES, policy("q", json!({"validations": [validation]}))).await;
        let message = answer.fails(422, "Invalid");
        assert!(message.contains(text), "{message}");
        assert_eq!(answer.body["details"]["causes"][0]["field"], field);
    }
}

/// The status of a policy once its newest generation was looked at.
async fn checked(server: &Server, name: &str) -> Value {
    let observed = |answer: &Answer| {
        answer.body["status"]["observedGeneration"] == answer.body["metadata"]["generation"]
    };
    server.until(&format!("{POLICIES}/{name}"), observed).await.body["status"].clone()
}

#[tokio::test]
async fn the_status_tells_which_expressions_do_not_fit_the_types() {
    let server = Server::start().await;
    let rules = |groups: Value, resources: Value| json!({"resourceRules": [{"apiGroups": groups, "apiVersions": ["v1"], "operations": ["*"], "resources": resources}]});
    let both = rules(json!(["", "apps"]), json!(["deployments", "configmaps"]));
    let more = json!({"matchConstraints": both, "variables": [{"name": "n", "expression": "object.metadata.name"}],
        "validations": [
            {"expression": "object.spec.replicas < 5", "messageExpression": "variables.n + string(object.spec.replicaz)"},
            {"expression": "object.metadata.labels['a'] == 'b' && variables.n != ''"},
            {"expression": "variables.n > 5"}]});
    server.post(POLICIES, policy("p", more)).await.expect(201);
    let status = checked(&server, "p").await;
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().unwrap();
    let fields: Vec<&str> = warnings.iter().map(|warning| warning["fieldRef"].as_str().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "spec.validations[0].expression",
            "spec.validations[0].messageExpression",
            "spec.validations[2].expression"
        ]
    );
    assert_eq!(
        warnings[0]["warning"],
        "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'\n | object.spec.replicas < 5\n | ......^\n"
    );
    let of_both = warnings[1]["warning"].as_str().unwrap();
    assert!(
        of_both.contains("apps/v1, Kind=Deployment: ERROR: <input>:1:33: undefined field 'replicaz'"),
        "{of_both}"
    );
    assert!(warnings[2]["warning"].as_str().unwrap().contains("no matching overload for '_>_'"));
    // What is mended is told no more, and a status is written by the server alone.
    let spec = json!({"spec": {"validations": [{"expression": "object.metadata.name != ''"}]}});
    server.patch(&format!("{POLICIES}/p"), MERGE_PATCH, spec).await.expect(200);
    assert_eq!(checked(&server, "p").await, json!({"observedGeneration": 2, "typeChecking": {}}));
    // Wildcards are about everything, which has no type.
    let open = json!({"matchConstraints": rules(json!(["*"]), json!(["*"])), "validations": [{"expression": "object.nothing"}]});
    let refused = server.post(POLICIES, policy("open", open)).await;
    refused.expect(201);
    assert_eq!(checked(&server, "open").await["typeChecking"], json!({}));
}
