//! The child's side: a built-in driver as a plugin for docker-machine, rancher-machine or ourselves.

use std::{io::Write, process::ExitCode, sync::Arc};

use tokio::net::TcpListener;

use crate::{
    builtin::{Context, DIGITALOCEAN_API, Registry},
    driver::Driver,
    log::{Level, Log, LogSink},
    rpc::server::{Ended, HEARTBEAT, serve},
};

/// What the parent puts into the environment of a plugin.
#[derive(Debug, Clone)]
pub struct Handshake {
    /// `MACHINE_PLUGIN_TOKEN` was `42`.
    pub is_plugin: bool,
    /// `MACHINE_PLUGIN_DRIVER_NAME`.
    pub driver: String,
}

impl Handshake {
    pub fn from_env() -> Self {
        Self { is_plugin: read("MACHINE_PLUGIN_TOKEN") == "42", driver: read("MACHINE_PLUGIN_DRIVER_NAME") }
    }
}

/// A variable of this process.
fn read(name: &str) -> String {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Serves `driver` on a loopback port, which it prints first, until the parent is done with it.
pub async fn run(driver: Arc<dyn Driver>) -> ExitCode {
    let listener = match TcpListener::bind(("127.0.0.1", 0)).await {
        Ok(listener) => listener,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "listen on a loopback port: {error}");
            return ExitCode::FAILURE;
        }
    };
    let printed = listener.local_addr().and_then(|address| {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{address}")?;
        stdout.flush()
    });
    if printed.is_err() {
        return ExitCode::FAILURE;
    }
    match serve(driver, listener, HEARTBEAT).await {
        Ended::Closed => ExitCode::SUCCESS,
        Ended::Abandoned => ExitCode::FAILURE,
    }
}

/// The whole of a plugin program: serves the driver of that name, or if `name` is empty the one the parent asks
/// for, and ends when the parent is done with it.
pub fn serve_builtin(drivers: &Registry, name: &str) -> ExitCode {
    let handshake = Handshake::from_env();
    let name = if name.is_empty() { handshake.driver.as_str() } else { name };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (true, Ok(runtime)) = (handshake.is_plugin, runtime) else { return explain(name) };
    let api = read(DIGITALOCEAN_API);
    let context = Context::new(Log::new(Arc::new(ParentLog)))
        .with_variables(|name| (name == DIGITALOCEAN_API).then_some(api.as_str()));
    let Some(driver) = drivers.open(name, context) else {
        let _ = writeln!(std::io::stderr(), "there is no driver {name:?} in this program");
        return ExitCode::FAILURE;
    };
    runtime.block_on(run(driver))
}

/// Tells a person who started the plugin by hand what it is.
fn explain(name: &str) -> ExitCode {
    let name = if name.is_empty() { "this program" } else { name };
    let _ = writeln!(
        std::io::stderr(),
        "{name} is a machine driver plugin, started by the program that uses it.\nAPI version: 1"
    );
    ExitCode::FAILURE
}

/// Lines as the parent of a plugin reads them: progress on standard output, details on standard error.
#[derive(Debug, Default)]
pub struct ParentLog;

impl LogSink for ParentLog {
    fn line(&self, level: Level, text: &str) {
        let _ = match level {
            Level::Debug => writeln!(std::io::stderr(), "{text}"),
            Level::Info | Level::Warn => writeln!(std::io::stdout(), "{text}"),
        };
    }
}
