//! The live index over all RBAC objects, and the authorizer.
//!
//! Bindings are found from the caller's side: by user name and by group, at the cluster scope and per
//! namespace. So a request costs what its own user's bindings cost, however many others there are, and
//! changing an object touches only that object's entries.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use remuda_base::quote::quoted;
use serde_json::{Value, json};

use super::{
    object::{Binding, Handle, Key, Kind, Object, RoleRef},
    rule::{CompiledRule, Rule, verb_bit},
};
use crate::{attributes::Attributes, identity::User};

/// A user with thousands of dangling bindings must not make every denial a long computation, so only the
/// first few are told.
const MAX_ERRORS: usize = 32;

/// One observed change of an RBAC object.
#[derive(Debug, Clone, PartialEq)]
pub enum RbacChange<'a> {
    /// Created or modified: the whole new object.
    Put(Kind, &'a Value),
    Delete(Key),
}

/// The authorizer's answer. There are no deny rules: not allowed means nobody said yes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub allowed: bool,
    /// Which binding allowed it, or which roles were missing; often empty on denial.
    pub reason: Arc<str>,
}

/// A binding refers to a role that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum RoleError {
    #[error("clusterrole.rbac.authorization.k8s.io {} not found", quoted(.0))]
    NoClusterRole(String),
    #[error("role.rbac.authorization.k8s.io {} not found", quoted(.0))]
    NoRole(String),
    #[error("unsupported role reference kind: {}", quoted(.0))]
    UnsupportedKind(String),
}

/// All rules that apply to a user in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserRules {
    pub rules: Vec<Rule>,
    /// Roles that bindings of the user refer to in vain. The rules found still hold.
    pub errors: Vec<RoleError>,
}

impl UserRules {
    /// Rules about resources, in the form of SelfSubjectRulesReview.
    pub fn resource_rules(&self) -> Vec<Value> {
        let resource = |rule: &Rule| Rule { non_resource_urls: Vec::new(), ..rule.clone() }.to_value();
        self.rules.iter().filter(|rule| !rule.resources.is_empty()).map(resource).collect()
    }

    /// Rules about URLs, in the form of SelfSubjectRulesReview.
    pub fn non_resource_rules(&self) -> Vec<Value> {
        let urls = |rule: &Rule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls});
        self.rules.iter().filter(|rule| !rule.non_resource_urls.is_empty()).map(urls).collect()
    }

    /// The `status` of a SelfSubjectRulesReview.
    pub fn review_status(&self) -> Value {
        let mut status = json!({
            "resourceRules": self.resource_rules(),
            "nonResourceRules": self.non_resource_rules(),
            "incomplete": false,
        });
        if let Some(error) = join_errors(&self.errors) {
            status["evaluationError"] = error.into();
        }
        status
    }
}

/// Several errors in one text: `[a, b]`, a single one as it is. `None` without errors.
///
pub(crate) fn join_errors(errors: &[RoleError]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().take(MAX_ERRORS).map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.len() {
        0 => None,
        1 => texts.pop(),
        _ => Some(format!("[{}]", texts.join(", "))),
    }
}

/// All RBAC objects of the server. Shared: readers and the one that applies changes need only `&self`.
#[derive(Debug, Default)]
pub struct Policy {
    index: RwLock<Index>,
    changes: AtomicU64,
}

impl Policy {
    pub fn new() -> Self {
        Self::default()
    }

