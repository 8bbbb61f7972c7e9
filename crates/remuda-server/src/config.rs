//! What the server is told: flags, environment, file and defaults, in that order of precedence.
//!
//! [`Options`] is one level of that, where everything may be absent; the same struct is filled by
//! the command line (which also reads the environment) and by the file, whose keys are the names
//! of the flags. [`Config`] is the result: complete and checked, before anything is created.

pub(crate) mod address;
mod backup;
mod datastore;
mod error;
mod options;
mod registries;
mod secret;

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use remuda_names::{self as names, file};

pub use self::{
    address::{Advertise, Bind},
    backup::{BackupKeys, BackupPlace, BackupStore, Backups},
    datastore::{ClientTls, Datastore},
    error::ConfigError,
    options::{LocalMachines, LogFormat, Options},
    registries::Registries,
    secret::SharedSecret,
};

/// Everything the server needs to know, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub bind: Bind,
    pub advertise: Option<Advertise>,
    /// Where other servers on the same etcd reach this one; port 0 is the one listened on.
    pub peer_address: Option<SocketAddr>,
    pub address_file: Option<PathBuf>,
    pub data_dir: PathBuf,
    pub datastore: Datastore,
    /// What the servers on one etcd have in common.
    pub shared_secret: Option<SharedSecret>,
    pub tls: Option<OwnCertificate>,
    pub tls_san: Vec<String>,
    pub audit: Option<Audit>,
    pub token_file: Option<PathBuf>,
    pub anonymous_auth: bool,
    pub issuer: String,
    pub audiences: Vec<String>,
    /// Whether the controllers run in this server.
    pub controllers: bool,
    /// How machines on this host are kept.
    pub local_machines: LocalMachines,
    /// What is known of releases, instead of what comes with the program.
    pub release_data: Option<PathBuf>,
    /// Registries that are mirrored for machines.
    pub registries: Option<Registries>,
    /// The server's backups of itself.
    pub backups: Option<Backups>,
    pub limits: Limits,
}

/// A serving certificate brought by the operator.
#[derive(Debug, Clone)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, Clone)]
pub struct Audit {
    pub log: PathBuf,
    pub policy: Option<PathBuf>,
    /// Bytes after which a new file is begun.
    pub max_size: u64,
    /// Older files that are kept.
    pub max_backups: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: NonZeroUsize,
    pub requests: NonZeroUsize,
    pub mutating_requests: NonZeroUsize,
    pub request_bytes: usize,
    /// From connecting to the end of the TLS handshake.
    pub handshake: Duration,
    /// Machines that are made or removed at a time, if anybody says so.
    pub machine_jobs: Option<NonZeroUsize>,
    pub machine_jobs_per_credential: Option<NonZeroUsize>,
}

/// How the log is written. Apart from [`Config`], because it is needed before anything can fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logging {
    pub level: String,
    pub format: LogFormat,
}

