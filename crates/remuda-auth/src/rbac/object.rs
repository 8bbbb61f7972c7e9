//! The RBAC kinds, as far as evaluation needs them.

use std::sync::Arc;

use remuda_base::quote::quoted;
use serde_json::Value;

use super::rule::Rule;
use crate::identity;

/// Identifies an RBAC object. Cluster-scoped kinds have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl Kind {
    pub fn from_kind(kind: &str) -> Option<Self> {
        Some(match kind {
            "Role" => Self::Role,
            "ClusterRole" => Self::ClusterRole,
            "RoleBinding" => Self::RoleBinding,
            "ClusterRoleBinding" => Self::ClusterRoleBinding,
            _ => return None,
        })
    }

    pub fn from_resource(resource: &str) -> Option<Self> {
        Some(match resource {
            "roles" => Self::Role,
            "clusterroles" => Self::ClusterRole,
            "rolebindings" => Self::RoleBinding,
            "clusterrolebindings" => Self::ClusterRoleBinding,
            _ => return None,
        })
    }

    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }
}

impl Key {
    pub fn new(kind: Kind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    /// Reads the name from `metadata`. A namespace on a cluster-scoped kind is ignored.
    pub fn of(kind: Kind, object: &Value) -> Self {
        let namespace = if kind.is_namespaced() { meta(object, "namespace") } else { "" };
        Self { kind, namespace: namespace.to_owned(), name: meta(object, "name").to_owned() }
    }
}

fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// What a binding grants. The kind stays text: an unknown one is reported, not rejected, at evaluation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

impl RoleRef {
    pub fn parse(value: Option<&Value>) -> Self {
        Self { api_group: text(value, "apiGroup"), kind: text(value, "kind"), name: text(value, "name") }
    }
}

fn text(value: Option<&Value>, key: &str) -> String {
    value.and_then(|value| value.get(key)).and_then(Value::as_str).unwrap_or("").to_owned()
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Subject {
    pub kind: String,
    pub api_group: String,
    pub name: String,
    pub namespace: String,
}

/// Where a subject is found from a user: by the user's name or by one of their groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Handle {
    User(String),
    Group(String),
}

impl Subject {
    pub fn parse(value: &Value) -> Self {
        let value = Some(value);
        Self {
            kind: text(value, "kind"),
            api_group: text(value, "apiGroup"),
            name: text(value, "name"),
            namespace: text(value, "namespace"),
        }
    }

    /// A service account without namespace means the binding's; at the cluster scope it means nobody.
    fn account_namespace<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { binding_namespace } else { &self.namespace }
    }

    pub(crate) fn handle(&self, binding_namespace: &str) -> Option<Handle> {
        match self.kind.as_str() {
            "User" => Some(Handle::User(self.name.clone())),
            "Group" => Some(Handle::Group(self.name.clone())),
            "ServiceAccount" => match self.account_namespace(binding_namespace) {
                "" => None,
                namespace => Some(Handle::User(identity::service_account_user_name(namespace, &self.name))),
            },
            _ => None,
        }
    }

    /// `Group "system:masters"`, `ServiceAccount "name/namespace"`.
    fn describe(&self, binding_namespace: &str) -> String {
        if self.kind == "ServiceAccount" {
            let full = format!("{}/{}", self.name, self.account_namespace(binding_namespace));
            return format!("ServiceAccount {}", quoted(&full));
        }
        format!("{} {}", self.kind, quoted(&self.name))
    }
}

/// A RoleBinding, or with an empty namespace a ClusterRoleBinding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    pub namespace: String,
    pub name: String,
    pub role: RoleRef,
    pub subjects: Vec<Subject>,
}

impl Binding {
    pub fn parse(key: &Key, object: &Value) -> Self {
        let subjects = object.get("subjects").and_then(Value::as_array);
        Self {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            role: RoleRef::parse(object.get("roleRef")),
            subjects: subjects.into_iter().flatten().map(Subject::parse).collect(),
        }
    }

    /// Why a request was allowed, in the words of the reference implementation.
    pub(crate) fn reason(&self, subject: &Subject) -> Arc<str> {
        let (kind, full) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", quoted(&self.name))
        } else {
            ("RoleBinding", quoted(&format!("{}/{}", self.name, self.namespace)))
        };
        let role = quoted(&self.role.name);
        let subject = subject.describe(&self.namespace);
        format!("RBAC: allowed by {kind} {full} of {} {role} to {subject}", self.role.kind).into()
    }
}

/// A parsed object of any RBAC kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    Rules(Vec<Rule>),
    Binding(Binding),
}

impl Object {
    pub fn parse(key: &Key, object: &Value) -> Self {
        match key.kind {
            Kind::Role | Kind::ClusterRole => Self::Rules(Rule::parse_all(object.get("rules"))),
            Kind::RoleBinding | Kind::ClusterRoleBinding => Self::Binding(Binding::parse(key, object)),
        }
    }
}
