//! A cluster behind a server: what its API costs through the proxy, compared with asking it directly.
//!
//! The cluster is another server of ours, the agent beside it the one that clusters run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use remuda_names::cluster_agent::{env, file};
use remuda_plan::sha256_hex;
use remuda_server::kubeconfig;
use serde_json::{Value, json};

use super::at;
use crate::{
    capi::say,
    http::{Connection, Target, Verb},
    process::Server,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Requests in a row the same way; then it is the other's turn.
const ROUND: usize = 50;
/// Runs of kubectl each way.
const RUNS: usize = 20;
/// What a small cluster has.
const NODES: usize = 5;
const NAMESPACE: &str = remuda_names::rancher::name::FLEET_DEFAULT;
const NAME: &str = "bench";
const AGENT_NAMESPACE: &str = remuda_names::rancher::name::SYSTEM;
const ACCOUNT: &str = "cattle";

/// A server with its own connection to it.
pub(crate) struct Place {
    server: Server,
    kubeconfig: PathBuf,
    url: String,
    ca: Vec<u8>,
    pub(crate) connection: Connection,
}

impl Place {
    pub(crate) async fn start(program: &Path, dir: &Path, with: &[String]) -> anyhow::Result<Place> {
        let server = Server::start(program, dir, "127.0.0.1:0", with)?;
        let kubeconfig = dir.join(remuda_names::file::ADMIN_KUBECONFIG);
        let access = kubeconfig::read(&kubeconfig)?;
        let connection = Target::new(&access)?.connect().await?;
        Ok(Place { server, kubeconfig, url: access.server, ca: access.ca, connection })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) async fn make(&mut self, path: &str, object: &Value) -> anyhow::Result<Value> {
        let answer = self.connection.call(Verb::Post, path, Bytes::from(object.to_string())).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Asks until there is a text at `pointer`.
    async fn text(&mut self, path: &str, pointer: &str) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            let answer = self.connection.call(Verb::Get, path, Bytes::new()).await.unwrap_or_default();
            let object: Value = serde_json::from_slice(&answer).unwrap_or_default();
            if let Some(text) =
                object.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
            {
                return Ok(text.to_owned());
            }
            if started.elapsed() > PATIENCE {
                bail!("{path} has no {pointer}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A process that ends when this is dropped.
pub(crate) struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) async fn run(program: &Path, requests: usize) -> anyhow::Result<()> {
    let dir = tempfile::tempdir().context("make a temporary directory")?;
    let mut management = Place::start(program, &dir.path().join("management"), &[]).await?;
    let without = ["--controllers=false".to_owned()];
    let mut cluster = Place::start(program, &dir.path().join("cluster"), &without).await?;
    for number in 0..NODES {
        cluster.make("/api/v1/nodes", &node(number)).await?;
    }
    let (id, token) = registered(&mut management, NAME).await?;
    let account = account(&mut cluster).await?;
    let _agent = agent(program, &dir.path().join("pod"), &management, &cluster, &account, &token)?;
    let prefix = format!("/k8s/clusters/{id}");
    let started = Instant::now();
    while let Err(error) =
        management.connection.call(Verb::Get, &format!("{prefix}/version"), Bytes::new()).await
    {
        if started.elapsed() > PATIENCE {
            return Err(error.context("the cluster does not connect"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let proxied = format!("{prefix}/api/v1/nodes?limit=500");
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    while direct.len() < requests {
        asked(&mut cluster.connection, "/api/v1/nodes?limit=500", &mut direct).await?;
        asked(&mut management.connection, &proxied, &mut through).await?;
    }
    direct.sort_unstable();
    through.sort_unstable();
    let millis = |times: &[Duration], part| at(times, part).as_secs_f64() * 1e3;
    say(&format!(
        "* list of {NODES} nodes on an open connection: direct p50 {:.2} ms, p99 {:.2}; proxied p50 {:.2} ms, \
         p99 {:.2}; {:.2} times as long",
        millis(&direct, 50),
        millis(&direct, 99),
        millis(&through, 50),
        millis(&through, 99),
        millis(&through, 50) / millis(&direct, 50)
    ));
    let lead = dir.path().join("proxied.kubeconfig");
    let text = fs::read_to_string(&management.kubeconfig)?;
    fs::write(&lead, text.replace(&management.url, &format!("{}{prefix}", management.url)))?;
    kubectl(dir.path(), &cluster.kubeconfig, &lead)
}

pub(crate) fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("node-{number}"), "labels": {"kubernetes.io/os": "linux"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

async fn asked(connection: &mut Connection, path: &str, times: &mut Vec<Duration>) -> anyhow::Result<()> {
    for _ in 0..ROUND {
        let since = Instant::now();
        connection.call(Verb::Get, path, Bytes::new()).await?;
        times.push(since.elapsed());
    }
    Ok(())
}

/// A cluster to be imported: the name of its management Cluster, and its registration token.
pub(crate) async fn registered(management: &mut Place, name: &str) -> anyhow::Result<(String, String)> {
    let path = format!("/apis/provisioning.cattle.io/v1/namespaces/{NAMESPACE}/clusters");
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": name}, "spec": {},
    });
    management.make(&path, &cluster).await?;
    let id = management.text(&format!("{path}/{name}"), "/status/clusterName").await?;
    let secret = format!("/api/v1/namespaces/{id}/secrets/crt-token-default-token");
    let token = management.text(&secret, "/data/token").await?;
    Ok((id, String::from_utf8(BASE64_STANDARD.decode(token)?)?))
}

/// The account of agents in a cluster: a token of it.
pub(crate) async fn account(cluster: &mut Place) -> anyhow::Result<String> {
    let meta = |name: &str| json!({"name": name});
    cluster.make("/api/v1/namespaces", &json!({"metadata": meta(AGENT_NAMESPACE)})).await?;
    let accounts = format!("/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts");
    cluster.make(&accounts, &json!({"metadata": meta(ACCOUNT)})).await?;
    let binding = json!({
        "metadata": meta("cattle-admin-binding"),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": AGENT_NAMESPACE}],
    });
    cluster.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await?;
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3600},
    });
    let issued = cluster.make(&format!("{accounts}/{ACCOUNT}/token"), &request).await?;
    let issued = issued.pointer("/status/token").and_then(Value::as_str).context("no token was issued")?;
    Ok(issued.to_owned())
}

/// Starts an agent in a directory that looks like its pod.
pub(crate) fn agent(
    program: &Path,
    pod: &Path,
    management: &Place,
    cluster: &Place,
    account: &str,
    token: &str,
) -> anyhow::Result<Agent> {
    let mounted = pod.join(file::SERVICE_ACCOUNT.trim_start_matches('/'));
    fs::create_dir_all(&mounted)?;
    fs::write(mounted.join("ca.crt"), &cluster.ca)?;
    fs::write(mounted.join("namespace"), AGENT_NAMESPACE)?;
    fs::write(mounted.join("token"), account)?;
    let address = cluster.url.strip_prefix("https://").context("not https")?;
    let (host, port) = address.rsplit_once(':').context("no port")?;
    let child = Command::new(program)
        .arg("cluster-agent")
        .env(env::SERVER, &management.url)
        .env(env::TOKEN, token)
        .env(env::CA_CHECKSUM, sha256_hex(&management.ca))
        .env(env::POD_ROOT, pod)
        .env(env::HEALTH_BIND, "off")
        .env(env::KUBERNETES_HOST, host)
        .env(env::KUBERNETES_PORT, port)
        .env(env::LOG_LEVEL, "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("start the cluster agent")?;
    Ok(Agent(child))
}

/// As a person does it.
fn kubectl(home: &Path, direct: &Path, through: &Path) -> anyhow::Result<()> {
    let nodes = |kubeconfig: &Path| {
        let since = Instant::now();
        let output = Command::new("kubectl")
            .args(["get", "nodes", "--kubeconfig"])
            .arg(kubeconfig)
            .env("HOME", home)
            .env_remove("KUBECONFIG")
            .output()?;
        if !output.status.success() {
            bail!("kubectl failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(since.elapsed())
    };
    // The first time it asks what there is; that is kept in its home.
    match nodes(direct).and_then(|_| nodes(through)) {
        Err(error) if error.downcast_ref::<std::io::Error>().is_some() => {
            say("* kubectl get nodes: not measured, there is no kubectl here");
            return Ok(());
        }
        other => drop(other?),
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        without.push(nodes(direct)?);
        with.push(nodes(through)?);
    }
    without.sort_unstable();
    with.sort_unstable();
    let (without, with) = (at(&without, 50).as_secs_f64() * 1e3, at(&with, 50).as_secs_f64() * 1e3);
    say(&format!(
        "* kubectl get nodes: direct {without:.0} ms, proxied {with:.0} ms, {:.2} times as long (wanted: at most 1.3)",
        with / without
    ));
    Ok(())
}
