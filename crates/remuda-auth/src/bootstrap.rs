//! The RBAC objects every server starts with, and how they are kept in shape.
//!
//! At each start missing permissions and subjects are added again. What an administrator added stays, and
//! an object annotated `rbac.authorization.kubernetes.io/autoupdate: "false"` is never touched.

mod roles;

use serde_json::{Map, Value, json};

use crate::{
    identity::{
        GROUP_AUTHENTICATED, GROUP_MASTERS, GROUP_MONITORING, GROUP_SERVICE_ACCOUNTS, GROUP_UNAUTHENTICATED,
        KUBE_CONTROLLER_MANAGER, KUBE_PROXY, KUBE_SCHEDULER,
    },
    rbac::{
        GROUP,
        cover::covers,
        object::{RoleRef, Subject},
        rule::{Rule, words},
    },
};

/// `"false"` opts an object out of [`reconcile_role`] and [`reconcile_binding`].
pub const AUTOUPDATE_ANNOTATION: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING_LABEL: &str = "kubernetes.io/bootstrapping";
const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

struct ClusterRole {
    name: &'static str,
    /// The aggregated role this one's rules go into.
    feeds: &'static str,
    gathers: bool,
    grants: &'static [Grant],
}

struct Grant {
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
    urls: &'static str,
}

const fn role(name: &'static str, grants: &'static [Grant]) -> ClusterRole {
    ClusterRole { name, feeds: "", gathers: false, grants }
}

const fn feeding(name: &'static str, feeds: &'static str, grants: &'static [Grant]) -> ClusterRole {
    ClusterRole { name, feeds, gathers: false, grants }
}

/// A role whose rules the aggregation controller fills from the roles that feed it.
const fn gathering(name: &'static str, feeds: &'static str) -> ClusterRole {
    ClusterRole { name, feeds, gathers: true, grants: &[] }
}

const fn on(verbs: &'static str, groups: &'static str, resources: &'static str) -> Grant {
    Grant { verbs, groups, resources, names: "", urls: "" }
}

const fn named(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> Grant {
    Grant { verbs, groups, resources, names, urls: "" }
}

const fn urls(verbs: &'static str, urls: &'static str) -> Grant {
    Grant { verbs, groups: "", resources: "", names: "", urls }
}

impl Grant {
    fn rule(&self) -> Rule {
        Rule {
            verbs: words(self.verbs),
            api_groups: words(self.groups),
            resources: words(self.resources),
            resource_names: words(self.names),
            non_resource_urls: words(self.urls),
        }
    }
}

fn aggregation_label(role: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{role}")
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {BOOTSTRAPPING_LABEL: "rbac-defaults"},
        "annotations": {AUTOUPDATE_ANNOTATION: "true"},
    })
}