const MIB: u64 = 1024 * 1024;
const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";
/// The API's own limits start at what Kubernetes uses.
const DEFAULT_REQUESTS: usize = 400;
const DEFAULT_MUTATING_REQUESTS: usize = 200;
const DEFAULT_REQUEST_BYTES: usize = 3 * MIB as usize;
const DEFAULT_CONNECTIONS: usize = 20_000;
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Options {
    /// Adds the secret, which has no flag, and what the configuration file says: the one named, or
    /// else the default one if it exists.
    pub fn with_file(mut self) -> Result<Options, ConfigError> {
        if self.shared_secret_file.is_none() {
            let secret = std::env::var_os(names::env::SHARED_SECRET).and_then(|text| text.into_string().ok());
            self.shared_secret = secret.map(SharedSecret::new);
        }
        let variable = |name: &str| std::env::var_os(name)?.into_string().ok();
        self.backup_keys = backup::BackupKeys::of_environment(variable);
        let path = match &self.config {
            Some(path) => path.clone(),
            None if Path::new(file::DEFAULT_CONFIG).exists() => PathBuf::from(file::DEFAULT_CONFIG),
            None => return Ok(self),
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ConfigError::ReadFile { path, source }),
        };
        Ok(self.or(Options::parse_file(&path, &text)?))
    }

    /// The options in a configuration file's text; `path` is for messages.
    pub fn parse_file(path: &Path, text: &str) -> Result<Options, ConfigError> {
        // A file of comments only is an empty document, which is no mapping.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Options::default());
        }
        serde_saphyr::from_str(text).map_err(|error| ConfigError::ParseFile {
            path: path.to_owned(),
            line: error.location().map(|location| location.line()),
            message: reason(&error.without_snippet().to_string()),
        })
    }

    /// How to log, without looking at anything else.
    pub fn logging(&self) -> Logging {
        Logging {
            level: self.log_level.clone().unwrap_or_else(|| "info".to_owned()),
            format: self.log_format.unwrap_or(LogFormat::Text),
        }
    }

    /// Checks everything that can be checked without creating anything.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let backups = backup::Asked::of(&self);
        let bind = match &self.bind {
            Some(text) => Bind::parse(text)?,
            None => Bind::any(names::DEFAULT_PORT),
        };
        let advertise = self.advertise.as_deref().map(Advertise::parse).transpose()?;
        let peer_address = self.peer_address.as_deref().map(address::parse_peer).transpose()?;
        let data_dir = match self.data_dir {
            Some(dir) => dir,
            None => default_data_dir()?,
        };
        if data_dir.as_os_str().is_empty() {
            return Err(ConfigError::invalid("data-dir", "must not be empty"));
        }
        let datastore = datastore::resolve(
            self.datastore.as_deref().unwrap_or("embedded"),
            self.datastore_ca,
            self.datastore_cert,
            self.datastore_key,
        )?;
        let backups = backups.resolve(&datastore, &data_dir)?;
        let shared_secret = secret::resolve(self.shared_secret, self.shared_secret_file.as_deref())?;
        if shared_secret.is_some() && !matches!(datastore, Datastore::Etcd { .. }) {
            return Err(ConfigError::invalid(
                "shared-secret-file",
                "there are no other servers without etcd",
            ));
        }
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(cert), Some(key)) => {
                readable("tls-cert", &cert)?;
                readable("tls-key", &key)?;
                Some(OwnCertificate { cert, key })
            }
            (None, None) => None,
            (Some(_), None) => return Err(ConfigError::together("tls-cert", "tls-key")),
            (None, Some(_)) => return Err(ConfigError::together("tls-key", "tls-cert")),
        };
        let audit =
            audit(self.audit_log, self.audit_policy, self.audit_log_max_size, self.audit_log_max_backups)?;
        if let Some(path) = &self.token_file {
            readable("token-file", path)?;
        }
        let tls_san = self.tls_san.unwrap_or_default();
        for san in &tls_san {
            address::check_san(san)?;
        }
        let issuer = self.service_account_issuer.unwrap_or_else(|| DEFAULT_ISSUER.to_owned());
        if issuer.is_empty() {
            return Err(ConfigError::invalid("service-account-issuer", "must not be empty"));
        }
        let audiences = match self.api_audiences {
            Some(audiences) if !audiences.is_empty() => audiences,
            _ => vec![issuer.clone()],
        };
        let limits = Limits {
            connections: positive("max-connections", self.max_connections, DEFAULT_CONNECTIONS)?,
            requests: positive("max-requests-inflight", self.max_requests_inflight, DEFAULT_REQUESTS)?,
            mutating_requests: positive(
                "max-mutating-requests-inflight",
                self.max_mutating_requests_inflight,
                DEFAULT_MUTATING_REQUESTS,
            )?,
            request_bytes: positive("max-request-bytes", self.max_request_bytes, DEFAULT_REQUEST_BYTES)?
                .get(),
            handshake: HANDSHAKE,
            machine_jobs: given("max-machine-jobs", self.max_machine_jobs)?,
            machine_jobs_per_credential: given(
                "max-machine-jobs-per-credential",
                self.max_machine_jobs_per_credential,
            )?,
        };
        Ok(Config {
            bind,
            advertise,
            peer_address,
            address_file: self.address_file,
            data_dir,
            datastore,
            shared_secret,
            tls,
            tls_san,
            audit,
            token_file: self.token_file,
            anonymous_auth: self.anonymous_auth.unwrap_or(true),
            issuer,
            audiences,
            controllers: self.controllers.unwrap_or(true),
            local_machines: self.local_machines.unwrap_or_default(),
            release_data: self.release_data,
            registries: self.registry_config.as_deref().map(Registries::read).transpose()?,
            backups,
            limits,
        })
    }
}

fn audit(
    log: Option<PathBuf>,
    policy: Option<PathBuf>,
    max_size: Option<u64>,
    max_backups: Option<usize>,
) -> Result<Option<Audit>, ConfigError> {
    let Some(log) = log else {
        return match policy {
            Some(_) => Err(ConfigError::together("audit-policy", "audit-log")),
            None => Ok(None),
        };
    };
    if let Some(policy) = &policy {
        readable("audit-policy", policy)?;
    }
    let parent = log.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        let reason = format!("{} is not a directory", parent.display());
        return Err(ConfigError::invalid("audit-log", reason));
    }
    let max_size = max_size.unwrap_or(100);
    if max_size == 0 {
        return Err(ConfigError::invalid("audit-log-max-size", "must be at least 1 (MiB)"));
    }
    let max_size = max_size.saturating_mul(MIB);
    Ok(Some(Audit { log, policy, max_size, max_backups: max_backups.unwrap_or(10) }))
}

