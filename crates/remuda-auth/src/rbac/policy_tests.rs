use proptest::prelude::*;

use super::*;
use crate::rbac::{
    aggregate::aggregate,
    escalation::{check_escalation, is_harmless_update},
};

fn put(policy: &Policy, object: &Value) {
    let kind = Kind::from_kind(object["kind"].as_str().unwrap()).unwrap();
    policy.apply(RbacChange::Put(kind, object));
}

fn cluster_role(name: &str, rules: Value) -> Value {
    json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"kind": "Role", "metadata": {"name": name, "namespace": namespace}, "rules": rules})
}

fn cluster_binding(name: &str, role: &str, subjects: Value) -> Value {
    json!({"kind": "ClusterRoleBinding", "metadata": {"name": name},
           "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects})
}

fn binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
           "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn read_pods() -> Value {
    json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}])
}

#[track_caller]
fn check(policy: &Policy, user: &User, attributes: Attributes<'_>, expected: bool, reason: &str) {
    let decision = policy.authorize(user, &attributes);
    assert_eq!((decision.allowed, &*decision.reason), (expected, reason));
}

#[test]
fn what_is_not_stored_outlives_a_new_list_of_what_is() {
    let policy = Policy::new();
    put(&policy, &cluster_role("stored", read_pods()));
    put(&policy, &cluster_role("global/reader", read_pods()));
    put(&policy, &cluster_binding("global/u", "global/reader", json!([{"kind": "User", "name": "u"}])));
    put(&policy, &cluster_binding("stored", "stored", json!([{"kind": "User", "name": "v"}])));
    policy.reset(Kind::ClusterRole, &[]);
    policy.reset(Kind::ClusterRoleBinding, &[]);
    let get = Attributes::resource("get", "", "pods");
    assert!(policy.authorize(&User::new("u", [""]), &get).allowed);
    assert!(!policy.authorize(&User::new("v", [""]), &get).allowed);
}

#[test]
fn the_namespaces_of_a_user_are_those_that_name_them_or_their_groups() {
    let policy = Policy::new();
    put(&policy, &binding("b", "x", "Role", "r", json!([{"kind": "User", "name": "u"}])));
    put(&policy, &binding("a", "x", "Role", "r", json!([{"kind": "Group", "name": "g"}])));
    put(&policy, &binding("c", "x", "Role", "r", json!([{"kind": "User", "name": "v"}])));
    assert_eq!(policy.namespaces_of(&User::new("u", ["g"])), ["a", "b"]);
    assert!(policy.namespaces_of(&User::new("w", ["h"])).is_empty());
}

#[test]
fn an_allowed_request_names_the_binding_that_allowed_it() {
    let policy = Policy::new();
    put(
        &policy,
        &cluster_role("cluster-admin", json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])),
    );
    put(&policy, &cluster_role("reader", read_pods()));
    put(&policy, &role("d", "local", read_pods()));
    put(&policy, &cluster_binding("root", "cluster-admin", json!([{"kind": "Group", "name": "wheel"}])));
    put(&policy, &binding("d", "rb", "Role", "local", json!([{"kind": "User", "name": "u\"x"}])));
    put(
        &policy,
        &binding("d", "rc", "ClusterRole", "reader", json!([{"kind": "ServiceAccount", "name": "sa"}])),
    );

    let get = Attributes::resource("get", "", "pods");
    check(
        &policy,
        &User::new("x", ["wheel"]),
        get,
        true,
        r#"RBAC: allowed by ClusterRoleBinding "root" of ClusterRole "cluster-admin" to Group "wheel""#,
    );
    check(
        &policy,
        &User::new("u\"x", ["g"]),
        get.namespace("d"),
        true,
        r#"RBAC: allowed by RoleBinding "rb/d" of Role "local" to User "u\"x""#,
    );
    check(
        &policy,
        &User::service_account("d", "sa", ""),
        get.namespace("d"),
        true,
        r#"RBAC: allowed by RoleBinding "rc/d" of ClusterRole "reader" to ServiceAccount "sa/d""#,
    );
    check(&policy, &User::service_account("e", "sa", ""), get.namespace("d"), false, "");
    check(&policy, &User::service_account("d", "sa", ""), get.namespace("e"), false, "");
    check(&policy, &User::service_account("d", "sa", ""), get, false, "");
    check(&policy, &User::new("m", ["system:masters"]), get, true, "");
}

