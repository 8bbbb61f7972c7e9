//! Who may do what.

use remuda_auth::identity::User;
use serde_json::{Value, json};

use crate::harness::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn role(kind: &str, name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules})
}

fn binding(kind: &str, name: &str, role: (&str, &str), subjects: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1}, "subjects": subjects})
}

fn user(name: &str) -> Value {
    json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}])
}

async fn grant(server: &Server, who: &str, rules: Value) {
    server.post(&format!("{RBAC}/clusterroles"), role("ClusterRole", who, rules)).await.expect(201);
    let bound = binding("ClusterRoleBinding", who, ("ClusterRole", who), user(who));
    server.post(&format!("{RBAC}/clusterrolebindings"), bound).await.expect(201);
}

async fn can(server: &Server, who: &User, attributes: Value) -> bool {
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": who.name, "groups": who.groups, "resourceAttributes": attributes}});
    let answer = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body).await.expect(201);
    answer["status"]["allowed"].as_bool().unwrap()
}

#[tokio::test]
async fn grants_take_effect_at_once_and_so_does_their_end() {
    let server = Server::start().await;
    let ann = server.by(somebody("ann"));
    ann.get(MAPS).await.fails(403, "Forbidden");
    grant(&server, "ann", json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}])).await;
    ann.get(MAPS).await.expect(200);
    ann.get("/api/v1/configmaps").await.expect(200);
    server.patch(&format!("{RBAC}/clusterroles/ann"), MERGE_PATCH, json!({"rules": []})).await.expect(200);
    ann.get(MAPS).await.fails(403, "Forbidden");
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    server.patch(&format!("{RBAC}/clusterroles/ann"), MERGE_PATCH, rules).await.expect(200);
    ann.get(MAPS).await.expect(200);
    server.delete(&format!("{RBAC}/clusterrolebindings/ann")).await.expect(200);
    ann.get(MAPS).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn a_role_binding_grants_inside_its_namespace() {
    let server = Server::start().await;
    server.namespace("other").await;
    let subjects = json!([{"kind": "ServiceAccount", "namespace": "other", "name": "robot"},
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}]);
    let bound = binding("RoleBinding", "b", ("ClusterRole", "cluster-admin"), subjects);
    server.post(&format!("{RBAC}/namespaces/default/rolebindings"), bound).await.expect(201);
    for member in [User::service_account("other", "robot", ""), User::new("x", ["team"])] {
        let member = server.by(member);
        member.get(MAPS).await.expect(200);
        member.get("/api/v1/namespaces/default").await.expect(200);
        member.get("/api/v1/namespaces/other/configmaps").await.fails(403, "Forbidden");
        member.get("/api/v1/configmaps").await.fails(403, "Forbidden");
        member.get("/api/v1/namespaces").await.fails(403, "Forbidden");
        member.get("/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault").await.fails(403, "Forbidden");
    }
    let lost = binding("RoleBinding", "lost", ("Role", "nowhere"), user("ann"));
    server.post(&format!("{RBAC}/namespaces/default/rolebindings"), lost).await.expect(201);
    server.by(somebody("ann")).get(MAPS).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn rules_match_groups_subresources_names_and_paths() {
    let server = Server::start().await;
    grant(
        &server,
        "ann",
        json!([
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["update"]},
            {"apiGroups": [""], "resources": ["*/log"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list", "watch", "create"]},
            {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}
        ]),
    )
    .await;
    let ann = somebody("ann");
    let cases = [
        (json!({"verb": "update", "group": "apps", "resource": "deployments", "subresource": "scale"}), true),
        (json!({"verb": "update", "group": "apps", "resource": "deployments"}), false),
        (json!({"verb": "update", "group": "", "resource": "deployments", "subresource": "scale"}), false),
        (json!({"verb": "get", "resource": "pods", "subresource": "log"}), true),
        (json!({"verb": "get", "resource": "pods"}), false),
        (json!({"verb": "get", "resource": "secrets", "name": "mine"}), true),
        (json!({"verb": "get", "resource": "secrets", "name": "yours"}), false),
        (json!({"verb": "list", "resource": "secrets"}), false),
        (json!({"verb": "create", "resource": "secrets"}), false),
    ];
    for (attributes, expected) in cases {
        assert_eq!(can(&server, &ann, attributes.clone()).await, expected, "{attributes}");
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    let seen = server.by(ann.clone());
    seen.get(&format!("{secrets}?fieldSelector=metadata.name%3Dmine")).await.expect(200);
    seen.watch(&format!("{secrets}?fieldSelector=metadata.name%3Dmine")).await;
    seen.get(secrets).await.fails(403, "Forbidden");
    seen.get("/metrics").await.expect(200);
    seen.get("/openid/v1/jwks").await.fails(403, "Forbidden");
    let path = |path: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": path, "verb": "get"}}})
    };
    for (wanted, expected) in [("/logs/x", true), ("/logs", false), ("/metrics/x", false)] {
        let answer = seen.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", path(wanted)).await;
        assert_eq!(answer.expect(201)["status"]["allowed"], expected, "{wanted}");
    }
}

#[tokio::test]
async fn a_list_by_name_is_a_list_of_that_name_only() {
    let server = Server::start().await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["list", "deletecollection"]}]);
    grant(&server, "ann", rules).await;
    server.post(MAPS, config_map("mine", json!({}))).await.expect(201);
    server.post(MAPS, config_map("yours", json!({}))).await.expect(201);
    let ann = server.by(somebody("ann"));
    let list = ann.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dmine")).await.expect(200);
    assert_eq!(names(&list), ["mine"]);
    ann.get(&format!("{MAPS}?fieldSelector=metadata.name%21%3Dyours")).await.fails(403, "Forbidden");
    ann.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dyours")).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn the_standard_roles_are_filled_by_aggregation() {
    let server = Server::start().await;
    for (name, subject) in [("view", "viewer"), ("edit", "editor"), ("admin", "chief")] {
        server
            .until(&format!("{RBAC}/clusterroles/{name}"), |answer| {
                answer.body["rules"].as_array().is_some_and(|rules| !rules.is_empty())
            })
            .await;
        let bound = binding("ClusterRoleBinding", subject, ("ClusterRole", name), user(subject));
        server.post(&format!("{RBAC}/clusterrolebindings"), bound).await.expect(201);
    }
    let pods = |verb: &str| json!({"verb": verb, "resource": "pods", "namespace": "default"});
    let secrets = json!({"verb": "get", "resource": "secrets", "namespace": "default"});
    let roles = json!({"verb": "create", "group": "rbac.authorization.k8s.io", "resource": "roles", "namespace": "default"});
    for (who, expected) in
        [("viewer", [true, false, false, false]), ("editor", [true, true, true, false]), ("chief", [true; 4])]
    {
        let who = somebody(who);
        let found = [
            can(&server, &who, pods("list")).await,
            can(&server, &who, pods("create")).await,
            can(&server, &who, secrets.clone()).await,
            can(&server, &who, roles.clone()).await,
        ];
        assert_eq!(found, expected, "{}", who.name);
    }
    // A custom resource's author extends them with a label, and what they write by hand is undone.
    let mut things = role(
        "ClusterRole",
        "things",
        json!([{"apiGroups": ["test.io"], "resources": ["things"], "verbs": ["get"]}]),
    );
    things["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    server.post(&format!("{RBAC}/clusterroles"), things).await.expect(201);
    let has_things = |answer: &Answer| answer.text().contains("test.io");
    server.until(&format!("{RBAC}/clusterroles/view"), has_things).await;
    server.until(&format!("{RBAC}/clusterroles/admin"), has_things).await;
    server.patch(&format!("{RBAC}/clusterroles/view"), MERGE_PATCH, json!({"rules": []})).await.expect(200);
    server.until(&format!("{RBAC}/clusterroles/view"), has_things).await;
    server.delete(&format!("{RBAC}/clusterroles/things")).await.expect(200);
    server.until(&format!("{RBAC}/clusterroles/view"), |answer| !has_things(answer)).await;
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_hold() {
    let server = Server::start().await;
    grant(
        &server,
        "ann",
        json!([
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
                "verbs": ["create", "update", "patch", "get", "delete"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
        ]),
    )
    .await;
    let ann = server.by(somebody("ann"));
    let roles = format!("{RBAC}/namespaces/default/roles");
    let wide = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let expected = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}";
    let answer = ann.post(&roles, role("Role", "r", wide.clone())).await;
    assert_eq!(answer.fails(403, "Forbidden"), expected);
    let narrow =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["x"], "verbs": ["get"]}]);
    let made = ann.post(&roles, role("Role", "r", narrow)).await.expect(201);
    // By any way of writing.
    let mut put = made.clone();
    put["rules"] = wide.clone();
    assert_eq!(ann.put(&format!("{roles}/r"), put).await.fails(403, "Forbidden"), expected);
    ann.put(&format!("{roles}/new"), role("Role", "new", wide.clone())).await.fails(403, "Forbidden");
    let patch = json!({"rules": wide});
    ann.patch(&format!("{roles}/r"), MERGE_PATCH, patch.clone()).await.fails(403, "Forbidden");
    ann.patch(&format!("{roles}/r"), STRATEGIC_PATCH, patch).await.fails(403, "Forbidden");
    let add = json!([{"op": "add", "path": "/rules/-", "value": wide[0]}]);
    ann.patch(&format!("{roles}/r"), JSON_PATCH, add).await.fails(403, "Forbidden");
    ann.apply(&format!("{roles}/r?force=true"), "ann", role("Role", "r", wide.clone()))
        .await
        .fails(403, "Forbidden");
    ann.apply(&format!("{roles}/applied"), "ann", role("Role", "applied", wide.clone()))
        .await
        .fails(403, "Forbidden");
    // Somebody else's wide role may get bookkeeping, but no labels: they decide what is aggregated.
    server.post(&roles, role("Role", "wide", wide.clone())).await.expect(201);
    let path = format!("{roles}/wide");
    ann.patch(&path, MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}})).await.fails(403, "Forbidden");
    ann.patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": ["x.io/f"]}})).await.expect(200);
    ann.patch(&path, MERGE_PATCH, json!({"metadata": {"finalizers": null}})).await.expect(200);

    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let bound = |name: &str, to: &str| binding("RoleBinding", name, ("Role", to), user("ann"));
    let message = ann.post(&bindings, bound("b", "wide")).await.fails(403, "Forbidden");
    assert!(
        message.starts_with("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"ann\""),
        "{message}"
    );
    assert!(
        message.contains("{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}"),
        "{message}"
    );
    ann.post(&bindings, bound("b", "missing")).await.fails(404, "NotFound");
    ann.apply(&format!("{bindings}/b"), "ann", bound("b", "wide")).await.fails(403, "Forbidden");
    ann.post(&bindings, bound("b", "r")).await.expect(201);
    let chief = binding("ClusterRoleBinding", "chief", ("ClusterRole", "cluster-admin"), user("ann"));
    ann.post(&format!("{RBAC}/clusterrolebindings"), chief.clone()).await.fails(403, "Forbidden");
    // The permissions to do just that.
    let special = json!({"rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterrolebindings"], "verbs": ["create", "update", "patch"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"]}]});
    server.patch(&format!("{RBAC}/clusterroles/ann"), MERGE_PATCH, special).await.expect(200);
    ann.post(&roles, role("Role", "escalated", wide)).await.expect(201);
    ann.post(&bindings, bound("c", "escalated")).await.fails(403, "Forbidden");
    ann.post(&format!("{RBAC}/clusterrolebindings"), chief).await.expect(201);
    ann.get("/api/v1/secrets").await.expect(200);
}

#[tokio::test]
async fn aggregation_by_hand_needs_everything() {
    let server = Server::start().await;
    let rules = json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["create"]}]);
    grant(&server, "ann", rules).await;
    let mut aggregated = role("ClusterRole", "all", json!([]));
    aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
    server
        .by(somebody("ann"))
        .post(&format!("{RBAC}/clusterroles"), aggregated)
        .await
        .fails(403, "Forbidden");
}

