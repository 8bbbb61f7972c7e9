//! What a node is told: by config files, flags and environment, in K3s' words.
//!
//! Files are the weakest but one, flags add to lists and replace everything else, and the
//! environment counts only where neither says anything. Settings of K3s and RKE2 that mean nothing
//! here are taken and passed over; settings nobody knows are passed over with a line in the log.

pub mod flags;
pub mod merge;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use remuda_names::node as names;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

pub use self::{flags::parse as parse_flags, merge::Values};
use crate::{distribution::Distribution, paths::Paths};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {reason}")]
    Invalid { path: String, reason: String },
    #[error("{setting}: {value:?} {reason}")]
    Value { setting: &'static str, value: String, reason: &'static str },
    #[error("the store of snapshots")]
    S3(#[source] remuda_s3::S3Error),
    #[error("an agent needs `server` and `token`: {missing} is missing")]
    Incomplete { missing: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Server,
    Agent,
}

/// Parts of the control plane a server leaves to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Disabled {
    pub apiserver: bool,
    pub etcd: bool,
    pub controller_manager: bool,
    pub scheduler: bool,
}

/// Where things listen. 0 lets the system choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub api: u16,
    /// The same as `api` where servers and agents join at the API's port.
    pub supervisor: u16,
    pub etcd_client: u16,
    pub etcd_peer: u16,
    pub etcd_health: u16,
    pub kubelet: u16,
    pub kubelet_health: u16,
    pub controller_manager: u16,
    pub scheduler: u16,
    pub calico: u16,
    /// Where an agent's own way to the servers listens.
    pub balancer: u16,
}

impl Ports {
    pub fn standard(distribution: Distribution) -> Ports {
        Ports {
            api: 6443,
            supervisor: distribution.supervisor_port(),
            etcd_client: 2379,
            etcd_peer: 2380,
            etcd_health: 2381,
            kubelet: 10250,
            kubelet_health: 10248,
            controller_manager: 10257,
            scheduler: 10259,
            calico: 9099,
            balancer: 6444,
        }
    }

    /// All chosen by the system, for tests.
    pub fn any() -> Ports {
        Ports {
            api: 0,
            supervisor: 0,
            etcd_client: 0,
            etcd_peer: 0,
            etcd_health: 0,
            kubelet: 0,
            kubelet_health: 0,
            controller_manager: 0,
            scheduler: 0,
            calico: 0,
            balancer: 0,
        }
    }

    fn named(&mut self) -> [(&'static str, &mut u16); 11] {
        [
            ("API", &mut self.api),
            ("SUPERVISOR", &mut self.supervisor),
            ("ETCD_CLIENT", &mut self.etcd_client),
            ("ETCD_PEER", &mut self.etcd_peer),
            ("ETCD_HEALTH", &mut self.etcd_health),
            ("KUBELET", &mut self.kubelet),
            ("KUBELET_HEALTH", &mut self.kubelet_health),
            ("CONTROLLER_MANAGER", &mut self.controller_manager),
            ("SCHEDULER", &mut self.scheduler),
            ("CALICO", &mut self.calico),
            ("BALANCER", &mut self.balancer),
        ]
    }
}

/// Whether servers may use an etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum EtcdChoice {
    /// The one found in `PATH`, if there is one.
    #[default]
    Auto,
    Never,
    Program(PathBuf),
}

/// A taint as the configuration writes it: `key[=value]:Effect`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: Option<String>,
    pub effect: String,
}

