//! Kubeconfig files with everything embedded.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// How the user of a kubeconfig authenticates. Secret.
#[derive(Clone, PartialEq, Eq)]
pub enum Authentication<'a> {
    Certificate { certificate_pem: &'a str, key_pem: &'a str },
    Token(&'a str),
}

/// One cluster, one user, one context.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig<'a> {
    /// Also the name of the context.
    pub cluster: &'a str,
    pub server: &'a str,
    /// `None` trusts the system's authorities.
    pub authority_pem: Option<&'a str>,
    pub user: &'a str,
    pub authentication: Authentication<'a>,
    pub namespace: Option<&'a str>,
}

impl Kubeconfig<'_> {
    pub fn to_json(&self) -> Value {
        let mut cluster = json!({"server": self.server});
        if let Some(pem) = self.authority_pem {
            cluster["certificate-authority-data"] = STANDARD.encode(pem).into();
        }
        let user = match self.authentication {
            Authentication::Certificate { certificate_pem, key_pem } => json!({
                "client-certificate-data": STANDARD.encode(certificate_pem),
                "client-key-data": STANDARD.encode(key_pem),
            }),
            Authentication::Token(token) => json!({"token": token}),
        };
        let mut context = json!({"cluster": self.cluster, "user": self.user});
        if let Some(namespace) = self.namespace {
            context["namespace"] = namespace.into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.cluster, "cluster": cluster}],
            "users": [{"name": self.user, "user": user}],
            "contexts": [{"name": self.cluster, "context": context}],
            "current-context": self.cluster,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_embeds_everything() {
        let config = Kubeconfig {
            cluster: "local",
            server: "https://127.0.0.1:6443",
            authority_pem: Some("CA"),
            user: "admin",
            authentication: Authentication::Certificate { certificate_pem: "CERT", key_pem: "KEY" },
            namespace: None,
        };
        assert_eq!(
            config.to_json(),
            json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{
                    "name": "local",
                    "cluster": {"certificate-authority-data": "Q0E=", "server": "https://127.0.0.1:6443"},
                }],
                "users": [{
                    "name": "admin",
                    "user": {"client-certificate-data": "Q0VSVA==", "client-key-data": "S0VZ"},
                }],
                "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
                "current-context": "local",
            })
        );
        let token =
            Kubeconfig { authentication: Authentication::Token("a\"b"), namespace: Some("d"), ..config };
        assert_eq!(token.to_json()["users"][0]["user"], json!({"token": "a\"b"}));
        assert_eq!(token.to_json()["contexts"][0]["context"]["namespace"], "d");
    }
}