/// The default ClusterRoles. Aggregated ones have no rules yet.
pub fn cluster_roles() -> Vec<Value> {
    let object = |role: &ClusterRole| {
        let rules: Vec<Value> = role.grants.iter().map(|grant| grant.rule().to_value()).collect();
        let mut object = json!({
            "apiVersion": API_VERSION,
            "kind": "ClusterRole",
            "metadata": metadata(role.name),
            "rules": rules,
        });
        if !role.feeds.is_empty() {
            object["metadata"]["labels"][aggregation_label(role.feeds)] = "true".into();
        }
        if role.gathers {
            let selector = json!({"matchLabels": {aggregation_label(role.name): "true"}});
            object["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        object
    };
    roles::ROLES.iter().map(object).collect()
}

/// The default ClusterRoleBindings: each role to the subjects that need it, under the role's name.
pub fn cluster_role_bindings() -> Vec<Value> {
    let group = |name: &str| json!({"kind": "Group", "apiGroup": GROUP, "name": name});
    let user = |name: &str| json!({"kind": "User", "apiGroup": GROUP, "name": name});
    let account =
        |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let bindings = [
        ("cluster-admin", vec![group(GROUP_MASTERS)]),
        ("system:monitoring", vec![group(GROUP_MONITORING)]),
        ("system:discovery", vec![group(GROUP_AUTHENTICATED)]),
        ("system:basic-user", vec![group(GROUP_AUTHENTICATED)]),
        ("system:public-info-viewer", vec![group(GROUP_AUTHENTICATED), group(GROUP_UNAUTHENTICATED)]),
        ("system:node-proxier", vec![user(KUBE_PROXY)]),
        ("system:kube-controller-manager", vec![user(KUBE_CONTROLLER_MANAGER)]),
        ("system:kube-dns", vec![account("kube-system", "kube-dns")]),
        ("system:kube-scheduler", vec![user(KUBE_SCHEDULER)]),
        ("system:volume-scheduler", vec![user(KUBE_SCHEDULER)]),
        ("system:service-account-issuer-discovery", vec![group(GROUP_SERVICE_ACCOUNTS)]),
        ("system:cluster-trust-bundle-discovery", vec![group(GROUP_SERVICE_ACCOUNTS)]),
    ];
    let object = |(name, subjects): (&str, Vec<Value>)| {
        json!({
            "apiVersion": API_VERSION,
            "kind": "ClusterRoleBinding",
            "metadata": metadata(name),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": subjects,
        })
    };
    bindings.into_iter().map(object).collect()
}

/// What to write so that an object is as it should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Reconcile {
    Create(Value),
    Update(Value),
    /// A binding's role cannot be changed: delete the old binding, then create this.
    Recreate(Value),
}

/// Adds missing rules, aggregation selectors, labels and annotations to a role. `None`: nothing to do.
pub fn reconcile_role(existing: Option<&Value>, desired: &Value) -> Option<Reconcile> {
    let Some(existing) = existing else { return Some(Reconcile::Create(desired.clone())) };
    if is_protected(existing) {
        return None;
    }
    let mut updated = existing.clone();
    let object = updated.as_object_mut()?;
    merge_metadata(object, desired);

    let missing = covers(&Rule::parse_all(existing.get("rules")), &Rule::parse_all(desired.get("rules")));
    append(object, "rules", missing.iter().map(Rule::to_value));
    match desired.get("aggregationRule") {
        None => {
            object.remove("aggregationRule");
        }
        Some(wanted) => {
            let selectors = |rule: Option<&Value>| {
                let list = rule.and_then(|rule| rule.get("clusterRoleSelectors")).and_then(Value::as_array);
                list.cloned().unwrap_or_default()
            };
            let present = selectors(existing.get("aggregationRule"));
            let missing = selectors(Some(wanted)).into_iter().filter(|selector| !present.contains(selector));
            let rule = object.entry("aggregationRule").or_insert_with(|| json!({}));
            append(object_of(rule), "clusterRoleSelectors", missing);
        }
    }
    (updated != *existing).then_some(Reconcile::Update(updated))
}

/// Adds missing subjects, labels and annotations to a binding. `None`: nothing to do.
pub fn reconcile_binding(existing: Option<&Value>, desired: &Value) -> Option<Reconcile> {
    let Some(existing) = existing else { return Some(Reconcile::Create(desired.clone())) };
    if is_protected(existing) {
        return None;
    }
    if RoleRef::parse(existing.get("roleRef")) != RoleRef::parse(desired.get("roleRef")) {
        return Some(Reconcile::Recreate(desired.clone()));
    }
    let mut updated = existing.clone();
    let object = updated.as_object_mut()?;
    merge_metadata(object, desired);

    let list = |object: &Value| object.get("subjects").and_then(Value::as_array).cloned().unwrap_or_default();
    let present: Vec<Subject> = list(existing).iter().map(Subject::parse).collect();
    let missing = list(desired).into_iter().filter(|subject| !present.contains(&Subject::parse(subject)));
    append(object, "subjects", missing);
    (updated != *existing).then_some(Reconcile::Update(updated))
}

fn is_protected(object: &Value) -> bool {
    let annotations = object.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|annotations| annotations.get(AUTOUPDATE_ANNOTATION)).and_then(Value::as_str)
        == Some("false")
}

