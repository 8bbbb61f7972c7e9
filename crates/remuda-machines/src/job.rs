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
pub(crate) mod confine;
mod create;
pub(crate) mod flags;
mod output;
mod power;
mod remote;
mod remove;
mod restart;
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
    install::{self, Program, Source},
    log::Log,
    plugin::Image,
    secret::names_a_secret,
    users,
};
use remuda_names::{env as names, machines};

pub use self::{
    args::{Action, Args, Create, Wrong},
    output::{Output, Result as JobResult},
};
use self::{output::LastWord, remote::Remote};
use crate::{
    host::Host,
    state::{self, Machine, Store},
};

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
    /// The only driver that may be used, where the job is one.
    pub driver: Option<String>,
    /// Where the last word goes.
    pub result_file: Option<PathBuf>,
    /// The host this job runs on, if its machine exists there.
    pub host: Option<Host>,
    /// All variables, with the credentials among them.
    pub variables: BTreeMap<String, String>,
    /// Whether the process becomes another user before it starts a driver's program.
    pub confines: bool,
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
            driver: variables.get(machines::env::DRIVER).cloned(),
            result_file: path(machines::env::RESULT_FILE).or_else(|| {
                let standard = PathBuf::from("/dev/termination-log");
                standard.exists().then_some(standard)
            }),
            host: variables.get(machines::env::HOST).and_then(|host| Host::parse(host)),
            variables,
            confines: users::is_host_root(),
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
                auth_info: Some(self.credentials().map_err(|error| failed(&error))?),
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

impl Environment {
    /// The token: where it is, or what it is if it cannot be read again later. It is good for longer than any job.
    fn credentials(&self) -> std::io::Result<AuthInfo> {
        let mut known = AuthInfo::default();
        match &self.token_file {
            Some(path) if self.confines => {
                known.token = Some(std::fs::read_to_string(path)?.trim().to_owned().into());
            }
            path => known.token_file = path.as_ref().map(|path| path.to_string_lossy().into_owned()),
        }
        Ok(known)
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
    let arguments = Args::parse(arguments);
    if let (Ok(args), Ok(runtime)) = (&arguments, &runtime)
        && let Action::Flags { driver } = &args.action
    {
        return runtime.block_on(flags::answer(args, &environment, drivers, driver));
    }
    let path = environment.result_file.as_ref();
    let word = path.and_then(|path| LastWord::at(path, environment.confines).ok());
    let outcome = match (arguments, runtime) {
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
    if let Some(word) = word {
        let _ = word.write(&outcome);
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
    let mut store = Store::unpack(&environment.scratch.join("store"), &archive)?;
    check_driver(args, environment, &store)?;
    let confined = match environment.confines {
        true => confine::enter(args, environment, drivers, Some(&store)).await?,
        false => None,
    };
    let (args, environment, program) = match &confined {
        Some(confined) => {
            store = Store::unpack(&confined.environment.scratch.join("store"), &archive)?;
            (&confined.args, &confined.environment, confined.program.as_ref())
        }
        None => (args, environment, None),
    };
    let mut work = Work { args, environment, drivers, program, log, remote, store };
    let done = match &args.action {
        Action::Create(create) => work.create(create).await,
        Action::Remove { name } => work.remove(name).await,
        Action::Restart { name } => work.restart(name).await,
        Action::Power { name, on } => work.power(name, *on).await,
        Action::Flags { .. } => Ok(()),
    };
    let _ = std::fs::remove_dir_all(work.store.path());
    if confined.is_some() {
        confine::leave(environment);
    }
    done
}

/// A record is in a Secret of the machine's namespace, and a user who may write there must not choose by it what acts
/// on
/// this host.
fn check_driver(args: &Args, environment: &Environment, store: &Store) -> Result<(), Failure> {
    let Some(expected) = &environment.driver else { return Ok(()) };
    let (name, driver) = match &args.action {
        Action::Create(create) => (&create.name, Some(create.driver.clone())),
        Action::Remove { name } | Action::Restart { name } | Action::Power { name, .. } => (name, None),
        Action::Flags { .. } => return Ok(()),
    };
    let recorded = store.load(name)?.map(|machine| machine.driver_name);
    match driver.into_iter().chain(recorded).find(|driver| !driver.eq_ignore_ascii_case(expected)) {
        Some(other) => {
            let message = format!(
                "machine {name} is of driver {expected:?}, and its state says {other:?}: the state was changed by somebody else"
            );
            Err(Failure::new(Class::Other, message))
        }
        None => Ok(()),
    }
}

/// Starts a driver, of this program or another. The latter is bounded.
async fn open(
    driver: &str,
    args: &Args,
    environment: &Environment,
    drivers: &Registry,
    program: Option<&(Program, Image)>,
    log: Log,
) -> Result<Arc<dyn Driver>, Failure> {
    if confine::is_program(driver, args, drivers) {
        confine::bound();
    }
    let variables = for_driver(environment);
    if let Some((program, image)) = program {
        return Ok(program.open_image(driver, variables, Some(image.clone()), log).await?);
    }
    let cache = environment.data_dir.join(machines::file::DRIVERS);
    let source = Source { url: &args.driver_url, checksum: &args.driver_hash, cache: &cache };
    Ok(install::open(driver, source, drivers, variables, Context::new(log)).await?)
}

/// Variables for the driver's own process: all but those that are ours.
fn for_driver(environment: &Environment) -> Vec<(String, String)> {
    let ours = |name: &str| name.starts_with(machines::env::PREFIX);
    let all = environment.variables.iter().filter(|(name, _)| !ours(name));
    all.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// One attempt under way.
struct Work<'a> {
    args: &'a Args,
    environment: &'a Environment,
    drivers: &'a Registry,
    /// The driver's program, where it was opened before this process became another user.
    program: Option<&'a (Program, Image)>,
    log: Log,
    remote: Remote,
    store: Store,
}

impl Work<'_> {
    async fn open(&self, driver: &str) -> Result<Arc<dyn Driver>, Failure> {
        open(driver, self.args, self.environment, self.drivers, self.program, self.log.clone()).await
    }

    /// Refuses a machine that exists on the host of another server: its driver would not find it here, and say that
    /// it is gone.
    fn check_host(&self, name: &str, machine: &Machine) -> Result<(), Failure> {
        match &machine.host {
            Some(host) if self.environment.host.as_ref().is_none_or(|here| here.id != host.id) => {
                let message = format!(
                    "machine {name} is on host {} (identity {}), and this job runs elsewhere",
                    host.name, host.id
                );
                Err(Failure::new(Class::Other, message))
            }
            _ => Ok(()),
        }
    }

    /// Records a machine, here and in its state Secret.
    async fn save(&self, name: &str, machine: &mut Machine, driver: &dyn Driver) -> Result<(), Failure> {
        machine.driver = driver.config().await?;
        self.record(name, machine).await
    }

    /// Records that the driver is about to make something, unless the machine is being deleted.
    async fn begin(&self, name: &str, machine: &mut Machine, driver: &dyn Driver) -> Result<(), Failure> {
        machine.driver = driver.config().await?;
        self.store.save(name, machine)?;
        self.remote.begin(self.store.pack()?).await
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
