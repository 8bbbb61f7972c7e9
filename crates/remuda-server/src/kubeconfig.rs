//! Kubeconfig files: the one we write for the administrator, and reading one back.

use std::{io, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;

/// What a kubeconfig says about its current context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `https://host:port`
    pub server: String,
    /// The name in the server's certificate, if it is not the host.
    pub server_name: Option<String>,
    pub ca: Vec<u8>,
    pub identity: Option<Identity>,
    pub token: Option<String>,
}

/// A client certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    #[error("read kubeconfig {path}")]
    Read { path: String, source: io::Error },
    #[error("kubeconfig {path}: {reason}")]
    Invalid { path: String, reason: String },
}

/// A kubeconfig with one cluster and one user, both called `remuda`.
pub fn render(server: &str, server_name: Option<&str>, ca: &str, identity: &Identity) -> String {
    let server_name = server_name.map(|name| format!("\n    tls-server-name: {name}")).unwrap_or_default();
    let (ca, cert, key) =
        (STANDARD.encode(ca), STANDARD.encode(&identity.cert), STANDARD.encode(&identity.key));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: remuda
  cluster:
    server: {server}{server_name}
    certificate-authority-data: {ca}
users:
- name: remuda-admin
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: remuda
  context:
    cluster: remuda
    user: remuda-admin
current-context: remuda
preferences: {{}}
"
    )
}

/// Reads what the current context of a kubeconfig needs. Files it names count from its own place.
pub fn read(path: &Path) -> Result<Access, KubeconfigError> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|source| KubeconfigError::Read { path: shown.clone(), source })?;
    parse(&text, path.parent().unwrap_or(Path::new("")))
        .map_err(|reason| KubeconfigError::Invalid { path: shown, reason })
}

/// The same of a text whose files are named in full; `origin` is told in errors.
pub fn read_text(text: &str, origin: &str) -> Result<Access, KubeconfigError> {
    parse(text, Path::new("/")).map_err(|reason| KubeconfigError::Invalid { path: origin.to_owned(), reason })
}

fn parse(text: &str, dir: &Path) -> Result<Access, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
    let context = find(file.contexts, &file.current_context, "context")?.context;
    let cluster = find(file.clusters, &context.cluster, "cluster")?.cluster;
    let user = find(file.users, &context.user, "user")?.user;
    let data = |inline: Option<String>, file: Option<String>| -> Result<Option<Vec<u8>>, String> {
        match (inline, file) {
            (Some(inline), _) => STANDARD.decode(inline.trim()).map(Some).map_err(|error| error.to_string()),
            (None, Some(file)) => {
                std::fs::read(dir.join(&file)).map(Some).map_err(|error| format!("{file}: {error}"))
            }
            (None, None) => Ok(None),
        }
    };
    let ca = data(cluster.certificate_authority_data, cluster.certificate_authority)?
        .ok_or("the cluster has no certificate authority")?;
    let cert = data(user.client_certificate_data, user.client_certificate)?;
    let key = data(user.client_key_data, user.client_key)?;
    let identity = cert.zip(key).map(|(cert, key)| Identity { cert, key });
    Ok(Access {
        server: cluster.server,
        server_name: cluster.tls_server_name,
        ca,
        identity,
        token: user.token,
    })
}

trait Named {
    fn name(&self) -> &str;
}

fn find<T: Named>(entries: Vec<T>, name: &str, what: &str) -> Result<T, String> {
    entries
        .into_iter()
        .find(|entry| entry.name() == name)
        .ok_or_else(|| format!("there is no {what} {name:?}"))
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "current-context", default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate_data: Option<String>,
    client_certificate: Option<String>,
    client_key_data: Option<String>,
    client_key: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

macro_rules! named {
    ($($type:ty),*) => { $(impl Named for $type { fn name(&self) -> &str { &self.name } })* };
}
named!(NamedCluster, NamedUser, NamedContext);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let identity = Identity { cert: b"cert".to_vec(), key: b"key".to_vec() };
        for server_name in [None, Some("localhost")] {
            let text = render("https://127.0.0.1:8443", server_name, "ca", &identity);
            let access = parse(&text, Path::new("")).unwrap();
            let expected = Access {
                server: "https://127.0.0.1:8443".to_owned(),
                server_name: server_name.map(str::to_owned),
                ca: b"ca".to_vec(),
                identity: Some(identity.clone()),
                token: None,
            };
            assert_eq!(access, expected);
        }
    }

    #[test]
    fn a_missing_part_is_named() {
        let text = "current-context: a\ncontexts:\n- name: a\n  context: {cluster: b, user: c}\n";
        assert_eq!(parse(text, Path::new("")).unwrap_err(), "there is no cluster \"b\"");
    }
}