/// What is there wins: only keys that are missing are taken over.
fn merge_metadata(object: &mut Map<String, Value>, desired: &Value) {
    let metadata = object_of(object.entry("metadata").or_insert_with(|| json!({})));
    for field in ["labels", "annotations"] {
        let Some(wanted) = desired.get("metadata").and_then(|metadata| metadata.get(field)) else { continue };
        let present = object_of(metadata.entry(field).or_insert_with(|| json!({})));
        for (key, value) in wanted.as_object().into_iter().flatten() {
            present.entry(key).or_insert_with(|| value.clone());
        }
    }
}

fn append(object: &mut Map<String, Value>, field: &str, items: impl Iterator<Item = Value>) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    let list = object.entry(field).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    if let Value::Array(list) = list {
        list.extend(items);
    }
}

/// The map in `value`; anything else, such as null, gives way to an empty one.
fn object_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        attributes::Attributes,
        identity::User,
        rbac::{
            aggregate::aggregation_change,
            object::Kind,
            policy::{Policy, RbacChange},
        },
    };

    fn find(objects: &[Value], name: &str) -> Value {
        objects.iter().find(|object| object["metadata"]["name"] == name).unwrap().clone()
    }

    /// All bootstrap objects with aggregation settled.
    fn booted() -> Policy {
        let mut roles = cluster_roles();
        let mut changed = true;
        while changed {
            changed = false;
            for index in 0..roles.len() {
                if let Some(rules) = aggregation_change(&roles[index], roles.iter()) {
                    roles[index]["rules"] = rules.into();
                    changed = true;
                }
            }
        }
        let policy = Policy::new();
        for role in &roles {
            policy.apply(RbacChange::Put(Kind::ClusterRole, role));
        }
        for binding in &cluster_role_bindings() {
            policy.apply(RbacChange::Put(Kind::ClusterRoleBinding, binding));
        }
        for (name, role) in [("v", "view"), ("e", "edit"), ("a", "admin")] {
            let binding = json!({"metadata": {"name": role, "namespace": "d"},
                "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [{"kind": "User", "name": name}]});
            policy.apply(RbacChange::Put(Kind::RoleBinding, &binding));
        }
        policy
    }

    #[test]
    fn every_binding_finds_its_role_and_names_are_unique() {
        let roles = cluster_roles();
        for binding in cluster_role_bindings() {
            find(&roles, binding["roleRef"]["name"].as_str().unwrap());
        }
        let mut names: Vec<_> = roles.iter().map(|role| role["metadata"]["name"].to_string()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), roles.len());
    }

    #[test]
    fn the_default_roles_grant_what_their_names_promise() {
        let policy = booted();
        let d = |verb, group, resource| Attributes::resource(verb, group, resource).namespace("d");
        for (user, attributes, expected) in [
            ("v", d("get", "", "pods"), true),
            ("v", d("list", "apps", "deployments"), true),
            ("v", d("get", "", "secrets"), false),
            ("v", d("create", "", "pods"), false),
            ("e", d("get", "", "pods"), true),
            ("e", d("get", "", "secrets"), true),
            ("e", d("create", "apps", "deployments"), true),
            ("e", d("create", GROUP, "rolebindings"), false),
            ("a", d("create", GROUP, "rolebindings"), true),
            ("a", d("delete", "", "pods"), true),
            ("a", d("create", "", "resourcequotas"), false),
            ("a", Attributes::resource("get", "", "pods").namespace("e"), false),
            ("x", Attributes::path("get", "/apis/apps/v1"), true),
            ("x", Attributes::path("get", "/version"), true),
            ("x", Attributes::path("get", "/metrics"), false),
            ("x", Attributes::resource("create", "authorization.k8s.io", "selfsubjectaccessreviews"), true),
            ("x", Attributes::resource("create", "authentication.k8s.io", "selfsubjectreviews"), true),
            ("x", Attributes::resource("list", "", "namespaces"), false),
        ] {
            let user = User::new(user, [GROUP_AUTHENTICATED]);
            assert_eq!(
                policy.authorize(&user, &attributes).allowed,
                expected,
                "{} {attributes:?}",
                user.name
            );
        }
        let anonymous = User::anonymous();
        for (path, expected) in
            [("/version", true), ("/healthz", true), ("/api", false), ("/openid/v1/jwks", false)]
        {
            assert_eq!(
                policy.authorize(&anonymous, &Attributes::path("get", path)).allowed,
                expected,
                "{path}"
            );
        }
        let account = User::service_account("d", "s", "");
        assert!(policy.authorize(&account, &Attributes::path("get", "/openid/v1/jwks")).allowed);
    }

    #[test]
    fn roles_regain_what_they_lost_and_keep_what_was_added() {
        let desired = find(&cluster_roles(), "system:basic-user");
        assert_eq!(reconcile_role(None, &desired), Some(Reconcile::Create(desired.clone())));
        assert_eq!(reconcile_role(Some(&desired), &desired), None);

        let mut existing = desired.clone();
        let extra = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        existing["rules"] = json!([extra, desired["rules"][0]]);
        existing["metadata"]["labels"] = json!({"mine": "1"});
        let Some(Reconcile::Update(updated)) = reconcile_role(Some(&existing), &desired) else { panic!() };
        assert_eq!(updated["rules"][0], extra);
        assert_eq!(
            updated["metadata"]["labels"],
            json!({"mine": "1", "kubernetes.io/bootstrapping": "rbac-defaults"})
        );
        assert_eq!(reconcile_role(Some(&updated), &desired), None, "settled after one pass");

        existing["metadata"]["annotations"][AUTOUPDATE_ANNOTATION] = "false".into();
        assert_eq!(reconcile_role(Some(&existing), &desired), None);
    }

    #[test]
    fn aggregated_roles_keep_their_gathered_rules() {
        let desired = find(&cluster_roles(), "view");
        let mut existing = desired.clone();
        existing["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(reconcile_role(Some(&existing), &desired), None);
        existing.as_object_mut().unwrap().remove("aggregationRule");
        let Some(Reconcile::Update(updated)) = reconcile_role(Some(&existing), &desired) else { panic!() };
        assert_eq!(updated["aggregationRule"], desired["aggregationRule"]);
    }

    #[test]
    fn bindings_regain_subjects_and_are_remade_for_another_role() {
        let desired = find(&cluster_role_bindings(), "system:public-info-viewer");
        assert_eq!(reconcile_binding(Some(&desired), &desired), None);
        let mut existing = desired.clone();
        existing["subjects"] = json!([{"kind": "User", "apiGroup": GROUP, "name": "u"}]);
        let Some(Reconcile::Update(updated)) = reconcile_binding(Some(&existing), &desired) else { panic!() };
        assert_eq!(updated["subjects"].as_array().unwrap().len(), 3);
        assert_eq!(reconcile_binding(Some(&updated), &desired), None);
        existing["roleRef"]["name"] = "other".into();
        assert_eq!(reconcile_binding(Some(&existing), &desired), Some(Reconcile::Recreate(desired.clone())));
        existing["metadata"]["annotations"][AUTOUPDATE_ANNOTATION] = "false".into();
        assert_eq!(reconcile_binding(Some(&existing), &desired), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_existing_object_is_reconciled_in_one_pass(existing in crate::testing::any_json()) {
            let role = find(&cluster_roles(), "edit");
            let binding = find(&cluster_role_bindings(), "system:discovery");
            if let Some(Reconcile::Update(updated)) = reconcile_role(Some(&existing), &role) {
                prop_assert_eq!(reconcile_role(Some(&updated), &role), None);
            }
            reconcile_binding(Some(&existing), &binding);
        }
    }
}
