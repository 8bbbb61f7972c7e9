//! Machines of a cloud, as a fake of its API has them: how long it takes to get many at once, and how soon a driver
//! has its kinds.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use remuda_drivers::fake::{self, Call, Fake, Reply, digitalocean::DigitalOcean};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::{
    capi::{config, say},
    process::{self, Server},
};

#[derive(clap::Args)]
pub(crate) struct MachinesArguments {
    /// Machines to create at once
    #[arg(long, default_value_t = 200)]
    machines: usize,
    /// Milliseconds each call of the cloud takes
    #[arg(long, default_value_t = 100)]
    latency: u64,
}

const NAMESPACE: &str = remuda_names::rancher::name::FLEET_DEFAULT;
const TOKEN: &str = "bench-token";
const PLUGIN: &str = "docker-machine-driver-digitalocean";
/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where the driver is downloaded from.
struct Downloads(Vec<u8>);

impl fake::Api for Downloads {
    fn handle(&self, call: &Call) -> Reply {
        match call.path == format!("/{PLUGIN}") {
            true => Reply::new(200, self.0.clone()),
            false => self.error(404, "not here"),
        }
    }

    fn error(&self, status: u16, code: &str) -> Reply {
        Reply::new(status, code.to_owned())
    }
}

pub(crate) async fn run(
    program: &Path,
    with: &[String],
    arguments: &MachinesArguments,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let server = Server::start(program, &data, "127.0.0.1:0", with)?;
    let client = Client::try_from(config(&data.join(remuda_names::file::ADMIN_KUBECONFIG)).await?)?;
    let cloud = Fake::start(DigitalOcean::new(TOKEN).with_page(1000)).await?;
    cloud.latency(Duration::from_millis(arguments.latency));
    kinds(&client, program).await?;
    create(&client, &server, &cloud, arguments).await?;
    server.stop()
}

fn api(client: &Client, group: &str, version: &str, kind: &str, namespaced: bool) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespaced {
        true => Api::namespaced_with(client.clone(), NAMESPACE, &resource),
        false => Api::all_with(client.clone(), &resource),
    }
}

