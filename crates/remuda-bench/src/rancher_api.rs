//! The list API at scale: pages of many Machines, the first use of an index and what it holds, schemas with many custom
//! resources, one change that is told to many sockets, and nodes of many clusters.

mod nodes;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use remuda_names::{capi::group, rancher::group::RKE};
use remuda_server::kubeconfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    http::{Target, Verb},
    process::{self, Server},
    table::{Outcome, Table},
};

pub(crate) const MACHINES: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines";
const CLUSTERS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters";
/// A page as a dashboard asks for it.
const PAGE: &str = "/v1/cluster.x-k8s.io.machines?filter=metadata.labels[pool]=p1&filter=metadata.name~m-\
                    &sort=metadata.labels[zone],-metadata.name&page=3&pagesize=100";
/// Until a server that was busy is not.
const SETTLES: Duration = Duration::from_secs(10);
/// For a change to reach every socket.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct RancherApiArguments {
    /// Machines to list
    #[arg(long, default_value_t = 20_000)]
    machines: usize,
    /// Custom resources beside those of the server
    #[arg(long, default_value_t = 200)]
    kinds: usize,
    /// Sockets that are told of a change
    #[arg(long, default_value_t = 1_000)]
    sockets: usize,
    /// Changes that are told to them
    #[arg(long, default_value_t = 10)]
    changes: usize,
    /// Seconds per measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Clusters whose nodes are mirrored, each with an agent of its own; none are measured if it is 0
    #[arg(long, default_value_t = 100)]
    clusters: usize,
    /// Nodes of each of them
    #[arg(long, default_value_t = 100)]
    nodes: usize,
}

pub(crate) async fn run(
    program: &Path,
    with: &[String],
    arguments: &RancherApiArguments,
) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let data = dir.path().join("data");
    let server = Server::start(program, &data, "127.0.0.1:0", with)?;
    let access = kubeconfig::read(&data.join(remuda_names::file::ADMIN_KUBECONFIG))?;
    let target = Arc::new(Target::new(&access)?);
    let mut table = Table::new(server.pid());
    table.note(&format!("ready after {} ms, {}", server.ready_after().as_millis(), table.memory()));

    // Controllers leave Machines of a paused cluster as they are: what is measured is the list.
    let mut connection = target.connect().await?;
    connection.call(Verb::Post, CLUSTERS, paused_cluster().to_string().into()).await?;
    let machines = arguments.machines;
    table.measure("create a Machine, 16 clients", create(&target, machines, MACHINES, machine)).await?;
    let span = Some(Duration::from_secs(arguments.seconds));
    table.note(&idle(server.pid(), arguments.seconds, "no client of the list API").await);
    let before = process::resident(server.pid());
    table.note(&format!("{machines} Machines, {}", table.memory()));
    table.measure("page of 100, first use", pages(&target, 1, None)).await?;
    let held = process::resident(server.pid()).saturating_sub(before);
    table.note(&format!("index: {} bytes resident per Machine", held / machines.max(1) as u64));
    for clients in [1, 8] {
        table.measure(&format!("page of 100, {clients} clients"), pages(&target, clients, span)).await?;
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    table.measure("create a definition", create(&target, arguments.kinds, definitions, definition)).await?;
    table.measure("schemas, first", get(&target, 1, None, "/v1/schemas")).await?;
    // Definitions that are new are looked at again for a moment.
    tokio::time::sleep(Duration::from_secs(3)).await;
    table.measure("schemas, warm", get(&target, 1, span, "/v1/schemas")).await?;
    let mut sockets = Sockets::open(&target, arguments.sockets).await?;
    table.note(&format!("{} sockets, {}", arguments.sockets, table.memory()));
    let name = format!("a change to {} sockets", arguments.sockets);
    table.measure(&name, sockets.tell(&target, arguments.changes)).await?;
    drop(sockets);
    table.note(&idle(server.pid(), arguments.seconds, "its clients are gone").await);
    table.note(&format!("at the end, {}", table.memory()));
    server.stop()?;
    if arguments.clusters > 0 {
        for note in nodes::measure(program, with, arguments).await? {
            table.note(&note);
        }
    }
    table.print();
    Ok(())
}

/// What a server costs while it is left alone.
async fn idle(pid: u32, seconds: u64, when: &str) -> String {
    // What was begun before comes to its end first.
    tokio::time::sleep(SETTLES).await;
    let (before, since) = (process::cpu(pid), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds.max(5))).await;
    let spent = process::cpu(pid).saturating_sub(before);
    let part = spent.as_secs_f64() / since.elapsed().as_secs_f64();
    format!("{when}: {:.2} % of a core", part * 100.0)
}

pub(crate) fn paused_cluster() -> Value {
    json!({
        "apiVersion": format!("{}/v1beta2", group::CORE), "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "default"},
        "spec": {
            "paused": true, "infrastructureRef": {"apiGroup": RKE, "kind": "Nothing", "name": "demo"},
        },
    })
}

