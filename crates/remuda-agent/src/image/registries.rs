//! Mirrors, credentials and certificates of registries, as `registries.yaml` has them.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use regex::Regex;
use remuda_oci::reference::{DOCKER_HUB, Reference};
use serde::Deserialize;

use crate::{
    disk::{DiskError, read_limited},
    environment::Environment,
    tls::{Trust, certificates},
    yaml,
};

const FILE_LIMIT: u64 = 4 << 20;

/// Registry settings.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Registries {
    mirrors: BTreeMap<String, Option<Mirror>>,
    configs: BTreeMap<String, Option<Settings>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Mirror {
    #[serde(alias = "endpoints")]
    endpoint: Option<Vec<String>>,
    rewrite: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Settings {
    auth: Option<Auth>,
    tls: Option<Tls>,
}

/// Credentials for a registry.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Auth {
    /// Name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Both, as `base64(name:password)`.
    pub auth: Option<String>,
    /// A refresh token in place of both.
    #[serde(alias = "identitytoken")]
    pub identity_token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Auth(..)")
    }
}

impl Auth {
    /// Name and password, whichever way they are given.
    pub fn basic(&self) -> Option<String> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        match (filled(&self.username), filled(&self.auth)) {
            (Some(name), _) => {
                Some(STANDARD.encode(format!("{name}:{}", self.password.clone().unwrap_or_default())))
            }
            (None, auth) => auth,
        }
    }

    /// The refresh token.
    pub fn identity_token(&self) -> Option<&str> {
        self.identity_token.as_deref().filter(|token| !token.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.basic().is_none() && self.identity_token().is_none()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Tls {
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    insecure_skip_verify: bool,
}

/// Somewhere to pull an image from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port.
    pub host: String,
    /// What takes the place of `/v2`.
    pub prefix: String,
    /// Repository, after rewriting.
    pub repository: String,
    /// The registry's own name, to be told to a mirror.
    pub namespace: Option<String>,
}

/// Why registry settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// A file cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is not of that form.
    #[error("decode {}: {reason}", path.display())]
    Decode {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Certificate files do not fit together.
    #[error("TLS settings of registry {host}: {reason}")]
    Tls {
        /// Of which.
        host: String,
        /// What is wrong.
        reason: String,
    },
}

impl Registries {
    /// Reads the settings; no file means none.
    pub fn load(path: Option<&Path>) -> Result<Self, RegistriesError> {
        let Some(path) = path else { return Ok(Self::default()) };
        Self::parse(&read_limited(path, FILE_LIMIT)?)
            .map_err(|reason| RegistriesError::Decode { path: path.to_owned(), reason })
    }

    fn parse(raw: &[u8]) -> Result<Self, String> {
        Ok(yaml::decode::<Option<Self>>(raw)?.unwrap_or_default())
    }

    /// Settings for one registry and no other.
    pub fn only(host: &str, auth: Option<Auth>, ca_file: Option<PathBuf>, insecure: bool) -> Self {
        let tls = Tls { ca_file, insecure_skip_verify: insecure, ..Tls::default() };
        let settings = Settings { auth, tls: Some(tls) };
        Self { mirrors: BTreeMap::new(), configs: [(host.to_owned(), Some(settings))].into() }
    }

    /// Where to look for an image: mirrors in order, then the registry itself.
    pub fn endpoints(&self, reference: &Reference) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        if let Some(mirror) = self.mirror(&reference.registry) {
            for text in mirror.endpoint.iter().flatten() {
                let Some((scheme, host, prefix)) = normalise(text) else {
                    tracing::warn!(endpoint = text, "mirror endpoint is no address and is left out");
                    continue;
                };
                let is_own = host == reference.registry || host == reference.namespace();
                let repository = if is_own {
                    reference.repository.clone()
                } else {
                    mirror.rewritten(&reference.repository)
                };
                let namespace = (!is_own).then(|| reference.namespace().to_owned());
                endpoints.push(Endpoint { scheme, host, prefix, repository, namespace });
            }
        }
        let own = |scheme| Endpoint {
            scheme,
            host: reference.registry.clone(),
            prefix: "/v2".into(),
            repository: reference.repository.clone(),
            namespace: None,
        };
        let schemes: &[&str] = if is_local(&reference.registry) { &["https", "http"] } else { &["https"] };
        for scheme in schemes {
            let endpoint = own(scheme);
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        endpoints
    }

    fn mirror(&self, registry: &str) -> Option<&Mirror> {
        find(&self.mirrors, registry)
    }

    /// Credentials for a host: configured ones, or those of the Docker configuration.
    pub fn auth(&self, host: &str, environment: &Environment) -> Option<Auth> {
        let configured = find(&self.configs, host).and_then(|settings| settings.auth.clone());
        configured.filter(|auth| !auth.is_empty()).or_else(|| docker_auth(host, environment))
    }

    /// Whom to trust as a host.
    pub fn trust(&self, host: &str, environment: &Environment) -> Result<Trust, RegistriesError> {
        let system_bundle = environment.get("SSL_CERT_FILE").map(PathBuf::from);
        let mut trust = Trust { system: true, system_bundle, ..Trust::default() };
        let Some(tls) = find(&self.configs, host).and_then(|settings| settings.tls.as_ref()) else {
            return Ok(trust);
        };
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let refuse = |reason: &str| RegistriesError::Tls { host: host.to_owned(), reason: reason.to_owned() };
        trust.insecure = tls.insecure_skip_verify;
        if let Some(path) = given(&tls.ca_file) {
            trust.extra = read_limited(&path, FILE_LIMIT)?;
            if certificates(&trust.extra).is_empty() {
                return Err(refuse("ca_file holds no certificate"));
            }
        }
        trust.identity = match (given(&tls.cert_file), given(&tls.key_file)) {
            (Some(certificate), Some(key)) => {
                Some((read_limited(&certificate, FILE_LIMIT)?, read_limited(&key, FILE_LIMIT)?))
            }
            (None, None) => None,
            _ => return Err(refuse("cert_file and key_file come in pairs")),
        };
        Ok(trust)
    }
}

impl Mirror {
    /// The first rule that changes the name counts.
    fn rewritten(&self, repository: &str) -> String {
        for (pattern, replacement) in self.rewrite.iter().flatten() {
            match Regex::new(pattern) {
                Ok(rule) => {
                    let rewritten = rule.replace_all(repository, replacement.as_str());
                    if rewritten != repository {
                        return rewritten.into_owned();
                    }
                }
                Err(error) => tracing::warn!(pattern, %error, "rewrite rule is no regular expression"),
            }
        }
        repository.to_owned()
    }
}

/// The settings for a registry: by its name, its alias, its name with a default port, or for all.
fn find<'a, T>(map: &'a BTreeMap<String, Option<T>>, registry: &str) -> Option<&'a T> {
    let mut keys = vec![registry.to_owned()];
    if registry == DOCKER_HUB || registry == "registry-1.docker.io" {
        keys.push("docker.io".to_owned());
    } else if !registry.contains(':') {
        keys.extend([format!("{registry}:443"), format!("{registry}:80")]);
    }
    keys.push("*".to_owned());
    keys.iter().find_map(|key| map.get(key)).and_then(Option::as_ref)
}