/// All a node is told, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    pub distribution: Distribution,
    pub role: Role,
    /// As the kubelet reports it.
    pub version: String,
    pub paths: Paths,
    pub node_name: String,
    pub token: Option<String>,
    pub agent_token: Option<String>,
    /// The server to join.
    pub server: Option<String>,
    pub cluster_init: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeSet<Taint>,
    pub node_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    pub advertise_address: Option<IpAddr>,
    pub tls_sans: BTreeSet<String>,
    /// Packaged parts that must not be deployed.
    pub disable: BTreeSet<String>,
    pub disabled: Disabled,
    pub kubeconfig: PathBuf,
    pub kubeconfig_mode: u32,
    /// `flag=value` for the kubelet; few have a meaning here.
    pub kubelet_args: Vec<String>,
    /// Who is asked about tokens the API does not know.
    pub webhook: Option<WebhookArgs>,
    pub controller_manager: ComponentArgs,
    pub scheduler: ComponentArgs,
    pub ports: Ports,
    pub etcd: EtcdChoice,
    /// Where programs are looked for, as in `PATH`.
    pub path: String,
    /// Keys for Secrets can be rotated, by `secrets-encrypt`.
    pub secrets_encryption: bool,
    pub snapshots: SnapshotArgs,
    /// The server is to be made the only one, from a snapshot or from what it has, and then to end.
    pub reset: Option<Reset>,
    /// Listen on this address only, rather than on all.
    pub bind: Option<IpAddr>,
    /// The program that is run again as `node pod-exec …` to start processes. Without it they are
    /// started as they are.
    pub launcher: Option<PathBuf>,
}

/// What the configuration says about snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotArgs {
    pub disabled: bool,
    pub schedule: String,
    /// How many of the schedule are kept.
    pub retention: usize,
    pub directory: PathBuf,
    /// What names of snapshots of the schedule begin with.
    pub name: String,
    /// Where they are put as well.
    pub s3: Option<S3Args>,
}

/// A store snapshots are put into as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Args {
    pub config: remuda_s3::Config,
    /// How many of the schedule are kept there: moments, of which each server has a file.
    pub retention: usize,
}

/// `--cluster-reset`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    pub restore: Option<PathBuf>,
    /// The file is to be taken from the store first.
    pub download: bool,
}

/// What matters of a component's arguments: where its health is and which certificate it shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentArgs {
    pub secure_port: Option<u16>,
    pub cert_dir: Option<PathBuf>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

/// What the API's arguments say about an authentication webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookArgs {
    /// A kubeconfig that leads to it.
    pub config: PathBuf,
    /// How long its answers are good.
    pub cache: Duration,
    /// Version of the TokenReview it is sent.
    pub version: String,
}

/// Where settings come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub flags: Values,
    pub env: BTreeMap<String, String>,
}

impl Settings {
    /// Reads the config files and puts everything together.
    pub fn load(distribution: Distribution, role: Role, sources: &Sources) -> Result<Settings, ConfigError> {
        let env = |name: &str| sources.env.get(name).filter(|value| !value.is_empty());
        let own = |name: &str| env(&format!("{}_{name}", distribution.env_prefix()));
        let root = sources.flags.last("root").map(str::to_owned).or_else(|| env(names::ENV_ROOT).cloned());
        let root = PathBuf::from(root.unwrap_or_else(|| "/".to_owned()));
        let main =
            match sources.flags.last("config").map(str::to_owned).or_else(|| own("CONFIG_FILE").cloned()) {
                Some(path) => PathBuf::from(path),
                None => crate::paths::below(&root, &format!("{}/config.yaml", distribution.config_dir())),
            };
        let mut values = merge::read(&main)?;
        for (key, given) in &sources.flags.0 {
            let key = flags::canonical(key);
            let entry = values.0.entry(key.to_owned()).or_default();
            if !flags::is_list(key) {
                entry.clear();
            }
            entry.extend(given.iter().cloned());
        }
        for (variable, key) in flags::ENVIRONMENT {
            if let Some(value) = own(variable)
                && values.last(key).is_none()
            {
                values.0.insert((*key).to_owned(), vec![value.clone()]);
            }
        }
        report(&values);
        let mut settings = Settings::from_values(distribution, role, root, &values)?;
        settings.version = version(distribution, &settings.paths, &values, &sources.env);
        for (name, port) in settings.ports.named() {
            if let Some(given) = env(&format!("{}{name}", names::ENV_PORT)) {
                *port = number("port", given)?;
            }
        }
        if let Some(s3) = &mut settings.snapshots.s3 {
            let config = &mut s3.config;
            for (variable, key) in [
                ("AWS_ACCESS_KEY_ID", &mut config.access_key),
                ("AWS_SECRET_ACCESS_KEY", &mut config.secret_key),
                ("AWS_SESSION_TOKEN", &mut config.session_token),
            ] {
                if let Some(value) = env(variable).filter(|_| key.is_empty()) {
                    key.clone_from(value);
                }
            }
        }
        if let Some(path) = env("PATH") {
            settings.path.clone_from(path);
        }
        settings.etcd = match env(names::ENV_ETCD).map(String::as_str) {
            None => EtcdChoice::Auto,
            Some("off") => EtcdChoice::Never,
            Some(path) => EtcdChoice::Program(path.into()),
        };
        Ok(settings)
    }