pub(crate) fn machine(number: usize) -> Value {
    json!({
        "apiVersion": format!("{}/v1beta2", group::CORE), "kind": "Machine",
        "metadata": {
            "name": format!("m-{number:05}"), "namespace": "default",
            "labels": {"pool": format!("p{}", number % 2), "zone": format!("z{}", number % 7)},
        },
        "spec": {
            "clusterName": "demo", "bootstrap": {"dataSecretName": "x"},
            "infrastructureRef": {"apiGroup": RKE, "kind": "CustomMachine", "name": "x"},
        },
    })
}

fn definition(number: usize) -> Value {
    let (plural, kind) = (format!("things{number}"), format!("Thing{number}"));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.bench.example.org")},
        "spec": {
            "group": "bench.example.org", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

async fn create(
    target: &Arc<Target>,
    count: usize,
    path: &'static str,
    object: fn(usize) -> Value,
) -> anyhow::Result<Outcome> {
    let next = Arc::new(AtomicUsize::new(0));
    clients(target, 16, move || {
        let number = next.fetch_add(1, Relaxed);
        (number < count).then(|| (Verb::Post, path, object(number).to_string().into()))
    })
    .await
}

async fn pages(target: &Arc<Target>, count: usize, span: Option<Duration>) -> anyhow::Result<Outcome> {
    get(target, count, span, PAGE).await
}

/// The same answer again and again; once if there is no span.
async fn get(
    target: &Arc<Target>,
    count: usize,
    span: Option<Duration>,
    path: &'static str,
) -> anyhow::Result<Outcome> {
    let (until, asked) = (Instant::now() + span.unwrap_or_default(), Arc::new(AtomicUsize::new(0)));
    clients(target, count, move || {
        let is_first = asked.fetch_add(1, Relaxed) < count;
        (is_first || Instant::now() < until).then(|| (Verb::Get, path, Bytes::new()))
    })
    .await
}

/// Clients that send what they are given until there is no more.
async fn clients(
    target: &Arc<Target>,
    count: usize,
    next: impl Fn() -> Option<(Verb, &'static str, Bytes)> + Clone + Send + 'static,
) -> anyhow::Result<Outcome> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (target, next) = (target.clone(), next.clone());
        tasks.spawn(async move {
            let mut connection = target.connect().await?;
            let mut latencies = Vec::new();
            while let Some((verb, path, body)) = next() {
                let began = Instant::now();
                let answer = connection.call(verb, path, body).await?;
                latencies.push(began.elapsed());
                if path == PAGE && latencies.len() == 1 {
                    check(&answer)?;
                }
            }
            anyhow::Ok(latencies)
        });
    }
    let mut outcome = Outcome::default();
    while let Some(done) = tasks.join_next().await {
        outcome.latencies.extend(done??);
    }
    Ok(outcome)
}

/// A page that is not one would be fast.
fn check(answer: &[u8]) -> anyhow::Result<()> {
    let answer: Value = serde_json::from_slice(answer)?;
    match answer["data"].as_array().map(Vec::len) {
        Some(100) => Ok(()),
        rows => bail!("a page has {rows:?} rows of {}", answer["count"]),
    }
}

type Socket = WebSocketStream<TlsStream<tokio::net::TcpStream>>;

/// Sockets that are subscribed to Machines.
struct Sockets(Vec<Socket>);

impl Sockets {
    async fn open(target: &Arc<Target>, count: usize) -> anyhow::Result<Self> {
        let mut sockets = Vec::with_capacity(count);
        for _ in 0..count {
            let stream = target.stream().await?;
            let (mut socket, _) =
                client_async(format!("wss://{}/v1/subscribe", target.address()), stream).await?;
            let wish = json!({"resourceType": "cluster.x-k8s.io.machine"});
            socket.send(Message::text(wish.to_string())).await?;
            hear(&mut socket, "resource.start").await?;
            sockets.push(socket);
        }
        Ok(Self(sockets))
    }

    /// How long a change takes to every socket, from before it is written.
    async fn tell(&mut self, target: &Arc<Target>, changes: usize) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut connection = target.connect().await?;
        for number in 0..changes {
            let began = Instant::now();
            let patch = json!({"metadata": {"labels": {"told": number.to_string()}}}).to_string();
            connection.call(Verb::MergePatch, &format!("{MACHINES}/m-00001"), patch.into()).await?;
            let hearing = self.0.iter_mut().map(|socket| async move {
                hear(socket, "resource.change").await?;
                anyhow::Ok(began.elapsed())
            });
            outcome.latencies.extend(futures::future::try_join_all(hearing).await?);
        }
        Ok(outcome)
    }
}

/// Waits for a message of this name.
async fn hear(socket: &mut Socket, name: &str) -> anyhow::Result<()> {
    let hearing = async {
        while let Some(message) = socket.next().await {
            let Message::Text(text) = message? else { continue };
            let heard: Value = serde_json::from_str(&text)?;
            if heard["name"] == name {
                return Ok(());
            }
            if heard["name"] == "resource.error" {
                bail!("a subscription ended: {heard}");
            }
        }
        bail!("a socket was closed")
    };
    tokio::time::timeout(PATIENCE, hearing).await.with_context(|| format!("{name} was not told in time"))?
}
