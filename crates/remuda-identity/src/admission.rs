//! Writes of users, tokens, roles, bindings and what else identifies a user.
//!
//! The rule: each kind lists the fields that are [free](fields) to change. Every other change needs the right
//! that its result would give, so no writer gives, or becomes, what they do not have. Some results are refused to
//! everybody, also to administrators, because what follows relies on them:
//!
//! - roles that come with the server stay as they are;
//! - there is always a user who is administrator;
//! - a name at login, and a name at an authentication provider, is that of one user;
//! - a token is of the user in its `userId`, for ever.
//!
//! What is judged is judged from caches. Two writes at the same moment may both be let through where one of
//! them would not have been: readers treat what must be unique and is not as no user's.

mod administrators;
mod bindings;
pub(crate) mod fields;
mod people;
mod roles;

pub(crate) use self::administrators::Removals;
use remuda_auth::{attributes::Attributes, bearer, identity::User, tokens::RandomError};
use remuda_names::{
    identity::{SYSTEM_PRINCIPAL, annotation, finalizer, setting},
    rancher::group::{MANAGEMENT, PROVISIONING},
};
use serde_json::{Value, json};

use crate::{Identity, second_factor::Policy as SecondFactorPolicy};

/// What is done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// A write to be judged.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    pub operation: Operation,
    pub resource: &'a str,
    /// Empty at the cluster scope.
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    pub user: &'a User,
    pub old: Option<&'a Value>,
    /// Absent for a delete.
    pub new: Option<&'a Value>,
    pub dry_run: bool,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The writer lacks a right, or no user may do this.
    Forbidden(String),
    /// The object cannot be so.
    Invalid { field: String, detail: String },
}

fn invalid(field: &str, detail: impl Into<String>) -> Refusal {
    Refusal::Invalid { field: field.to_owned(), detail: detail.into() }
}

fn forbidden(detail: impl Into<String>) -> Refusal {
    Refusal::Forbidden(detail.into())
}

/// What is found, in words for the writer.
type Judgement = Result<Vec<String>, Refusal>;

/// Whether writes of a resource are judged here.
pub fn concerns(group: &str, resource: &str) -> bool {
    group == MANAGEMENT && fields::free(resource).is_some() || group == PROVISIONING && resource == "clusters"
}