async fn until<F: AsyncFnMut() -> anyhow::Result<bool>>(what: &str, mut done: F) -> anyhow::Result<()> {
    let began = Instant::now();
    while !done().await? {
        if began.elapsed() > PATIENCE {
            bail!("{what} did not happen within {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// From putting a driver into use to its kinds: built in, and a plugin that has to be downloaded.
async fn kinds(client: &Client, program: &Path) -> anyhow::Result<()> {
    let drivers = api(client, remuda_names::rancher::group::MANAGEMENT, "v3", "NodeDriver", false);
    until("the list of drivers", async || Ok(drivers.get_opt("amazonec2").await?.is_some())).await?;
    let binary = std::fs::read(program).context("read the program")?;
    let size = binary.len() >> 20;
    let web = Fake::start(Downloads(binary)).await?;
    let alone = download(&web.authority()).await?;
    let plugin = json!({"active": true, "builtin": false, "url": format!("{}/{PLUGIN}", web.url())});
    for (driver, spec, kind, what) in [
        ("amazonec2", json!({"active": true}), "Amazonec2Config", "built in".to_owned()),
        (
            "digitalocean",
            plugin,
            "DigitaloceanConfig",
            format!(
                "a plugin of {size} MiB, with its download, which alone takes {:.2} s",
                alone.as_secs_f64()
            ),
        ),
    ] {
        let configs = api(client, remuda_names::rancher::group::MACHINE_CONFIG, "v1", kind, true);
        let began = Instant::now();
        drivers.patch(driver, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        until("the kinds of a driver", async || Ok(configs.list(&ListParams::default()).await.is_ok()))
            .await?;
        say(&format!(
            "* kinds of a driver, {what}: {:.2} s (wanted: at most 1 s after the download)",
            began.elapsed().as_secs_f64()
        ));
    }
    // Machines are made without it: what is measured is the path of every built-in driver.
    let built_in = json!({"spec": {"builtin": true, "url": "local://"}});
    drivers.patch("digitalocean", &PatchParams::default(), &Patch::Merge(built_in)).await?;
    Ok(())
}

/// How long the plugin takes to come over the wire.
async fn download(authority: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut stream = tokio::net::TcpStream::connect(authority).await?;
    let request = format!("GET /{PLUGIN} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(began.elapsed())
}

fn object(value: Value) -> anyhow::Result<DynamicObject> {
    Ok(serde_json::from_value(value)?)
}

async fn create(
    client: &Client,
    server: &Server,
    cloud: &Fake<DigitalOcean>,
    arguments: &MachinesArguments,
) -> anyhow::Result<()> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(client.clone(), remuda_names::rancher::name::GLOBAL_DATA);
    let secret = json!({
        "metadata": {"name": "cc-bench"},
        "stringData": {
            "digitaloceancredentialConfig-accessToken": TOKEN,
            "digitaloceancredentialConfig-apiUrl": cloud.url(),
        },
    });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let configs = api(client, remuda_names::rancher::group::MACHINE_CONFIG, "v1", "DigitaloceanConfig", true);
    let config = json!({
        "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig",
        "metadata": {"name": "nc-bench"}, "size": "s-1vcpu-1gb", "region": "nyc3",
    });
    configs.create(&PostParams::default(), &object(config)?).await?;
    let clusters = api(client, remuda_names::rancher::group::PROVISIONING, "v1", "Cluster", true);
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": "bench"},
        "spec": {
            "kubernetesVersion": "v1.35.1+k3s1",
            "cloudCredentialSecretName": "cattle-global-data:cc-bench",
            "rkeConfig": {"machinePools": [{
                "name": "all", "quantity": arguments.machines, "etcdRole": true, "controlPlaneRole": true,
                "workerRole": true, "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "nc-bench"},
            }]},
        },
    });
    let machines = api(client, remuda_names::rancher::group::MACHINE, "v1", "DigitaloceanMachine", true);
    let (cpu, of_jobs) = (process::cpu(server.pid()), process::cpu_of_children(server.pid()));
    let began = Instant::now();
    clusters.create(&PostParams::default(), &object(cluster)?).await?;
    let (mut threads, mut jobs, mut there) = (0, 0, None);
    until("all servers", async || {
        threads = threads.max(process::threads(server.pid()));
        jobs = jobs.max(process::children(server.pid()));
        if there.is_none() && cloud.api.droplets().len() >= arguments.machines {
            there = Some(began.elapsed());
        }
        let list = machines.list(&ListParams::default()).await?;
        let made = list.items.iter().filter(|machine| is_made(machine)).count();
        tokio::time::sleep(Duration::from_millis(190)).await;
        Ok(made >= arguments.machines)
    })
    .await?;
    say(&format!(
        "* {} machines of a cloud with {} ms per call: all are there after {:.1} s (wanted for 200 at 100 ms: at most \
         30 s), and all Machines say so after {:.1} s; {} calls, {jobs} jobs at once at most, {:.1} s of \
         processor time in jobs; server: {:.1} s of processor time, {} MiB at most, {threads} threads at most",
        arguments.machines,
        arguments.latency,
        there.unwrap_or_else(|| began.elapsed()).as_secs_f64(),
        began.elapsed().as_secs_f64(),
        cloud.calls().len(),
        process::cpu_of_children(server.pid()).saturating_sub(of_jobs).as_secs_f64(),
        process::cpu(server.pid()).saturating_sub(cpu).as_secs_f64(),
        process::peak(server.pid()) >> 20,
    ));
    let began = Instant::now();
    clusters.delete("bench", &Default::default()).await?;
    until("the end of the cluster", async || {
        tokio::time::sleep(Duration::from_millis(190)).await;
        Ok(clusters.get_opt("bench").await?.is_none())
    })
    .await?;
    let left = cloud.api.resources();
    say(&format!(
        "* removed in {:.1} s, {} things left at the cloud",
        began.elapsed().as_secs_f64(),
        left.len()
    ));
    if !left.is_empty() {
        bail!("left at the cloud: {left:?}");
    }
    Ok(())
}

fn is_made(machine: &DynamicObject) -> bool {
    let conditions = machine.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.is_some_and(|conditions| {
        conditions
            .iter()
            .any(|one| one["type"] == remuda_names::rancher::condition::CREATE_JOB && one["status"] == "True")
    })
}