#[tokio::test]
async fn reviews_say_what_somebody_may_do() {
    let server = Server::start().await;
    grant(
        &server,
        "ann",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["a"]}]),
    )
    .await;
    let ann = server.by(somebody("ann"));
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "default"}});
    let status =
        ann.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body).await.expect(201)["status"]
            .clone();
    assert_eq!(status["incomplete"], false);
    let rules = status["resourceRules"].as_array().unwrap();
    assert!(
        rules.contains(
            &json!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]})
        ),
        "{status}"
    );
    let urls = status["nonResourceRules"].as_array().unwrap();
    assert!(
        urls.iter().any(|rule| rule["nonResourceURLs"].as_array().unwrap().contains(&json!("/healthz"))),
        "{status}"
    );

    let local = |namespace: &str| {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": "default"},
        "spec": {"user": "ann", "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "configmaps", "name": "a"}}})
    };
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let answer = server.post(path, local("default")).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    assert!(answer["status"]["reason"].as_str().unwrap().contains("RBAC: allowed by ClusterRoleBinding"));
    server.post(path, local("other")).await.fails(422, "Invalid");
    let empty = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "ann"}});
    server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", empty).await.fails(422, "Invalid");
    // Not everybody may ask about others.
    let about = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "bob", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    ann.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", about).await.fails(403, "Forbidden");
}

#[tokio::test]
async fn standard_roles_are_mended_at_start() {
    let store = std::sync::Arc::new(remuda_store::Memory::default());
    let server = Server::on(store.clone(), config()).await;
    let basic = format!("{RBAC}/clusterroles/system:basic-user");
    let whole = server.get(&basic).await.expect(200);
    assert_eq!(whole["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    assert_eq!(whole["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"], "true");
    server.patch(&basic, MERGE_PATCH, json!({"rules": []})).await.expect(200);
    let discovery = format!("{RBAC}/clusterrolebindings/system:discovery");
    server
        .patch(&discovery, MERGE_PATCH, json!({"subjects": [], "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}))
        .await
        .expect(200);
    server.api.shutdown().await;
    let server = Server::on(store, config()).await;
    for (group, resource) in [
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
    ] {
        let attributes = json!({"verb": "create", "group": group, "resource": resource});
        assert!(can(&server, &somebody("x"), attributes).await, "{resource}");
    }
    let left = server.get(&discovery).await.expect(200);
    assert!(left["subjects"].as_array().is_none_or(Vec::is_empty), "{left}");
}