    /// How many changes there were: as long as it stays the same, everybody may what they may.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Takes effect for every authorization that starts after it returns.
    pub fn apply(&self, change: RbacChange<'_>) {
        match change {
            RbacChange::Put(kind, object) => {
                let key = Key::of(kind, object);
                // Parsed before the lock is taken: writers must not hold up requests.
                let object = Object::parse(&key, object);
                self.index.write().put(key, object);
            }
            RbacChange::Delete(key) => self.index.write().remove(&key),
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes these the only stored objects of their kind, in one step. Objects whose names hold a slash are
    /// not stored ones, which cannot have such names: they are kept.
    pub fn reset(&self, kind: Kind, objects: &[Value]) {
        let parsed: Vec<(Key, Object)> = objects
            .iter()
            .map(|object| {
                let key = Key::of(kind, object);
                let object = Object::parse(&key, object);
                (key, object)
            })
            .collect();
        let mut index = self.index.write();
        for key in index.keys(kind).iter().filter(|key| !key.name.contains('/')) {
            index.remove(key);
        }
        for (key, object) in parsed {
            index.put(key, object);
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        if user.is_master() {
            return Decision { allowed: true, reason: Arc::default() };
        }
        self.index.read().authorize(user, attributes)
    }

    /// The same by bindings of the namespace alone: whether the user was given this right there, and not because
    /// they have it everywhere.
    pub fn authorize_in_namespace(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        if user.is_master() {
            return Decision { allowed: true, reason: Arc::default() };
        }
        let index = self.index.read();
        let scope = index.namespaces.get(attributes.namespace).filter(|_| !attributes.namespace.is_empty());
        index.authorize_by(scope.into_iter(), user, attributes)
    }

    /// Rules of cluster bindings, and with a namespace also of its bindings, ordered by binding name.
    pub fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        self.index.read().rules_for(user, namespace)
    }

    /// The namespaces in which bindings name the user or one of their groups, in order.
    pub fn namespaces_of(&self, user: &User) -> Vec<String> {
        let index = self.index.read();
        let bound = index.namespaces.iter().filter(|(_, scope)| scope.grants_of(user).next().is_some());
        let mut names: Vec<String> = bound.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// What a binding in `namespace` (empty: at the cluster scope) with this reference would grant.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<Vec<Rule>, RoleError> {
        let index = self.index.read();
        let rules = index.resolve(role, namespace)?;
        Ok(rules.iter().map(|compiled| compiled.rule.clone()).collect())
    }
}

type Rules = Box<[CompiledRule]>;

#[derive(Debug, Default)]
struct Index {
    cluster_roles: HashMap<String, Rules>,
    roles: HashMap<String, HashMap<String, Rules>>,
    bindings: HashMap<Key, Arc<Binding>>,
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Default)]
struct Scope {
    users: HashMap<String, Grants>,
    groups: HashMap<String, Grants>,
}

/// The bindings of one subject by name, so that answers do not depend on the order of changes.
type Grants = BTreeMap<String, Grant>;

#[derive(Debug)]
struct Grant {
    binding: Arc<Binding>,
    reason: Arc<str>,
}

impl Index {
    fn keys(&self, kind: Kind) -> Vec<Key> {
        match kind {
            Kind::ClusterRole => self.cluster_roles.keys().map(|name| Key::new(kind, "", name)).collect(),
            Kind::Role => self
                .roles
                .iter()
                .flat_map(|(namespace, roles)| roles.keys().map(move |name| Key::new(kind, namespace, name)))
                .collect(),
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                self.bindings.keys().filter(|key| key.kind == kind).cloned().collect()
            }
        }
    }

    fn put(&mut self, key: Key, object: Object) {
        self.remove(&key);
        // A namespaced object without namespace must not act as a cluster-wide one.
        if key.kind.is_namespaced() && key.namespace.is_empty() {
            return;
        }
        match object {
            Object::Rules(rules) => {
                let rules = rules.into_iter().map(CompiledRule::new).collect();
                if key.kind.is_namespaced() {
                    self.roles.entry(key.namespace).or_default().insert(key.name, rules);
                } else {
                    self.cluster_roles.insert(key.name, rules);
                }
            }
            Object::Binding(binding) => {
                let binding = Arc::new(binding);
                self.scope_mut(&key.namespace).add(&binding);
                self.bindings.insert(key, binding);
            }
        }
    }

    fn scope_mut(&mut self, namespace: &str) -> &mut Scope {
        if namespace.is_empty() {
            return &mut self.cluster;
        }
        self.namespaces.entry(namespace.to_owned()).or_default()
    }

