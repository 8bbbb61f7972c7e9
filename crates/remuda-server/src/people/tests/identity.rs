//! No user becomes another, and none gives what they do not have: every way to try, on a whole server.

use kube::api::{DeleteParams, Patch, PatchParams};
use remuda_api::{
    management::{GlobalRole, RoleTemplate, User},
    provisioning,
};
use remuda_names::identity as names;

use super::*;

const API: &str = "/apis/management.cattle.io/v3";

impl Site {
    async fn give(&self, user: &str, role: &str) {
        let bindings: Api<GlobalRoleBinding> = Api::all(self.root().await);
        let binding = GlobalRoleBinding {
            user_name: user.to_owned(),
            global_role_name: role.to_owned(),
            ..GlobalRoleBinding::named(&format!("{user}-{role}"))
        };
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }

    /// A GlobalRole over objects of `management.cattle.io`, as YAML would have it.
    async fn role(&self, name: &str, rules: Value) {
        let object = json!({"apiVersion": "management.cattle.io/v3", "kind": "GlobalRole",
            "metadata": {"name": name}, "rules": rules});
        let roles: Api<GlobalRole> = Api::all(self.root().await);
        roles.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// Waits until a user may list a resource.
    async fn lists(&self, token: &str, resource: &str) {
        let got = self.gets(token, &format!("{API}/{resource}"), 200).await;
        assert_eq!(got.code, StatusCode::OK, "{resource}: {}", got.text);
    }

    async fn patch(&self, token: &str, path: &str, patch: Value) -> Got {
        let headers = [("content-type", "application/merge-patch+json")];
        self.send_plain(token, "PATCH", &format!("{API}/{path}"), &headers, patch).await
    }

    /// As `send`, with the headers as given.
    pub(super) async fn send_plain(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Got {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let response = self.client(Some(token)).await.send(request.body(body).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Got { code: head.status, headers: head.headers, body, text }
    }

    async fn create(&self, token: &str, resource: &str, kind: &str, mut object: Value) -> Got {
        object["apiVersion"] = "management.cattle.io/v3".into();
        object["kind"] = kind.into();
        self.send(Some(token), "POST", &format!("{API}/{resource}"), &[], object).await
    }

    async fn delete(&self, token: &str, path: &str) -> Got {
        self.send(Some(token), "DELETE", &format!("{API}/{path}"), &[], json!({})).await
    }

    async fn admin(&self) -> String {
        let password = self.server.first_user().unwrap().password.clone();
        self.login("admin", &password).await.body["token"].as_str().unwrap().to_owned()
    }
}

const MANAGE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

fn manage(resources: &[&str]) -> Value {
    json!([{"apiGroups": ["management.cattle.io"], "resources": resources, "verbs": MANAGE}])
}

#[track_caller]
fn refused(got: &Got, because: &str) {
    assert!([403, 422].contains(&got.code.as_u16()), "{}: {}", got.code, got.text);
    assert!(got.text.contains(because), "{}", got.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_of_the_user_in_its_user_id_and_of_nobody_a_label_names() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    site.role("token-keeper", manage(&["tokens"])).await;
    site.give("ann", "token-keeper").await;
    site.lists(&ann, "tokens").await;
    let label = "authn.management.cattle.io/token-userId";
    let stolen = json!({"metadata": {"name": "token-x", "labels": {label: "user-admin"}}, "token": "a-key"});
    refused(&site.create(&ann, "tokens", "Token", stolen.clone()).await, "userId");
    // What older servers let in belongs to no user, even if the one who brought it in may everything.
    let mut token: Token = serde_json::from_value(stolen).unwrap();
    let tokens: Api<Token> = Api::all(site.root().await);
    let error = tokens.create(&PostParams::default(), &token).await.unwrap_err().to_string();
    assert!(error.contains("userId"), "{error}");
    token.user_id = "ann".to_owned();
    let error = tokens.create(&PostParams::default(), &token).await.unwrap_err().to_string();
    assert!(error.contains("must be the same as userId"), "{error}");

    let (own, _) = ann.split_once(':').unwrap();
    refused(&site.patch(&ann, &format!("tokens/{own}"), json!({"userId": "user-admin"})).await, "userId");
    let other = json!({"metadata": {"name": "token-y"}, "userId": "user-admin", "token": "a-key"});
    refused(&site.create(&ann, "tokens", "Token", other).await, "impersonate");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_ones_own_can_be_ended_earlier_and_nothing_else() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({"ttl": 3_600_000})).await;
    site.role("token-keeper", manage(&["tokens"])).await;
    site.give("ann", "token-keeper").await;
    site.lists(&ann, "tokens").await;
    let (own, _) = ann.split_once(':').unwrap();
    let path = format!("tokens/{own}");
    let group = json!([{"metadata": {"name": "genericoidc_group://admins"}, "principalType": "group"}]);
    for (field, patch) in [
        ("groupPrincipals", json!({"groupPrincipals": group})),
        ("expiresAt", json!({"expiresAt": "2099-01-01T00:00:00Z"})),
        ("expiresAt", json!({"expiresAt": "", "ttl": -1})),
        ("ttl", json!({"ttl": 0, "expiresAt": null})),
        ("lastUsedAt", json!({"lastUsedAt": "2020-01-01T00:00:00Z"})),
        ("clusterName", json!({"clusterName": "c-x"})),
        ("authProvider", json!({"authProvider": "genericoidc"})),
        ("isDerived", json!({"isDerived": false})),
        ("token", json!({"token": "another-key"})),
        ("userPrincipal", json!({"userPrincipal": {"metadata": {"name": "local://user-admin"}}})),
        ("labels", json!({"metadata": {"labels": {"authn.management.cattle.io/kind": "kubeconfig"}}})),
    ] {
        refused(&site.patch(&ann, &path, patch).await, field);
    }
    let made =
        json!({"metadata": {"name": "token-z"}, "userId": "ann", "token": "k", "groupPrincipals": group});
    refused(&site.create(&ann, "tokens", "Token", made).await, "impersonate");
    let described = site.patch(&ann, &path, json!({"description": "mine"})).await;
    assert_eq!(described.code, StatusCode::OK, "{}", described.text);
    let ended = site.patch(&ann, &path, json!({"enabled": false})).await;
    assert_eq!(ended.code, StatusCode::OK, "{}", ended.text);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_of_users_becomes_nobody_else() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    site.give("ann", "users-manage").await;
    site.lists(&ann, "users").await;
    // An administrator who is known from elsewhere and was disabled.
    let users: Api<User> = Api::all(site.root().await);
    let boss = User {
        username: "boss".to_owned(),
        principal_ids: vec!["genericoidc_user://boss".to_owned()],
        enabled: Some(false),
        ..User::named("boss")
    };
    users.create(&PostParams::default(), &boss).await.unwrap();
    site.give("boss", "admin").await;

    let principals = |ids: &[&str]| json!({"principalIds": ids});
    refused(&site.patch(&ann, "users/ann", principals(&["genericoidc_user://boss"])).await, "boss");
    refused(&site.patch(&ann, "users/ann", principals(&["genericoidc_user://later"])).await, "impersonate");
    refused(&site.patch(&ann, "users/ann", principals(&["local://user-admin"])).await, "another user");
    let made = json!({"metadata": {"name": "eve"}, "principalIds": ["genericoidc_user://later"]});
    refused(&site.create(&ann, "users", "User", made).await, "impersonate");
    for (field, patch) in [
        ("enabled", json!({"enabled": true})),
        ("enabled", json!({"enabled": null})),
        ("principalIds", json!({"principalIds": []})),
        ("username", json!({"username": "boss2"})),
        ("mustChangePassword", json!({"mustChangePassword": true})),
        ("password", json!({"password": "x"})),
        (
            "ownerReferences",
            json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}}),
        ),
        ("finalizers", json!({"metadata": {"finalizers": null}})),
    ] {
        let got = site.patch(&ann, "users/boss", patch).await;
        refused(&got, field);
    }
    refused(&site.delete(&ann, "users/boss").await, "may what you may not");

