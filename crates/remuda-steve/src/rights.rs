//! What a caller may, evaluated for whole lists.
//!
//! An object is shown to who may `get` or `list` it: exactly those for whom the authorizer says yes to one of the two
//! with the object's namespace and name. For lists the caller's rules are read once into a [`Reach`], so a query costs
//! what the caller's own rules cost, however many objects there are.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use remuda_auth::{
    attributes::Attributes,
    identity::User,
    rbac::{policy::Policy, rule::Rule},
};
use remuda_names::rancher::group::{MANAGEMENT, PROVISIONING};

use crate::{kind::Kind, parts::Parts, row::Row};

/// Verbs that show an object.
const READ: [&str; 2] = ["get", "list"];

/// Kinds everybody may list, even if there is nothing in the list for them.
const OPEN: &[(&str, &str)] =
    &[(MANAGEMENT, "clusters"), (MANAGEMENT, "projects"), (PROVISIONING, "clusters"), ("", "namespaces")];

/// The rights of a caller at one API.
#[derive(Clone)]
pub(crate) enum Rights {
    /// At the management API: its own policy decides.
    Policy(Arc<Policy>, Arc<User>),
    /// In another cluster, which decides by itself about every request. These rules tell what to offer.
    Rules(Arc<[Rule]>),
}

/// Which objects of a kind a caller may read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    all: bool,
    namespaces: HashSet<String>,
    /// Names that are granted in every namespace.
    names: HashSet<String>,
    named: HashMap<String, HashSet<String>>,
    /// Parts of clusters, by the right to the cluster.
    pub(crate) parts: Option<Parts>,
}

impl Reach {
    pub(crate) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub(crate) fn includes(&self, namespace: &str, name: &str) -> bool {
        self.all
            || self.namespaces.contains(namespace)
            || self.names.contains(name)
            || self.named.get(namespace).is_some_and(|names| names.contains(name))
    }

    /// By a right to the object, or to the cluster it is a part of.
    pub(crate) fn shows(&self, row: &Row) -> bool {
        self.includes(row.namespace(), row.name())
            || self.parts.as_ref().is_some_and(|parts| parts.include(row))
    }

    pub(crate) fn is_all(&self) -> bool {
        self.all
    }

    /// Whether no object at all can be in it.
    pub(crate) fn is_empty(&self) -> bool {
        let has_parts = self.parts.as_ref().is_some_and(|parts| !parts.clusters.is_empty());
        !has_parts
            && !self.all
            && self.namespaces.is_empty()
            && self.names.is_empty()
            && self.named.is_empty()
    }

    /// What rules of one scope add; `namespace` is empty for those of the cluster.
    fn add(&mut self, kind: &Kind, rules: &[Rule], namespace: &str, verbs: &[&str]) {
        for verb in verbs {
            let asked = Attributes::resource(verb, &kind.group, &kind.resource);
            for rule in rules {
                if rule.resource_names.is_empty() {
                    if rule.allows(&asked) {
                        match namespace {
                            "" => self.all = true,
                            namespace => drop(self.namespaces.insert(namespace.to_owned())),
                        }
                    }
                    continue;
                }
                let named = rule.resource_names.iter().filter(|name| rule.allows(&asked.name(name)));
                match namespace {
                    "" => self.names.extend(named.cloned()),
                    namespace => {
                        let names: Vec<String> = named.cloned().collect();
                        if !names.is_empty() {
                            self.named.entry(namespace.to_owned()).or_default().extend(names);
                        }
                    }
                }
            }
        }
    }
}

/// A Namespace is in the namespace of its own name, for authorization.
fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.resource == "namespaces"
}