    /// From merged values alone.
    pub fn from_values(
        distribution: Distribution,
        role: Role,
        root: PathBuf,
        values: &Values,
    ) -> Result<Settings, ConfigError> {
        let text = |key: &str| values.last(key).filter(|value| !value.is_empty()).map(str::to_owned);
        let data = text("data-dir").unwrap_or_else(|| distribution.data_dir().to_owned());
        let paths = Paths::new(root, &data);
        let token = match (text("token"), text("token-file")) {
            (None, Some(file)) => Some(secret_file(&paths, &file)?),
            (token, _) => token,
        };
        let agent_token = match (text("agent-token"), text("agent-token-file")) {
            (None, Some(file)) => Some(secret_file(&paths, &file)?),
            (token, _) => token,
        };
        let node_name = match text("node-name") {
            Some(name) => name,
            None => hostname(),
        };
        if !is_node_name(&node_name) {
            let reason = "is not a name a Node can have";
            return Err(ConfigError::Value { setting: "node-name", value: node_name, reason });
        }
        let server = text("server");
        if let Some(server) = &server
            && !server.starts_with("https://")
        {
            let reason = "does not begin with https://";
            return Err(ConfigError::Value { setting: "server", value: server.clone(), reason });
        }
        if role == Role::Agent {
            let missing = if server.is_none() { Some("server") } else { None };
            if let Some(missing) = missing.or(token.is_none().then_some("token")) {
                return Err(ConfigError::Incomplete { missing });
            }
        }
        let mut ports = Ports::standard(distribution);
        if let Some(port) = text("https-listen-port").filter(|_| distribution == Distribution::K3s) {
            ports.api = number("https-listen-port", &port)?;
            ports.supervisor = ports.api;
        }
        if let Some(port) = text("lb-server-port") {
            ports.balancer = number("lb-server-port", &port)?;
        }
        let kubeconfig = text("write-kubeconfig").unwrap_or_else(|| distribution.kubeconfig().to_owned());
        let mode = text("write-kubeconfig-mode").unwrap_or_else(|| "600".to_owned());
        Ok(Settings {
            distribution,
            role,
            version: distribution.default_version().to_owned(),
            token,
            agent_token,
            node_name,
            server,
            cluster_init: is_true(values, "cluster-init"),
            labels: labels(values.all("node-label")),
            taints: taints(values.all("node-taint"))?,
            node_ips: addresses("node-ip", values)?,
            external_ips: addresses("node-external-ip", values)?,
            advertise_address: addresses("advertise-address", values)?.first().copied(),
            tls_sans: words(values.all("tls-san")).collect(),
            disable: words(values.all("disable")).collect(),
            disabled: Disabled {
                apiserver: is_true(values, "disable-apiserver"),
                etcd: is_true(values, "disable-etcd"),
                controller_manager: is_true(values, "disable-controller-manager"),
                scheduler: is_true(values, "disable-scheduler"),
            },
            kubeconfig: paths.absolute(&kubeconfig),
            kubeconfig_mode: u32::from_str_radix(&mode, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .unwrap_or(0o600),
            kubelet_args: values.all("kubelet-arg").to_vec(),
            webhook: webhook(values.all("kube-apiserver-arg"), &paths)?,
            controller_manager: component(values.all("kube-controller-manager-arg"), &paths)?,
            scheduler: component(values.all("kube-scheduler-arg"), &paths)?,
            ports,
            etcd: EtcdChoice::Auto,
            secrets_encryption: is_true(values, "secrets-encryption"),
            snapshots: snapshots(values, &paths)?,
            reset: reset(values, &paths)?,
            path: DEFAULT_PATH.to_owned(),
            bind: None,
            launcher: None,
            paths,
        })
    }

    pub fn is_server(&self) -> bool {
        self.role == Role::Server
    }

    /// A `kubelet-arg` by its name.
    pub fn kubelet_arg(&self, name: &str) -> Option<&str> {
        self.kubelet_args.iter().rev().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }
}

fn reset(values: &Values, paths: &Paths) -> Result<Option<Reset>, ConfigError> {
    if !is_true(values, "cluster-reset") {
        return Ok(None);
    }
    let given = values.last("cluster-reset-restore-path").filter(|path| !path.is_empty());
    let download = is_true(values, "etcd-s3") && given.is_some();
    let restore = match given {
        // In a store, it is a name.
        Some(name) if download => {
            if name.starts_with('.') || name.contains(['/', '\0']) {
                let (setting, reason) = ("cluster-reset-restore-path", "is not the name of a snapshot in S3");
                return Err(ConfigError::Value { setting, value: name.to_owned(), reason });
            }
            Some(snapshots(values, paths)?.directory.join(name))
        }
        // Relative to the directory of the server, as plans write it.
        given => given.map(|path| paths.server(path)),
    };
    Ok(Some(Reset { restore, download }))
}

fn s3(values: &Values, paths: &Paths) -> Result<Option<S3Args>, ConfigError> {
    if !is_true(values, "etcd-s3") {
        return Ok(None);
    }
    let argument = |name: &str| {
        let value = values.last(&format!("etcd-s3-{name}")).filter(|value| !value.is_empty());
        value.map(str::to_owned)
    };
    let mut config = remuda_s3::Config::from_arguments(argument).map_err(ConfigError::S3)?;
    if config.endpoint_ca.starts_with('/') {
        config.endpoint_ca = paths.absolute(&config.endpoint_ca).display().to_string();
    }
    Ok(Some(S3Args { config, retention: count("etcd-s3-retention", values)?.unwrap_or(DEFAULT_RETENTION) }))
}

fn count(setting: &'static str, values: &Values) -> Result<Option<usize>, ConfigError> {
    let given = values.last(setting).filter(|value| !value.is_empty());
    let reason = "is not a number of snapshots";
    let read = |value: &str| {
        value.parse().map_err(|_| ConfigError::Value { setting, value: value.to_owned(), reason })
    };
    given.map(read).transpose()
}

fn snapshots(values: &Values, paths: &Paths) -> Result<SnapshotArgs, ConfigError> {
    let text = |key: &str| values.last(key).filter(|value| !value.is_empty()).map(str::to_owned);
    let schedule = text("etcd-snapshot-schedule-cron").unwrap_or_else(|| "0 */12 * * *".to_owned());
    if remuda_objects::cron::check(&schedule).is_err() {
        let (setting, reason) = ("etcd-snapshot-schedule-cron", "is not a schedule");
        return Err(ConfigError::Value { setting, value: schedule, reason });
    }
    let retention = count("etcd-snapshot-retention", values)?.unwrap_or(DEFAULT_RETENTION);
    Ok(SnapshotArgs {
        disabled: is_true(values, "etcd-disable-snapshots"),
        schedule,
        retention,
        directory: text("etcd-snapshot-dir").map_or_else(|| paths.snapshots(), |dir| paths.absolute(&dir)),
        name: text("etcd-snapshot-name").unwrap_or_else(|| "etcd-snapshot".to_owned()),
        s3: s3(values, paths)?,
    })
}

/// What the log says about settings without effect.
fn report(values: &Values) {
    for key in values.0.keys() {
        match flags::meaning(key) {
            flags::Meaning::Acted => {}
            flags::Meaning::Accepted => {
                info!(setting = %key, "setting has no effect in the sandbox distribution");
            }
            flags::Meaning::Unknown => warn!(setting = %key, "unknown setting is passed over"),
        }
    }
}

fn version(
    distribution: Distribution,
    paths: &Paths,
    values: &Values,
    env: &BTreeMap<String, String>,
) -> String {
    let file = paths.absolute(&format!("{}/sandbox-version", distribution.config_dir()));
    let written = std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
    let given = values.last("sandbox-version").map(str::to_owned);
    given
        .or_else(|| env.get(names::ENV_VERSION).cloned())
        .or(written)
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| distribution.default_version().to_owned())
}