#[test]
fn a_binding_to_a_missing_role_grants_nothing_and_is_named_in_the_denial() {
    let policy = Policy::new();
    let me = json!([{"kind": "User", "name": "u"}]);
    put(&policy, &cluster_binding("a", "gone", me.clone()));
    let user = User::new("u", ["g"]);
    let get = Attributes::resource("get", "", "pods").namespace("d");
    check(&policy, &user, get, false, r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#);
    put(&policy, &binding("d", "b", "Role", "lost", me.clone()));
    put(&policy, &binding("d", "c", "Role", "lost", me.clone()));
    put(&policy, &binding("d", "e", "Rule", "x", me));
    check(
        &policy,
        &user,
        get,
        false,
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "lost" not found, unsupported role reference kind: "Rule"]"#,
    );
    let status = policy.rules_for(&user, "").review_status();
    assert_eq!(status["evaluationError"], r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#);
    // The role appears: the binding takes effect without being touched.
    put(&policy, &cluster_role("gone", read_pods()));
    assert!(policy.authorize(&user, &get).allowed);
}

#[test]
fn changes_take_effect_at_once_and_leave_nothing_behind() {
    let policy = Policy::new();
    let get = Attributes::resource("get", "", "pods").namespace("d");
    let (a, b) = (User::new("a", ["g"]), User::new("b", ["g"]));
    put(&policy, &role("d", "r", read_pods()));
    put(
        &policy,
        &binding(
            "d",
            "rb",
            "Role",
            "r",
            json!([{"kind": "User", "name": "a"}, {"kind": "User", "name": "a"}]),
        ),
    );
    assert!(policy.authorize(&a, &get).allowed && !policy.authorize(&b, &get).allowed);
    put(&policy, &binding("d", "rb", "Role", "r", json!([{"kind": "User", "name": "b"}])));
    assert!(!policy.authorize(&a, &get).allowed && policy.authorize(&b, &get).allowed);
    put(&policy, &role("d", "r", json!([])));
    assert!(!policy.authorize(&b, &get).allowed);
    policy.apply(RbacChange::Delete(Key::new(Kind::RoleBinding, "d", "rb")));
    policy.apply(RbacChange::Delete(Key::new(Kind::Role, "d", "r")));
    let index = policy.index.read();
    assert!(index.bindings.is_empty() && index.roles.is_empty() && index.namespaces.is_empty());
}

#[test]
fn a_role_binding_without_namespace_is_not_a_cluster_binding() {
    let policy = Policy::new();
    put(&policy, &cluster_role("r", read_pods()));
    put(&policy, &binding("", "rb", "ClusterRole", "r", json!([{"kind": "User", "name": "u"}])));
    assert!(!policy.authorize(&User::new("u", ["g"]), &Attributes::resource("get", "", "pods")).allowed);
}

#[test]
fn a_cluster_binding_cannot_reach_roles_of_a_namespace() {
    let policy = Policy::new();
    put(&policy, &role("d", "r", read_pods()));
    let mut object = cluster_binding("b", "r", json!([{"kind": "User", "name": "u"}]));
    object["roleRef"]["kind"] = "Role".into();
    object["metadata"]["namespace"] = "d".into();
    put(&policy, &object);
    let get = Attributes::resource("get", "", "pods").namespace("d");
    check(
        &policy,
        &User::new("u", ["g"]),
        get,
        false,
        r#"RBAC: role.rbac.authorization.k8s.io "r" not found"#,
    );
}

#[test]
fn rules_for_a_user_come_once_per_binding_in_order() {
    let policy = Policy::new();
    put(&policy, &cluster_role("r", read_pods()));
    put(&policy, &cluster_role("urls", json!([{"verbs": ["get"], "nonResourceURLs": ["/x"]}])));
    let both = json!([{"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}]);
    put(&policy, &cluster_binding("z", "r", both.clone()));
    put(&policy, &cluster_binding("a", "urls", both.clone()));
    put(&policy, &binding("d", "b", "ClusterRole", "r", both));
    let user = User::new("u", ["g"]);
    assert_eq!(policy.rules_for(&user, "").rules.len(), 2);
    assert_eq!(policy.rules_for(&user, "").rules[0].non_resource_urls, ["/x"]);
    let pods = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
    assert_eq!(
        policy.rules_for(&user, "d").review_status(),
        json!({
            "resourceRules": [pods, pods],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
            "incomplete": false,
        })
    );
}

/// The definition, without any index: every binding in scope, every subject, every rule.
fn naive(objects: &BTreeMap<Key, Value>, user: &User, attributes: &Attributes<'_>) -> bool {
    objects.iter().any(|(key, object)| {
        let in_scope = match key.kind {
            Kind::ClusterRoleBinding => true,
            Kind::RoleBinding => key.namespace == attributes.namespace,
            _ => return false,
        };
        let applies = object["subjects"].as_array().unwrap().iter().any(|subject| {
            let name = subject["name"].as_str().unwrap();
            match subject["kind"].as_str().unwrap() {
                "User" => name == user.name,
                "Group" => user.groups.iter().any(|group| group == name),
                "ServiceAccount" => {
                    let own = subject["namespace"].as_str().unwrap_or("");
                    let namespace = if own.is_empty() { key.namespace.as_str() } else { own };
                    !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{name}")
                }
                _ => false,
            }
        });
        if !in_scope || !applies {
            return false;
        }
        let kind = Kind::from_kind(object["roleRef"]["kind"].as_str().unwrap());
        let Some(kind @ (Kind::Role | Kind::ClusterRole)) = kind else { return false };
        let namespace = if kind == Kind::Role { key.namespace.clone() } else { String::new() };
        let name = object["roleRef"]["name"].as_str().unwrap().to_owned();
        let Some(role) = objects.get(&Key { kind, namespace, name }) else { return false };
        role["rules"].as_array().unwrap().iter().any(|rule| Rule::parse(rule).allows(attributes))
    })
}

fn pick(options: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(options).prop_map(str::to_owned)
}

fn picks(options: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(pick(options), 0..3)
}

fn any_rule() -> impl Strategy<Value = Value> {
    (
        picks(&["get", "list", "bind", "*"]),
        picks(&["", "apps", "*"]),
        picks(&["pods", "pods/log", "*", "*/log"]),
        prop::collection::vec(pick(&["a", "b"]), 0..2),
        picks(&["/x", "/x/*", "*"]),
    )
        .prop_map(|(verbs, groups, resources, names, urls)| {
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources,
                   "resourceNames": names, "nonResourceURLs": urls})
        })
}

fn any_object() -> impl Strategy<Value = (Kind, Value)> {
    let subject = (
        pick(&["User", "Group", "ServiceAccount", "Robot"]),
        pick(&["u", "v", "g", "s"]),
        pick(&["", "d", "e"]),
    )
        .prop_map(|(kind, name, namespace)| json!({"kind": kind, "name": name, "namespace": namespace}));
    let kind = prop::sample::select(
        &[Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding][..],
    );
    (
        kind,
        pick(&["d", "e"]),
        pick(&["1", "2", "3"]),
        prop::collection::vec(any_rule(), 0..3),
        prop::collection::vec(subject, 0..3),
        pick(&["Role", "ClusterRole", "Other"]),
        pick(&["1", "2", "3"]),
    )
        .prop_map(|(kind, namespace, name, rules, subjects, role_kind, role_name)| {
            let object = json!({
                "metadata": {"namespace": namespace, "name": name},
                "rules": rules, "subjects": subjects,
                "roleRef": {"kind": role_kind, "name": role_name},
            });
            (kind, object)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_index_agrees_with_the_definition_after_any_history(
        history in prop::collection::vec((any_object(), prop::bool::weighted(0.2)), 0..24),
    ) {
        let policy = Policy::new();
        let mut objects = BTreeMap::new();
        for ((kind, object), delete) in &history {
            let key = Key::of(*kind, object);
            if *delete {
                objects.remove(&key);
                policy.apply(RbacChange::Delete(key));
            } else {
                policy.apply(RbacChange::Put(*kind, object));
                objects.insert(key, object.clone());
            }
        }
        let users = [User::new("u", ["g"]), User::new("v", ["s", "u"]), User::service_account("d", "s", "")];
        for user in &users {
            for namespace in ["", "d", "e"] {
                for verb in ["get", "bind"] {
                    for (name, sub) in [("", ""), ("a", ""), ("", "log")] {
                        let attributes = Attributes::resource(verb, "", "pods")
                            .namespace(namespace).name(name).subresource(sub);
                        let allowed = policy.authorize(user, &attributes).allowed;
                        prop_assert_eq!(allowed, naive(&objects, user, &attributes));
                        let rules = policy.rules_for(user, namespace).rules;
                        prop_assert_eq!(allowed, rules.iter().any(|rule| rule.allows(&attributes)));
                    }
                }
                let path = Attributes { namespace, ..Attributes::path("get", "/x/y") };
                prop_assert_eq!(policy.authorize(user, &path).allowed, naive(&objects, user, &path));
            }
        }
    }

    #[test]
    fn arbitrary_json_never_panics(object in crate::testing::any_json()) {
        let policy = Policy::new();
        for kind in [Kind::Role, Kind::ClusterRole, Kind::RoleBinding, Kind::ClusterRoleBinding] {
            policy.apply(RbacChange::Put(kind, &object));
        }
        let user = User::from_review(&object);
        if let Some(attributes) = Attributes::from_review(&object) {
            policy.authorize(&user, &attributes);
        }
        let rules = Rule::parse_all(object.get("rules"));
        let _ = check_escalation(&user, &policy, "d", &rules);
        let _ = aggregate(&object, std::iter::once(&object));
        prop_assert!(!object.is_object() || is_harmless_update(&object, &object));
        policy.authorize(&User::anonymous(), &Attributes::resource("get", "", "pods").namespace("d"));
    }
}