impl Rights {
    /// Whether the caller may do something to one object.
    pub(crate) fn may(&self, verb: &str, kind: &Kind, namespace: &str, name: &str) -> bool {
        let own = is_namespace(kind) && !matches!(verb, "list" | "create" | "watch");
        let namespace = if own { name } else { namespace };
        let asked = Attributes::resource(verb, &kind.group, &kind.resource)
            .version(&kind.version)
            .namespace(namespace)
            .name(name);
        match self {
            Self::Policy(policy, user) => policy.authorize(user, &asked).allowed,
            Self::Rules(rules) => rules.iter().any(|rule| rule.allows(&asked)),
        }
    }

    /// Whether the caller may read one object, by the rights of this moment.
    pub(crate) fn may_read(&self, kind: &Kind, namespace: &str, name: &str) -> bool {
        READ.iter().any(|verb| self.may(verb, kind, namespace, name))
    }

    /// Which objects of a kind the caller may read.
    pub(crate) fn reach(&self, kind: &Kind) -> Reach {
        let Self::Policy(policy, user) = self else { return Reach::all() };
        if user.is_master() {
            return Reach::all();
        }
        let mut reach = Reach::default();
        reach.add(kind, &policy.rules_for(user, "").rules, "", &READ);
        if reach.all || !(kind.namespaced || is_namespace(kind)) {
            return reach;
        }
        for namespace in policy.namespaces_of(user) {
            let rules = policy.rules_for(user, &namespace).rules;
            if kind.namespaced {
                reach.add(kind, &rules, &namespace, &READ);
            } else {
                let mut own = Reach::default();
                own.add(kind, &rules, &namespace, &["get"]);
                if own.includes(&namespace, &namespace) {
                    reach.names.insert(namespace);
                }
            }
        }
        reach
    }

    /// All rules of the caller, to ask about many kinds.
    pub(crate) fn sheet(&self) -> Sheet {
        match self {
            Self::Rules(rules) => Sheet { master: false, everywhere: rules.to_vec(), somewhere: Vec::new() },
            Self::Policy(policy, user) => {
                let everywhere = policy.rules_for(user, "").rules;
                let mut known: HashSet<Rule> = everywhere.iter().cloned().collect();
                let mut somewhere = Vec::new();
                for namespace in policy.namespaces_of(user) {
                    for rule in policy.rules_for(user, &namespace).rules {
                        if known.insert(rule.clone()) {
                            somewhere.push(rule);
                        }
                    }
                }
                Sheet { master: user.is_master(), everywhere, somewhere }
            }
        }
    }
}

/// The rules of a caller, wherever they hold.
pub(crate) struct Sheet {
    master: bool,
    everywhere: Vec<Rule>,
    somewhere: Vec<Rule>,
}

impl Sheet {
    /// Whether the caller may do something to any object of a kind.
    pub(crate) fn may_somewhere(&self, verb: &str, kind: &Kind) -> bool {
        let asked = Attributes::resource(verb, &kind.group, &kind.resource);
        let allows = |rule: &Rule| {
            rule.allows(&asked) || rule.resource_names.iter().any(|name| rule.allows(&asked.name(name)))
        };
        self.master
            || self.everywhere.iter().any(allows)
            || ((kind.namespaced || is_namespace(kind)) && self.somewhere.iter().any(allows))
    }

    /// Methods of a kind: of its objects and of its collection. Both are empty for a kind that is not for the caller.
    pub(crate) fn methods(&self, kind: &Kind) -> (Vec<&'static str>, Vec<&'static str>) {
        let may = |verb: &str| kind.has_verb(verb) && self.may_somewhere(verb, kind);
        let (mut object, mut collection) = (Vec::new(), Vec::new());
        let open = OPEN.contains(&(kind.group.as_str(), kind.resource.as_str())) && kind.has_verb("list");
        if may("get") || may("list") || open {
            object.push("GET");
            collection.push("GET");
        }
        if may("delete") {
            object.push("DELETE");
        }
        let update = may("update");
        if update {
            object.push("PUT");
        }
        if update || may("patch") {
            object.push("PATCH");
        }
        if may("create") {
            collection.push("POST");
        }
        (object, collection)
    }
}

#[cfg(test)]
mod tests;
