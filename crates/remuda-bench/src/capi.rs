//! The Cluster API controllers, on simulated machines that take no time.
//!
//! Providers and workload clusters run in this process, so what is measured of the server's process is the
//! server's alone.

use std::{
    net::TcpListener,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use remuda_sim::load::{After, LoadOptions, LoadReport, Percentiles, Progress, Stage, run_load};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::process::{self, Server};

#[derive(clap::Args)]
pub(crate) struct CapiArguments {
    /// Small clusters, of one control plane and three workers each
    #[arg(long, default_value_t = 1_000)]
    clusters: u32,
    /// Then large clusters, of three control planes
    #[arg(long, default_value_t = 10)]
    large: u32,
    /// Workers of each large cluster
    #[arg(long, default_value_t = 500)]
    large_workers: u32,
    /// Seconds to look at the settled clusters
    #[arg(long, default_value_t = 300)]
    idle: u64,
    /// Templates to change
    #[arg(long, default_value_t = 20)]
    template_changes: u32,
    /// Share of workload clusters that are then unreachable
    #[arg(long, default_value_t = 0.4)]
    unreachable: f64,
}

/// What the server's process had used when something began and ended.
#[derive(Default)]
struct Marks {
    idle: Option<(Instant, Duration)>,
    idle_share: Option<f64>,
}

#[allow(clippy::print_stdout, reason = "the output is the purpose")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

pub(crate) async fn run(program: &Path, with: &[String], arguments: CapiArguments) -> anyhow::Result<()> {
    let small = LoadSize { clusters: arguments.clusters, control_planes: 1, workers: 3 };
    population(program, with, &arguments, &small).await?;
    if arguments.large > 0 {
        let large =
            LoadSize { clusters: arguments.large, control_planes: 3, workers: arguments.large_workers };
        population(program, with, &arguments, &large).await?;
    }
    Ok(())
}

struct LoadSize {
    clusters: u32,
    control_planes: u32,
    workers: u32,
}

impl LoadSize {
    fn machines(&self) -> f64 {
        f64::from(self.clusters) * f64::from(self.control_planes + self.workers)
    }
}

async fn population(
    program: &Path,
    with: &[String],
    arguments: &CapiArguments,
    size: &LoadSize,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    // The server is restarted on the port its clients know.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let bind = format!("127.0.0.1:{port}");
    let server = Server::start(program, &data, &bind, with)?;
    let client = client(&data.join(remuda_names::file::ADMIN_KUBECONFIG)).await?;
    say(&format!("{} clusters × ({} + {})", size.clusters, size.control_planes, size.workers));

    let (held, mut holding) = watch::channel(false);
    let (stop, marks, pid) = (CancellationToken::new(), Arc::new(Mutex::new(Marks::default())), server.pid());
    let options = LoadOptions {
        clusters: size.clusters,
        control_planes: size.control_planes,
        workers: size.workers,
        idle: Duration::from_secs(arguments.idle),
        // Every change is waited for until its Machines are replaced, which for large clusters is a load of its own.
        template_changes: if size.workers > 10 { 1 } else { arguments.template_changes.min(size.clusters) },
        unreachable: arguments.unreachable,
        unreachable_for: Duration::from_secs(30),
        after: After::Hold(Duration::from_secs(3600)),
        stop: stop.clone(),
        progress: Arc::new({
            let marks = marks.clone();
            move |progress| note(pid, progress, &marks, &held)
        }),
        ..LoadOptions::new(client.clone())
    };
    let load = async { Ok::<_, anyhow::Error>(run_load(options).await?) };
    let restart = async {
        holding.wait_for(|held| *held).await.context("the load ended by itself")?;
        let memory = (process::resident(pid) >> 20, process::peak(pid) >> 20);
        all_reached(&client).await?;
        let before = settled(&client).await?;
        server.stop()?;
        let restarted = Instant::now();
        let server = Server::start(program, &data, &bind, with)?;
        let times = (server.ready_after(), caught_up(&client, restarted, size.machines()).await?);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let written = revision(&client).await?.saturating_sub(before);
        let objects = if written > 0 { written_since(&client, before).await? } else { Vec::new() };
        for object in objects.iter().take(20) {
            say(&format!("  written after the restart: {object}"));
        }
        stop.cancel();
        Ok((server, memory, times, written))
    };
    let (report, (server, (resident, peak), (ready, caught_up), written)) = tokio::try_join!(load, restart)?;
    print(&report, marks.lock().idle_share);
    say(&format!("* memory: {resident} MiB resident, {peak} MiB at most"));
    say(&format!(
        "* restart: serving after {:.2} s, controllers caught up after {:.2} s, {written} writes",
        ready.as_secs_f64(),
        caught_up.as_secs_f64()
    ));
    say("");
    server.stop()
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

pub(crate) async fn config(kubeconfig: &Path) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn note(pid: u32, progress: Progress, marks: &Mutex<Marks>, held: &watch::Sender<bool>) {
    match progress.stage {
        Stage::Idle => {
            let (now, used) = (Instant::now(), process::cpu(pid));
            let mut marks = marks.lock();
            let (since, before) = *marks.idle.get_or_insert((now, used));
            if progress.done == progress.total {
                let share = used.saturating_sub(before).as_secs_f64() / (now - since).as_secs_f64().max(1e-9);
                marks.idle_share = Some(share);
            }
        }
        Stage::Hold => drop(held.send_replace(true)),
        _ => {}
    }
}

async fn text(client: &Client, path: &str) -> anyhow::Result<String> {
    Ok(client.request_text(Request::get(path).body(Vec::new())?).await?)
}

/// Where the store is.
async fn revision(client: &Client) -> anyhow::Result<u64> {
    let list: serde_json::Value = serde_json::from_str(&text(client, "/api/v1/namespaces?limit=1").await?)?;
    list["metadata"]["resourceVersion"].as_str().unwrap_or_default().parse().context("resourceVersion")
}

const KINDS: [&str; 4] = ["clusters", "machinedeployments", "machinesets", "machines"];

async fn objects(client: &Client, kind: &str) -> anyhow::Result<Vec<serde_json::Value>> {
    let list = text(client, &format!("/apis/cluster.x-k8s.io/v1beta2/{kind}")).await?;
    let mut list: serde_json::Value = serde_json::from_str(&list)?;
    Ok(serde_json::from_value(list["items"].take())?)
}

/// Waits until every workload cluster is known to answer. Those that were cut off are looked for less and less often,
/// and before the last one is found nothing is settled, however quiet it is.
async fn all_reached(client: &Client) -> anyhow::Result<()> {
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(300) {
        let reached = |cluster: &serde_json::Value| {
            let conditions = cluster["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|condition| {
                condition["type"] == remuda_names::capi::condition::REMOTE_CONNECTION_PROBE
                    && condition["status"] == "True"
            })
        };
        if objects(client, "clusters").await?.iter().all(reached) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("a workload cluster that answers again was not found within five minutes")
}

/// Objects of the population that are newer than a revision.
async fn written_since(client: &Client, revision: u64) -> anyhow::Result<Vec<String>> {
    let mut written = Vec::new();
    for kind in KINDS {
        for object in objects(client, kind).await? {
            let metadata = &object["metadata"];
            let newer = metadata["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
            if newer.is_some_and(|newer| newer > revision) {
                written.push(format!("{kind} {}", metadata["name"].as_str().unwrap_or_default()));
            }
        }
    }
    Ok(written)
}

/// Where the store is once nothing has been written for a while.
async fn settled(client: &Client) -> anyhow::Result<u64> {
    let (mut last, mut still) = (revision(client).await?, 0);
    while still < 8 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = revision(client).await?;
        still = if now == last { still + 1 } else { 0 };
        last = now;
    }
    Ok(last)
}

/// When all queues were empty and nobody was at work, after as much work as there are machines.
async fn caught_up(client: &Client, since: Instant, machines: f64) -> anyhow::Result<Duration> {
    while since.elapsed() < Duration::from_secs(300) {
        if let Ok(metrics) = text(client, "/metrics").await {
            let sum = |name: &str| -> f64 {
                let lines = metrics.lines().filter(|line| line.starts_with(name));
                lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
            };
            let waiting = sum("workqueue_depth{") + sum("controller_runtime_active_workers{");
            if sum("workqueue_adds_total{") >= machines && waiting == 0.0 {
                return Ok(since.elapsed());
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the controllers did not catch up within five minutes")
}

fn print(report: &LoadReport, idle_share: Option<f64>) {
    let times = |taken: &Percentiles| {
        format!("p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms", taken.p50, taken.p99, taken.max)
    };
    say(&format!(
        "* {} machines running after {:.1} s; per cluster {}; per machine {}",
        report.machines,
        report.provisioned_seconds,
        times(&report.cluster),
        times(&report.machine)
    ));
    say(&format!("* {} writes on the way", report.store_writes.unwrap_or(0)));
    if let (Some(seconds), Some(writes)) = (report.idle_seconds, report.idle_writes) {
        let share = idle_share.unwrap_or(0.0) * 100.0;
        say(&format!("* settled for {seconds:.0} s: {share:.2} % of a core, {writes} writes"));
    }
    if let Some(taken) = &report.template_change {
        say(&format!("* first machine after a template change: {}", times(taken)));
    }
    if let Some(taken) = &report.template_change_while_unreachable {
        say(&format!("* the same with {} clusters unreachable: {}", report.unreachable, times(taken)));
    }
}
