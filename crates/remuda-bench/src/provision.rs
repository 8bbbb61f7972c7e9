//! From the Cluster people write to a Ready one: many of them on simulated servers, then a few on local machines.

mod local;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use kube::Client;
use parking_lot::Mutex;
use remuda_sim::{
    load::{After, Percentiles, Progress, Stage},
    provision::{ProvisionOptions, ServerDoor, run_provision},
};

use crate::{
    capi::{config, say},
    process::{self, Server},
};

#[derive(clap::Args)]
pub(crate) struct ProvisionArguments {
    /// Simulated clusters; none leaves them out
    #[arg(long, default_value_t = 300)]
    clusters: u32,
    /// Machines of each, one of them a server
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    machines: u32,
    /// Seconds to look at the settled simulated clusters
    #[arg(long, default_value_t = 30)]
    idle: u64,
    /// Only what runs on local machines
    #[arg(long)]
    up: bool,
    /// Nothing that runs on local machines
    #[arg(long, conflicts_with = "up")]
    no_up: bool,
}

pub(crate) async fn run(
    program: &Path,
    with: &[String],
    arguments: &ProvisionArguments,
) -> anyhow::Result<()> {
    say(&format!("load before measuring: {}", load()));
    if !arguments.up && arguments.clusters > 0 {
        simulated(program, with, arguments).await?;
    }
    if !arguments.no_up {
        local::run(program).await?;
    }
    Ok(())
}

/// Who else is at work here.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Says when another stage begins: all of them together take minutes.
fn stages() -> impl Fn(Progress) {
    let (began, last) = (Instant::now(), Mutex::new(None::<Stage>));
    move |progress| {
        let mut last = last.lock();
        if last.replace(progress.stage) != Some(progress.stage) {
            say(&format!("  {:.1} s: {:?}", began.elapsed().as_secs_f64(), progress.stage));
        }
    }
}

async fn simulated(program: &Path, with: &[String], arguments: &ProvisionArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let server = Server::start(program, &data, "127.0.0.1:0", with)?;
    let config = config(&data.join(remuda_names::file::ADMIN_KUBECONFIG)).await?;
    let door = ServerDoor::of(&config)?;
    let started = process::cpu(server.pid());
    let report = run_provision(ProvisionOptions {
        clusters: arguments.clusters,
        servers: 1,
        workers: arguments.machines.saturating_sub(1),
        patience: Duration::from_secs(1200),
        idle: Duration::from_secs(arguments.idle),
        config_change: true,
        after: After::Delete,
        progress: Arc::new(stages()),
        ..ProvisionOptions::new(Client::try_from(config)?, Arc::new(door))
    })
    .await?;
    let times = |taken: &Percentiles| {
        format!("p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms", taken.p50, taken.p99, taken.max)
    };
    say(&format!("{} simulated clusters × {} machines", arguments.clusters, arguments.machines));
    say(&format!(
        "* all ready after {:.1} s (wanted for 300 × 4: at most 120 s); per cluster {}; per machine {}",
        report.ready_seconds,
        times(&report.cluster),
        times(&report.machine)
    ));
    say(&format!(
        "* {} writes, {:.0} per cluster; {} requests through tunnels",
        report.store_writes.unwrap_or(0),
        report.writes_per_cluster.unwrap_or(0.0),
        report.workload_requests
    ));
    if let (Some(seconds), Some(writes)) = (report.idle_seconds, report.idle_writes) {
        say(&format!("* settled for {seconds:.0} s: {writes} writes"));
    }
    if let Some(change) = &report.config_change {
        say(&format!(
            "* configuration changed in place in {:.1} s: {} plans, {} machines replaced, {} writes",
            change.seconds,
            change.plans_changed,
            change.machines_replaced,
            change.store_writes.unwrap_or(0)
        ));
    }
    say(&format!(
        "* deleted in {:.1} s, {} objects left behind",
        report.deleted_seconds.unwrap_or(0.0),
        report.left_behind.len()
    ));
    say(&format!(
        "* server: {:.1} s of processor time, {} MiB resident, {} MiB at most",
        process::cpu(server.pid()).saturating_sub(started).as_secs_f64(),
        process::resident(server.pid()) >> 20,
        process::peak(server.pid()) >> 20
    ));
    for object in report.left_behind.iter().take(20) {
        say(&format!("  left behind: {object}"));
    }
    say("");
    server.stop()
}
