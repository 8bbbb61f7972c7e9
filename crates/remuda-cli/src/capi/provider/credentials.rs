//! What a provider's program is given: a kubeconfig with the rights of its ServiceAccount, and serving certificates.
//!
//! They are files of a directory only this user can read, which goes when the run ends. The token is good for an hour
//! and written anew in time; clients of Kubernetes read it again from its file.

use std::{
    fs,
    io::Write,
    net::{IpAddr, ToSocketAddrs, UdpSocket},
    path::{Path, PathBuf},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use kube::Config;
use remuda_api::clusterctl::ServiceKey;
use remuda_auth::{
    pem,
    pki::authority::{Authority, LEAF_LIFETIME, San},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::find::Entry;
use crate::{
    failure::{Code, Failure},
    session::Session,
    token::send,
};

/// How long a token is asked for. Servers may give less.
const TOKEN_SECONDS: i64 = 3600;

/// Where files are, by the names controller-runtime has for them.
#[derive(Debug)]
pub(super) struct Files {
    dir: TempDir,
}

impl Files {
    pub(super) fn new() -> Result<Files, Failure> {
        // Only this user can look into it.
        let dir = tempfile::Builder::new().prefix("remuda-provider-").tempdir();
        let files = Files { dir: dir.map_err(|error| failed("make a directory", &error))? };
        fs::create_dir(files.certificates()).map_err(|error| failed("make a directory", &error))?;
        Ok(files)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(super) fn certificates(&self) -> PathBuf {
        self.dir.path().join("serving-certs")
    }

    fn token(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Replaces a file at once, so that a reader sees all of the old one or all of the new one.
    fn write(path: &Path, text: &str) -> Result<(), Failure> {
        let written = || {
            let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
            file.write_all(text.as_bytes())?;
            file.persist(path).map_err(|error| error.error)
        };
        written().map(drop).map_err(|error| failed(&format!("write {}", path.display()), &error))
    }
}

fn failed(doing: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::Other, format!("{doing}: {error}"))
}

/// The address of this host by which it reaches the server: there the server reaches this host.
pub(super) fn own_address(server: &Config) -> Result<IpAddr, Failure> {
    let host = server.cluster_url.host().unwrap_or_default();
    let port = server.cluster_url.port_u16().unwrap_or(443);
    let found = || {
        let target = (host.trim_matches(['[', ']']), port).to_socket_addrs()?.next();
        let target = target.ok_or_else(|| std::io::Error::other("it has no address"))?;
        if target.ip().is_loopback() {
            return Ok(IpAddr::from([127, 0, 0, 1]));
        }
        // Nothing is sent: connecting only chooses the way.
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip())
    };
    found().map_err(|error: std::io::Error| {
        Failure::new(Code::Other, format!("find this host's address on the way to {host}: {error}"))
            .hint("--address says at which address of this host servers reach the program")
    })
}

/// Certificates for the webhooks of one run. Their authority signs for nothing else, and its key is never written.
#[derive(Debug)]
pub(super) struct Serving {
    authority: Authority,
    names: Vec<San>,
    issued: Timestamp,
}

impl Serving {
    /// For an address, and for the Services by whose names webhooks are known.
    pub(super) fn new(
        provider: &Entry,
        address: IpAddr,
        services: impl IntoIterator<Item = ServiceKey>,
    ) -> Result<Serving, Failure> {
        let now = Timestamp::now();
        let name = format!("{} webhooks", provider.instance);
        let authority = Authority::generate(&name, now).map_err(|error| unsigned(&error))?;
        let services =
            services.into_iter().map(|(namespace, name)| San::Dns(format!("{name}.{namespace}.svc")));
        let names = std::iter::once(San::Ip(address)).chain(services).collect();
        Ok(Serving { authority, names, issued: now })
    }

    pub(super) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(self.authority.certificate_pem())
    }

    /// Writes a new certificate and its key.
    pub(super) fn write(&mut self, files: &Files) -> Result<(), Failure> {
        let now = Timestamp::now();
        let issued =
            self.authority.issue_server("webhooks", &self.names, now).map_err(|error| unsigned(&error))?;
        let (dir, key) = (files.certificates(), issued.key_pem().map_err(|error| unsigned(&error))?);
        Files::write(&dir.join("tls.key"), &key)?;
        Files::write(&dir.join("tls.crt"), &issued.certificate_pem())?;
        Files::write(&dir.join("ca.crt"), &self.authority.certificate_pem())?;
        self.issued = now;
        Ok(())
    }

    /// Whether half of the certificate's time is over.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now.duration_since(self.issued) > LEAF_LIFETIME / 2
    }
}

