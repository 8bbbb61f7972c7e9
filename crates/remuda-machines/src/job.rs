//! The process that makes or removes one server: `remuda machine …`.
//!
//! It is the only part that speaks to drivers, and it is started anew for each attempt, so a driver that crashes
//! or hangs takes nothing else with it. What it knows is in the machine's state Secret, which it reads first and
//! writes before and after every step: **an intent is recorded before anything outside is touched**, so whoever
//! comes after it, at whatever point it was killed, can go on or clean up from the record alone.
//!
//! Credentials reach it in variables and files, and leave it towards the driver and the state Secret only. Every
//! line it writes is scrubbed of them.

mod args;
mod create;
mod output;
mod remote;
mod remove;
mod userdata;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use kube::{
    Client,
    config::{
        AuthInfo, Cluster, Context as KubeContext, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use remuda_drivers::{
    builtin::{Context, Registry},
    driver::Driver,
    error::{Class, Error as DriverError},
    install::{self, Source},
    log::Log,
    secret::names_a_secret,
};
use remuda_names::{env as names, machines};

use self::remote::Remote;
pub use self::{
    args::{Action, Args, Create, Wrong},
    output::{Output, Result as JobResult},
};
use crate::state::{self, Machine, Store};

/// Where a job is.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Address of the API; without one it is that of the cluster the job runs in.
    pub server: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
    /// The server's data directory, where programs of drivers are kept.
    pub data_dir: PathBuf,
    /// A directory of the job's own.
    pub scratch: PathBuf,
    /// The only directory whose files flags may name, where the job is a process of somebody else's host.
    pub files: Option<PathBuf>,
    /// Where the last word goes.
    pub result_file: Option<PathBuf>,
    /// All variables, with the credentials among them.
    pub variables: BTreeMap<String, String>,
    pub pace: Pace,
}

/// How long servers are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two looks.
    pub poll: Duration,
    /// For a server to run, and again to let us log in.
    pub patience: Duration,
    /// For the script to end.
    pub script: Duration,
    /// For the API to take what is to be recorded.
    pub api: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(3),
            patience: Duration::from_secs(180),
            script: Duration::from_secs(20 * 60),
            api: Duration::from_secs(5 * 60),
        }
    }
}

impl Environment {
    /// That of this process, as the runner or Kubernetes set it up.
    pub fn from_env() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let variables: BTreeMap<String, String> = std::env::vars_os().filter_map(text).collect();
        let path = |name: &str| variables.get(name).filter(|text| !text.is_empty()).map(PathBuf::from);
        let home = path("HOME").unwrap_or_else(std::env::temp_dir);
        Self {
            server: variables.get(machines::env::SERVER).cloned(),
            ca_file: path(machines::env::CA_FILE),
            token_file: path(machines::env::TOKEN_FILE),
            data_dir: path(names::DATA_DIR).unwrap_or_else(|| home.clone()),
            scratch: path(machines::env::SCRATCH).unwrap_or_else(|| home.join(".remuda-machine")),
            files: path(machines::env::FILES),
            result_file: path(machines::env::RESULT_FILE).or_else(|| {
                let standard = PathBuf::from("/dev/termination-log");
                standard.exists().then_some(standard)
            }),
            variables,
            pace: Pace::default(),
        }
    }

    async fn client(&self) -> Result<Client, Failure> {
        let failed =
            |error: &dyn fmt::Display| Failure::new(Class::Network, format!("reach the API: {error}"));
        let Some(server) = &self.server else {
            let config = kube::Config::incluster().map_err(|error| failed(&error))?;
            return Client::try_from(config).map_err(|error| failed(&error));
        };
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let name = "remuda".to_owned();
        let kubeconfig = Kubeconfig {
            clusters: vec![NamedCluster {
                name: name.clone(),
                cluster: Some(Cluster {
                    server: Some(server.clone()),
                    certificate_authority: text(&self.ca_file),
                    ..Cluster::default()
                }),
                ..NamedCluster::default()
            }],
            auth_infos: vec![NamedAuthInfo {
                name: name.clone(),
                auth_info: Some(AuthInfo { token_file: text(&self.token_file), ..AuthInfo::default() }),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext {
                name: name.clone(),
                context: Some(KubeContext {
                    cluster: name.clone(),
                    user: Some(name.clone()),
                    ..KubeContext::default()
                }),
                ..NamedContext::default()
            }],
            current_context: Some(name),
            ..Kubeconfig::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| failed(&error))?;
        config.read_timeout = Some(Duration::from_secs(30));
        config.proxy_url = None;
        Client::try_from(config).map_err(|error| failed(&error))
    }
}

/// Why a job failed. The text holds no credential.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    class: Class,
    message: String,
    /// Nothing was made yet.
    before_creation: bool,
}

impl Failure {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), before_creation: false }
    }

    pub fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn before_creation(mut self) -> Self {
        self.before_creation = true;
        self
    }

    /// What the process ends with. [`code::AGAIN`] is tried again by the Job, the others are final.
    pub fn code(&self) -> u8 {
        match (self.class.is_transient(), self.before_creation) {
            (true, _) => code::AGAIN,
            (false, true) => code::BEFORE_CREATION,
            (false, false) => code::FAILED,
        }
    }

    /// The last word, with the class in front as [`class_of`] finds it.
    fn last_word(&self) -> String {
        format!("{}: {}", self.class, self.message)
    }
}

/// Exit codes.
pub mod code {
    /// Nothing that time would change.
    pub const FAILED: u8 = 1;
    /// The driver refused before anything was made.
    pub const BEFORE_CREATION: u8 = 3;
    /// The command line was wrong.
    pub const USAGE: u8 = 2;
    /// Worth another attempt.
    pub const AGAIN: u8 = 75;
}

