//! Nobody gives what they do not have: writes of users, tokens, roles and bindings.

use std::sync::{Arc, OnceLock};

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_auth::{
    attributes::Attributes,
    bearer,
    identity::User,
    rbac::{cover::covers, policy::Policy, rule::Rule},
};
use remuda_identity::Identity;
use remuda_names::{
    identity::{LOCAL_PRINCIPAL, annotation},
    rancher::group::MANAGEMENT,
};
use serde_json::Value;

const RESOURCES: &[&str] =
    &["users", "tokens", "globalroles", "globalrolebindings", "roletemplates", "clusterroletemplatebindings"];

struct Known {
    policy: Arc<Policy>,
    identity: Identity,
}

/// Admission of everything rights are made of.
#[derive(Clone, Default)]
pub(crate) struct Admission(Arc<OnceLock<Known>>);

impl Admission {
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![Arc::new(self.clone())]
    }

    /// Begins to judge. Until then only administrators may write.
    pub(crate) fn begin(&self, policy: Arc<Policy>, identity: Identity) {
        let _ = self.0.set(Known { policy, identity });
    }
}

impl Known {
    fn may(&self, user: &User, verb: &str, resource: &str, name: &str) -> bool {
        let attributes = Attributes::resource(verb, MANAGEMENT, resource).version("v3").name(name);
        self.policy.authorize(user, &attributes).allowed
    }

    fn has(&self, user: &User, namespace: &str, rules: &[Rule]) -> bool {
        rules.is_empty() || covers(&self.policy.rules_for(user, namespace).rules, rules).is_empty()
    }

    /// Whether somebody may all that another user may. Who does not must not become them.
    pub(super) fn outranks(&self, user: &User, other: &str) -> bool {
        user.name == other || outranks(&self.policy, user, other)
    }

    /// Rules of a GlobalRole, wherever they hold.
    fn has_global(&self, user: &User, role: &Value) -> bool {
        let namespaced = role.get("namespacedRules").and_then(Value::as_object);
        self.has(user, "", &Rule::parse_all(role.get("rules")))
            && namespaced
                .into_iter()
                .flatten()
                .all(|(namespace, rules)| self.has(user, namespace, &Rule::parse_all(Some(rules))))
            && ["inheritedClusterRoles", "inheritedNamespacedRules", "inheritedFleetWorkspacePermissions"]
                .iter()
                .all(|field| is_empty(role.get(*field)))
    }

