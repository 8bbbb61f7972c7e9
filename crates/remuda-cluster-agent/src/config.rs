//! What the manifest says.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use http::Uri;
use remuda_agent::environment::Environment;
use remuda_names::cluster_agent::{HEALTH_BIND, env, file};

/// Mounted files are short.
const FILE_LIMIT: u64 = 1 << 20;

/// How to find the server and the cluster.
#[derive(Clone)]
pub struct Config {
    /// Address of the server, without a slash at the end.
    pub server: String,
    /// Registration token, unless it is to be read from the mounted Secret.
    pub token: Option<String>,
    /// SHA-256 of the server's certificate authority.
    pub ca_checksum: Option<String>,
    /// Trust no other authority.
    pub strict: bool,
    /// The cluster is registered already.
    pub registered: bool,
    /// Directory below which mounted files are.
    pub root: PathBuf,
    /// Address and port of the cluster's API.
    pub api: String,
    /// Where the health endpoint listens.
    pub health: Option<String>,
    /// For proxies and trusted authorities.
    pub environment: Environment,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("server", &self.server).field("api", &self.api).finish_non_exhaustive()
    }
}

/// Why the agent cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Nobody says where to connect to.
    #[error("{} is not set", env::SERVER)]
    NoServer,
    /// That is not where one can connect to.
    #[error("{name} is {0:?}, which is not an https address", name = env::SERVER)]
    Server(String),
    /// The agent is not in a cluster.
    #[error("{} and {} are not set: not running in a cluster", env::KUBERNETES_HOST, env::KUBERNETES_PORT)]
    NoCluster,
}

/// Why a mounted file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It is not there, or not readable.
    #[error("read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it, or no text.
    #[error("{} is empty or not text", .0.display())]
    Unusable(PathBuf),
}

impl Config {
    /// Reads the environment, and the mounted Secret for what is missing there.
    pub fn from_env(environment: Environment) -> Result<Config, ConfigError> {
        let text = |name| environment.get(name).map(str::to_owned);
        let root = root(&environment);
        let server = match text(env::SERVER) {
            Some(server) => server,
            None => mounted(&root, file::CREDENTIALS, "url").map_err(|_| ConfigError::NoServer)?,
        };
        let is_usable = |uri: &Uri| uri.scheme_str() == Some("https") && uri.host().is_some();
        if !server.parse().is_ok_and(|uri| is_usable(&uri)) {
            return Err(ConfigError::Server(server));
        }
        let api = api(&environment)?;
        let health = text(env::HEALTH_BIND).unwrap_or_else(|| HEALTH_BIND.to_owned());
        Ok(Config {
            server: server.trim_end_matches('/').to_owned(),
            token: text(env::TOKEN),
            ca_checksum: text(env::CA_CHECKSUM),
            strict: environment.is_true(env::STRICT_VERIFY),
            registered: environment.is_true(env::CONNECT),
            root,
            api,
            health: Some(health).filter(|bind| bind != "off"),
            environment,
        })
    }

    /// The registration token. A mounted one may change while the agent runs.
    pub fn token(&self) -> Result<String, MountError> {
        match &self.token {
            Some(token) => Ok(token.clone()),
            None => mounted(&self.root, file::CREDENTIALS, "token"),
        }
    }

    /// A file of the mounted service account.
    pub(crate) fn account_file(&self, name: &str) -> Result<String, MountError> {
        mounted(&self.root, file::SERVICE_ACCOUNT, name)
    }
}

/// Directory below which mounted files are.
pub(crate) fn root(environment: &Environment) -> PathBuf {
    PathBuf::from(environment.get(env::POD_ROOT).unwrap_or("/"))
}

/// Address and port of the cluster's API.
pub(crate) fn api(environment: &Environment) -> Result<String, ConfigError> {
    let (host, port) = environment
        .get(env::KUBERNETES_HOST)
        .zip(environment.get(env::KUBERNETES_PORT))
        .ok_or(ConfigError::NoCluster)?;
    let bare = host.contains(':') && !host.starts_with('[');
    Ok(if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

pub(crate) fn mounted(root: &Path, directory: &str, name: &str) -> Result<String, MountError> {
    let path = root.join(directory.trim_start_matches('/')).join(name);
    let failed = |source| MountError::Read { path: path.clone(), source };
    if fs::metadata(&path).map_err(failed)?.len() > FILE_LIMIT {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    let text = fs::read(&path).map_err(failed)?;
    let text = String::from_utf8(text).ok().map(|text| text.trim().to_owned());
    text.filter(|text| !text.is_empty()).ok_or(MountError::Unusable(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let cluster = [(env::KUBERNETES_HOST, "fd00::1"), (env::KUBERNETES_PORT, "443")];
        Config::from_env(cluster.iter().chain(variables).copied().collect())
    }

    #[test]
    fn the_environment_says_where_to_connect_to() {
        let config =
            read(&[(env::SERVER, "https://example.com/"), (env::TOKEN, "t"), (env::STRICT_VERIFY, "true")]);
        let config = config.unwrap();
        assert_eq!((config.server.as_str(), config.api.as_str()), ("https://example.com", "[fd00::1]:443"));
        assert_eq!(config.token().unwrap(), "t");
        assert!(config.strict && !config.registered);
        assert_eq!(config.health.as_deref(), Some(HEALTH_BIND));
        assert!(!format!("{config:?}").contains("\"t\""));
    }

    #[test]
    fn the_mounted_secret_says_what_the_environment_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("cattle-credentials");
        fs::create_dir(&mount).unwrap();
        fs::write(mount.join("url"), "https://mounted:8443\n").unwrap();
        fs::write(mount.join("token"), "secret\n").unwrap();
        let config = read(&[(env::POD_ROOT, dir.path().to_str().unwrap())]).unwrap();
        assert_eq!(config.server, "https://mounted:8443");
        assert_eq!(config.token().unwrap(), "secret");
        fs::write(mount.join("token"), "\n").unwrap();
        assert!(matches!(config.token(), Err(MountError::Unusable(_))));
        fs::remove_file(mount.join("token")).unwrap();
        assert!(matches!(config.token(), Err(MountError::Read { .. })));
    }

    #[test]
    fn what_leads_nowhere_is_refused_with_the_variable_to_set() {
        for (variables, expected) in [
            (&[(env::POD_ROOT, "/nowhere")][..], "CATTLE_SERVER is not set"),
            (
                &[(env::SERVER, "example.com")],
                "CATTLE_SERVER is \"example.com\", which is not an https address",
            ),
            (&[(env::SERVER, "ftp://x")], "CATTLE_SERVER is \"ftp://x\", which is not an https address"),
        ] {
            assert_eq!(read(variables).unwrap_err().to_string(), expected);
        }
        let error = Config::from_env([(env::SERVER, "https://x")].into_iter().collect()).unwrap_err();
        assert!(matches!(error, ConfigError::NoCluster));
    }
}
