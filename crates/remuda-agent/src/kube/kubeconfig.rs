//! Reading a kubeconfig.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::{disk::read_limited, yaml};

const FILE_LIMIT: u64 = 1 << 20;

/// What a kubeconfig says about its current context.
#[derive(Debug, Clone, Default)]
pub struct Kubeconfig {
    /// Address of the API.
    pub server: String,
    /// Certificate authority, PEM; empty if there is none.
    pub authority: Vec<u8>,
    /// Do not verify the server at all.
    pub insecure: bool,
    /// Name to verify instead of the host's.
    pub server_name: Option<String>,
    /// Client certificate and key, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// What to present with each request.
    pub credentials: Credentials,
}

/// What to present with each request.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nothing.
    #[default]
    None,
    /// A bearer token.
    Token(String),
    /// A bearer token that is renewed in a file.
    TokenFile(PathBuf),
    /// Name and password.
    Basic(String, String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(..)",
            Self::TokenFile(_) => "TokenFile(..)",
            Self::Basic(..) => "Basic(..)",
        })
    }
}

impl Credentials {
    /// Value of the `Authorization` header.
    pub fn authorization(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Token(token) => Some(format!("Bearer {token}")),
            Self::TokenFile(path) => {
                let raw = read_limited(path, FILE_LIMIT).ok()?;
                Some(format!("Bearer {}", String::from_utf8(raw).ok()?.trim()))
            }
            Self::Basic(name, password) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
        }
    }
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// Not YAML of that form.
    #[error("decode: {0}")]
    Decode(String),
    /// A name leads nowhere.
    #[error("{kind} {name:?} is not defined")]
    Missing {
        /// Of what kind.
        kind: &'static str,
        /// Which.
        name: String,
    },
    /// Something is set that cannot be read.
    #[error("{field}: {reason}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A way to authenticate the agent does not have.
    #[error("user {0:?} authenticates through a plugin, which the agent does not run")]
    Plugin(String),
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    current_context: String,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    users: Vec<NamedUser>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<PathBuf>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    username: Option<String>,
    password: Option<String>,
    client_certificate_data: Option<String>,
    client_certificate: Option<PathBuf>,
    client_key_data: Option<String>,
    client_key: Option<PathBuf>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

impl Kubeconfig {
    /// Reads the current context.
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        let file: File = yaml::decode(text.as_bytes()).map_err(KubeconfigError::Decode)?;
        let missing = |kind, name: &str| KubeconfigError::Missing { kind, name: name.to_owned() };
        let current = &file.current_context;
        let context = file.contexts.into_iter().find(|context| context.name == *current);
        let context = context.ok_or_else(|| missing("context", current))?.context;
        let cluster = file.clusters.into_iter().find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?.cluster;
        let user = if context.user.is_empty() {
            User::default()
        } else {
            let user = file.users.into_iter().find(|user| user.name == context.user);
            user.ok_or_else(|| missing("user", &context.user))?.user
        };
        if cluster.server.is_empty() {
            return Err(KubeconfigError::Field { field: "cluster.server", reason: "is not set".into() });
        }
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err(KubeconfigError::Plugin(context.user));
        }
        let certificate = pem("client-certificate", user.client_certificate_data, user.client_certificate)?;
        let key = pem("client-key", user.client_key_data, user.client_key)?;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let reason = "certificate and key come in pairs".into();
                return Err(KubeconfigError::Field { field: "client-certificate", reason });
            }
        };
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let credentials = match (filled(user.token), user.token_file, filled(user.username)) {
            (Some(token), _, _) => Credentials::Token(token),
            (None, Some(path), _) if !path.as_os_str().is_empty() => Credentials::TokenFile(path),
            (_, _, Some(name)) => Credentials::Basic(name, user.password.unwrap_or_default()),
            _ => Credentials::None,
        };
        let authority =
            pem("certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority)?;
        Ok(Self {
            server: cluster.server,
            authority: authority.unwrap_or_default(),
            insecure: cluster.insecure_skip_tls_verify,
            server_name: filled(cluster.tls_server_name),
            identity,
            credentials,
        })
    }
}

fn pem(
    field: &'static str,
    data: Option<String>,
    path: Option<PathBuf>,
) -> Result<Option<Vec<u8>>, KubeconfigError> {
    if let Some(data) = data.filter(|data| !data.trim().is_empty()) {
        let text: String = data.split_whitespace().collect();
        let raw = STANDARD.decode(text);
        return raw.map(Some).map_err(|error| KubeconfigError::Field { field, reason: error.to_string() });
    }
    let Some(path) = path.filter(|path| path != Path::new("")) else { return Ok(None) };
    read_limited(&path, FILE_LIMIT)
        .map(Some)
        .map_err(|error| KubeconfigError::Field { field, reason: crate::Chain(&error).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: agent\npreferences: {{}}\n\
             clusters:\n- name: agent\n  cluster: {cluster}\n\
             users:\n- name: agent\n  user: {user}\n\
             contexts:\n- name: agent\n  context: {{cluster: agent, user: agent}}\n"
        )
    }

    #[test]
    fn the_file_servers_hand_out_is_read() {
        let text = config("{server: 'https://h:8443', certificate-authority-data: YWJj}", "{token: secret}");
        let parsed = Kubeconfig::parse(&text).unwrap();
        assert_eq!((parsed.server.as_str(), parsed.authority.as_slice()), ("https://h:8443", &b"abc"[..]));
        assert_eq!(parsed.credentials.authorization().unwrap(), "Bearer secret");
        assert!(!format!("{parsed:?}").contains("secret"));
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (text, expected) in [
            ("{".to_owned(), "decode"),
            (String::new(), "context"),
            (config("{}", "{}"), "cluster.server"),
            (config("{server: x, certificate-authority-data: '*'}", "{}"), "certificate-authority"),
            (config("{server: x}", "{exec: {command: aws}}"), "plugin"),
            (config("{server: x}", "{client-certificate-data: YWJj}"), "pairs"),
            (config("{server: x, certificate-authority: /nonexistent}", "{}"), "nonexistent"),
        ] {
            let error = crate::Chain(&Kubeconfig::parse(&text).unwrap_err()).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
