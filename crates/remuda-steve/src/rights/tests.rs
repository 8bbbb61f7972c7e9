//! What a list shows is what the authorizer allows, object by object, whatever roles there are.

use proptest::prelude::*;
use remuda_auth::rbac::{object::Kind as RbacKind, policy::RbacChange};
use serde_json::{Value, json};

use super::*;
use crate::kind::tests::catalogue;

const NAMESPACES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 3] = ["a", "x", "y"];

/// One role with a binding of its own.
#[derive(Debug, Clone)]
struct Grant {
    /// Empty at the cluster scope.
    namespace: &'static str,
    /// A ClusterRole that is bound in a namespace.
    cluster_role: bool,
    groups: Vec<&'static str>,
    resources: Vec<&'static str>,
    verbs: Vec<&'static str>,
    names: Vec<&'static str>,
    subject: (&'static str, &'static str),
}

fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(of, 0..=of.len())
}

fn grant() -> impl Strategy<Value = Grant> {
    let namespace = prop_oneof![Just(""), Just("a"), Just("b")];
    let subject = prop_oneof![Just(("User", "ann")), Just(("Group", "team")), Just(("User", "bob"))];
    (
        namespace,
        any::<bool>(),
        some(&["", "cluster.x-k8s.io", "*"]),
        some(&["secrets", "machines", "nodes", "namespaces", "*", "machines/status"]),
        some(&["get", "list", "watch", "update", "*"]),
        some(&["a", "x"]),
        subject,
    )
        .prop_map(|(namespace, cluster_role, groups, resources, verbs, names, subject)| Grant {
            namespace,
            cluster_role,
            groups,
            resources,
            verbs,
            names,
            subject,
        })
}

fn apply(policy: &Policy, number: usize, grant: &Grant) {
    let name = format!("role-{number}");
    let in_cluster = grant.namespace.is_empty() || grant.cluster_role;
    let role = if in_cluster { RbacKind::ClusterRole } else { RbacKind::Role };
    let kind = if in_cluster { "ClusterRole" } else { "Role" };
    let namespace = if in_cluster { "" } else { grant.namespace };
    let rule = json!({
        "apiGroups": grant.groups, "resources": grant.resources, "verbs": grant.verbs, "resourceNames": grant.names,
    });
    let object = json!({"metadata": {"name": name, "namespace": namespace}, "rules": [rule]});
    policy.apply(RbacChange::Put(role, &object));
    let (subject_kind, subject) = grant.subject;
    let bound = json!({
        "metadata": {"name": name, "namespace": grant.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": subject_kind, "name": subject, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let binding = match grant.namespace {
        "" => RbacKind::ClusterRoleBinding,
        _ => RbacKind::RoleBinding,
    };
    policy.apply(RbacChange::Put(binding, &bound));
}

/// What a SelfSubjectAccessReview would say about reading an object.
fn reviewed(policy: &Policy, user: &User, kind: &Kind, namespace: &str, name: &str) -> bool {
    let review = |verb: &str, namespace: &str| -> Value {
        json!({"resourceAttributes": {
            "verb": verb, "group": kind.group, "resource": kind.resource, "namespace": namespace, "name": name,
        }})
    };
    let own = kind.resource == "namespaces";
    let asked = [review("get", if own { name } else { namespace }), review("list", namespace)];
    asked.iter().any(|spec| policy.authorize(user, &Attributes::from_review(spec).unwrap()).allowed)
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn lists_show_what_the_authorizer_allows(grants in proptest::collection::vec(grant(), 0..6)) {
        let policy = Arc::new(Policy::new());
        for (number, grant) in grants.iter().enumerate() {
            apply(&policy, number, grant);
        }
        let user = Arc::new(User::new("ann", ["team"]));
        let rights = Rights::Policy(policy.clone(), user.clone());
        let sheet = rights.sheet();
        let catalogue = catalogue();
        for kind in catalogue.all() {
            let reach = rights.reach(kind);
            let namespaces: &[&str] = if kind.namespaced { &NAMESPACES } else { &[""] };
            let mut seen = false;
            for namespace in namespaces {
                for name in NAMES {
                    let expected = reviewed(&policy, &user, kind, namespace, name);
                    let shown = reach.includes(namespace, name);
                    prop_assert_eq!(shown, expected, "{} {}/{} {:?}", kind.id, namespace, name, grants);
                    prop_assert_eq!(rights.may_read(kind, namespace, name), expected);
                    seen |= shown;
                }
            }
            let (methods, _) = sheet.methods(kind);
            prop_assert!(!seen || methods.contains(&"GET"), "what is shown has a schema");
            prop_assert!(!seen || !reach.is_empty());
        }
    }
}

#[test]
fn methods_follow_rights() {
    let policy = Arc::new(Policy::new());
    let grant = |verbs: &[&'static str]| Grant {
        namespace: "a",
        cluster_role: false,
        groups: vec![""],
        resources: vec!["secrets"],
        verbs: verbs.to_vec(),
        names: Vec::new(),
        subject: ("User", "ann"),
    };
    apply(&policy, 0, &grant(&["get", "patch"]));
    let rights = Rights::Policy(policy.clone(), Arc::new(User::new("ann", Vec::<String>::new())));
    let catalogue = catalogue();
    let methods = |kind: &str| rights.sheet().methods(catalogue.find(kind).unwrap());
    assert_eq!(methods("secret"), (vec!["GET", "PATCH"], vec!["GET"]));
    assert_eq!(methods("node"), (vec![], vec![]));
    assert_eq!(methods("namespace"), (vec!["GET"], vec!["GET"]), "everybody may ask for them");
    apply(&policy, 1, &grant(&["create", "update", "delete"]));
    assert_eq!(methods("secret"), (vec!["GET", "DELETE", "PUT", "PATCH"], vec!["GET", "POST"]));
}
