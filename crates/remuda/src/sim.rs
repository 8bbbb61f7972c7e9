//! `remuda sim`: a simulated world on a running server.

mod provision;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use kube::{Client, Config};
use remuda_cli::Code;
use remuda_sim::{
    Failures, Latencies, Latency, Options,
    load::{After, LoadError, LoadOptions, LoadReport, Percentiles, Progress, Stage, run_load},
};
use tokio_util::sync::CancellationToken;

use crate::{
    command::{Format, Target},
    failure::Failure,
    output, serve,
};

#[derive(Subcommand)]
pub(crate) enum Sim {
    /// Provision simulated clusters on a running server and report how long they took
    #[command(
        after_help = "Providers and workload clusters run in this process; the server only sees objects and
an address on this machine. Nothing of it costs money, and nothing stays unless --keep is given.

Examples:
  remuda sim run                                  one cluster of 1 + 3 machines
  remuda sim run --clusters 1000 --workers 3      a thousand of them
  remuda sim run --clusters 10 --control-planes 3 --workers 500
  remuda sim run --latency 2s..30s --failures 0.05 --seed 7
  remuda sim run --clusters 100 --template-changes 10 --unreachable 0.4 --output json"
    )]
    Run(Box<Run>),
    /// Make provisioning Clusters on simulated servers and report how long they took to be ready
    #[command(
        after_help = "Servers, node agents and cluster agents run in this process and come to the server as real ones do;
provisioning, planner, tunnels and everything else are the server's own.

Examples:
  remuda sim provision                            one cluster of 1 + 3 machines
  remuda sim provision --clusters 300 --machines 4
  remuda sim provision --clusters 20 --servers 3 --machines 10 --latency 1s..10s --failures 0.05
  remuda sim provision --clusters 50 --idle 60 --config-change --output json"
    )]
    Provision(Box<provision::Provision>),
}

#[derive(Args)]
pub(crate) struct Run {
    /// How many clusters
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clusters: u32,
    /// Machines of each control plane
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    control_planes: u32,
    /// Worker machines of each cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    workers: u32,
    /// How long each step of a machine takes, or between what: 500ms, 2s..30s
    #[arg(long, default_value = "0s")]
    latency: Latency,
    /// Share of servers that never come up, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    failures: f64,
    /// The same seed gives the same world
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Then change this many templates, one after the other, and measure the first new machine
    #[arg(long, default_value_t = 0)]
    template_changes: u32,
    /// Then make this share of the workload clusters unreachable, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    unreachable: f64,
    /// Look at the settled clusters for so many seconds and count what is written
    #[arg(long, default_value_t = 0)]
    idle: u64,
    /// Leave the clusters there instead of deleting them
    #[arg(long)]
    keep: bool,
    /// Keep the clusters, and answer for them until interrupted
    #[arg(long, conflicts_with = "keep")]
    hold: bool,
    /// Namespace of the clusters; it is created if need be
    #[arg(long, short, default_value = "sim")]
    namespace: String,
    /// Clusters are called this and a number
    #[arg(long, default_value = "sim")]
    prefix: String,
    /// Where the workload clusters are served; the server must be able to reach it
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// How many clusters are being created at once
    #[arg(long, default_value_t = 16, value_name = "N")]
    parallel: usize,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 1800, value_name = "SECONDS")]
    timeout: u64,
    /// How to print the report
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    server: Target,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("not between 0 and 1".to_owned()) }
}

pub(crate) fn run(command: Sim) -> Result<(), Failure> {
    let runtime = serve::runtime()?;
    match command {
        Sim::Run(arguments) => runtime.block_on(load(*arguments)),
        Sim::Provision(arguments) => runtime.block_on(provision::run(*arguments)),
    }
}

