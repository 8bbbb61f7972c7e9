//! Registries that are mirrored for machines: which, where, for which images, and with whose credentials.
//!
//! ```yaml
//! cache-size: 50Gi
//! registries:
//!   docker.io:
//!     repositories: [rancher/*]
//!     endpoints: [https://mirror.example.org]   # asked in this order; by default the registry itself
//!     ca-file: /etc/remuda/mirror-ca.pem
//!     username: puller
//!     password-file: /etc/remuda/mirror-password
//! ```
//!
//! It is a file, and not an object, because it names credentials: only the host's administrator may write it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use remuda_registry::{Credentials, Mirror, Mirrors, Upstream};
use serde::Deserialize;

use super::ConfigError;
use crate::datadir::{self, DataDirError};

const FLAG: &str = "registry-config";
const DEFAULT_CACHE: u64 = 20 << 30;
/// A cache that cannot keep one image would fetch it again and again.
const SMALLEST_CACHE: u64 = 1 << 30;
const HUB: &str = "docker.io";
/// Where the API of Docker Hub is.
const HUB_ENDPOINT: &str = "https://registry-1.docker.io";

#[derive(Debug, Clone)]
pub struct Registries {
    /// Bytes of images that are kept.
    pub cache_size: u64,
    registries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    #[serde(default)]
    cache_size: Option<String>,
    registries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    repositories: Vec<String>,
    #[serde(default)]
    endpoints: Vec<String>,
    #[serde(default)]
    ca_file: Option<PathBuf>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password_file: Option<PathBuf>,
}

impl Registries {
    /// Reads a file, and all it names, once, so that a mistake in it is found at the start.
    pub(super) fn read(path: &Path) -> Result<Registries, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            flag: FLAG,
            path: path.to_owned(),
            source,
        })?;
        let registries = Self::parse(path, &text)?;
        registries.mirrors()?;
        Ok(registries)
    }

    fn parse(path: &Path, text: &str) -> Result<Registries, ConfigError> {
        let File { cache_size, registries } = serde_saphyr::from_str(text).map_err(|error| {
            let line =
                error.location().map_or(String::new(), |location| format!(", line {}", location.line()));
            let reason = super::reason(&error.without_snippet().to_string());
            ConfigError::invalid(FLAG, format!("{}{line}: {reason}", path.display()))
        })?;
        let cache_size = match cache_size {
            None => DEFAULT_CACHE,
            Some(text) => {
                let bytes = remuda_base::quantity::nanos(&text).map(|nanos| nanos / 1_000_000_000);
                let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
                bytes.filter(|bytes| *bytes >= SMALLEST_CACHE).ok_or_else(|| {
                    ConfigError::invalid(FLAG, format!("cache-size {text:?} is no size of at least 1Gi"))
                })?
            }
        };
        for (name, entry) in &registries {
            let bad = |reason: String| Err(ConfigError::invalid(FLAG, format!("registries.{name}{reason}")));
            if name.contains('/') || name.is_empty() {
                return bad(
                    ": a registry is a host, such as docker.io or registry.example.org:5000".to_owned()
                );
            }
            if entry.repositories.is_empty() {
                return bad(".repositories: name those that are mirrored, such as rancher/*".to_owned());
            }
            if let Some(pattern) = entry.repositories.iter().find(|pattern| !is_pattern(pattern)) {
                return bad(format!(".repositories: {pattern:?} is neither a repository nor one/*"));
            }
            if entry.username.is_some() != entry.password_file.is_some() {
                return bad(": username and password-file come in pairs".to_owned());
            }
        }
        Ok(Registries { cache_size, registries })
    }

    /// What machines can be given.
    pub(crate) fn mirrors(&self) -> Result<Mirrors, ConfigError> {
        let mut mirrors = Mirrors::new();
        for (name, entry) in &self.registries {
            let unreadable =
                |path: &Path, source| ConfigError::Unreadable { flag: FLAG, path: path.to_owned(), source };
            let ca = entry.ca_file.as_deref();
            let ca = ca.map(|path| fs::read(path).map_err(|source| unreadable(path, source))).transpose()?;
            let mut credentials = None;
            if let (Some(username), Some(path)) = (&entry.username, &entry.password_file) {
                if let Err(DataDirError::OpenKey { path, mode }) = datadir::check_key(path) {
                    return Err(ConfigError::Exposed { flag: FLAG, path, mode });
                }
                let password = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
                let password = password.trim_end_matches(['\r', '\n']).to_owned();
                credentials = Some(Credentials { username: username.clone(), password });
            }
            let own = if name == HUB { HUB_ENDPOINT.to_owned() } else { format!("https://{name}") };
            let endpoints = if entry.endpoints.is_empty() {
                std::slice::from_ref(&own)
            } else {
                entry.endpoints.as_slice()
            };
            let upstreams = endpoints.iter().map(|address| {
                // A mirror of many is told which is meant.
                let namespace = (*address != own).then(|| name.clone());
                let upstream = Upstream::new(address, namespace, credentials.clone(), ca.as_deref());
                let upstream = upstream.map_err(|error| {
                    ConfigError::invalid(FLAG, format!("registries.{name}: {}", remuda_base::Chain(&error)))
                })?;
                Ok(Arc::new(upstream))
            });
            let upstreams = upstreams.collect::<Result<_, ConfigError>>()?;
            mirrors.insert(name.clone(), Mirror { upstreams, repositories: entry.repositories.clone() });
        }
        Ok(mirrors)
    }
}

fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix("/*").unwrap_or(text);
    let is_part = |part: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        !part.is_empty() && part != "." && part != ".." && part.chars().all(plain)
    };
    text == "*" || name.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refused(text: &str) -> String {
        let parsed = Registries::parse(Path::new("registries.yaml"), text);
        parsed.and_then(|registries| registries.mirrors()).unwrap_err().to_string()
    }

    #[test]
    fn a_mistake_is_found_where_it_is() {
        for (text, expected) in [
            ("registries: {docker.io: {}}", "repositories"),
            ("registries: {docker.io: {repositories: []}}", "registries.docker.io.repositories"),
            ("registries: {docker.io: {repositories: [\"../x\"]}}", "neither a repository nor one/*"),
            ("registries: {docker.io: {repositories: [a*]}}", "neither a repository nor one/*"),
            ("registries: {a/b: {repositories: [x]}}", "a registry is a host"),
            ("registries: {a: {repositories: [x], username: u}}", "come in pairs"),
            ("registries: {a: {repositories: [x], endpoints: [ftp://x]}}", "is no address of a registry"),
            ("registries: {a: {repositories: [x], mirror: y}}", "unknown field"),
            ("registries: {}\ncache-size: 5", "no size of at least 1Gi"),
            (
                "registries: {a: {repositories: [x], ca-file: /nonexistent}}",
                "read --registry-config /nonexistent",
            ),
        ] {
            let error = refused(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_mirrored_is_what_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let password = dir.path().join("password");
        fs::write(&password, "secret\n").unwrap();
        let text = format!(
            "cache-size: 2Gi\nregistries:\n  docker.io: {{repositories: [rancher/*, library/busybox]}}\n  \
             r.example:5000:\n    repositories: [\"*\"]\n    endpoints: [https://m.example/hub]\n    username: u\n    \
             password-file: {}\n",
            password.display()
        );
        fs::set_permissions(&password, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused(&text).contains("can be read by other users"));
        fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
        let registries = Registries::parse(Path::new("x"), &text).unwrap();
        assert_eq!(registries.cache_size, 2 << 30);
        let mirrors = registries.mirrors().unwrap();
        assert_eq!(mirrors["docker.io"].upstreams[0].host(), "registry-1.docker.io");
        assert_eq!(mirrors["r.example:5000"].upstreams[0].host(), "m.example");
        assert!(!format!("{mirrors:?}").contains("secret"));
    }
}