    // Names at login, however they are written.
    for (name, username) in
        [("u1", "boss"), ("u2", "BOSS"), ("u3", "admin"), ("u4", "b\u{43e}ss"), ("u5", "a b")]
    {
        let made = site
            .create(&ann, "users", "User", json!({"metadata": {"name": name}, "username": username}))
            .await;
        assert_eq!(made.code, StatusCode::UNPROCESSABLE_ENTITY, "{username}: {}", made.text);
        refused(&made, "username");
    }
    let clash = site.root().await;
    let clash: Api<User> = Api::all(clash);
    let other = User { username: "Boss".to_owned(), ..User::named("other") };
    assert!(
        clash.create(&PostParams::default(), &other).await.is_err(),
        "not even administrators make a clash"
    );

    let fine =
        site.create(&ann, "users", "User", json!({"metadata": {"name": "bob"}, "username": "bob"})).await;
    assert_eq!(fine.code, StatusCode::CREATED, "{}", fine.text);
    let fine = site.patch(&ann, "users/boss", json!({"displayName": "The boss"})).await;
    assert_eq!(fine.code, StatusCode::OK, "{}", fine.text);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_in_namespaces_groups_and_clusters_count_too() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    site.give("ann", "users-manage").await;
    site.cluster("c-a").await;
    // Each of these may something that ann may not, and nothing everywhere.
    for name in ["namespaced", "member", "inheriting", "grouped", "native"] {
        site.user(name, json!({})).await;
    }
    let roles: Api<GlobalRole> = Api::all(site.root().await);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    for (name, role) in [
        ("vault", json!({"namespacedRules": {"vault": secrets}})),
        ("viewer", json!({"inheritedClusterRoles": ["view"]})),
        ("reader", json!({"rules": secrets})),
    ] {
        let mut role = role;
        role["apiVersion"] = "management.cattle.io/v3".into();
        role["kind"] = "GlobalRole".into();
        role["metadata"] = json!({"name": name});
        roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    }
    site.give("namespaced", "vault").await;
    site.give("inheriting", "viewer").await;
    site.bind("c-a", "member", "nodes-view").await;
    let bindings: Api<GlobalRoleBinding> = Api::all(site.root().await);
    let of_group = GlobalRoleBinding {
        group_principal_name: "genericoidc_group://ops".to_owned(),
        global_role_name: "reader".to_owned(),
        ..GlobalRoleBinding::named("ops")
    };
    bindings.create(&PostParams::default(), &of_group).await.unwrap();
    let group = json!([{"metadata": {"name": "genericoidc_group://ops"}, "principalType": "group"}]);
    let mut login =
        Token { user_id: "grouped".to_owned(), token: "k".to_owned(), ..Token::named("token-ops") };
    login.group_principals = serde_json::from_value(group).unwrap();
    let tokens: Api<Token> = Api::all(site.root().await);
    tokens.create(&PostParams::default(), &login).await.unwrap();
    let root = site.root().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let native = json!({"metadata": {"name": "native"}, "subjects": [{"kind": "User", "name": "native", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}});
    let request = Request::post(path).header("content-type", "application/json");
    let _: Value = root.request(request.body(native.to_string().into_bytes()).unwrap()).await.unwrap();

    site.lists(&ann, "users").await;
    site.user("nobody-special", json!({})).await;
    let fine = "/v3/users/nobody-special?action=setpassword";
    let body = json!({"newPassword": "a password of mine"});
    for _ in 0..200 {
        if site.send(Some(&ann), "POST", fine, &[], body.clone()).await.code == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for name in ["namespaced", "member", "inheriting", "grouped", "native"] {
        let path = format!("/v3/users/{name}?action=setpassword");
        // Rights follow what is written; then they hold.
        let mut got = site.send(Some(&ann), "POST", &path, &[], body.clone()).await;
        for _ in 0..200 {
            if got.code == StatusCode::FORBIDDEN {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            got = site.send(Some(&ann), "POST", &path, &[], body.clone()).await;
        }
        assert_eq!(got.code, StatusCode::FORBIDDEN, "{name}");
        refused(&site.patch(&ann, &format!("users/{name}"), json!({"enabled": false})).await, "enabled");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_that_come_with_the_server_stay_and_nobody_takes_a_role_they_could_not_give() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    site.give("ann", "roles-manage").await;
    site.give("ann", "users-manage").await;
    site.lists(&ann, "globalroles").await;
    site.lists(&ann, "users").await;
    let admin = site.admin().await;
    for token in [&ann, &admin] {
        for path in ["globalroles/admin", "globalroles/user", "roletemplates/cluster-owner"] {
            refused(&site.patch(token, path, json!({"rules": []})).await, "comes with the server");
            refused(&site.patch(token, path, json!({"builtin": false})).await, "comes with the server");
            refused(&site.delete(token, path).await, "cannot be deleted");
        }
    }
    refused(
        &site.patch(&ann, "roletemplates/view", json!({"external": false})).await,
        "comes with the server",
    );
    let roles: Api<GlobalRole> = Api::all(site.root().await);
    let error = roles.delete("admin", &DeleteParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("cannot be deleted"), "{error}");

    // What newcomers get is a gift like any other.
    refused(&site.patch(&ann, "globalroles/admin", json!({"newUserDefault": true})).await, "newUserDefault");
    let chosen = site.patch(&admin, "globalroles/user", json!({"newUserDefault": false})).await;
    assert_eq!(chosen.code, StatusCode::OK, "{}", chosen.text);
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    refused(
        &site.create(&ann, "globalroles", "GlobalRole", role("mine", all.clone())).await,
        "what you may not",
    );
    refused(
        &site.create(&ann, "roletemplates", "RoleTemplate", role("mine", all.clone())).await,
        "what you may not",
    );
    let marked = json!({"metadata": {"name": "marked"}, "builtin": true});
    refused(&site.create(&ann, "globalroles", "GlobalRole", marked).await, "builtin");
    let fine = site.create(&ann, "globalroles", "GlobalRole", role("fine", manage(&["users"]))).await;
    assert_eq!(fine.code, StatusCode::CREATED, "{}", fine.text);
    let fine = site.patch(&ann, "globalroles/fine", json!({"newUserDefault": true})).await;
    assert_eq!(fine.code, StatusCode::OK, "{}", fine.text);
    for (field, patch) in [
        ("inheritedClusterRoles", json!({"inheritedClusterRoles": ["cluster-owner"]})),
        ("namespacedRules", json!({"namespacedRules": {"kube-system": all}})),
        ("inheritedNamespacedRules", json!({"inheritedNamespacedRules": {"kube-system": all}})),
    ] {
        refused(&site.patch(&ann, "globalroles/fine", patch).await, field);
    }

    // A role another user made: who could not give it cannot empty or delete it, nor unbind its holders.
    site.role("strong", all).await;
    site.user("bob", json!({})).await;
    site.give("bob", "strong").await;
    for _ in 0..200 {
        if site.patch(&ann, "globalroles/strong", json!({"rules": []})).await.code == StatusCode::FORBIDDEN {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    refused(&site.patch(&ann, "globalroles/strong", json!({"rules": []})).await, "what you may not");
    refused(&site.delete(&ann, "globalroles/strong").await, "what you may not");
    refused(&site.delete(&ann, "globalrolebindings/bob-strong").await, "what you may not");
    refused(
        &site.patch(&ann, "globalrolebindings/bob-strong", json!({"globalRoleName": "user"})).await,
        "strong",
    );
    refused(&site.delete(&ann, "globalrolebindings/globaladmin-user-admin").await, "what you may not");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_always_an_administrator() {
    let site = Site::start().await;
    let admin = site.admin().await;
    let binding = "globalrolebindings/globaladmin-user-admin";
    let last = "last administrator";
    refused(&site.patch(&admin, "users/user-admin", json!({"enabled": false})).await, last);
    refused(&site.delete(&admin, "users/user-admin").await, last);
    refused(&site.delete(&admin, binding).await, last);
    refused(&site.patch(&admin, binding, json!({"globalRoleName": "user"})).await, last);
    let all: Api<GlobalRoleBinding> = Api::all(site.root().await);
    let collected = all.delete_collection(&DeleteParams::default(), &Default::default()).await;
    assert!(collected.is_err(), "nor can all bindings go at once");

    // A second one, and then two at once cannot both go.
    site.user("ann", json!({})).await;
    site.give("ann", "admin").await;
    let path = format!("{API}/{binding}?dryRun=All");
    for _ in 0..200 {
        if site.send(Some(&admin), "DELETE", &path, &[], json!({})).await.code == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let root = site.root().await;
    let (users, bindings): (Api<User>, Api<GlobalRoleBinding>) = (Api::all(root.clone()), Api::all(root));
    let disable = Patch::Merge(json!({"enabled": false}));
    let params = PatchParams::default();
    let delete_params = DeleteParams::default();
    let (one, other) = tokio::join!(
        users.patch("ann", &params, &disable),
        bindings.delete("globaladmin-user-admin", &delete_params),
    );
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_of_an_old_name_inherits_nothing() {
    let site = Site::start().await;
    let root = site.root().await;
    let old = site.user("ann", json!({})).await;
    site.give("ann", "admin").await;
    site.cluster("c-a").await;
    site.bind("c-a", "ann", "cluster-owner").await;
    site.post_as_root("/v3/users/ann?action=setpassword", &json!({"newPassword": "the old password"})).await;
    site.lists(&old, "users").await;
    assert_eq!(site.enters(&old, "c-a", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);

    let users: Api<User> = Api::all(root.clone());
    let before = users.get("ann").await.unwrap();
    assert!(before.metadata.finalizers.unwrap().contains(&names::finalizer::USER.to_owned()));
    users.delete("ann", &DeleteParams::default()).await.unwrap();
    let again = User { username: "ann".to_owned(), ..User::named("ann") };
    let mut made = users.create(&PostParams::default(), &again).await;
    for _ in 0..500 {
        if made.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        made = users.create(&PostParams::default(), &again).await;
    }
    made.unwrap();
    let bindings: Api<GlobalRoleBinding> = Api::all(root.clone());
    assert!(bindings.get_opt("ann-admin").await.unwrap().is_none());
    let owners: Api<ClusterRoleTemplateBinding> = Api::namespaced(root.clone(), "c-a");
    assert!(owners.get_opt("ann-cluster-owner").await.unwrap().is_none());
    let got = site.send(Some(&old), "GET", SETTINGS, &[], json!(null)).await;
    assert_eq!(got.code, StatusCode::UNAUTHORIZED, "old tokens are nobody's");
    assert_eq!(site.login("ann", "the old password").await.code, StatusCode::UNAUTHORIZED);
    let mut got = None;
    for _ in 0..200 {
        // A token made before the new user is known is one of the old user.
        let made = site.post_as_root("/v3/tokens", &json!({"userId": "ann"})).await;
        let new = made["token"].as_str().unwrap_or_default().to_owned();
        let answer = site.send(Some(&new), "GET", &format!("{API}/users"), &[], json!(null)).await;
        if answer.code != StatusCode::UNAUTHORIZED {
            got = Some((new, answer));
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (new, got) = got.expect("the new user has a token");
    assert_eq!(got.code, StatusCode::FORBIDDEN, "{}", got.text);
    let new = new.as_str();
    assert_eq!(site.enters(new, "c-a", 403).await.code, StatusCode::FORBIDDEN);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_bound_already_is_made_a_user_by_those_who_may_as_much() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    site.give("ann", "users-manage").await;
    site.lists(&ann, "users").await;
    site.give("later", "admin").await;
    let later = json!({"metadata": {"name": "later"}, "username": "later"});
    let mut got = site.create(&ann, "users?dryRun=All", "User", later.clone()).await;
    for _ in 0..200 {
        if got.code == StatusCode::FORBIDDEN {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        got = site.create(&ann, "users?dryRun=All", "User", later.clone()).await;
    }
    refused(&got, "choose another name");
    let admin = site.admin().await;
    let made = site.create(&admin, "users", "User", later).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text);
    let warning = made.headers.get("warning").and_then(|warning| warning.to_str().ok()).unwrap_or_default();
    assert!(warning.contains("bindings name user"), "{warning}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creator_owns_by_a_binding_that_can_be_deleted() {
    let site = Site::start().await;
    let root = site.root().await;
    let ann = site.user("ann", json!({})).await;
    site.give("ann", "user").await;
    let bob = site.user("bob", json!({})).await;
    let path = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
    let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
    namespace.metadata.name = Some("fleet-default".to_owned());
    let _ = Api::all(root.clone()).create(&PostParams::default(), &namespace).await;
    let object = json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": {}});
    let mut made = site.send(Some(&ann), "POST", path, &[], object.clone()).await;
    for _ in 0..200 {
        if made.code == StatusCode::CREATED {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        made = site.send(Some(&ann), "POST", path, &[], object.clone()).await;
    }
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.text);
    let one = format!("{path}/demo");
    assert_eq!(site.gets(&ann, &one, 200).await.code, StatusCode::OK, "at once, without a binding");

    // What the controllers of clusters do, which do not run here.
    site.cluster("c-demo").await;
    namespace.metadata.name = Some("c-demo".to_owned());
    Api::all(root.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let clusters: Api<provisioning::Cluster> = Api::namespaced(root.clone(), "fleet-default");
    let status = Patch::Merge(json!({"status": {"clusterName": "c-demo"}}));
    clusters.patch_status("demo", &PatchParams::default(), &status).await.unwrap();
    let owners: Api<ClusterRoleTemplateBinding> = Api::namespaced(root.clone(), "c-demo");
    let noted = || async {
        let cluster = clusters.get("demo").await.unwrap();
        cluster.metadata.annotations.unwrap_or_default().contains_key(names::annotation::CREATOR_BOUND)
    };
    for _ in 0..500 {
        if noted().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let binding = owners.get(names::CREATOR_BINDING).await.unwrap();
    assert_eq!((binding.user_name.as_str(), binding.role_template_name.as_str()), ("ann", "cluster-owner"));
    assert_eq!(binding.metadata.owner_references.unwrap()[0].name, "c-demo");
    assert_eq!(site.gets(&ann, &one, 200).await.code, StatusCode::OK);
    assert_eq!(site.enters(&ann, "c-demo", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(site.gets(&bob, &one, 403).await.code, StatusCode::FORBIDDEN);

    // The note stays: without it the binding would be made again.
    let unnoted = json!({"metadata": {"annotations": {names::annotation::CREATOR_BOUND: null}}});
    let headers = [("content-type", "application/merge-patch+json")];
    let kept = site.send_plain(&ann, "PATCH", &one, &headers, unnoted).await;
    assert_eq!(kept.code, StatusCode::OK, "{}", kept.text);
    assert_eq!(kept.body["metadata"]["annotations"][names::annotation::CREATOR_BOUND], "true");

    let revision = |cluster: &provisioning::Cluster| cluster.metadata.resource_version.clone();
    let before = revision(&clusters.get("demo").await.unwrap());
    owners.delete(names::CREATOR_BINDING, &DeleteParams::default()).await.unwrap();
    assert_eq!(site.gets(&ann, &one, 403).await.code, StatusCode::FORBIDDEN, "revoked is revoked");
    let Site { server, dir } = site;
    server.shutdown().await;
    let site = Site { server: Site::up(dir.path().to_owned()).await, dir };
    assert_eq!(site.gets(&ann, &one, 403).await.code, StatusCode::FORBIDDEN, "also after a restart");
    let clusters: Api<provisioning::Cluster> = Api::namespaced(site.root().await, "fleet-default");
    assert_eq!(revision(&clusters.get("demo").await.unwrap()), before, "a restart writes nothing");
    let owners: Api<ClusterRoleTemplateBinding> = Api::namespaced(site.root().await, "c-demo");
    assert!(owners.get_opt(names::CREATOR_BINDING).await.unwrap().is_none());
    site.stop().await;
}

/// Something a schema allows.
fn sample(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|list| list.first()) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => json!("2020-01-01T00:00:00Z"),
        Some("boolean") => json!(true),
        Some("integer") => json!(7),
        Some("array") => json!([sample(&schema["items"])]),
        Some("object") => match schema["properties"].as_object() {
            Some(fields) => fields.iter().map(|(name, schema)| (name.clone(), sample(schema))).collect(),
            None if schema["additionalProperties"].is_object() => {
                json!({"other": sample(&schema["additionalProperties"])})
            }
            None => json!({"other": "x"}),
        },
        _ => json!("other"),
    }
}

/// Every field of every kind that identifies a user: whoever may write the kind, and nothing else, may not
/// change it on what belongs to an administrator, unless it is listed as free.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_listed_as_free_needs_a_right() {
    const KINDS: &[(&str, &str, &[&str])] = &[
        ("users", "users/user-admin", &["displayName", "description", "me"]),
        ("globalroles", "globalroles/strong", &["displayName", "description"]),
        ("globalrolebindings", "globalrolebindings/bob-strong", &[]),
        ("roletemplates", "roletemplates/strong", &["displayName", "description", "hidden"]),
        ("authconfigs", "authconfigs/genericoidc", &[]),
        ("tokens", "tokens/token-admin", &[]),
    ];
    let site = Site::start().await;
    let root = site.root().await;
    let eve = site.user("eve", json!({})).await;
    site.user("bob", json!({})).await;
    let resources: Vec<&str> = KINDS.iter().map(|(resource, ..)| *resource).collect();
    site.role("keeper", manage(&resources)).await;
    site.give("eve", "keeper").await;
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    site.role("strong", all.clone()).await;
    site.give("bob", "strong").await;
    let template: RoleTemplate =
        serde_json::from_value(json!({"metadata": {"name": "strong"}, "rules": all, "context": "cluster"}))
            .unwrap();
    Api::all(root.clone()).create(&PostParams::default(), &template).await.unwrap();
    let config: remuda_api::management::AuthConfig =
        serde_json::from_value(json!({"metadata": {"name": "genericoidc"}, "issuer": "https://id.example"}))
            .unwrap();
    Api::all(root.clone()).create(&PostParams::default(), &config).await.unwrap();
    let token =
        Token { user_id: "user-admin".to_owned(), token: "k".to_owned(), ..Token::named("token-admin") };
    Api::all(root.clone()).create(&PostParams::default(), &token).await.unwrap();
    site.lists(&eve, "tokens").await;

    for (resource, path, free) in KINDS {
        let crds = remuda_api::crd::rancher();
        let crd = crds
            .into_iter()
            .find(|crd| crd["metadata"]["name"] == format!("{resource}.management.cattle.io"))
            .unwrap();
        let now = site.gets(&eve, &format!("{API}/{path}"), 200).await.body;
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for (field, schema) in schema.as_object().unwrap() {
            if ["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()) {
                continue;
            }
            let value = match schema["type"].as_str() {
                Some("boolean") => json!(now[field] != true),
                _ => sample(schema),
            };
            let got = site.patch(&eve, path, json!({field: value})).await;
            if free.contains(&field.as_str()) {
                assert_eq!(got.code, StatusCode::OK, "{resource} {field}: {}", got.text);
            } else {
                assert_ne!(got.code, StatusCode::OK, "{resource} {field}: {}", got.text);
                assert!([403, 422].contains(&got.code.as_u16()), "{resource} {field}: {}", got.text);
            }
        }
    }
    site.stop().await;
}