fn unsigned(error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Other, format!("make a certificate: {error}"))
}

/// The token of a ServiceAccount, as long as it is good.
#[derive(Debug)]
pub(super) struct Account {
    namespace: String,
    name: String,
    renew: Timestamp,
}

impl Account {
    pub(super) fn new(namespace: &str, name: &str) -> Account {
        Account { namespace: namespace.to_owned(), name: name.to_owned(), renew: Timestamp::UNIX_EPOCH }
    }

    /// As RBAC knows it.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    pub(super) fn groups(&self) -> [String; 3] {
        let all = "system:serviceaccounts".to_owned();
        [format!("{all}:{}", self.namespace), all, "system:authenticated".to_owned()]
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now >= self.renew
    }

    /// Has a new token made and writes it.
    pub(super) async fn renew(&mut self, session: &Session, files: &Files) -> Result<(), Failure> {
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        });
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, self.name);
        let now = Timestamp::now();
        let made = send(
            session,
            &format!("make a token of ServiceAccount {}", self.name),
            Method::POST,
            &path,
            &asked,
        )
        .await?;
        let token = made["status"]["token"].as_str().unwrap_or_default();
        Files::write(&files.token(), token)?;
        self.renew = renewal(now, &made);
        Ok(())
    }
}

/// When half of a token's time is over.
fn renewal(now: Timestamp, made: &Value) -> Timestamp {
    let expires =
        made["status"]["expirationTimestamp"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let lifetime =
        expires.map_or(SignedDuration::from_secs(TOKEN_SECONDS), |expires| expires.duration_since(now));
    now.checked_add(lifetime.max(SignedDuration::ZERO) / 2).unwrap_or(now)
}

/// Writes a kubeconfig that has the token's file in it, and nothing of the one this command was given but the server.
pub(super) fn write_kubeconfig(files: &Files, server: &Config, namespace: &str) -> Result<(), Failure> {
    let token = files.token();
    Files::write(&files.kubeconfig(), &kubeconfig(server, namespace, &token.to_string_lossy()).to_string())
}

fn kubeconfig(server: &Config, namespace: &str, token_file: &str) -> Value {
    let mut cluster = json!({"server": server.cluster_url.to_string().trim_end_matches('/')});
    let roots = server.root_cert.iter().flatten().map(|der| pem::encode("CERTIFICATE", der));
    let roots: String = roots.collect();
    if !roots.is_empty() {
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(roots).into();
    }
    if let Some(name) = &server.tls_server_name {
        cluster["tls-server-name"] = name.as_str().into();
    }
    if server.accept_invalid_certs {
        cluster["insecure-skip-tls-verify"] = true.into();
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "provider",
        "clusters": [{"name": "provider", "cluster": cluster}],
        "users": [{"name": "provider", "user": {"tokenFile": token_file}}],
        "contexts": [{"name": "provider", "context": {"cluster": "provider", "user": "provider", "namespace": namespace}}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubeconfig_has_no_credentials_but_the_file_of_the_token() {
        let mut server = Config::new("https://127.0.0.1:8443/".parse().unwrap());
        server.root_cert = Some(vec![b"der".to_vec()]);
        server.auth_info.token = Some("of-the-administrator".to_owned().into());
        let text = kubeconfig(&server, "x-system", "/run/token").to_string();
        assert!(!text.contains("of-the-administrator"), "{text}");
        let read: kube::config::Kubeconfig = serde_json::from_str(&text).unwrap();
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(user.token_file.as_deref(), Some("/run/token"));
        assert!(user.token.is_none() && user.client_key_data.is_none());
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:8443"));
        assert!(cluster.certificate_authority_data.is_some());
        assert_eq!(read.contexts[0].context.as_ref().unwrap().namespace.as_deref(), Some("x-system"));
    }

    #[test]
    fn tokens_are_renewed_after_half_of_what_the_server_gave() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let given = |seconds: i64| {
            let expires = Timestamp::from_second(1_000_000 + seconds).unwrap();
            renewal(now, &json!({"status": {"expirationTimestamp": expires.to_string()}})).as_second()
                - now.as_second()
        };
        assert_eq!([given(3600), given(600), given(-5)], [1800, 300, 0]);
        assert_eq!(renewal(now, &json!({})).as_second() - now.as_second(), 1800);
    }

    #[test]
    fn addresses_on_the_way_to_a_server() {
        let to =
            |url: &str| own_address(&Config::new(url.parse().unwrap())).map(|address| address.to_string());
        assert_eq!(to("https://127.0.0.1:8443").unwrap(), "127.0.0.1");
        assert_eq!(to("https://[::1]:8443").unwrap(), "127.0.0.1");
    }
}