fn normalise(text: &str) -> Option<(&'static str, String, String)> {
    let (scheme, rest) = match text.split_once("://") {
        Some(("https", rest)) => (Some("https"), rest),
        Some(("http", rest)) => (Some("http"), rest),
        Some(_) => return None,
        None => (None, text),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) || path.contains(['?', '#', ' ']) {
        return None;
    }
    let is_plain = is_loopback(host) && host.rsplit_once(':').is_some_and(|(_, port)| port != "443");
    let scheme = scheme.unwrap_or(if is_plain { "http" } else { "https" });
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return None;
    }
    let prefix = if parts.is_empty() { "/v2".to_owned() } else { format!("/{}", parts.join("/")) };
    Some((scheme, host.to_owned(), prefix))
}

fn address(host: &str) -> Option<IpAddr> {
    let bare = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let bare = bare.map_or(host, |(bare, _)| bare);
    bare.trim_matches(['[', ']']).parse().ok()
}

pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.starts_with("localhost:")
        || address(host).is_some_and(|address| address.is_loopback())
}

/// Whether a registry may be spoken to without TLS.
fn is_local(host: &str) -> bool {
    is_loopback(host) || matches!(address(host), Some(IpAddr::V4(address)) if address.is_private())
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DockerConfig {
    auths: BTreeMap<String, Auth>,
}

fn docker_auth(host: &str, environment: &Environment) -> Option<Auth> {
    let home = environment.get("HOME")?;
    let directory =
        environment.get("DOCKER_CONFIG").map_or_else(|| Path::new(home).join(".docker"), PathBuf::from);
    let raw = read_limited(&directory.join("config.json"), FILE_LIMIT).ok()?;
    let config: DockerConfig = serde_json::from_slice(&raw).ok()?;
    let keys = if host == DOCKER_HUB {
        vec!["https://index.docker.io/v1/".to_owned(), host.to_owned(), "docker.io".to_owned()]
    } else {
        vec![
            host.to_owned(),
            format!("https://{host}"),
            format!("https://{host}/v2/"),
            format!("https://{host}/v1/"),
        ]
    };
    keys.iter().find_map(|key| config.auths.get(key)).filter(|auth| !auth.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &str = r#"
mirrors:
  docker.io:
    endpoint: ["https://mirror.example.com/v2/hub", "localhost:5000", "nonsense://x"]
    rewrite: {"^rancher/(.*)": "mirrored/$1", "(": "broken"}
  own.example.com:
    endpoint: ["https://own.example.com"]
  empty.example.com:
  "*": {endpoint: ["all.example.com/"]}
configs:
  mirror.example.com:
    auth: {username: u, password: p, auth: "", identity_token: ""}
    tls: {ca_file: "", insecure_skip_verify: true}
"#;

    #[track_caller]
    fn check(image: &str, expected: &[&str]) {
        let registries = Registries::parse(SETTINGS.as_bytes()).unwrap();
        let endpoints = registries.endpoints(&Reference::parse(image).unwrap());
        let shown: Vec<String> = endpoints
            .iter()
            .map(|at| {
                let namespace = at.namespace.as_ref().map_or(String::new(), |name| format!(" ns={name}"));
                format!("{}://{}{}/{}{namespace}", at.scheme, at.host, at.prefix, at.repository)
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn mirrors_come_before_the_registry_and_names_are_rewritten() {
        check(
            "rancher/a:1",
            &[
                "https://mirror.example.com/v2/hub/mirrored/a ns=docker.io",
                "http://localhost:5000/v2/mirrored/a ns=docker.io",
                "https://index.docker.io/v2/rancher/a",
            ],
        );
        check("own.example.com/x", &["https://own.example.com/v2/x"]);
        check("empty.example.com/x", &["https://empty.example.com/v2/x"]);
        check(
            "other.example.com/x",
            &["https://all.example.com/v2/x ns=other.example.com", "https://other.example.com/v2/x"],
        );
    }

    #[test]
    fn credentials_come_from_settings_then_from_docker() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("config.json"),
            r#"{"auths":{"https://index.docker.io/v1/":{"auth":"eDp5"}}}"#,
        )
        .unwrap();
        let home = dir.path().to_str().unwrap();
        let environment: Environment = [("HOME", home), ("DOCKER_CONFIG", home)].into_iter().collect();
        let registries = Registries::parse(SETTINGS.as_bytes()).unwrap();
        let basic = |host: &str| registries.auth(host, &environment).and_then(|auth| auth.basic());
        assert_eq!(basic("mirror.example.com").unwrap(), STANDARD.encode("u:p"));
        assert_eq!(basic(DOCKER_HUB).unwrap(), "eDp5");
        assert_eq!(basic("unknown.example.com"), None);
        assert!(registries.trust("mirror.example.com", &environment).unwrap().insecure);
        assert!(!registries.trust("unknown.example.com", &environment).unwrap().insecure);
    }

    #[test]
    fn broken_settings_say_where() {
        assert!(Registries::parse(b"mirrors: [").is_err());
        assert!(Registries::parse(b"").unwrap().mirrors.is_empty());
        let registries = Registries::parse(b"configs: {h: {tls: {cert_file: /x}}}").unwrap();
        let error = registries.trust("h", &Environment::default()).unwrap_err().to_string();
        assert!(error.contains("pairs"), "{error}");
    }
}
