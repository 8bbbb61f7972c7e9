//! Rights that the caller lacks.

use std::fmt;

use kube::api::ApiResource;
use serde::{Deserialize, Serialize};

/// What the caller may not do, in the words of RBAC: what they would have to be given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Denied {
    pub verb: String,
    /// Plural name and group of the kind, as roles and `kubectl` have it.
    pub resource: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Denied {
    pub(crate) fn get(resource: &ApiResource, namespace: Option<&str>, name: &str) -> Denied {
        Denied { name: Some(name.to_owned()), ..Denied::new("get", resource, namespace) }
    }

    pub(crate) fn list(resource: &ApiResource, namespace: Option<&str>) -> Denied {
        Denied::new("list", resource, namespace)
    }

    fn new(verb: &str, resource: &ApiResource, namespace: Option<&str>) -> Denied {
        let namespace = namespace.map(str::to_owned);
        Denied { verb: verb.to_owned(), resource: qualified(resource), namespace, name: None }
    }
}

/// `list secrets in namespace fleet-default`, `get machines.cluster.x-k8s.io demo-a in namespace fleet-default`.
impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// Plural name and group of a kind; that of the core group is its plural name.
pub(crate) fn qualified(resource: &ApiResource) -> String {
    match resource.group.as_str() {
        "" => resource.plural.clone(),
        group => format!("{}.{group}", resource.plural),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn a_missing_right_is_told_in_the_words_of_roles() {
        let told = |denied: Denied| denied.to_string();
        let machines = api::capi("Machine");
        assert_eq!(told(Denied::list(&machines, None)), "list machines.cluster.x-k8s.io");
        assert_eq!(
            told(Denied::get(&machines, Some("a"), "m")),
            "get machines.cluster.x-k8s.io m in namespace a"
        );
        assert_eq!(
            told(Denied::list(&api::core("Secret", "secrets"), Some("a"))),
            "list secrets in namespace a"
        );
    }
}