    fn remove(&mut self, key: &Key) {
        match key.kind {
            Kind::ClusterRole => {
                self.cluster_roles.remove(&key.name);
            }
            Kind::Role => {
                if let Entry::Occupied(mut namespace) = self.roles.entry(key.namespace.clone()) {
                    namespace.get_mut().remove(&key.name);
                    if namespace.get().is_empty() {
                        namespace.remove();
                    }
                }
            }
            Kind::RoleBinding | Kind::ClusterRoleBinding => {
                let Some(binding) = self.bindings.remove(key) else { return };
                let scope = self.scope_mut(&key.namespace);
                scope.remove(&binding);
                if !key.namespace.is_empty() && scope.users.is_empty() && scope.groups.is_empty() {
                    self.namespaces.remove(&key.namespace);
                }
            }
        }
    }

    fn resolve(&self, role: &RoleRef, namespace: &str) -> Result<&Rules, RoleError> {
        match role.kind.as_str() {
            "ClusterRole" => {
                self.cluster_roles.get(&role.name).ok_or_else(|| RoleError::NoClusterRole(role.name.clone()))
            }
            "Role" => self
                .roles
                .get(namespace)
                .and_then(|roles| roles.get(&role.name))
                .ok_or_else(|| RoleError::NoRole(role.name.clone())),
            kind => Err(RoleError::UnsupportedKind(kind.to_owned())),
        }
    }

    fn scopes(&self, namespace: &str) -> impl Iterator<Item = &Scope> {
        // Objects without namespace are only reached through cluster bindings.
        let local = if namespace.is_empty() { None } else { self.namespaces.get(namespace) };
        std::iter::once(&self.cluster).chain(local)
    }

    fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        self.authorize_by(self.scopes(attributes.namespace), user, attributes)
    }

    fn authorize_by<'a>(
        &'a self,
        scopes: impl Iterator<Item = &'a Scope>,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Decision {
        let bit = verb_bit(attributes.verb);
        let mut errors: Vec<RoleError> = Vec::new();
        for grant in scopes.flat_map(|scope| scope.grants_of(user)) {
            let binding = &*grant.binding;
            match self.resolve(&binding.role, &binding.namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(bit, attributes)) => {
                    return Decision { allowed: true, reason: grant.reason.clone() };
                }
                Ok(_) => {}
                Err(error) if errors.len() < MAX_ERRORS => errors.push(error),
                Err(_) => {}
            }
        }
        let reason = join_errors(&errors).map_or_else(Arc::default, |text| format!("RBAC: {text}").into());
        Decision { allowed: false, reason }
    }

    fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let mut found = UserRules::default();
        for scope in self.scopes(namespace) {
            // A binding that names the user twice, say by two groups, still counts once.
            let bindings: BTreeMap<&str, &Binding> =
                scope.grants_of(user).map(|grant| (grant.binding.name.as_str(), &*grant.binding)).collect();
            for binding in bindings.into_values() {
                match self.resolve(&binding.role, &binding.namespace) {
                    Ok(rules) => found.rules.extend(rules.iter().map(|compiled| compiled.rule.clone())),
                    Err(error) => found.errors.push(error),
                }
            }
        }
        found
    }
}

impl Scope {
    fn grants_of(&self, user: &User) -> impl Iterator<Item = &Grant> {
        let by_name = self.users.get(&user.name);
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group));
        by_name.into_iter().chain(by_group).flat_map(BTreeMap::values)
    }

    fn add(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            let grants = match subject.handle(&binding.namespace) {
                Some(Handle::User(name)) => self.users.entry(name).or_default(),
                Some(Handle::Group(name)) => self.groups.entry(name).or_default(),
                None => continue,
            };
            let grant = || Grant { binding: binding.clone(), reason: binding.reason(subject) };
            grants.entry(binding.name.clone()).or_insert_with(grant);
        }
    }

    fn remove(&mut self, binding: &Binding) {
        for subject in &binding.subjects {
            let (map, name) = match subject.handle(&binding.namespace) {
                Some(Handle::User(name)) => (&mut self.users, name),
                Some(Handle::Group(name)) => (&mut self.groups, name),
                None => continue,
            };
            if let Entry::Occupied(mut grants) = map.entry(name) {
                grants.get_mut().remove(&binding.name);
                if grants.get().is_empty() {
                    grants.remove();
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
