//! The one point at which it is decided whether a writer may name what they name, and where they may create.
//!
//! Controllers act on names with rights of their own, so whoever writes a name must have the right to what is done
//! with it. A write by the server's controllers, or by a member of `system:masters`, is not judged: the former copy
//! names that were judged where people wrote them, the latter may everything.

use std::sync::Arc;

use remuda_apiserver::{AdmissionRequest as Request, ApiError, Found, Hook, Lookup, Named, Operation};
use remuda_auth::{attributes::Attributes, identity::User, rbac::policy::Policy};
use remuda_names::{
    provisioning::annotation::SHARED,
    rancher::{
        annotation::CREATOR_ID,
        group::{MACHINE_CONFIG, MANAGEMENT, PROVISIONING},
    },
};
use remuda_provisioning::admission::{
    Refused, Workspace,
    references::{self, Place, Reference, Rule, Target, Use},
    workspace,
};
use serde_json::{Value, json};

use super::Kinds;

/// Refused names that are told; all of them are refused.
const TOLD: usize = 16;

/// Admission of everything that names other objects.
pub struct Writers {
    kinds: Kinds,
}

impl Writers {
    pub(super) fn new(kinds: Kinds) -> Self {
        Self { kinds }
    }
}

fn place<'a>(request: &Request<'a>) -> Place<'a> {
    let Request { group, kind, namespace, name, .. } = *request;
    Place { group, kind, namespace, name }
}

fn is_created_in_a_workspace(request: &Request<'_>) -> bool {
    request.operation == Operation::Create
        && request.subresource.is_empty()
        && (request.group == MACHINE_CONFIG || request.group == PROVISIONING && request.kind == "Cluster")
}

/// Whether a machine configuration says something else than before.
fn is_edited_config(request: &Request<'_>, object: &Value) -> bool {
    let content = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.retain(|key, _| !matches!(key.as_str(), "metadata" | "kind" | "apiVersion"));
        fields
    };
    request.group == MACHINE_CONFIG && request.old.is_none_or(|old| content(old) != content(object))
}

/// Kinds that are known without asking; of Secrets nothing but the name matters.
fn known_resource(target: &Target) -> Option<&'static str> {
    match (target.group.as_str(), target.kind.as_str()) {
        ("", "Secret") => Some("secrets"),
        ("", "ConfigMap") => Some("configmaps"),
        _ => None,
    }
}

fn lookup(target: &Target) -> Lookup {
    let Target { group, kind, namespace, name } = target.clone();
    Lookup { group, kind, namespace, name }
}

/// The Clusters that may use a machine configuration.
fn clusters_of(request: &Request<'_>) -> Lookup {
    Lookup {
        group: PROVISIONING.to_owned(),
        kind: "Cluster".to_owned(),
        namespace: request.namespace.to_owned(),
        name: String::new(),
    }
}

/// The User who writes, if there is one.
fn user_of(request: &Request<'_>) -> Lookup {
    let (group, kind, name) = (MANAGEMENT.to_owned(), "User".to_owned(), request.user.name.clone());
    Lookup { group, kind, namespace: String::new(), name }
}

impl Hook for Writers {
    fn concerns(&self, request: &Request<'_>) -> bool {
        !request.user.is_trusted_writer()
            && request.operation != Operation::Delete
            && matches!(request.subresource, "" | "status")
            && (request.group == MACHINE_CONFIG || references::concerns(request.group, request.kind))
    }

    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        let Some(object) = object else { return Vec::new() };
        let introduced = references::introduced(place(request), request.old, object).unwrap_or_default();
        let targets = introduced.iter().map(|reference| &reference.target);
        let unknown = targets.filter(|target| known_resource(target).is_none() && !target.name.is_empty());
        let mut wanted: Vec<Lookup> = unknown.map(lookup).collect();
        if introduced.iter().any(|reference| reference.rule == Rule::MachineConfig) {
            wanted.push(user_of(request));
        }
        if is_edited_config(request, object) {
            wanted.push(clusters_of(request));
        }
        wanted.sort();
        wanted.dedup();
        wanted
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let Some(object) = object.filter(|_| self.concerns(request)) else { return Ok(Vec::new()) };
        let named = Named { group: request.group, kind: request.resource, name: request.name };
        let Some(policy) = self.kinds.policy() else {
            return Err(ApiError::forbidden(named, "this server does not know yet who may what"));
        };
        let writer = Writer { policy, user: request.user, request };
        let refused = writer.judge(object);
        if refused.is_empty() { Ok(Vec::new()) } else { Err(forbidden(named, &refused)) }
    }
}

/// Whoever writes, and what they may.
struct Writer<'a> {
    policy: &'a Arc<Policy>,
    user: &'a User,
    request: &'a Request<'a>,
}

