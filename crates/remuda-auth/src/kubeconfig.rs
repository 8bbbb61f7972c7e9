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

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        write_block(&mut out, &self.to_json(), 0);
        out
    }
}

/// Block style for maps and lists; scalars as JSON, which YAML reads the same way.
fn write_block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                // The first key follows the dash of the list entry it is in.
                if index > 0 || out.is_empty() || out.ends_with('\n') {
                    out.push_str(&" ".repeat(indent));
                }
                out.push_str(key);
                out.push(':');
                write_nested(out, value, indent + 2);
            }
        }
        Value::Array(items) => {
            for item in items {
                out.push_str(&" ".repeat(indent));
                out.push_str("- ");
                write_block(out, item, indent + 2);
            }
        }
        scalar => {
            out.push_str(&scalar.to_string());
            out.push('\n');
        }
    }
}

fn write_nested(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(_) => {
            out.push('\n');
            write_block(out, value, indent);
        }
        // Lists are not indented below their key, as kubectl writes them.
        Value::Array(_) => {
            out.push('\n');
            write_block(out, value, indent - 2);
        }
        scalar => {
            out.push(' ');
            write_block(out, scalar, indent);
        }
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
            config.to_yaml(),
            "apiVersion: \"v1\"\n\
             clusters:\n\
             - cluster:\n    certificate-authority-data: \"Q0E=\"\n    server: \"https://127.0.0.1:6443\"\n  name: \"local\"\n\
             contexts:\n\
             - context:\n    cluster: \"local\"\n    user: \"admin\"\n  name: \"local\"\n\
             current-context: \"local\"\n\
             kind: \"Config\"\n\
             users:\n\
             - name: \"admin\"\n  user:\n    client-certificate-data: \"Q0VSVA==\"\n    client-key-data: \"S0VZ\"\n"
        );
        let token =
            Kubeconfig { authentication: Authentication::Token("a\"b"), namespace: Some("d"), ..config };
        assert_eq!(token.to_json()["users"][0]["user"], json!({"token": "a\"b"}));
        assert!(token.to_yaml().contains("    token: \"a\\\"b\"\n"));
        assert!(token.to_yaml().contains("    namespace: \"d\"\n"));
    }
}