    fn judge(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), String> {
        let user = request.user;
        let text = |value: Option<&Value>, field: &str| -> String {
            value.and_then(|value| value.get(field)).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let same = |fields: &[&str]| {
            object.is_some()
                && fields
                    .iter()
                    .all(|field| request.old.map(|old| &old[*field]) == object.map(|new| &new[*field]))
        };
        match request.resource {
            "users" => {
                let name = request.name;
                if request.operation != Operation::Create {
                    if !same(&["username", "principalIds", "enabled", "mustChangePassword", "password"])
                        && !self.outranks(user, name)
                    {
                        return Err(format!("user {name:?} may things that you may not"));
                    }
                    return self.principals(request, object);
                }
                self.principals(request, object)
            }
            "tokens" => {
                let old = text(request.old, "userId");
                let new = object.map_or_else(|| old.clone(), |object| text(Some(object), "userId"));
                for owner in [&old, &new].into_iter().filter(|owner| !owner.is_empty()) {
                    // Whoever may end a token may do so whosever it is.
                    let may = request.operation == Operation::Delete
                        || **owner == user.name
                        || self.may_core(user, "impersonate", "users", owner);
                    if !may {
                        return Err(format!("the token is of user {owner:?}, as whom you may not act"));
                    }
                }
                Ok(())
            }
            _ if object.is_none() => Ok(()),
            "globalroles" => {
                let fields = [
                    "rules",
                    "namespacedRules",
                    "inheritedClusterRoles",
                    "inheritedNamespacedRules",
                    "inheritedFleetWorkspacePermissions",
                ];
                let fine = same(&fields)
                    || self.may(user, "escalate", "globalroles", request.name)
                    || object.is_some_and(|role| self.has_global(user, role));
                if fine { Ok(()) } else { Err("the role allows what you may not".to_owned()) }
            }
            "roletemplates" => {
                let fields = ["rules", "external", "externalRules", "administrative", "roleTemplateNames"];
                let plain = |role: &Value| {
                    is_empty(role.get("externalRules"))
                        && is_empty(role.get("roleTemplateNames"))
                        && role.get("external").and_then(Value::as_bool) != Some(true)
                        && role.get("administrative").and_then(Value::as_bool) != Some(true)
                        && self.has(user, "", &Rule::parse_all(role.get("rules")))
                };
                let fine = same(&fields)
                    || self.may(user, "escalate", "roletemplates", request.name)
                    || object.is_some_and(plain);
                if fine { Ok(()) } else { Err("the role allows what you may not".to_owned()) }
            }
            "globalrolebindings" => {
                let role = text(object, "globalRoleName");
                let fields = ["globalRoleName", "userName", "userPrincipalName", "groupPrincipalName"];
                let has = || {
                    let known = self.identity.global_role(&role);
                    known.is_some_and(|known| self.has_global(user, &known))
                };
                let fine = same(&fields) || self.may(user, "bind", "globalroles", &role) || has();
                if fine { Ok(()) } else { Err(format!("GlobalRole {role:?} allows what you may not")) }
            }
            "clusterroletemplatebindings" => {
                let (cluster, role) = (text(object, "clusterName"), text(object, "roleTemplateName"));
                if cluster != request.namespace {
                    return Err("a binding is in the namespace of its cluster".to_owned());
                }
                let fields = [
                    "clusterName",
                    "roleTemplateName",
                    "userName",
                    "userPrincipalName",
                    "groupName",
                    "groupPrincipalName",
                ];
                let fine = same(&fields)
                    || self.may(user, "*", "clusters", &cluster)
                    || self.may(user, "bind", "roletemplates", &role);
                if fine { Ok(()) } else { Err(format!("you are not an owner of cluster {cluster:?}")) }
            }
            _ => Ok(()),
        }
    }

    fn may_core(&self, user: &User, verb: &str, resource: &str, name: &str) -> bool {
        self.policy
            .authorize(user, &Attributes::resource(verb, "", resource).version("v1").name(name))
            .allowed
    }

    /// A local name is that of the user and of nobody else.
    fn principals(&self, request: &Request<'_>, object: Option<&Value>) -> Result<(), String> {
        let ids = object.and_then(|user| user.get("principalIds")).and_then(Value::as_array);
        let mut local = ids.into_iter().flatten().filter_map(|id| id.as_str()?.strip_prefix(LOCAL_PRINCIPAL));
        match local.find(|name| *name != request.name) {
            Some(other) => Err(format!("principal {LOCAL_PRINCIPAL}{other} is that of another user")),
            None => Ok(()),
        }
    }
}

/// Whether somebody may all that another user may on this server.
pub(crate) fn outranks(policy: &Policy, user: &User, other: &str) -> bool {
    if user.is_master() {
        return true;
    }
    let theirs = User::new(other, Vec::<String>::new());
    let theirs = policy.rules_for(&theirs, "").rules;
    covers(&policy.rules_for(user, "").rules, &theirs).is_empty()
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

impl Hook for Admission {
    fn concerns(&self, request: &Request<'_>) -> bool {
        request.group == MANAGEMENT
            && request.subresource.is_empty()
            && RESOURCES.contains(&request.resource)
            && (request.resource == "tokens" || !request.user.is_master())
    }

    /// What somebody writes as a token is stored as its hash.
    fn mutate(&self, request: &Request<'_>, object: &mut Value) -> Result<(), ApiError> {
        let key = object["token"].as_str().filter(|_| request.resource == "tokens").unwrap_or_default();
        if key.is_empty() || key.starts_with('$') {
            return Ok(());
        }
        let old = request.old.and_then(|old| old["token"].as_str());
        let stored = match old.filter(|old| bearer::matches(old, key)) {
            Some(old) => old.to_owned(),
            None => {
                bearer::hash(key).map_err(|error| ApiError::new(500, "InternalError", error.to_string()))?
            }
        };
        object["token"] = stored.into();
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = serde_json::json!({});
        }
        object["metadata"]["annotations"][annotation::TOKEN_HASHED] = "true".into();
        Ok(())
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        if request.user.is_master() {
            return Ok(Vec::new());
        }
        let named = Named { group: request.group, kind: request.resource, name: request.name };
        let Some(known) = self.0.get() else {
            return Err(ApiError::forbidden(named, "this server does not know yet who may what"));
        };
        known.judge(request, object).map_err(|why| ApiError::forbidden(named, &why))?;
        Ok(Vec::new())
    }
}
