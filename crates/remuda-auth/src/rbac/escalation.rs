//! Nobody may hand out permissions they do not hold.
//!
//! Writers of roles and bindings are checked here. Two verbs lift the check and are for the caller to ask
//! the authorizer about: `escalate` on the role ([`escalate_attributes`]) and `bind` on the referenced role
//! ([`bind_attributes`]).

use std::collections::{BTreeSet, HashMap};

use remuda_base::quote::{push_list, quoted};
use serde_json::{Map, Value};

use super::{
    GROUP,
    cover::covers,
    object::{Kind, RoleRef},
    policy::{Policy, RoleError, join_errors},
    rule::Rule,
};
use crate::{
    attributes::{Attributes, forbidden},
    identity::User,
};

/// A refused attempt. Displays as the detail of the 403; [`Escalation::message`] is the whole text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Escalation {
    pub detail: String,
}

impl Escalation {
    /// `roles.rbac.authorization.k8s.io "r" is forbidden: user "u" (groups=[…]) is attempting to …`.
    pub fn message(&self, kind: Kind, name: &str) -> String {
        forbidden(GROUP, kind.resource(), name, &self.detail)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The role to be bound does not exist: a 404, not a 403.
    #[error(transparent)]
    Role(#[from] RoleError),
    #[error(transparent)]
    Escalation(#[from] Escalation),
}

/// May `user` create a role with these rules in `namespace` (empty: a ClusterRole)?
pub fn check_escalation(
    user: &User,
    policy: &Policy,
    namespace: &str,
    new_rules: &[Rule],
) -> Result<(), Escalation> {
    if user.is_master() {
        return Ok(());
    }
    let held = policy.rules_for(user, namespace);
    let missing = covers(&held.rules, new_rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut detail = format!("user {} (groups=", quoted(&user.name));
    push_list(&mut detail, &user.groups);
    detail.push_str(") is attempting to grant RBAC permissions not currently held:\n");
    let descriptions: BTreeSet<String> = compact(missing).iter().map(Rule::compact_string).collect();
    detail.push_str(&descriptions.into_iter().collect::<Vec<_>>().join("\n"));
    if let Some(errors) = join_errors(&held.errors) {
        detail.push_str("; resolution errors: [");
        detail.push_str(&errors);
        detail.push(']');
    }
    Err(Escalation { detail })
}

/// May `user` create a binding in `namespace` (empty: a ClusterRoleBinding) to this role?
pub fn check_binding(user: &User, policy: &Policy, namespace: &str, role: &RoleRef) -> Result<(), BindError> {
    if user.is_master() {
        return Ok(());
    }
    let rules = policy.role_rules(role, namespace)?;
    Ok(check_escalation(user, policy, namespace, &rules)?)
}

/// May `user` set an aggregation rule? It can gather any permission, so it takes all of them.
pub fn check_aggregation(user: &User, policy: &Policy) -> Result<(), Escalation> {
    let star = || vec!["*".to_owned()];
    let everything = [
        Rule { verbs: star(), api_groups: star(), resources: star(), ..Rule::default() },
        Rule { verbs: star(), non_resource_urls: star(), ..Rule::default() },
    ];
    check_escalation(user, policy, "", &everything).map_err(|_| Escalation {
        detail: "must have cluster-admin privileges to use the aggregationRule".to_owned(),
    })
}

/// Whether an update of a role or binding needs no check: nothing changed but what garbage collection and
/// bookkeeping write.
///
/// Labels count as a change even when the rules stay the same: they decide which aggregated roles gather
/// those rules.
pub fn is_harmless_update(old: &Value, new: &Value) -> bool {
    const FREE: [&str; 5] =
        ["finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation"];
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let same = |old: Option<&Value>, new: Option<&Value>| {
        let (old, new) = (old.filter(|v| !empty(v)), new.filter(|v| !empty(v)));
        old == new
    };
    let same_metadata = || {
        let fields = |object: &Map<String, Value>| object.get("metadata").and_then(Value::as_object).cloned();
        let (old, new) = (fields(old).unwrap_or_default(), fields(new).unwrap_or_default());
        let mut keys = old.keys().chain(new.keys()).filter(|key| !FREE.contains(&key.as_str()));
        keys.all(|key| same(old.get(key), new.get(key)))
    };
    let mut keys = old.keys().chain(new.keys()).filter(|key| *key != "metadata");
    keys.all(|key| same(old.get(key), new.get(key))) && same_metadata()
}

/// The permission that lifts [`check_escalation`] for this role.
pub fn escalate_attributes<'a>(kind: Kind, namespace: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes::resource("escalate", GROUP, kind.resource()).version("*").namespace(namespace).name(name)
}

/// The permission that lifts [`check_binding`]; `None` for a reference to anything but a role.
pub fn bind_attributes<'a>(role: &'a RoleRef, namespace: &'a str) -> Option<Attributes<'a>> {
    let resource = match Kind::from_kind(&role.kind)? {
        kind @ (Kind::Role | Kind::ClusterRole) => kind.resource(),
        _ => return None,
    };
    let bind = Attributes::resource("bind", &role.api_group, resource).version("*");
    Some(bind.namespace(namespace).name(&role.name))
}

/// Puts single permissions that differ only by verb together again, for people to read.
fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    let mut seen: HashMap<[Vec<String>; 3], usize> = HashMap::new();
    for rule in rules {
        let simple = rule.non_resource_urls.is_empty()
            && rule.api_groups.len() == 1
            && rule.resources.len() == 1
            && rule.resource_names.len() <= 1;
        if !simple {
            out.push(rule);
            continue;
        }
        let key = [rule.api_groups.clone(), rule.resources.clone(), rule.resource_names.clone()];
        match seen.get(&key) {
            Some(&index) => out[index].verbs.extend(rule.verbs),
            None => {
                seen.insert(key, out.len());
                out.push(rule);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::{object::Key, policy::RbacChange};

    fn policy(rules: Value) -> Policy {
        let policy = Policy::new();
        let role = json!({"metadata": {"name": "held"}, "rules": rules});
        policy.apply(RbacChange::Put(Kind::ClusterRole, &role));
        let binding = json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "held"},
                             "subjects": [{"kind": "User", "name": "u"}]});
        policy.apply(RbacChange::Put(Kind::ClusterRoleBinding, &binding));
        policy
    }

    fn rules(value: Value) -> Vec<Rule> {
        Rule::parse_all(Some(&value))
    }

    #[test]
    fn granting_what_is_not_held_is_refused_with_the_list_of_it() {
        let policy = policy(json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["*"]}]));
        let user = User::new("u", ["a", "b"]);
        let wanted = rules(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get", "list"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["x"]},
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
        ]));
        let error = check_escalation(&user, &policy, "d", &wanted).unwrap_err();
        assert_eq!(
            error.message(Kind::Role, "r"),
            "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"u\" (groups=[\"a\" \"b\"]) is attempting \
             to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"apps\"], Resources:[\"deployments\"], ResourceNames:[\"x\"], Verbs:[\"list\"]}\n\
             {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
        );
        let masters = User::new("root", ["system:masters"]);
        assert_eq!(check_escalation(&masters, &policy, "d", &wanted), Ok(()));
        let held = rules(json!([{"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments"]}]));
        assert_eq!(check_escalation(&user, &policy, "", &held), Ok(()));
    }

    #[test]
    fn unresolved_roles_of_the_user_are_mentioned() {
        let policy = policy(json!([]));
        policy.apply(RbacChange::Delete(Key::new(Kind::ClusterRole, "", "held")));
        let wanted = rules(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        let error = check_escalation(&User::new("u", [""; 0]), &policy, "", &wanted).unwrap_err();
        assert_eq!(
            error.to_string(),
            "user \"u\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n\
             {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}; \
             resolution errors: [clusterrole.rbac.authorization.k8s.io \"held\" not found]"
        );
    }

    #[test]
    fn a_binding_needs_every_rule_of_its_role() {
        let policy = policy(json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        let wide = json!({"metadata": {"name": "wide"}, "rules": [{"verbs": ["*"], "apiGroups": [""], "resources": ["pods"]}]});
        policy.apply(RbacChange::Put(Kind::ClusterRole, &wide));
        let user = User::new("u", ["g"]);
        let refer = |kind: &str, name: &str| RoleRef {
            api_group: GROUP.into(),
            kind: kind.into(),
            name: name.into(),
        };
        assert_eq!(check_binding(&user, &policy, "d", &refer("ClusterRole", "held")), Ok(()));
        let refused = check_binding(&user, &policy, "d", &refer("ClusterRole", "wide"));
        assert!(matches!(refused, Err(BindError::Escalation(_))));
        let missing = check_binding(&user, &policy, "d", &refer("Role", "none"));
        assert_eq!(missing.unwrap_err().to_string(), "role.rbac.authorization.k8s.io \"none\" not found");

        let role = refer("ClusterRole", "wide");
        let bind = bind_attributes(&role, "d").unwrap();
        assert_eq!(
            (bind.verb, bind.resource, bind.name, bind.namespace),
            ("bind", "clusterroles", "wide", "d")
        );
        assert_eq!(bind_attributes(&refer("RoleBinding", "x"), "d"), None);
        assert_eq!(escalate_attributes(Kind::Role, "d", "r").resource, "roles");
    }

    #[test]
    fn only_bookkeeping_is_free() {
        let old = json!({"metadata": {"name": "r", "labels": {"a": "b"}, "resourceVersion": "1"}, "rules": [{"verbs": ["get"]}]});
        let with = |pointer: &str, key: &str, value: Value| {
            let mut new = old.clone();
            new.pointer_mut(pointer).unwrap()[key] = value;
            is_harmless_update(&old, &new)
        };
        assert!(with("/metadata", "finalizers", json!(["x"])));
        assert!(with("/metadata", "resourceVersion", json!("2")));
        assert!(with("/metadata", "annotations", json!({})));
        assert!(with("", "aggregationRule", json!(null)));
        assert!(!with("/metadata/labels", "aggregate", json!("true")));
        assert!(!with("", "rules", json!([])));
        assert!(!with("/metadata", "annotations", json!({"a": "b"})));
        assert!(!is_harmless_update(&json!(1), &json!(1)));
    }

    #[test]
    fn an_aggregation_rule_takes_full_authority() {
        let user = User::new("u", ["g"]);
        let some = policy(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        let error = check_aggregation(&user, &some).unwrap_err();
        assert_eq!(
            error.message(Kind::ClusterRole, "agg"),
            "clusterroles.rbac.authorization.k8s.io \"agg\" is forbidden: \
             must have cluster-admin privileges to use the aggregationRule"
        );
        let all = policy(json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]));
        assert_eq!(check_aggregation(&user, &all), Ok(()));
    }
}
