//! `remuda sim provision`: Clusters people write, on servers that do not exist.

use std::{sync::Arc, time::Duration};

use clap::Args;
use indicatif::ProgressBar;
use remuda_sim::{
    Failures, Latencies, Latency, Options,
    load::After,
    provision::{ProvisionOptions, ProvisionReport, ServerDoor, run_provision},
};
use tokio_util::sync::CancellationToken;

use super::{Target, all_gone, connect, finish, share, show, tell, times};
use crate::{command::Format, failure::Failure, output};

#[derive(Args)]
pub(crate) struct Provision {
    /// How many clusters
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clusters: u32,
    /// Machines of each cluster
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machines: u32,
    /// How many of them have etcd and the control plane
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    servers: u32,
    /// Version of K3s or RKE2
    #[arg(long, default_value = "v1.35.1+k3s1")]
    version: String,
    /// How long each step of a machine takes, or between what: 500ms, 2s..30s
    #[arg(long, default_value = "0s")]
    latency: Latency,
    /// Share of attempts to apply a plan that fail, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    failures: f64,
    /// The same seed gives the same world
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Look at the settled clusters for so many seconds and count what is written
    #[arg(long, default_value_t = 0)]
    idle: u64,
    /// Then give all clusters another configuration, in place
    #[arg(long)]
    config_change: bool,
    /// Leave the clusters there instead of deleting them
    #[arg(long)]
    keep: bool,
    /// Keep the clusters, and answer for them until interrupted
    #[arg(long, conflicts_with = "keep")]
    hold: bool,
    /// Namespace of the clusters; it is created if need be
    #[arg(long, short, default_value = "fleet-default")]
    namespace: String,
    /// Clusters are called this and a number
    #[arg(long, default_value = "sim")]
    prefix: String,
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

pub(super) async fn run(arguments: Provision) -> Result<(), Failure> {
    let (client, config) = connect(&arguments.server).await?;
    let door = ServerDoor::of(&config).map_err(|error| Failure::new(&error, None))?;
    let Some(workers) = arguments.machines.checked_sub(arguments.servers) else {
        return Err(Failure::usage(
            format!("{} machines cannot hold {} servers", arguments.machines, arguments.servers),
            Some("--servers counts into --machines".to_owned()),
        ));
    };
    let (stop, bar) = (CancellationToken::new(), ProgressBar::new(0));
    let options = ProvisionOptions {
        namespace: arguments.namespace,
        prefix: arguments.prefix,
        clusters: arguments.clusters,
        servers: arguments.servers,
        workers,
        version: arguments.version,
        world: Options {
            seed: arguments.seed,
            latencies: Latencies::all(arguments.latency),
            failures: Failures { apply: arguments.failures, ..Failures::default() },
            ..Options::default()
        },
        parallel: arguments.parallel.max(1),
        patience: Duration::from_secs(arguments.timeout),
        idle: Duration::from_secs(arguments.idle),
        config_change: arguments.config_change,
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
        ..ProvisionOptions::new(client, Arc::new(door))
    };
    let report = finish(run_provision(options), &stop, &bar).await?;
    tell(arguments.output, serde_json::to_string_pretty(&report), || print(&report))?;
    all_gone(&report.left_behind)
}

fn print(report: &ProvisionReport) {
    output::line(&format!(
        "{} clusters with {} machines ready in {:.1} s (created in {:.1} s)",
        report.clusters, report.machines, report.ready_seconds, report.created_seconds
    ));
    times("cluster", &report.cluster);
    times("machine", &report.machine);
    if let (Some(writes), Some(each)) = (report.store_writes, report.writes_per_cluster) {
        output::line(&format!("writes          {writes}, {each:.0} for each cluster"));
    }
    output::line(&format!("workload calls  {}", report.workload_requests));
    if let (Some(seconds), Some(writes)) = (report.idle_seconds, report.idle_writes) {
        output::line(&format!("idle            {writes} writes in {seconds:.0} s"));
    }
    if let Some(change) = &report.config_change {
        output::line(&format!(
            "config change   {:.1} s, {} plans changed, {} machines replaced",
            change.seconds, change.plans_changed, change.machines_replaced
        ));
    }
    if let Some(seconds) = report.deleted_seconds {
        output::line(&format!("deleted in {seconds:.1} s"));
    }
    for object in &report.left_behind {
        output::line(&format!("left behind: {object}"));
    }
}
