//! A cluster whose nodes have roots and ports of their own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt};
use remuda_sandbox_distro::{
    Distribution, Role, Running, Settings,
    config::{EtcdChoice, Ports, Values},
    http::Peer,
    pki::Issued,
};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "server-secret";
pub(crate) const AGENT_TOKEN: &str = "agent-secret";

/// Polls until it is so. Real processes are involved, so time is real.
pub(crate) async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..1200 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never happened: {what}");
}

/// Settings of a node below a root, by config file.
pub(crate) fn settings(
    root: &Path,
    distribution: Distribution,
    role: Role,
    config: &[(&str, &str)],
) -> Settings {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in config {
        values.entry((*key).to_owned()).or_default().push((*value).to_owned());
    }
    let mut settings = Settings::from_values(distribution, role, root.to_owned(), &Values(values)).unwrap();
    settings.ports = Ports::any();
    settings.bind = Some([127, 0, 0, 1].into());
    settings.etcd = EtcdChoice::Never;
    settings
}

pub(crate) fn server_config(name: &str) -> Vec<(&str, &str)> {
    vec![("node-name", name), ("token", TOKEN), ("agent-token", AGENT_TOKEN)]
}

pub(crate) async fn start(settings: Settings) -> Running {
    remuda_sandbox_distro::start(settings, &CancellationToken::new()).await.unwrap()
}

/// The first server of a cluster.
pub(crate) async fn first(root: &Path) -> Running {
    let mut config = server_config("cp-1");
    config.push(("cluster-init", "true"));
    start(settings(root, Distribution::K3s, Role::Server, &config)).await
}

pub(crate) async fn agent(root: &Path, name: &str, server: &Running, more: &[(&str, &str)]) -> Running {
    let url = format!("https://127.0.0.1:{}", server.supervisor_port);
    let mut config = vec![("node-name", name), ("token", AGENT_TOKEN), ("server", url.as_str())];
    config.extend(more);
    start(settings(root, server.settings.distribution, Role::Agent, &config)).await
}

/// The administrator's client, from the kubeconfig on the node.
pub(crate) async fn admin(running: &Running) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(&running.settings.kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) async fn is_ready(client: &Client, name: &str) -> bool {
    let nodes: Api<Node> = Api::all(client.clone());
    let Ok(Some(node)) = nodes.get_opt(name).await else { return false };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) async fn pods(client: &Client, namespace: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.list(&Default::default()).await.unwrap().items
}

pub(crate) fn phase(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

pub(crate) fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) async fn ready_pods(client: &Client, namespace: &str) -> Vec<String> {
    pods(client, namespace).await.iter().filter(|pod| is_pod_ready(pod)).map(ResourceExt::name_any).collect()
}

/// Asks as a probe of a plan does: with the files it names.
pub(crate) async fn probe(
    url: &str,
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
) -> Result<String, String> {
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let ca = ca.as_ref().map(read);
    let identity = identity.map(|(cert, key)| Issued { cert: read(&cert), key: read(&key) });
    let tls = remuda_sandbox_distro::tls::client_config(ca.as_deref(), identity.as_ref()).unwrap();
    let answer = Peer { tls: Some(tls), basic: None }.get(url).await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
