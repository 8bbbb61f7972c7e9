//! `remuda server`: starts the server and stays until told to stop.

use std::{future::Future, process, time::Duration};

use remuda_server::{
    Running, Server,
    config::{LogFormat, Options},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::{failure::Failure, local, log, output, settle, undumped};

/// What work that cannot be cut gets after the server has shut down.
const LINGER: Duration = Duration::from_millis(400);

pub(crate) fn run(options: Options) -> Result<(), Failure> {
    undumped::keep_memory();
    let options = options.with_file()?;
    let logging = options.logging();
    // First, so that what is wrong with the rest is told as all else is.
    log::init(&logging)?;
    let config = options.resolve()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let running = tokio::select! {
            started = Server::start_with(config, local::groups) => started.map_err(|error| Failure::new(&error, error.hint()))?,
            () = signals.stop() => return Ok(()),
        };
        if logging.format == LogFormat::Text {
            greet(&running);
        } else {
            first_user(&running);
        }
        stay(running, &mut signals).await
    });
    // Work on a disk that hangs does not keep the process.
    runtime.shutdown_timeout(LINGER);
    ended
}

/// One worker per core, and never fewer than two: a long computation must not stall the accept loop.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(2))
        .enable_all()
        .thread_name("remuda")
        .build()
        .map_err(|error| Failure::new(&error, None))
}

/// Who may log in, the first time a server starts: nothing else ever says the password.
pub(crate) fn first_user(running: &Running) {
    if let Some(first) = running.first_user() {
        if log::json::is_on() {
            let fields = [("username", first.username.as_str()), ("password", first.password.as_str())];
            return log::json::note(
                "first user; the password is told this once, change it at the first login",
                &fields,
            );
        }
        output::note(&format!("log in as {} with password {}", first.username, first.password));
        output::note("  it is shown this once; change it with the first login");
    }
}

fn greet(running: &Running) {
    first_user(running);
    output::line(&format!("remuda is ready at {}", running.url()));
    output::line(&format!("  export KUBECONFIG={}", running.kubeconfig().display()));
    output::line("  kubectl get namespaces");
}

pub(crate) async fn stay(mut running: Running, signals: &mut Signals) -> Result<(), Failure> {
    settle::soon();
    loop {
        tokio::select! {
            failed = running.failed() => {
                let failure = Failure::new(&failed, None);
                running.shutdown().await;
                return Err(failure);
            }
            told = signals.next() => match told {
                Told::Stop => break,
                Told::Reload => running.reload(),
            }
        }
    }
    info!("stopping");
    let finished = or_second_signal(running.shutdown(), signals).await;
    if !finished {
        warn!("told twice to stop: leaving at once");
        process::exit(130);
    }
    info!("stopped");
    Ok(())
}

async fn or_second_signal(shutdown: impl Future<Output = ()>, signals: &mut Signals) -> bool {
    tokio::select! {
        () = shutdown => true,
        () = signals.stop() => false,
    }
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(&error, None));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    pub(crate) async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
    }
}

#[derive(PartialEq, Eq)]
enum Told {
    Stop,
    Reload,
}
