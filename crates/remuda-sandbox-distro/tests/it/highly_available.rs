//! Several servers: on etcd where there is one, else one keeping the state for all.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_sandbox_distro::{
    Distribution, Role, Running, Settings,
    config::{EtcdChoice, find_program},
};
use serde_json::json;

use crate::world::{self, admin, agent, first, is_ready, server_config, settings, until};

/// A cluster whose members change may have nobody to decide for a moment, and says so.
async fn put(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    until(&format!("{name} is written"), async || {
        matches!(maps.get_opt(name).await, Ok(Some(_)))
            || maps.create(&Default::default(), &map).await.is_ok()
    })
    .await;
}

async fn has(client: &Client, name: &str) -> bool {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    matches!(maps.get_opt(name).await, Ok(Some(_)))
}

async fn node(client: &Client, name: &str) -> Node {
    let (nodes, mut found) = (Api::<Node>::all(client.clone()), None);
    until(&format!("{name} is read"), async || {
        found = nodes.get(name).await.ok();
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_etcd_further_servers_pass_requests_on() {
    let (root, other, third) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = first(root.path()).await;
    let url = format!("https://127.0.0.1:{}", server.supervisor_port);
    let mut config = server_config("cp-2");
    config.push(("server", url.as_str()));
    let second = world::start(settings(other.path(), Distribution::K3s, Role::Server, &config)).await;
    let client = admin(&second).await;
    for name in ["cp-1", "cp-2"] {
        until(&format!("{name} is ready"), async || is_ready(&client, name).await).await;
    }
    put(&client, "through-the-second").await;
    assert!(has(&admin(&server).await, "through-the-second").await);
    assert!(
        node(&client, "cp-2").await.annotations()["remuda.io/sandbox-datastore"].contains("not replicated")
    );
    // Agents may join through it, and it leaves when it is asked to.
    let worker = agent(third.path(), "worker", &second, &[]).await;
    until("the worker is ready", async || is_ready(&client, "worker").await).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let ask = json!({"metadata": {"annotations": {"etcd.k3s.cattle.io/remove": "true"}}});
    nodes.patch("cp-2", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
    until("the removal is answered", async || {
        node(&client, "cp-2").await.annotations().contains_key("etcd.k3s.cattle.io/removed-node-name")
    })
    .await;
    worker.shutdown().await;
    second.shutdown().await;
    server.shutdown().await;
}

/// The layout of pools with one role each: what plans ask the first server for is there without etcd too.
#[tokio::test(flavor = "multi_thread")]
async fn without_etcd_roles_may_be_split() {
    let roots: Vec<tempfile::TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut config = server_config("etcd-1");
    config.extend([
        ("cluster-init", "true"),
        ("disable-apiserver", "true"),
        ("disable-controller-manager", "true"),
        ("disable-scheduler", "true"),
    ]);
    let etcd = world::start(settings(roots[0].path(), Distribution::K3s, Role::Server, &config)).await;
    let name = std::fs::read_to_string(etcd.settings.paths.etcd().join("name")).unwrap();
    let url = format!("https://127.0.0.1:{}", etcd.supervisor_port);
    let ca = etcd.settings.paths.tls("server-ca.crt");
    let info = world::probe(&format!("{url}/db/info"), Some(ca), None).await.unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["members"][0]["name"], name.trim());

    let mut config = server_config("cp-1");
    config.extend([("server", url.as_str()), ("disable-etcd", "true")]);
    let control = world::start(settings(roots[1].path(), Distribution::K3s, Role::Server, &config)).await;
    let worker = agent(roots[2].path(), "worker-1", &control, &[]).await;
    let client = admin(&control).await;
    for name in ["etcd-1", "cp-1", "worker-1"] {
        until(&format!("{name} is ready"), async || is_ready(&client, name).await).await;
    }
    let role =
        |node: &Node, role: &str| node.labels().contains_key(&format!("node-role.kubernetes.io/{role}"));
    let (first, second) = (node(&client, "etcd-1").await, node(&client, "cp-1").await);
    assert!(role(&first, "etcd") && !role(&first, "control-plane"), "{:?}", first.labels());
    assert!(!role(&second, "etcd") && role(&second, "control-plane"), "{:?}", second.labels());
    assert!(!control.settings.paths.etcd().join("name").exists(), "it has no member");
    for running in [worker, control, etcd] {
        running.shutdown().await;
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn on_etcd(root: &Path, name: &str, server: Option<&Running>, more: &[(&str, &str)]) -> Settings {
    let url = server.map(|server| format!("https://127.0.0.1:{}", server.supervisor_port));
    let mut config = server_config(name);
    match &url {
        Some(url) => config.push(("server", url.as_str())),
        None => config.push(("cluster-init", "true")),
    }
    config.extend(more);
    let mut settings = settings(root, Distribution::K3s, Role::Server, &config);
    settings.etcd = EtcdChoice::Auto;
    settings.ports.etcd_client = free_port();
    settings.ports.etcd_peer = free_port();
    settings.ports.etcd_health = free_port();
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_share_an_etcd_and_outlive_each_other() {
    if find_program("etcd", None).is_none() {
        return eprintln!("SKIPPED: there is no etcd on this machine");
    }
    let roots: Vec<tempfile::TempDir> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = world::start(on_etcd(roots[0].path(), "cp-1", None, &[])).await;
    let two = world::start(on_etcd(roots[1].path(), "cp-2", Some(&one), &[])).await;
    let three = world::start(on_etcd(roots[2].path(), "cp-3", Some(&two), &[])).await;
    let client = admin(&three).await;
    for name in ["cp-1", "cp-2", "cp-3"] {
        until(&format!("{name} is ready"), async || is_ready(&client, name).await).await;
    }
    put(&client, "by-three").await;
    assert!(has(&admin(&one).await, "by-three").await);
    assert!(node(&client, "cp-2").await.annotations()["remuda.io/sandbox-datastore"].starts_with("etcd"));
    let health = format!("http://127.0.0.1:{}/health", two.settings.ports.etcd_health);
    assert!(world::probe(&health, None, None).await.unwrap().contains("true"));
    // A server without etcd uses that of the others.
    let four = world::start(on_etcd(roots[3].path(), "cp-4", Some(&one), &[("disable-etcd", "true")])).await;
    assert!(has(&admin(&four).await, "by-three").await);
    // The first server leaves as Rancher lets it: its member first.
    let nodes: Api<Node> = Api::all(client.clone());
    let ask = json!({"metadata": {"annotations": {"etcd.k3s.cattle.io/remove": "true"}}});
    until("the first server is asked to leave", async || {
        nodes.patch("cp-1", &PatchParams::default(), &Patch::Merge(&ask)).await.is_ok()
    })
    .await;
    until("the member is removed", async || {
        node(&client, "cp-1").await.annotations().contains_key("etcd.k3s.cattle.io/removed-node-name")
    })
    .await;
    tokio::time::timeout(std::time::Duration::from_secs(30), one.failed())
        .await
        .expect("the removed server ends");
    one.shutdown().await;
    until("its Node is deleted", async || match nodes.delete("cp-1", &Default::default()).await {
        Err(kube::Error::Api(status)) => status.code == 404,
        deleted => deleted.is_ok(),
    })
    .await;
    put(&client, "after").await;
    // A member comes back with what it had.
    let settings = two.settings.clone();
    two.shutdown().await;
    let two = world::start(settings).await;
    until("it has what was written meanwhile", async || has(&admin(&two).await, "after").await).await;
    for running in [four, three, two] {
        running.shutdown().await;
    }
}
