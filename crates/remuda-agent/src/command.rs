//! The agent's own command line.
//!
//! Read here and not by the program's parser: whatever runs at the start of a daemon stays in its memory.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
};

use remuda_names::cluster_agent::env as cattle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    environment::Environment,
    install::{InstallError, InstallOptions, Layout, Registration, Roles, install, uninstall},
    run::{RunError, RunOptions, run_blocking, watch_signals},
    snapshot::Which,
    supervise::{SuperviseOptions, supervise_blocking},
};

/// Name of the program this one takes the place of. Called by it, a program is the agent.
pub const NAME: &str = "rancher-system-agent";

/// What can be asked.
pub const HELP: &str = "\
The node agent: applies plans, runs probes, reports back.

Usage: remuda agent [COMMAND] [OPTIONS]

Commands:
  run        Run the agent (default; also: sentinel)
  install    Register this machine, install and start the agent
  uninstall  Remove the distribution its plans installed, the agent and everything it kept
  supervise  Keep the agent running where there is no service manager
  verify-snapshot [--newest] PATH
             Read a snapshot of etcd, or the newest in a directory, and say whether it is whole
  verify-snapshot --s3 CONFIG PATH
             The same for one in S3, which is put at PATH meanwhile; CONFIG is that of K3s or RKE2
  certificates DIR
             Say when the first certificate below the data directory of K3s or RKE2 ends
  version    Print the version

Options of run:
      --config FILE             Configuration file [env: CATTLE_AGENT_CONFIG]
      --strict                  Trust only the authority of the kubeconfig [env: CATTLE_AGENT_STRICT_VERIFY]
      --allow-non-root          Run without being root

Options of install:
  -s, --server URL              Server to register with; none for local plans only [env: CATTLE_SERVER]
  -t, --token TOKEN             Registration token [env: CATTLE_TOKEN]
  -c, --ca-checksum SHA256      Checksum of the server's authority [env: CATTLE_CA_CHECKSUM]
      --strict                  Trust only that authority [env: STRICT_VERIFY]
  -e, --etcd                    Take the etcd role
  -p, --controlplane            Take the control plane role
  -w, --worker                  Take the worker role
  -a, --all-roles               Take all roles
  -n, --node-name NAME          Name of the node
      --address ADDRESS         Address, network interface or cloud keyword
  -i, --internal-address ADDRESS  The same on the private network
  -l, --label KEY=VALUE         Label of the node, any number of times
      --taint KEY=VALUE:EFFECT  Taint of the node, any number of times
      --local                   Watch local plan files too
      --no-start                Do not start the agent

Options of uninstall:
      --keep-distribution       Leave K3s or RKE2 as it is
";

/// What was asked for.
#[derive(Debug)]
pub enum Command {
    /// Run the daemon.
    Run(RunOptions),
    /// Keep it running.
    Supervise(SuperviseOptions),
    /// Put it on this machine.
    Install(Box<InstallOptions>),
    /// Take it off again.
    Uninstall { layout: Layout, keep_distribution: bool },
    /// A snapshot is to be read, and what was found to be printed.
    VerifySnapshot(Which),
    /// When the first certificate below this data directory ends is to be printed.
    Certificates(PathBuf),
    /// The program's version is to be printed.
    Version,
    /// [`HELP`] is to be printed.
    Help,
}

/// Why nothing can be done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// No such command.
    #[error("unknown command {0:?}")]
    Command(String),
    /// No such option.
    #[error("unknown option {0:?}")]
    Option(String),
    /// An option without its value.
    #[error("option {0} needs a value")]
    Value(String),
    /// A value with an option that takes none.
    #[error("option {0} takes no value")]
    NoValue(String),
    /// Not text.
    #[error("{0:?} is not text")]
    Text(OsString),
    /// A server without a token.
    #[error("registering with a server needs a token")]
    Token,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The daemon did not start.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The agent was not installed or removed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The supervisor ended.
    #[error("supervise the agent")]
    Supervise(#[source] io::Error),
    /// There is no runtime to run on.
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
}

/// Whether a program called by this name is the agent.
pub fn is_agent(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    name.to_str().is_some_and(|name| name.starts_with(NAME))
}

