//! Measures the program as a process: starts it on an empty directory and loads it over TLS.
//!
//! For the API, every client is a connection of its own and sends its next request when it has read the last
//! answer completely. Beside rates and latencies it reports the server's processor time per
//! operation, which is what remains comparable when the clients take most of the machine.

mod capi;
mod dashboard;
mod day2;
mod http;
mod load;
mod machines;
mod process;
mod provision;
mod rancher_api;
mod table;
mod tunnel;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use clap::Parser;
use remuda_server::kubeconfig;

use crate::{http::Target, load::Load, process::Server, table::Table};

#[derive(Parser)]
struct Arguments {
    /// The program to measure
    #[arg(long, default_value = "target/release/remuda")]
    server: PathBuf,
    /// Passed on to `remuda server`, for example --datastore=memory
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The API server
    Api(ApiArguments),
    /// The Cluster API controllers, with simulated machines
    Capi(capi::CapiArguments),
    /// The dashboard in a browser, with thousands of clusters and machines
    Dashboard(dashboard::DashboardArguments),
    /// Snapshots, restores and rotations of a cluster on local machines
    Day2(day2::Day2Arguments),
    /// Machines of a cloud, and kinds of drivers
    Machines(machines::MachinesArguments),
    /// The path from the Cluster people write to a Ready one
    Provision(provision::ProvisionArguments),
    /// Lists, schemas and changes of the list API
    RancherApi(rancher_api::RancherApiArguments),
    /// The proxy to a cluster behind its tunnel
    Tunnel(tunnel::TunnelArguments),
}

#[derive(clap::Args)]
struct ApiArguments {
    /// Objects to create, a third each by 1, 16 and 64 clients
    #[arg(long, default_value_t = 9_000)]
    objects: usize,
    /// Bytes in each object, about
    #[arg(long, default_value_t = 2_048)]
    size: usize,
    /// Seconds per measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Watches in the last measurement
    #[arg(long, default_value_t = 1_000)]
    watchers: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(arguments))
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { server, with, what } = arguments;
    match what {
        What::Api(arguments) => api(&server, &with, arguments).await,
        What::Capi(arguments) => capi::run(&server, &with, arguments).await,
        What::Dashboard(arguments) => dashboard::run(&server, &with, &arguments).await,
        What::Day2(arguments) => day2::run(&server, &with, &arguments),
        What::Machines(arguments) => machines::run(&server, &with, &arguments).await,
        What::Provision(arguments) => provision::run(&server, &with, &arguments).await,
        What::RancherApi(arguments) => rancher_api::run(&server, &with, &arguments).await,
        What::Tunnel(arguments) => tunnel::run(&server, &arguments).await,
    }
}

async fn api(program: &Path, with: &[String], arguments: ApiArguments) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let server = Server::start(program, &data, "127.0.0.1:0", with)?;
    let access = kubeconfig::read(&data.join(remuda_names::file::ADMIN_KUBECONFIG))?;
    let target = Arc::new(Target::new(&access)?);
    let mut table = Table::new(server.pid());
    table.note(&format!("ready after {} ms, {}", server.ready_after().as_millis(), table.memory()));

    let load = Load::prepare(target, arguments.size, arguments.seconds).await?;
    let third = arguments.objects / 3;
    for (number, clients) in [1, 16, 64].into_iter().enumerate() {
        let range = number * third..(number + 1) * third;
        table.measure(&format!("create, {clients} clients"), load.create(clients, range)).await?;
    }
    let objects = third * 3;
    table.note(&format!("{objects} objects, {}", table.memory()));
    for clients in [1, 16, 64] {
        table.measure(&format!("get, {clients} clients"), load.get(clients, objects)).await?;
    }
    table.measure("list, whole", load.list(None)).await?;
    table.measure("list, pages of 500", load.list(Some(500))).await?;
    for clients in [1, 16, 64] {
        table
            .measure(&format!("status merge patch, {clients} clients"), load.patch_status(clients, objects))
            .await?;
    }
    for clients in [1, 16, 64] {
        table.measure(&format!("server-side apply, {clients} clients"), load.apply(clients, objects)).await?;
    }
    for rate in [10, 50] {
        let name = format!("{} watchers, {rate} writes/s", arguments.watchers);
        table.measure(&name, load.watch(arguments.watchers, rate)).await?;
    }
    table.note(&format!("at the end, {}", table.memory()));
    table.print();
    server.stop()
}