fn secret_file(paths: &Paths, file: &str) -> Result<String, ConfigError> {
    let path = paths.absolute(file);
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read { path, source })?;
    Ok(text.trim().to_owned())
}

fn is_true(values: &Values, key: &str) -> bool {
    values
        .last(key)
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "true" | "1" | "t" | "yes"))
}

fn number(setting: &'static str, value: &str) -> Result<u16, ConfigError> {
    let reason = "is not a port";
    value.trim().parse().map_err(|_| ConfigError::Value { setting, value: value.to_owned(), reason })
}

/// Values that may also be given as one, separated by commas.
fn words(values: &[String]) -> impl Iterator<Item = String> {
    let words = values.iter().flat_map(|value| value.split(','));
    words.map(|word| word.trim().to_owned()).filter(|word| !word.is_empty())
}

fn labels(values: &[String]) -> BTreeMap<String, String> {
    let pair = |text: String| match text.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (text, String::new()),
    };
    words(values).map(pair).collect()
}

/// As with K3s, a node with a taint that is none does not start.
fn taints(values: &[String]) -> Result<BTreeSet<Taint>, ConfigError> {
    values.iter().filter(|text| !text.trim().is_empty()).map(|text| taint(text)).collect()
}

fn taint(text: &str) -> Result<Taint, ConfigError> {
    let known = |effect: &str| matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    let split = text.trim().rsplit_once(':').filter(|(rest, effect)| known(effect) && !rest.is_empty());
    let Some((rest, effect)) = split else {
        let reason = "is not key[=value]:effect with NoSchedule, PreferNoSchedule or NoExecute";
        return Err(ConfigError::Value { setting: "node-taint", value: text.to_owned(), reason });
    };
    let (key, value) = match rest.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned()).filter(|value| !value.is_empty())),
        None => (rest, None),
    };
    Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned() })
}