/// Reads what follows `agent`, or the name of the program.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Environment,
) -> Result<Command, UsageError> {
    let mut words = Words { rest: Vec::new(), value: None };
    for argument in arguments {
        words.rest.push(argument.into_string().map_err(UsageError::Text)?);
    }
    words.rest.reverse();
    let command = match words.rest.last() {
        Some(word) if !word.starts_with('-') => words.rest.pop().unwrap_or_default(),
        _ => "run".to_owned(),
    };
    match command.as_str() {
        "run" | "sentinel" => run_options(&mut words, environment),
        "install" => install_options(&mut words, environment),
        "uninstall" => {
            let keep_distribution = words.rest.pop_if(|word| word == "--keep-distribution").is_some();
            words.nothing_else(Command::Uninstall { layout: Layout::of(&environment), keep_distribution })
        }
        "supervise" => {
            let options = InstallOptions::new(environment);
            let program = std::env::current_exe().unwrap_or(options.binary);
            let command = std::iter::once(program.into()).chain(options.run.into_iter().map(Into::into));
            let mut supervise = SuperviseOptions::new(command.collect(), options.layout.pid_file());
            supervise.log_file = Some(options.layout.log_file());
            words.nothing_else(Command::Supervise(supervise))
        }
        "verify-snapshot" => {
            let newest = words.rest.pop_if(|word| word == "--newest").is_some();
            let s3 = words.rest.pop_if(|word| word == "--s3").is_some();
            let mut path = |option: &str| {
                let path = words.rest.pop().filter(|word| !word.starts_with('-')).map(PathBuf::from);
                path.ok_or_else(|| UsageError::Value(option.to_owned()))
            };
            let config = if s3 { Some(path("--s3")?) } else { None };
            let path = path("verify-snapshot")?;
            let which = match config {
                Some(config) => Which::S3 { config, path },
                None if newest => Which::Newest(path),
                None => Which::File(path),
            };
            words.nothing_else(Command::VerifySnapshot(which))
        }
        "certificates" => {
            let path = words.rest.pop().filter(|word| !word.starts_with('-')).map(PathBuf::from);
            let path = path.ok_or_else(|| UsageError::Value("certificates".to_owned()))?;
            words.nothing_else(Command::Certificates(path))
        }
        "version" => words.nothing_else(Command::Version),
        "help" => Ok(Command::Help),
        other => Err(UsageError::Command(other.to_owned())),
    }
}

fn run_options(words: &mut Words, environment: Environment) -> Result<Command, UsageError> {
    let mut options = RunOptions { environment, ..RunOptions::default() };
    while let Some(option) = words.option()? {
        match option.as_str() {
            "--config" => options.config = Some(PathBuf::from(words.value(&option)?)),
            "--strict" => options.strict = Some(true),
            "--allow-non-root" => options.allow_non_root = true,
            _ => return words.common(&option),
        }
        words.used(&option)?;
    }
    Ok(Command::Run(options))
}

fn install_options(words: &mut Words, environment: Environment) -> Result<Command, UsageError> {
    let text = |name| environment.get(name).map(str::to_owned);
    let mut registration = Registration {
        server: text(cattle::SERVER).unwrap_or_default(),
        token: text(cattle::TOKEN).unwrap_or_default(),
        ca_checksum: text(cattle::CA_CHECKSUM),
        strict: environment.is_true(cattle::STRICT_VERIFY),
        ..Registration::default()
    };
    let mut options = InstallOptions::new(environment);
    while let Some(option) = words.option()? {
        let roles = &mut registration.roles;
        match option.as_str() {
            "-s" | "--server" => registration.server = words.value(&option)?,
            "-t" | "--token" => registration.token = words.value(&option)?,
            "-c" | "--ca-checksum" => registration.ca_checksum = Some(words.value(&option)?),
            "--strict" => registration.strict = true,
            "-e" | "--etcd" => roles.etcd = true,
            "-p" | "--controlplane" => roles.control_plane = true,
            "-w" | "--worker" => roles.worker = true,
            "-a" | "--all-roles" => *roles = Roles { etcd: true, control_plane: true, worker: true },
            "--no-roles" => *roles = Roles::default(),
            "-n" | "--node-name" => registration.node_name = words.value(&option)?,
            "--address" => registration.address = words.value(&option)?,
            "-i" | "--internal-address" => registration.internal_address = words.value(&option)?,
            "-l" | "--label" => registration.labels.push(words.value(&option)?),
            "--taint" | "--taints" => registration.taints.push(words.value(&option)?),
            "--local" => options.local = true,
            "--no-start" => options.start = false,
            _ => return words.common(&option),
        }
        words.used(&option)?;
    }
    if !registration.server.is_empty() {
        if registration.token.is_empty() {
            return Err(UsageError::Token);
        }
        options.registration = Some(registration);
    }
    Ok(Command::Install(Box::new(options)))
}

/// What is left of the command line.
struct Words {
    /// Backwards.
    rest: Vec<String>,
    /// Of an option written as `--option=value`.
    value: Option<String>,
}

