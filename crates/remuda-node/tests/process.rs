//! A node as a process of its own: killed without warning, stopped, and what its pods leave behind.
//!
//! This program is also the node: called with `node …` it does what `remuda node …` does.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use remuda_node::Invocation;
use serde_json::json;

fn main() {
    let mut args = std::env::args_os();
    let program = args.next().unwrap().to_string_lossy().into_owned();
    if args.next().is_some_and(|word| word == "node") {
        if let Err(error) = remuda_node::run(Invocation::new(&program, args)) {
            eprintln!("{}", remuda_control::Chain(&error));
            std::process::exit(1);
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(a_killed_node_comes_back_and_leaves_no_process());
    eprintln!("test a_killed_node_comes_back_and_leaves_no_process ... ok");
}

/// Does not outlive a test that fails.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(root: &Path, port: u16) -> Node {
    let any = |name: &str| (format!("REMUDA_NODE_PORT_{name}"), "0".to_owned());
    let ports = ["ETCD_HEALTH", "KUBELET_HEALTH", "CONTROLLER_MANAGER", "SCHEDULER"].map(any);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["node", "server", "--node-name", "n", "--node-ip", "127.0.0.1", "--token", "secret"])
        .env("REMUDA_NODE_ROOT", root)
        .env("REMUDA_NODE_ETCD", "off")
        .envs(ports)
        .env("REMUDA_NODE_PORT_API", port.to_string())
        .stdin(Stdio::null());
    Node(command.spawn().unwrap())
}

async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    let started = Instant::now();
    while !so().await {
        assert!(started.elapsed() < Duration::from_secs(60), "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn client(root: &Path) -> Option<Client> {
    let kubeconfig = kube::config::Kubeconfig::read_from(root.join("etc/rancher/k3s/k3s.yaml")).ok()?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.ok()?;
    config.default_retry = false;
    Client::try_from(config).ok()
}

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// The process of the pod, as it wrote it down itself.
async fn pid_of(file: &Path) -> i32 {
    let mut pid = 0;
    until("the pod's process runs", async || {
        pid = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        pid != 0 && is_alive(pid)
    })
    .await;
    pid
}

async fn a_killed_node_comes_back_and_leaves_no_process() {
    let root = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut node = start(root.path(), port);
    let mut api: Option<Api<Pod>> = None;
    until("the node serves", async || {
        let Some(client) = client(root.path()).await else { return false };
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
        api = Some(Api::default_namespaced(client));
        nodes.get_opt("n").await.is_ok_and(|node| node.is_some())
    })
    .await;
    let pods = api.unwrap();
    let mark = root.path().join("pid");
    // A doubled dollar sign is one, as in Kubernetes.
    let script = format!("echo $$$$ > {}; exec sleep 300", mark.display());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "x", "command": ["/bin/sh", "-c", script]}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    until("the pod is made", async || pods.create(&Default::default(), &pod).await.is_ok()).await;
    let first = pid_of(&mark).await;

    node.0.kill().unwrap();
    node.0.wait().unwrap();
    until("the pod's process went with the node", async || !is_alive(first)).await;
    std::fs::remove_file(&mark).unwrap();

    let mut node = start(root.path(), port);
    let second = pid_of(&mark).await;
    assert_ne!(first, second);
    until("the pod is known to have been started again", async || {
        let Some(client) = client(root.path()).await else { return false };
        let pods: Api<Pod> = Api::default_namespaced(client);
        let Ok(pod) = pods.get("p").await else { return false };
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        statuses.first().is_some_and(|status| status.restart_count == 1 && status.ready)
    })
    .await;

    kill(Pid::from_raw(node.0.id() as i32), Signal::SIGTERM).unwrap();
    let asked = Instant::now();
    assert!(node.0.wait().unwrap().success());
    assert!(asked.elapsed() < Duration::from_secs(15), "stopping took {:?}", asked.elapsed());
    assert!(!is_alive(second));
}