/// The class of a failure by a job's last word, and the word without it.
pub fn class_of(last_word: &str) -> (Class, &str) {
    if let Some((name, rest)) = last_word.split_once(": ") {
        let class = Class::parse(name);
        if class.as_str() == name {
            return (class, rest);
        }
    }
    (remuda_drivers::error::classify(last_word), last_word)
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::new(error.class(), error.to_string())
    }
}

impl From<state::Error> for Failure {
    fn from(error: state::Error) -> Self {
        Self::new(Class::Other, remuda_control::Chain(&error).to_string())
    }
}

/// The whole process: reads the arguments after `machine`, works, and leaves its last word.
pub fn main<S: Into<String>>(arguments: impl IntoIterator<Item = S>, drivers: &Registry) -> ExitCode {
    let environment = Environment::from_env();
    main_with(arguments, drivers, environment)
}

/// As [`main`], somewhere else.
pub fn main_with<S: Into<String>>(
    arguments: impl IntoIterator<Item = S>,
    drivers: &Registry,
    environment: Environment,
) -> ExitCode {
    // A core dump would have everybody's credentials in it.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    let output = Arc::new(Output::default());
    let log = Log::new(output);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match (Args::parse(arguments), runtime) {
        (Err(wrong), _) => JobResult { code: code::USAGE, message: format!("other: {wrong}") },
        (_, Err(error)) => JobResult { code: code::AGAIN, message: format!("network: {error}") },
        (Ok(args), Ok(runtime)) => {
            let done = runtime.block_on(async {
                let client = environment.client().await?;
                run(&args, &environment, client, drivers, log.clone()).await
            });
            match done {
                Ok(()) => JobResult { code: 0, message: String::new() },
                Err(failure) => JobResult { code: failure.code(), message: failure.last_word() },
            }
        }
    };
    let outcome = JobResult { message: log.redactor().scrub(&outcome.message).into_owned(), ..outcome };
    if outcome.code != 0 {
        log.warn(&outcome.message);
    }
    if let Some(path) = &environment.result_file {
        let _ = outcome.write(path);
    }
    ExitCode::from(outcome.code)
}

/// Does what the arguments say.
pub async fn run(
    args: &Args,
    environment: &Environment,
    client: Client,
    drivers: &Registry,
    log: Log,
) -> Result<(), Failure> {
    for (name, value) in &environment.variables {
        if names_a_secret(name) {
            log.redactor().learn(value);
        }
    }
    let remote = Remote::new(client, args, environment.pace.api);
    let archive = remote.claim().await?;
    let store = Store::unpack(&environment.scratch.join("store"), &archive)?;
    let mut work = Work { args, environment, drivers, log, remote, store };
    let done = match &args.action {
        Action::Create(create) => work.create(create).await,
        Action::Remove { name } => work.remove(name).await,
    };
    let _ = std::fs::remove_dir_all(work.store.path());
    done
}

/// What a driver's program may take: nobody knows what it does, and it is not alone on this host.
const MOST_MEMORY: u64 = 4 << 30;
/// The same for a file it writes.
const LARGEST_FILE: u64 = 4 << 30;

/// Bounds this process, and with it the programs it starts. Not where a driver of ours makes machines of this host,
/// which would be bounded too.
fn bound() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    for (resource, most) in [(Resource::RLIMIT_DATA, MOST_MEMORY), (Resource::RLIMIT_FSIZE, LARGEST_FILE)] {
        if let Ok((_, hard)) = getrlimit(resource) {
            let _ = setrlimit(resource, most.min(hard), most.min(hard));
        }
    }
}

/// One attempt under way.
struct Work<'a> {
    args: &'a Args,
    environment: &'a Environment,
    drivers: &'a Registry,
    log: Log,
    remote: Remote,
    store: Store,
}

impl Work<'_> {
    async fn open(&self, driver: &str) -> Result<Arc<dyn Driver>, Failure> {
        if !self.drivers.has(driver) || !self.args.driver_url.is_empty() {
            bound();
        }
        let cache = self.environment.data_dir.join(machines::file::DRIVERS);
        let source = Source { url: &self.args.driver_url, checksum: &self.args.driver_hash, cache: &cache };
        let context = Context::new(self.log.clone());
        Ok(install::open(driver, source, self.drivers, self.for_driver(), context).await?)
    }

    /// Variables for the driver's own process: all but those that are ours.
    fn for_driver(&self) -> Vec<(String, String)> {
        let ours = |name: &str| name.starts_with(machines::env::PREFIX);
        let all = self.environment.variables.iter().filter(|(name, _)| !ours(name));
        all.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Records a machine, here and in its state Secret.
    async fn save(&self, name: &str, machine: &mut Machine, driver: &dyn Driver) -> Result<(), Failure> {
        machine.driver = driver.config().await?;
        self.record(name, machine).await
    }

    async fn record(&self, name: &str, machine: &Machine) -> Result<(), Failure> {
        self.store.save(name, machine)?;
        self.remote.save(Some(self.store.pack()?)).await
    }

    fn scratch(&self) -> &Path {
        &self.environment.scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_word_tells_its_class() {
        let failure = Failure::new(Class::Quota, "droplet limit: 3");
        assert_eq!(class_of(&failure.last_word()), (Class::Quota, "droplet limit: 3"));
        assert_eq!(class_of("dial tcp: connection refused").0, Class::Network);
        assert_eq!(failure.code(), code::AGAIN);
        assert_eq!(Failure::new(Class::Image, "").before_creation().code(), code::BEFORE_CREATION);
        assert_eq!(Failure::new(Class::Other, "").code(), code::FAILED);
    }
}