impl Words {
    fn option(&mut self) -> Result<Option<String>, UsageError> {
        let Some(word) = self.rest.pop() else { return Ok(None) };
        if !word.starts_with('-') {
            return Err(UsageError::Option(word));
        }
        match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => {
                self.value = Some(value.to_owned());
                Ok(Some(option.to_owned()))
            }
            _ => Ok(Some(word)),
        }
    }

    fn value(&mut self, option: &str) -> Result<String, UsageError> {
        self.value.take().or_else(|| self.rest.pop()).ok_or_else(|| UsageError::Value(option.to_owned()))
    }

    /// After an option: its value must have been taken.
    fn used(&mut self, option: &str) -> Result<(), UsageError> {
        match self.value.take() {
            Some(_) => Err(UsageError::NoValue(option.to_owned())),
            None => Ok(()),
        }
    }

    /// Options every command has.
    fn common(&self, option: &str) -> Result<Command, UsageError> {
        match option {
            "-h" | "--help" => Ok(Command::Help),
            "-v" | "--version" => Ok(Command::Version),
            other => Err(UsageError::Option(other.to_owned())),
        }
    }

    fn nothing_else(&mut self, command: Command) -> Result<Command, UsageError> {
        match self.option()? {
            None => Ok(command),
            Some(option) => self.common(&option),
        }
    }
}

impl Command {
    /// Whether this goes on until it is stopped, and so what it writes is a log.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Command::Run(_) | Command::Supervise(_))
    }

    /// Does it. What is to be printed is the caller's business.
    pub fn execute(self) -> Result<(), CommandError> {
        match self {
            Command::Run(options) => Ok(run_blocking(options)?),
            Command::Supervise(options) => supervise_blocking(&options).map_err(CommandError::Supervise),
            Command::Install(options) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(CommandError::Runtime)?;
                runtime.block_on(async {
                    let stop = CancellationToken::new();
                    let mut signals = JoinSet::new();
                    signals.spawn(watch_signals(stop.clone()));
                    Ok(install(&options, &stop).await?)
                })
            }
            Command::Uninstall { layout, keep_distribution } => Ok(uninstall(&layout, keep_distribution)?),
            Command::VerifySnapshot(_) | Command::Certificates(_) | Command::Version | Command::Help => {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, UsageError> {
        let words = line.split_whitespace().map(OsString::from);
        parse(words, [("CATTLE_CA_CHECKSUM", "sum")].into_iter().collect())
    }

    #[test]
    fn the_daemon_runs_however_it_is_called() {
        for line in ["", "run", "sentinel", "--allow-non-root"] {
            assert!(matches!(read(line), Ok(Command::Run(_))), "{line}");
        }
        for line in ["run --config /c --strict", "--strict --config=/c"] {
            let Ok(Command::Run(options)) = read(line) else { panic!("{line}") };
            assert_eq!((options.config, options.strict), (Some("/c".into()), Some(true)));
        }
        for name in ["rancher-system-agent", "/usr/local/bin/rancher-system-agent-amd64"] {
            assert!(is_agent(OsStr::new(name)), "{name}");
        }
        assert!(!is_agent(OsStr::new("/opt/rancher-system-agent/remuda")));
    }

    #[test]
    fn a_machine_is_registered_as_the_install_script_does() {
        let line = "install -s https://x -t T --etcd --worker -n node --label a=b -l c=d --taint e=f:NoSchedule -i eth0";
        let Ok(Command::Install(options)) = read(line) else { panic!() };
        let registration = options.registration.unwrap();
        assert_eq!(registration.roles, Roles { etcd: true, control_plane: false, worker: true });
        assert_eq!(registration.labels, ["a=b", "c=d"]);
        assert_eq!(registration.taints, ["e=f:NoSchedule"]);
        assert_eq!(registration.ca_checksum.as_deref(), Some("sum"));
        assert_eq!(
            (registration.node_name.as_str(), registration.internal_address.as_str()),
            ("node", "eth0")
        );
        let Ok(Command::Install(options)) = read("install --local --no-start") else { panic!() };
        assert!(options.registration.is_none() && options.local && !options.start);
    }

    #[test]
    fn the_supervisor_runs_the_daemon_and_keeps_its_log_small() {
        let Ok(Command::Supervise(options)) = read("supervise") else { panic!() };
        assert_eq!(options.command[1..], ["agent", "run"]);
        assert!(options.pid_file.ends_with("supervisor.pid") && options.log_file.is_some());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, expected) in [
            ("walk", UsageError::Command("walk".into())),
            ("run now", UsageError::Option("now".into())),
            ("run --config", UsageError::Value("--config".into())),
            ("run --strict=yes", UsageError::NoValue("--strict".into())),
            ("uninstall --all", UsageError::Option("--all".into())),
            ("install --server https://x", UsageError::Token),
        ] {
            assert_eq!(read(line).unwrap_err(), expected, "{line}");
        }
        assert!(matches!(read("install --help"), Ok(Command::Help)));
        assert!(matches!(read("--version"), Ok(Command::Version)));
        assert!(matches!(read("version"), Ok(Command::Version)));
        assert!(
            matches!(read("certificates /d"), Ok(Command::Certificates(path)) if path == Path::new("/d"))
        );
        assert_eq!(read("certificates").unwrap_err(), UsageError::Value("certificates".into()));
    }
}