impl Writer<'_> {
    fn judge(&self, object: &Value) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut refuse = |field: &str, why: String| refused.push(Refused { field: field.to_owned(), why });
        if is_created_in_a_workspace(self.request) {
            let namespace = self.request.namespace;
            if let Err(why) = self.may_create_in(namespace, self.request.group, self.request.resource) {
                refuse("metadata.namespace", why);
            }
        }
        match references::introduced(place(self.request), self.request.old, object) {
            Ok(introduced) => {
                for reference in &introduced {
                    if let Err(why) = self.may_name(reference, object) {
                        refuse(&reference.field, why);
                    }
                }
            }
            Err(too_many) => refuse("spec", too_many.to_string()),
        }
        if is_edited_config(self.request, object) {
            let clusters = self.request.found.get(&clusters_of(self.request));
            let clusters = clusters.map(|found| found.objects.as_slice()).unwrap_or_default();
            for target in references::credentials_used_with(place(self.request), clusters) {
                if let Err(why) = self.may(Use::Read, &target, "secrets") {
                    let why = format!("a cluster uses this configuration with a credential, and {why}");
                    refuse("metadata.name", why);
                }
            }
        }
        refused
    }

    fn may_name(&self, reference: &Reference, object: &Value) -> Result<(), String> {
        let target = &reference.target;
        if reference.used == Use::Create {
            return self.may_create_in(&target.namespace, PROVISIONING, "clusters");
        }
        let found = self.request.found.get(&lookup(target));
        let resource = match known_resource(target) {
            Some(known) => known.to_owned(),
            None => resource(target, found),
        };
        let existing = found.and_then(|found| found.objects.first());
        match reference.rule {
            Rule::RightsOnly => self.may(reference.used, target, &resource),
            Rule::Snapshot => {
                let cluster = object["spec"]["clusterName"].as_str().unwrap_or(self.request.name);
                let own = existing.is_some_and(|found| found["spec"]["clusterName"] == cluster);
                if own { Ok(()) } else { self.may(reference.used, target, &resource) }
            }
            Rule::MachineConfig => {
                if existing.is_some_and(|found| self.made(found)) {
                    return Ok(());
                }
                // Controllers find it whatever the case of its kind. What cannot be seen here may belong to anybody.
                if found.is_none_or(|found| found.resource.is_none()) {
                    return self.may(Use::Own, target, &resource);
                }
                self.may(Use::Read, target, &resource)?;
                match existing.and_then(|found| other_owner(found, self.request.name)) {
                    // Sharing it takes it away from its cluster.
                    Some(owner) => self
                        .may(Use::Own, target, &resource)
                        .map_err(|why| format!("it belongs to cluster {owner:?}, and {why}")),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether an object says that the writer created it. Admission sees to it that it does not lie. A User who got
    /// the name of an earlier one made nothing that is older than they are.
    fn made(&self, object: &Value) -> bool {
        // Times of this form are in the order of their texts.
        let since = |object: &Value| object["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
        let user = self.request.found.get(&user_of(self.request)).and_then(|found| found.objects.first());
        let is_older = user.is_none_or(|user| since(user) <= since(object));
        object["metadata"]["annotations"][CREATOR_ID] == self.user.name.as_str() && is_older
    }

    fn may(&self, used: Use, target: &Target, resource: &str) -> Result<(), String> {
        let Target { group, namespace, name, .. } = target;
        for verb in used.verbs() {
            let attributes = Attributes::resource(verb, group, resource).namespace(namespace).name(name);
            if !self.policy.authorize(self.user, &attributes).allowed {
                let qualified =
                    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
                let within = match namespace.as_str() {
                    "" => String::new(),
                    namespace => format!(" in namespace {namespace:?}"),
                };
                return Err(format!("user {:?} cannot {verb} {qualified} {name:?}{within}", self.user.name));
            }
        }
        Ok(())
    }

    /// A right to create everywhere is one to create in the workspace everybody has. Others are given.
    fn may_create_in(&self, namespace: &str, group: &str, resource: &str) -> Result<(), String> {
        let attributes = Attributes::resource("create", group, resource).namespace(namespace);
        let given = || self.policy.authorize_in_namespace(self.user, &attributes).allowed;
        let manages = || {
            let workspace = Attributes::resource("create", MANAGEMENT, "fleetworkspaces").name(namespace);
            self.policy.authorize(self.user, &workspace).allowed
        };
        let everywhere = || self.policy.authorize(self.user, &attributes).allowed;
        let allowed = match workspace(namespace) {
            Workspace::Shared => everywhere(),
            Workspace::Given => given() || everywhere() && manages(),
            Workspace::System => false,
        };
        if allowed {
            return Ok(());
        }
        let user = &self.user.name;
        Err(format!("namespace {namespace:?} is no workspace in which user {user:?} may create {resource}"))
    }
}

/// The resource of a kind. One that is not served is judged by the name it would have.
fn resource(target: &Target, found: Option<&Found>) -> String {
    let served = found.and_then(|found| found.resource.clone());
    served.unwrap_or_else(|| format!("{}s", target.kind.to_lowercase()))
}

/// The cluster of another name that owns a machine configuration, unless it is known to be shared.
fn other_owner<'a>(config: &'a Value, cluster: &str) -> Option<&'a str> {
    let metadata = &config["metadata"];
    if metadata["annotations"][SHARED] == "true" {
        return None;
    }
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut clusters = owners.filter(|owner| {
        let version = owner["apiVersion"].as_str().unwrap_or_default();
        owner["kind"] == "Cluster" && version.split('/').next() == Some(PROVISIONING)
    });
    clusters.find_map(|owner| owner["name"].as_str().filter(|name| *name != cluster))
}

/// With every field that is refused, up to a number.
pub(super) fn forbidden(named: Named<'_>, refused: &[Refused]) -> ApiError {
    let told = refused.iter().take(TOLD);
    let texts: Vec<String> =
        told.clone().map(|refused| format!("{}: {}", refused.field, refused.why)).collect();
    let mut error = ApiError::forbidden(named, &texts.join(", "));
    if let Some(details) = &mut error.details {
        details["causes"] = told
            .map(|refused| {
                json!({"reason": "FieldValueForbidden", "message": refused.why, "field": refused.field})
            })
            .collect();
    }
    error
}
