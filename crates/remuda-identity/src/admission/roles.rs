//! GlobalRoles and RoleTemplates.

use kube::ResourceExt;
use remuda_api::management::{GlobalRole, RoleTemplate};
use remuda_auth::{
    identity::User,
    rbac::{cover::covers, object::RoleRef, rule::Rule},
};
use serde_json::Value;

use super::{Judgement, Operation, Refusal, Write, forbidden, invalid, list};
use crate::{Identity, builtin};

impl Identity {
    pub(super) fn judge_global_role(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        let shipped = builtin::global_roles().into_iter().find(|role| role.name_any() == write.name);
        let same = |new: &Value, shipped: &GlobalRole| {
            let new: Option<GlobalRole> = serde_json::from_value(new.clone()).ok();
            // Whether newcomers have it is a choice of those who run the server.
            new.is_some_and(|new| {
                let known = GlobalRole {
                    metadata: new.metadata.clone(),
                    status: new.status.clone(),
                    new_user_default: new.new_user_default,
                    ..shipped.clone()
                };
                new == known
            })
        };
        keep_shipped(write, changed, "GlobalRole", shipped.as_ref(), same)?;
        if changed.is_empty() || self.may(write.user, "escalate", "globalroles", write.name) {
            return Ok(Vec::new());
        }
        let only_default = changed.iter().all(|field| field == "newUserDefault");
        if only_default && self.may(write.user, "bind", "globalroles", write.name) {
            return Ok(Vec::new());
        }
        for role in [write.old, write.new].into_iter().flatten() {
            if !self.has_global_role(write.user, role) {
                return Err(beyond("GlobalRole", write.name, changed));
            }
        }
        Ok(Vec::new())
    }

    pub(super) fn judge_role_template(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        let shipped = builtin::role_templates().into_iter().find(|role| role.name_any() == write.name);
        let same = |new: &Value, shipped: &RoleTemplate| {
            let new: Option<RoleTemplate> = serde_json::from_value(new.clone()).ok();
            new.is_some_and(|new| {
                let known = RoleTemplate { metadata: new.metadata.clone(), ..shipped.clone() };
                new == known
            })
        };
        keep_shipped(write, changed, "RoleTemplate", shipped.as_ref(), same)?;
        if changed.is_empty() || self.may(write.user, "escalate", "roletemplates", write.name) {
            return Ok(Vec::new());
        }
        for role in [write.old, write.new].into_iter().flatten() {
            if !self.has_role_template(write.user, role) {
                return Err(beyond("RoleTemplate", write.name, changed));
            }
        }
        Ok(Vec::new())
    }

    fn has_rules(&self, user: &User, namespace: &str, rules: Option<&Value>) -> bool {
        let rules = Rule::parse_all(rules);
        user.is_trusted_writer()
            || rules.is_empty()
            || covers(&self.0.policy.rules_for(user, namespace).rules, &rules).is_empty()
    }

    /// Whether a user may all that a GlobalRole allows, wherever it allows it.
    pub(super) fn has_global_role(&self, user: &User, role: &Value) -> bool {
        let namespaced = role.get("namespacedRules").and_then(Value::as_object);
        let inherited: Vec<String> = list(role, "inheritedClusterRoles").map(str::to_owned).collect();
        user.is_trusted_writer()
            || self.has_rules(user, "", role.get("rules"))
                && self.has_included(user, role)
                && namespaced
                    .into_iter()
                    .flatten()
                    .all(|(namespace, rules)| self.has_rules(user, namespace, Some(rules)))
                && (inherited.is_empty() || self.covers_templates(user, None, &inherited))
                && ["inheritedNamespacedRules", "inheritedFleetWorkspacePermissions"]
                    .iter()
                    .all(|field| is_empty(role.get(*field)) || self.owns_every_cluster(user))
    }

    /// Whether a user may what a ClusterRole allows that a GlobalRole includes.
    fn has_included(&self, user: &User, role: &Value) -> bool {
        let (name, is_builtin) = (role["metadata"]["name"].as_str(), role["builtin"] == true);
        let Some(included) = builtin::included(name.unwrap_or_default(), is_builtin) else { return true };
        let of = RoleRef { kind: "ClusterRole".to_owned(), name: included.to_owned(), ..RoleRef::default() };
        // One that is not there allows nothing.
        let rules = self.0.policy.role_rules(&of, "").unwrap_or_default();
        covers(&self.0.policy.rules_for(user, "").rules, &rules).is_empty()
    }

    fn has_role_template(&self, user: &User, role: &Value) -> bool {
        let is_true = |field: &str| role.get(field).and_then(Value::as_bool) == Some(true);
        let parts: Vec<String> = list(role, "roleTemplateNames").map(str::to_owned).collect();
        user.is_trusted_writer()
            || self.owns_every_cluster(user) && self.has_rules(user, "", role.get("rules"))
            || !is_true("external")
                && !is_true("administrative")
                && is_empty(role.get("externalRules"))
                && (parts.is_empty() || self.covers_templates(user, None, &parts))
                && self.has_rules(user, "", role.get("rules"))
    }
}

/// Roles that come with the server are brought back when it starts: whoever could take them away meanwhile
/// would have made their holders powerless for a while, and could become them.
fn keep_shipped<K>(
    write: &Write<'_>,
    changed: &[String],
    kind: &str,
    shipped: Option<&K>,
    is_same: impl Fn(&Value, &K) -> bool,
) -> Result<(), Refusal> {
    // A role that was there under the name before the server came with one is its maker's.
    let is_theirs = builtin::came_later(write.name) && write.old.is_some_and(|old| old["builtin"] != true);
    let Some(shipped) = shipped.filter(|_| !is_theirs) else {
        let marked = write.new.is_some_and(|new| new["builtin"] == true);
        if marked && changed.iter().any(|field| field == "builtin") {
            return Err(invalid("builtin", format!("{kind} {:?} does not come with the server", write.name)));
        }
        return Ok(());
    };
    if write.operation == Operation::Delete {
        return Err(forbidden(format!(
            "{kind} {:?} comes with the server and cannot be deleted",
            write.name
        )));
    }
    let same = write.new.is_some_and(|new| is_same(new, shipped));
    if !changed.is_empty() && !same {
        return Err(forbidden(format!(
            "{kind} {:?} comes with the server and {} cannot be changed; make another under another name",
            write.name,
            changed.join(", ")
        )));
    }
    Ok(())
}

fn beyond(kind: &str, name: &str, changed: &[String]) -> Refusal {
    forbidden(format!(
        "{kind} {name:?} allows what you may not, before or after the change of {}",
        changed.join(", ")
    ))
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}