fn positive(flag: &'static str, value: Option<usize>, default: usize) -> Result<NonZeroUsize, ConfigError> {
    NonZeroUsize::new(value.unwrap_or(default))
        .ok_or_else(|| ConfigError::invalid(flag, "must be greater than zero"))
}

fn given(flag: &'static str, value: Option<usize>) -> Result<Option<NonZeroUsize>, ConfigError> {
    value.map(|value| positive(flag, Some(value), value)).transpose()
}

/// Opening is the only test of readability that also counts for root and for access lists.
pub(crate) fn readable(flag: &'static str, path: &Path) -> Result<(), ConfigError> {
    match std::fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(ConfigError::Unreadable { flag, path: path.to_owned(), source }),
    }
}

/// The address at which others most likely reach this host; `None` if it has but loopback ones.
pub fn outside_address() -> Option<std::net::IpAddr> {
    crate::addresses::primary()
}

/// Where data goes when nothing is said: the system's place for root, the person's own otherwise.
pub fn default_data_dir() -> Result<PathBuf, ConfigError> {
    if nix::unistd::geteuid().is_root() {
        return Ok(PathBuf::from(file::ROOT_DATA_DIR));
    }
    // The XDG specification says to ignore relative paths.
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(data) = absolute("XDG_DATA_HOME") {
        return Ok(data.join(names::PROGRAM));
    }
    match absolute("HOME") {
        Some(home) => Ok(home.join(".local/share").join(names::PROGRAM)),
        None => Err(ConfigError::NoDataDir),
    }
}

/// What is wrong, without the place, which is said apart, and without the list of all there is.
fn reason(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(", expected one of ").next().unwrap_or(line);
    line.split(" at line ").next().unwrap_or(line).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Options, ConfigError> {
        Options::parse_file(Path::new("config.yaml"), text)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let flags = Options { bind: Some("127.0.0.1:1".into()), ..Options::default() };
        let file = file("bind: 127.0.0.1:2\nmax-connections: 7\n").unwrap();
        let options = flags.or(file);
        assert_eq!(options.bind.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(options.max_connections, Some(7));
        assert_eq!(options.max_requests_inflight, None);
        let config = Options { data_dir: Some("/x".into()), ..options }.resolve().unwrap();
        assert_eq!(config.limits.connections.get(), 7);
        assert_eq!(config.limits.requests.get(), 400);
    }

    #[test]
    fn an_unknown_key_in_the_file_is_named_with_its_line() {
        let error = file("bind: 127.0.0.1:2\ndatadir: /x\n").unwrap_err().to_string();
        assert_eq!(error, "configuration file config.yaml, line 2: unknown field `datadir`");
    }

    #[test]
    fn a_file_of_comments_says_nothing() {
        assert_eq!(file("# nothing yet\n\n").unwrap(), Options::default());
        assert_eq!(file("").unwrap(), Options::default());
    }

    #[test]
    fn every_option_can_be_in_the_file() {
        let text = "
            bind: 0.0.0.0:8443
            advertise: example.org
            address-file: /run/x
            data-dir: /d
            datastore: memory
            tls-san: [a.example.org, 10.0.0.1]
            log-level: debug
            log-format: json
            audit-log: /tmp/audit.log
            audit-log-max-size: 5
            audit-log-max-backups: 2
            anonymous-auth: false
            controllers: false
            service-account-issuer: https://example.org
            api-audiences: [a, b]
            max-connections: 10
            max-requests-inflight: 20
            max-mutating-requests-inflight: 30
            max-request-bytes: 1000000
            max-machine-jobs: 40
            max-machine-jobs-per-credential: 5
        ";
        let options = file(text).unwrap();
        assert_eq!(options.logging(), Logging { level: "debug".into(), format: LogFormat::Json });
        let config = options.resolve().unwrap();
        assert_eq!(config.audiences, ["a", "b"]);
        assert!(!config.anonymous_auth && !config.controllers);
        assert_eq!(config.audit.unwrap().max_size, 5 * MIB);
        assert_eq!(config.limits.machine_jobs_per_credential.unwrap().get(), 5);
    }

    #[test]
    fn halves_of_pairs_are_refused() {
        let pair = Options { tls_cert: Some("/c".into()), ..Options::default() };
        assert_eq!(pair.resolve().unwrap_err().to_string(), "--tls-cert needs --tls-key as well");
        let policy = Options { audit_policy: Some("/p".into()), ..Options::default() };
        assert_eq!(policy.resolve().unwrap_err().to_string(), "--audit-policy needs --audit-log as well");
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        let options = Options { max_connections: Some(0), ..Options::default() };
        let error = options.resolve().unwrap_err().to_string();
        assert_eq!(error, "invalid --max-connections: must be greater than zero");
        let options = Options { max_machine_jobs: Some(0), ..Options::default() };
        let error = options.resolve().unwrap_err().to_string();
        assert_eq!(error, "invalid --max-machine-jobs: must be greater than zero");
    }
}