async fn load(arguments: Run) -> Result<(), Failure> {
    let client = connect(&arguments.server).await?.0;
    let stop = CancellationToken::new();
    let bar = ProgressBar::new(0);
    let format = arguments.output;
    let options = LoadOptions {
        namespace: arguments.namespace,
        prefix: arguments.prefix,
        clusters: arguments.clusters,
        control_planes: arguments.control_planes,
        workers: arguments.workers,
        providers: Options {
            seed: arguments.seed,
            latencies: Latencies::all(arguments.latency),
            failures: Failures { create: arguments.failures, ..Failures::default() },
            ..Options::default()
        },
        listen: arguments.listen,
        parallel: arguments.parallel.max(1),
        patience: Duration::from_secs(arguments.timeout),
        idle: Duration::from_secs(arguments.idle),
        template_changes: arguments.template_changes,
        unreachable: arguments.unreachable,
        after: match (arguments.keep, arguments.hold) {
            (true, _) => After::Keep,
            (_, true) => After::Hold(Duration::from_secs(365 * 24 * 3600)),
            _ => After::Delete,
        },
        progress: Arc::new({
            let bar = bar.clone();
            move |progress| show(&bar, progress)
        }),
        stop: stop.clone(),
        ..LoadOptions::new(client)
    };
    let report = finish(run_load(options), &stop, &bar).await?;
    tell(format, serde_json::to_string_pretty(&report), || print(&report))?;
    all_gone(&report.left_behind)
}

/// Waits for a run; Ctrl-C ends it early.
async fn finish<R>(
    run: impl Future<Output = Result<R, LoadError>>,
    stop: &CancellationToken,
    bar: &ProgressBar,
) -> Result<R, Failure> {
    let mut running = std::pin::pin!(run);
    let report = tokio::select! {
        report = &mut running => report,
        _ = tokio::signal::ctrl_c() => {
            stop.cancel();
            running.await
        }
    };
    bar.finish_and_clear();
    report.map_err(|error| Failure::new(&error, None))
}

/// Prints a report, which is also JSON.
fn tell(format: Format, json: serde_json::Result<String>, print: impl FnOnce()) -> Result<(), Failure> {
    match format {
        Format::Json => output::line(&json.map_err(|error| Failure::new(&error, None))?),
        Format::Text => print(),
    }
    Ok(())
}

fn all_gone(left_behind: &[String]) -> Result<(), Failure> {
    match left_behind.len() {
        0 => Ok(()),
        count => Err(Failure {
            message: format!("{count} objects were left behind"),
            hint: Some("the report names them".to_owned()),
            code: Code::Other,
        }),
    }
}

async fn connect(target: &Target) -> Result<(Client, Config), Failure> {
    let located = target.global().locate()?;
    let mut config = remuda_cli::config(&located).await?;
    // A server under load may ask to come again.
    config.default_retry = true;
    let client = Client::try_from(config.clone()).map_err(|error| Failure::new(&error, None).at(&located))?;
    Ok((client, config))
}

fn show(bar: &ProgressBar, progress: Progress) {
    let what = match progress.stage {
        Stage::Install => "installing the simulated providers",
        Stage::Create => "clusters created",
        Stage::Provision => "machines running",
        Stage::Ready => "clusters ready",
        Stage::Idle => "looking at the settled clusters",
        Stage::ChangeTemplates => "templates changed",
        Stage::ChangeConfig => "clusters changed in place",
        Stage::CutOff => "workload clusters are unreachable",
        Stage::Hold => "answering for the clusters, Ctrl-C ends it",
        Stage::Delete => "clusters gone",
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {bar:30} {pos} of {len} {msg}") {
        bar.set_style(style);
    }
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(what);
}

fn print(report: &LoadReport) {
    output::line(&format!(
        "{} clusters with {} machines in {:.1} s (created in {:.1} s)",
        report.clusters, report.machines, report.provisioned_seconds, report.created_seconds
    ));
    times("cluster", &report.cluster);
    times("machine", &report.machine);
    if let Some(writes) = report.store_writes {
        output::line(&format!("writes          {writes}"));
    }
    output::line(&format!("workload calls  {}", report.workload_requests));
    if let (Some(seconds), Some(writes)) = (report.idle_seconds, report.idle_writes) {
        output::line(&format!("idle            {writes} writes in {seconds:.0} s"));
    }
    if let Some(change) = &report.template_change {
        times("first machine after a template change", change);
    }
    if let Some(change) = &report.template_change_while_unreachable {
        times(&format!("the same with {} clusters unreachable", report.unreachable), change);
    }
    if let Some(seconds) = report.deleted_seconds {
        output::line(&format!("deleted in {seconds:.1} s"));
    }
    for object in &report.left_behind {
        output::line(&format!("left behind: {object}"));
    }
}

fn times(what: &str, taken: &Percentiles) {
    output::line(&format!(
        "{what}: p50 {:.0} ms, p90 {:.0} ms, p99 {:.0} ms, max {:.0} ms",
        taken.p50, taken.p90, taken.p99, taken.max
    ));
}
