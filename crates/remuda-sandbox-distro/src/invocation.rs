//! The program: what the command line asks for.

use std::{collections::BTreeMap, ffi::OsString, io, path::PathBuf};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    StartError,
    config::{self, ConfigError, Role, Settings, Sources},
    distribution::Distribution,
    encryption,
    kubelet::exec::{ExecError, Plan},
    pki, reset, snapshot,
};

/// How the program was called.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Known from the name of the program; else a flag or the environment says it.
    pub distribution: Option<Distribution>,
    /// What follows `remuda node`, or the name `k3s` or `rke2`.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// This program, which starts the processes of Pods.
    pub program: Option<PathBuf>,
}

impl Invocation {
    /// From the process's own environment. `program` is how it was called (`argv[0]`).
    pub fn new(program: &str, args: impl IntoIterator<Item = OsString>) -> Invocation {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        Invocation {
            distribution: Distribution::of_program(program),
            args: args.into_iter().map(text).collect(),
            env: std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect(),
            program: std::env::current_exe().ok(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("unknown command {0:?}: expected server, agent or kubectl")]
    Command(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("start the node")]
    Start(#[from] StartError),
    #[error(transparent)]
    Exec(#[from] ExecError),
    #[error("set up the process")]
    Setup(#[source] io::Error),
    #[error("the node cannot go on")]
    Failed,
    #[error("{0} is not available in the sandbox distribution")]
    Unavailable(String),
    #[error(transparent)]
    Snapshot(#[from] snapshot::command::CommandError),
    #[error(transparent)]
    Encryption(#[from] encryption::command::CommandError),
    #[error("rotate the certificates")]
    Certificates(#[from] pki::PkiError),
    #[error("reset the cluster")]
    Reset(#[from] reset::ResetError),
    #[error("run kubectl")]
    Kubectl(#[source] io::Error),
}

impl Error {
    /// What the program exits with, if not with what errors are usually reported by.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            Error::Exec(error) => Some(error.exit_code()),
            _ => None,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Config(ConfigError::Incomplete { .. }) => {
                Some("set them in config.yaml, or as K3S_URL and K3S_TOKEN".to_owned())
            }
            Error::Unavailable(_) => {
                Some("preload a real installer image to have a real distribution".to_owned())
            }
            _ => None,
        }
    }
}

/// Does what was asked for. Servers and agents run until they are told to stop.
pub fn run(invocation: Invocation) -> Result<(), Error> {
    let Invocation { distribution, args, env, program } = invocation;
    let Some((command, rest)) = args.split_first() else { return Err(Error::Command(String::new())) };
    match command.as_str() {
        "server" => run_node(distribution, Role::Server, rest, env, program),
        "agent" => run_node(distribution, Role::Agent, rest, env, program),
        "pod-exec" => Err(Plan::parse(rest)?.run().into()),
        "kubectl" => kubectl(distribution.unwrap_or(Distribution::K3s), rest, &env),
        "--version" | "-v" | "version" => version(distribution.unwrap_or(Distribution::K3s), env),
        "etcd-snapshot" => Ok(snapshot::command::run(distribution.unwrap_or(Distribution::K3s), rest, env)?),
        "certificate" => certificate(distribution.unwrap_or(Distribution::K3s), rest, env),
        "secrets-encrypt" => {
            Ok(encryption::command::run(distribution.unwrap_or(Distribution::K3s), rest, env)?)
        }
        // K3s and RKE2 are also asked for these; nothing here has them yet.
        "token" | "ctr" | "crictl" | "check-config" => Err(Error::Unavailable(command.clone())),
        other => Err(Error::Command(other.to_owned())),
    }
}

/// Which distribution a node is of that was not called by its name.
fn of_flags(values: &config::Values, env: &BTreeMap<String, String>) -> Distribution {
    let named = values.last("distribution").and_then(Distribution::of_program);
    let version = env.get(remuda_names::node::ENV_VERSION).map(|version| Distribution::of(version));
    named.or(version).unwrap_or(Distribution::K3s)
}

fn run_node(
    distribution: Option<Distribution>,
    role: Role,
    args: &[String],
    env: BTreeMap<String, String>,
    program: Option<PathBuf>,
) -> Result<(), Error> {
    let (mut flags, left) = config::parse_flags(args);
    if let Some(word) = left.first() {
        return Err(Error::Command(word.clone()));
    }
    let distribution = distribution.unwrap_or_else(|| of_flags(&flags, &env));
    flags.0.remove("distribution");
    let mut settings = Settings::load(distribution, role, &Sources { flags, env: env.clone() })?;
    settings.launcher = program;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::Setup)?;
    // Everything runs on the runtime's threads, which live as long as the process: what is started
    // from one of them dies with it.
    if settings.reset.is_some() {
        return Ok(runtime.block_on(reset::run(&settings))?);
    }
    runtime.block_on(async { runtime.spawn(serve(settings, env)).await.unwrap_or(Err(Error::Failed)) })
}

async fn serve(settings: Settings, env: BTreeMap<String, String>) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Setup)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Setup)?;
    let stop = CancellationToken::new();
    let starting = crate::start(settings, &stop);
    tokio::pin!(starting);
    let running = tokio::select! {
        started = &mut starting => started?,
        () = asked(&mut terminate, &mut interrupt) => {
            stop.cancel();
            // A start that is told to stop ends by itself, or has got as far as running.
            match starting.await {
                Ok(running) => running.shutdown().await,
                Err(error) => info!(%error, "stopped while starting"),
            }
            return Ok(());
        }
    };
    notify(&env, "READY=1");
    let failed = tokio::select! {
        () = asked(&mut terminate, &mut interrupt) => false,
        () = running.failed() => true,
    };
    notify(&env, "STOPPING=1");
    running.shutdown().await;
    if failed { Err(Error::Failed) } else { Ok(()) }
}

async fn asked(terminate: &mut tokio::signal::unix::Signal, interrupt: &mut tokio::signal::unix::Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Tells the service manager, if there is one that wants to know.
fn notify(env: &BTreeMap<String, String>, state: &str) {
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    };
    let Some(path) = env.get("NOTIFY_SOCKET") else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}

/// `k3s kubectl …`: the real one, with the node's kubeconfig.
fn kubectl(distribution: Distribution, args: &[String], env: &BTreeMap<String, String>) -> Result<(), Error> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("kubectl");
    command.args(args);
    if !env.contains_key("KUBECONFIG") {
        command.env("KUBECONFIG", distribution.kubeconfig());
    }
    Err(Error::Kubectl(command.exec()))
}

/// `k3s certificate rotate`: what the server makes anew when it starts is removed.
fn certificate(
    distribution: Distribution,
    args: &[String],
    env: BTreeMap<String, String>,
) -> Result<(), Error> {
    let (mut flags, words) = config::parse_flags(args);
    if words.first().map(String::as_str) != Some("rotate") {
        return Err(Error::Unavailable(format!("certificate {}", words.join(" "))));
    }
    // `-s` is the server to join elsewhere; here it is a service. All are as quick as one.
    flags.0.remove("server");
    flags.0.remove("service");
    let settings = Settings::load(distribution, Role::Server, &Sources { flags, env })?;
    Ok(pki::remove_leaves(&settings.paths)?)
}

fn version(distribution: Distribution, env: BTreeMap<String, String>) -> Result<(), Error> {
    use std::io::Write;
    let sources = Sources { flags: config::Values::default(), env };
    let settings = Settings::load(distribution, Role::Server, &sources)?;
    let line =
        format!("{} version {} (remuda sandbox distribution)\n", distribution.name(), settings.version);
    io::stdout().write_all(line.as_bytes()).map_err(Error::Setup)
}
