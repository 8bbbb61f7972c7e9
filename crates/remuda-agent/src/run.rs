//! The daemon.

use std::{path::PathBuf, sync::Arc};

use remuda_names::agent::{env, path};
use tokio::{
    sync::{Mutex, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    apply::Engine,
    config::{Config, ConfigError, ConnectionInfo},
    environment::Environment,
    image::Images,
    kube::{ConnectError, Kube},
    local,
    probe::Prober,
    remote,
};

/// How to run the daemon.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Configuration file; `None` means `CATTLE_AGENT_CONFIG` or its default place.
    pub config: Option<PathBuf>,
    /// Never trust another authority than the kubeconfig's; `None` means `CATTLE_AGENT_STRICT_VERIFY`.
    pub strict: Option<bool>,
    /// Run without being root, where plans do not need it.
    pub allow_non_root: bool,
    /// The environment, also that of instructions.
    pub environment: Environment,
}

/// Why the daemon does not start. Once it runs, only its token ends it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Plans change what only root may change.
    #[error("the agent must run as root")]
    NotRoot,
    /// The configuration or the connection info is unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The connection info leads nowhere.
    #[error("connection info {}", path.display())]
    Connection {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ConnectError,
    },
    /// No level of that name.
    #[error("CATTLE_LOGLEVEL is {0:?}, expected error, warn, info, debug or trace")]
    LogLevel(String),
    /// There is no runtime to run on.
    #[error("start the runtime")]
    Runtime(#[source] std::io::Error),
}

/// The log level the environment asks for; `info` unless it says otherwise.
pub fn log_level(environment: &Environment) -> Result<tracing::Level, RunError> {
    let Some(name) = environment.get(env::LOG_LEVEL) else { return Ok(tracing::Level::INFO) };
    match name.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => Ok(tracing::Level::ERROR),
        "warn" | "warning" => Ok(tracing::Level::WARN),
        "info" => Ok(tracing::Level::INFO),
        "debug" => Ok(tracing::Level::DEBUG),
        "trace" => Ok(tracing::Level::TRACE),
        _ => Err(RunError::LogLevel(name.to_owned())),
    }
}

/// Runs the daemon until `stop` is cancelled.
pub async fn run(options: RunOptions, stop: CancellationToken) -> Result<(), RunError> {
    if !options.allow_non_root && !nix::unistd::geteuid().is_root() {
        return Err(RunError::NotRoot);
    }
    let environment = options.environment;
    let file = options.config.or_else(|| environment.get(env::CONFIG).map(PathBuf::from));
    let config = Config::load(&file.unwrap_or_else(|| PathBuf::from(path::CONFIG)))?;
    let strict = options.strict.unwrap_or_else(|| environment.is_true(env::STRICT_VERIFY));
    run_with(config, strict, environment, stop).await
}

/// Runs the daemon with a configuration that was read already.
pub async fn run_with(
    config: Config,
    strict: bool,
    environment: Environment,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let images = Images::new(&config, &environment);
    let bundle = environment.get("SSL_CERT_FILE").map(PathBuf::from);
    let mut tasks = JoinSet::new();
    let remote = config
        .remote_enabled
        .then(|| {
            let info = ConnectionInfo::load(&config.connection_info_file)?;
            let path = config.connection_info_file.clone();
            let kube = Kube::new(&info, strict, &environment);
            kube.map_err(|source| RunError::Connection { path, source })
        })
        .transpose()?;
    let directory = config.local_enabled.then(|| config.local_plan_directory.clone());
    tracing::info!(work = %config.work_directory.display(), remote = remote.is_some(), local = directory.is_some(), "agent starts");
    let remote = remote.map(Arc::new);
    let images = match &remote {
        Some(kube) => images.with_server(kube.clone()),
        None => images,
    };
    let engine = Arc::new(Mutex::new(Engine::new(config, environment, images)));
    if let Some(kube) = remote {
        let (sender, receiver) = watch::channel(None);
        let reconciler = remote::Reconciler::new(kube.clone(), engine.clone(), Prober::new(bundle.clone()));
        tasks.spawn(remote::watch(kube, sender, stop.clone()));
        tasks.spawn(reconciler.run(receiver, stop.clone()));
    }
    if let Some(directory) = directory {
        tasks.spawn(local::run(directory, engine, Prober::new(bundle), stop.clone()));
    }
    // The tasks end only when told to; one that panics takes the daemon with it, and the supervisor
    // starts it again from the journal.
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            stop.cancel();
            std::panic::resume_unwind(error.into_panic());
        }
    }
    tracing::info!("agent stopped");
    Ok(())
}

/// Runs the daemon on a runtime of its own, with one thread, until SIGINT or SIGTERM. A second signal
/// ends the process at once.
pub fn run_blocking(options: RunOptions) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(5))
        .build()
        .map_err(RunError::Runtime)?;
    let stop = CancellationToken::new();
    let result = runtime.block_on(async {
        let mut signals = JoinSet::new();
        signals.spawn(watch_signals(stop.clone()));
        run(options, stop).await
    });
    // An image that is being unpacked is unpacked again at the next start.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    result
}

/// Cancels `stop` at the first SIGINT or SIGTERM and ends the process at the second.
pub async fn watch_signals(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if stop.is_cancelled() {
            std::process::exit(1);
        }
        stop.cancel();
    }
}
