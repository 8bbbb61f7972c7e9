//! The caller of a request, and the names Kubernetes reserves for users and groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// User of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Group of everybody who presented valid credentials.
pub const GROUP_AUTHENTICATED: &str = "system:authenticated";
/// Group of requests without credentials.
pub const GROUP_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group whose members bypass authorization.
pub const GROUP_MASTERS: &str = "system:masters";
/// Group of the server's own controllers, for requests from inside the process only.
pub const GROUP_CONTROLLERS: &str = remuda_names::user::CONTROLLERS;
/// Group of kubelets.
pub const GROUP_NODES: &str = "system:nodes";
/// Group that reads health and metrics endpoints.
pub const GROUP_MONITORING: &str = "system:monitoring";
/// Group of all service accounts; with `:NAMESPACE` appended, those of one namespace.
pub const GROUP_SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Group of bootstrap tokens; extra groups of such a token start with it and a colon.
pub const GROUP_BOOTSTRAPPERS: &str = "system:bootstrappers";
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
pub const NODE_PREFIX: &str = "system:node:";
pub const BOOTSTRAP_PREFIX: &str = "system:bootstrap:";
/// The API server's own client.
pub const API_SERVER: &str = "system:apiserver";
pub const KUBE_CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub const KUBE_SCHEDULER: &str = "system:kube-scheduler";
pub const KUBE_PROXY: &str = "system:kube-proxy";

/// Extra that names the credential used, as `JTI=…` or `X509SHA256=…`.
pub const EXTRA_CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
pub const EXTRA_POD_NAME: &str = "authentication.kubernetes.io/pod-name";
pub const EXTRA_POD_UID: &str = "authentication.kubernetes.io/pod-uid";
pub const EXTRA_NODE_NAME: &str = "authentication.kubernetes.io/node-name";
pub const EXTRA_NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// An identity. Serializes as the `UserInfo` of TokenReview, SelfSubjectReview, admission and audit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn new<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(Into::into).collect(),
            uid: String::new(),
            extra: BTreeMap::new(),
        }
    }

    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, [GROUP_UNAUTHENTICATED])
    }

    /// The identity of in-process clients: may do everything.
    pub fn api_server() -> Self {
        Self::new(API_SERVER, [GROUP_MASTERS, GROUP_AUTHENTICATED])
    }

    /// A service account with its implied groups.
    pub fn service_account(namespace: &str, name: &str, uid: impl Into<String>) -> Self {
        let mut groups = service_account_groups(namespace).to_vec();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        let user_name = service_account_user_name(namespace, name);
        Self { name: user_name, uid: uid.into(), groups, extra: BTreeMap::new() }
    }

    /// One of Kubernetes' controllers that the server runs itself, under the account it has there.
    pub fn kubernetes_controller(name: &str) -> Self {
        let mut user = Self::service_account("kube-system", name, "");
        user.groups.push(GROUP_CONTROLLERS.to_owned());
        user
    }

    /// Adds the group every successfully authenticated user belongs to. Anonymous users stay as they are.
    pub fn authenticated(mut self) -> Self {
        let settled = [GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED];
        if !settled.iter().any(|group| self.in_group(group)) {
            self.groups.push(GROUP_AUTHENTICATED.to_owned());
        }
        self
    }

    pub fn with_extra(mut self, key: &str, value: impl Into<String>) -> Self {
        self.extra.entry(key.to_owned()).or_default().push(value.into());
        self
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    /// Members of `system:masters` are never denied anything.
    pub fn is_master(&self) -> bool {
        self.in_group(GROUP_MASTERS)
    }

    /// A controller of the server itself. What it writes was judged where a person wrote it, so rules about what a
    /// writer may name do not concern it; RBAC does.
    pub fn is_controller(&self) -> bool {
        self.in_group(GROUP_CONTROLLERS)
    }

    /// Whether rules about what a writer may name are passed: administrators and the server's controllers.
    pub fn is_trusted_writer(&self) -> bool {
        self.is_master() || self.is_controller()
    }

    /// The user a SubjectAccessReview asks about. Its `spec` says `user` where a UserInfo says `username`.
    pub fn from_review(spec: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let list = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(text).collect()
        };
        let extra = spec.get("extra").and_then(Value::as_object).into_iter().flatten();
        Self {
            name: spec.get("user").and_then(text).unwrap_or_default(),
            uid: spec.get("uid").and_then(text).unwrap_or_default(),
            groups: spec.get("groups").map(list).unwrap_or_default(),
            extra: extra.map(|(key, values)| (key.to_lowercase(), list(values))).collect(),
        }
    }

    pub fn to_user_info(&self) -> Value {
        serde_json::to_value(self).expect("strings, lists and string-keyed maps always serialize")
    }
}

pub fn service_account_user_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups a service account belongs to beside `system:authenticated`.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [GROUP_SERVICE_ACCOUNTS.to_owned(), format!("{GROUP_SERVICE_ACCOUNTS}:{namespace}")]
}

/// Splits `system:serviceaccount:NS:NAME`; `None` unless both parts could be names of such objects.
pub fn parse_service_account(user_name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user_name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Unlike a label, each dot-separated part may be as long as the whole.
fn is_subdomain(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let part = |p: &str| !p.is_empty() && p.bytes().all(inner) && !p.starts_with('-') && !p.ends_with('-');
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_account_names_survive_a_round_trip() {
        let name = service_account_user_name("kube-system", "a.b");
        assert_eq!(name, "system:serviceaccount:kube-system:a.b");
        assert_eq!(parse_service_account(&name), Some(("kube-system", "a.b")));
    }

    #[test]
    fn malformed_service_account_names_are_ordinary_users() {
        for name in [
            "",
            "system:serviceaccount:",
            "system:serviceaccount:ns",
            "system:serviceaccount:ns:",
            "system:serviceaccount::x",
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount:NS:a",
            "system:serviceaccount:a.b:c",
            "system:serviceaccounts:a:b",
        ] {
            assert_eq!(parse_service_account(name), None, "{name}");
        }
    }

    #[test]
    fn user_info_leaves_out_what_is_empty() {
        let user = User::service_account("d", "s", "u1").with_extra(EXTRA_CREDENTIAL_ID, "JTI=1");
        assert_eq!(
            user.to_user_info(),
            json!({
                "username": "system:serviceaccount:d:s",
                "uid": "u1",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:d", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]},
            })
        );
        assert_eq!(User::default().to_user_info(), json!({}));
        assert_eq!(serde_json::from_value::<User>(json!({"username": "x"})).unwrap().name, "x");
    }

    #[test]
    fn a_review_names_its_user_in_its_own_way() {
        let spec = json!({"user": "u", "uid": "1", "groups": ["g", 2], "extra": {"Scope": ["a"]}});
        let user = User::from_review(&spec);
        assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.len()), ("u", "1", 1));
        assert_eq!(user.extra["scope"], ["a"]);
        assert_eq!(User::from_review(&json!([])), User::default());
    }

    #[test]
    fn the_authenticated_group_is_added_once_and_never_to_anonymous() {
        let user = User::new("u", ["g"]).authenticated().authenticated();
        assert_eq!(user.groups, ["g", "system:authenticated"]);
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
        assert!(User::api_server().is_master() && !user.is_master());
    }
}