/// What is filled in before an object is judged.
pub fn fill_in(
    operation: Operation,
    resource: &str,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<(), RandomError> {
    match resource {
        "tokens" => hash_token(old, object),
        "users" if operation == Operation::Create => {
            add_finalizer(object);
            Ok(())
        }
        "clusters" => {
            keep_creator_bound(old, object);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Once a creator was bound, only bindings count. Without the note they would be bound again, so whoever writes
/// the cluster without it means nothing by that.
fn keep_creator_bound(old: Option<&Value>, object: &mut Value) {
    let noted = |object: &Value| object["metadata"]["annotations"][annotation::CREATOR_BOUND] == "true";
    if !old.is_some_and(noted) || noted(object) {
        return;
    }
    if object["metadata"]["annotations"].is_null() {
        object["metadata"]["annotations"] = json!({});
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.insert(annotation::CREATOR_BOUND.to_owned(), "true".into());
    }
}

/// What a client writes as a token is stored as its hash.
fn hash_token(old: Option<&Value>, object: &mut Value) -> Result<(), RandomError> {
    let key = object["token"].as_str().unwrap_or_default();
    if key.is_empty() || key.starts_with('$') {
        return Ok(());
    }
    let old = old.and_then(|old| old["token"].as_str());
    let stored = match old.filter(|old| bearer::matches(old, key)) {
        Some(old) => old.to_owned(),
        None => bearer::hash(key)?,
    };
    object["token"] = stored.into();
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][annotation::TOKEN_HASHED] = "true".into();
    Ok(())
}

/// A user is not gone before what names them is, so that a later user of the same name inherits nothing.
/// Users that stand for clusters are told apart by their clusters and need none.
fn add_finalizer(object: &mut Value) {
    let system = list(object, "principalIds").any(|id| id.starts_with(SYSTEM_PRINCIPAL));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| !system) else {
        return;
    };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if finalizers.is_null() {
        *finalizers = json!([]);
    }
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|known| known == finalizer::USER)
    {
        list.push(finalizer::USER.into());
    }
}

impl Identity {
    /// Accepts a write, perhaps with warnings, or refuses it.
    pub fn judge(&self, write: &Write<'_>) -> Judgement {
        let changed = fields::changed(write.resource, write.old, write.new);
        match write.resource {
            "users" => self.judge_user(write, &changed),
            "tokens" => self.judge_token(write, &changed),
            "globalroles" => self.judge_global_role(write, &changed),
            "roletemplates" => self.judge_role_template(write, &changed),
            "globalrolebindings" => self.judge_global_binding(write, &changed),
            "clusterroletemplatebindings" => self.judge_cluster_binding(write, &changed),
            "authconfigs" => self.judge_auth_config(write, &changed),
            "settings" => self.judge_setting(write, &changed),
            _ => Ok(Vec::new()),
        }
    }

    /// Whoever decides which provider is believed can be anybody the provider names.
    fn judge_auth_config(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        if changed.is_empty() || self.may_be_anybody(write.user) {
            return Ok(Vec::new());
        }
        Err(forbidden(format!(
            "{} decides who may log in as whom; it can be changed by those who may impersonate all users and \
             groups",
            changed.join(", ")
        )))
    }

    fn judge_setting(&self, write: &Write<'_>, changed: &[String]) -> Judgement {
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let value = write.new.map(|new| text(new, "value")).unwrap_or_default();
        if setting::NUMBERS.contains(&write.name) && !value.is_empty() && value.parse::<i64>().is_err() {
            return Err(invalid("value", "must be a whole number"));
        }
        if write.name == setting::SECOND_FACTOR {
            if SecondFactorPolicy::parse(value).is_none() {
                return Err(invalid("value", "must be off, administrators or all"));
            }
            if !self.may_be_anybody(write.user) {
                return Err(forbidden(
                    "who needs a second factor is decided by those who may impersonate all users and groups",
                ));
            }
        }
        Ok(Vec::new())
    }

    fn may(&self, user: &User, verb: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes::resource(verb, MANAGEMENT, resource).version("v3").name(name);
        user.is_controller() || self.0.policy.authorize(user, &attributes).allowed
    }

    fn may_impersonate(&self, user: &User, resource: &str, name: &str) -> bool {
        let attributes = Attributes::resource("impersonate", "", resource).version("v1").name(name);
        user.is_controller() || self.0.policy.authorize(user, &attributes).allowed
    }

    fn may_be_anybody(&self, user: &User) -> bool {
        ["users", "groups"].iter().all(|resource| self.may_impersonate(user, resource, ""))
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_a_finalizer_and_what_stands_for_a_cluster_does_not() {
        let mut person = json!({"metadata": {"name": "ann", "finalizers": null}});
        fill_in(Operation::Create, "users", None, &mut person).unwrap();
        fill_in(Operation::Create, "users", None, &mut person).unwrap();
        assert_eq!(person["metadata"]["finalizers"], json!([finalizer::USER]));
        let mut cluster = json!({"metadata": {"name": "u-x"}, "principalIds": ["system://provisioning/a/b"]});
        fill_in(Operation::Create, "users", None, &mut cluster).unwrap();
        assert!(cluster["metadata"]["finalizers"].is_null());
    }

    #[test]
    fn a_note_that_a_creator_was_bound_stays() {
        let noted = json!({"metadata": {"annotations": {annotation::CREATOR_BOUND: "true"}}});
        for mut object in [json!({"metadata": {}}), json!({"metadata": {"annotations": {"a": "b"}}})] {
            fill_in(Operation::Update, "clusters", Some(&noted), &mut object).unwrap();
            assert_eq!(object["metadata"]["annotations"][annotation::CREATOR_BOUND], "true");
            let before = object.clone();
            fill_in(Operation::Update, "clusters", Some(&noted), &mut object).unwrap();
            assert_eq!(object, before);
        }
        let mut fresh = json!({"metadata": {}});
        fill_in(Operation::Create, "clusters", None, &mut fresh).unwrap();
        assert_eq!(fresh, json!({"metadata": {}}));
    }

    #[test]
    fn a_key_is_hashed_once() {
        let mut token = json!({"metadata": {"name": "t"}, "token": "key"});
        fill_in(Operation::Create, "tokens", None, &mut token).unwrap();
        let stored = token.clone();
        assert!(text(&stored, "token").starts_with('$'));
        token["token"] = "key".into();
        fill_in(Operation::Update, "tokens", Some(&stored), &mut token).unwrap();
        assert_eq!(token["token"], stored["token"]);
    }
}