fn addresses(setting: &'static str, values: &Values) -> Result<Vec<IpAddr>, ConfigError> {
    let reason = "is not an IP address";
    words(values.all(setting))
        .map(|word| word.parse().map_err(|_| ConfigError::Value { setting, value: word.clone(), reason }))
        .collect()
}

fn component(args: &[String], paths: &Paths) -> Result<ComponentArgs, ConfigError> {
    let mut component = ComponentArgs::default();
    for arg in args {
        let Some((name, value)) = arg.split_once('=') else { continue };
        match name {
            "secure-port" => component.secure_port = Some(number("secure-port", value)?),
            "cert-dir" => component.cert_dir = Some(paths.absolute(value)),
            "tls-cert-file" => component.cert_file = Some(paths.absolute(value)),
            "tls-private-key-file" => component.key_file = Some(paths.absolute(value)),
            _ => {}
        }
    }
    Ok(component)
}

fn webhook(args: &[String], paths: &Paths) -> Result<Option<WebhookArgs>, ConfigError> {
    const CACHE: Duration = Duration::from_secs(120);
    let given = |name: &str| args.iter().rev().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='));
    let Some(config) = given("authentication-token-webhook-config-file").filter(|path| !path.is_empty())
    else {
        return Ok(None);
    };
    let cache = match given("authentication-token-webhook-cache-ttl") {
        None => CACHE,
        Some("0") => Duration::ZERO,
        Some(text) => {
            let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|ttl| ttl.try_into().ok());
            let setting = "authentication-token-webhook-cache-ttl";
            let reason = "is not a duration";
            parsed.ok_or(ConfigError::Value { setting, value: text.to_owned(), reason })?
        }
    };
    let version = given("authentication-token-webhook-version").unwrap_or("v1beta1").to_owned();
    if !["v1", "v1beta1"].contains(&version.as_str()) {
        let (setting, reason) = ("authentication-token-webhook-version", "is neither v1 nor v1beta1");
        return Err(ConfigError::Value { setting, value: version, reason });
    }
    Ok(Some(WebhookArgs { config: paths.absolute(config), cache, version }))
}

fn hostname() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "localhost".to_owned()).to_lowercase()
}

/// A DNS subdomain, as names of Nodes are.
fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Of snapshots of the schedule.
const DEFAULT_RETENTION: usize = 5;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds a program as a shell does.
pub fn find_program(name: &str, path: Option<&str>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| executable(path));
    }
    let path = path.unwrap_or(DEFAULT_PATH);
    path.split(':')
        .filter(|dir| !dir.is_empty())
        .map(|dir| Path::new(dir).join(name))
        .find(|path| executable(path))
}

#[cfg(test)]
mod tests;
