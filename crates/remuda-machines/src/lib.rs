//! The machine provider: kinds of node drivers, jobs and their runner, credentials.
//!
//! A NodeDriver becomes three kinds ([`driver`](self)): what people write, what pools are made from, and the
//! machine itself. Each machine gets a Job, a process ([`job`]) that speaks to the driver and keeps what it knows
//! in the machine's state Secret ([`state`]). Where there is no Kubernetes to run Jobs, a runner of our own does.
//!
//! [`run`] runs all of it through a `kube::Client`.

mod condition;
pub mod conformance;
pub mod credential;
mod driver;
mod error;
mod flags;
pub mod host;
pub mod job;
mod kinds;
mod machine;
pub mod naming;
pub mod orphans;
mod runner;
mod seal;
pub mod state;
pub mod trust;

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use remuda_base::Backoff;
use remuda_control::{Chain, Ctx, Named, run_all};
use remuda_drivers::builtin::Registry;
use tokio_util::sync::CancellationToken;

pub use self::error::Error;
use self::{host::Host, seal::Seal};

/// The kind of the machine configurations of a driver.
pub fn config_kind(driver: &str) -> String {
    driver::kinds::Role::Config.kind(driver)
}

/// What of the provider's behaviour is a choice.
#[derive(Debug, Clone)]
pub struct Options {
    /// The drivers inside the program.
    pub drivers: Registry,
    /// Where jobs reach the API.
    pub server_url: String,
    /// The authority of the API's certificate, in PEM.
    pub server_ca: Option<String>,
    /// The server's data directory.
    pub data_dir: PathBuf,
    /// Whether Jobs of machines are run here, as processes.
    pub runner: bool,
    /// What is run for a Job, with `machine` and the Job's arguments; this program unless told otherwise.
    pub program: Option<PathBuf>,
    /// The image of Jobs, where Kubernetes runs them.
    pub image: String,
    /// Variables that jobs and their drivers get, such as those of proxies.
    pub environment: Vec<(String, String)>,
    /// Further variables of processes the runner starts.
    pub job_environment: Vec<(String, String)>,
    /// How many objects of one kind are reconciled at once.
    pub workers: usize,
    /// How many Jobs of one driver and credential run at once.
    pub concurrency: usize,
    /// How many processes the runner has at once.
    pub processes: usize,
    /// The first pause before a failed job is tried again; it doubles.
    pub retry: Duration,
    /// Drivers whose machines exist on the server's own host.
    pub drivers_of_host: Vec<String>,
}

impl Options {
    pub fn new(drivers: Registry, server_url: impl Into<String>, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            drivers,
            server_url: server_url.into(),
            server_ca: None,
            data_dir: data_dir.into(),
            runner: true,
            program: None,
            image: "remuda".to_owned(),
            environment: Vec::new(),
            job_environment: Vec::new(),
            workers: 8,
            concurrency: MOST,
            processes: processes_for(memory()),
            retry: Duration::from_secs(10),
            drivers_of_host: vec![remuda_names::sandbox::DRIVER.to_owned()],
        }
    }
}

/// Jobs at once, where nobody says otherwise. They wait for their provider most of the time, and who is asked too
/// often says so and is waited for.
const MOST: usize = 256;
/// And where memory is short: what a process takes, generously, and what can be spared.
const PROCESS: u64 = 24 << 20;
const LEAST: usize = 16;

fn processes_for(memory: Option<u64>) -> usize {
    let fit = memory.map_or(MOST as u64, |memory| memory / 2 / PROCESS);
    usize::try_from(fit).unwrap_or(MOST).clamp(LEAST, MOST)
}

/// Bytes this process and its children may have: those of the host, or of the container it is in.
fn memory() -> Option<u64> {
    let host = std::fs::read_to_string("/proc/meminfo").ok()?;
    let host = host.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let host = host.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.saturating_mul(1024);
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse::<u64>().ok());
    Some(container.map_or(host, |container| container.min(host)))
}

/// Runs everything until told to stop, and returns when its work has ended. Processes of jobs go on.
pub fn run(ctx: Arc<Ctx>, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    let options = Arc::new(options);
    let seal = Seal::new(ctx.clone());
    let host = Host::of(&options.data_dir).inspect_err(|error| {
        tracing::warn!(%error, "this host has no identity, so its machines cannot be told from those of others");
    });
    let host = host.ok().map(Arc::new);
    let mut controllers: Vec<Named> = vec![
        ("Builtin", Box::pin(ensure(ctx.clone(), options.clone(), stop.clone()))),
        ("NodeDriver", Box::pin(driver::run(ctx.clone(), options.clone(), stop.clone()))),
        (
            "Kinds",
            Box::pin(kinds::run(ctx.clone(), options.clone(), seal.clone(), host.clone(), stop.clone())),
        ),
    ];
    if options.runner {
        controllers.push(("Runner", Box::pin(runner::run(ctx, options, seal, host, stop))));
    }
    run_all(&[], controllers)
}

/// Makes the NodeDrivers of built-in drivers, as soon as that is possible.
async fn ensure(ctx: Arc<Ctx>, options: Arc<Options>, stop: CancellationToken) {
    let mut row = Backoff::new(Duration::from_millis(100), Duration::from_secs(30)).begin();
    while let Err(error) = driver::builtin::ensure(&ctx, &options.drivers).await {
        tracing::warn!(error = %Chain(&error), "built-in drivers cannot be listed yet");
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(row.delay()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_host_has_fewer_jobs_at_once() {
        assert_eq!(processes_for(None), 256);
        assert_eq!(processes_for(Some(64 << 30)), 256);
        assert_eq!(processes_for(Some(4 << 30)), 85);
        assert_eq!(processes_for(Some(256 << 20)), 16);
        assert!(memory().is_none_or(|memory| memory > 16 << 20));
    }
}
