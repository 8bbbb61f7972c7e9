//! A node as a process of its own: killed without warning, stopped, and what its pods leave behind.
//!
//! This program is also the node: called with `node …` it does what `remuda node …` does.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client,
    api::{AttachParams, LogParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use remuda_sandbox_distro::Invocation;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() {
    let mut args = std::env::args_os();
    let program = args.next().unwrap().to_string_lossy().into_owned();
    if args.next().is_some_and(|word| word == "node") {
        if let Err(error) = remuda_sandbox_distro::run(Invocation::new(&program, args)) {
            eprintln!("{}", remuda_control::Chain(&error));
            std::process::exit(1);
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(a_killed_node_comes_back_and_leaves_no_process());
    eprintln!("test a_killed_node_comes_back_and_leaves_no_process ... ok");
    runtime.block_on(those_who_leave_a_pod_leave_nothing_behind());
    eprintln!("test those_who_leave_a_pod_leave_nothing_behind ... ok");
    runtime.block_on(a_server_killed_in_any_step_of_a_rotation_loses_no_secret());
    eprintln!("test a_server_killed_in_any_step_of_a_rotation_loses_no_secret ... ok");
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
    let ports = ["ETCD_HEALTH", "KUBELET", "KUBELET_HEALTH", "CONTROLLER_MANAGER", "SCHEDULER"].map(any);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["node", "server", "--node-name", "n", "--node-ip", "127.0.0.1", "--token", "secret"])
        .arg("--secrets-encryption")
        .env("REMUDA_NODE_ROOT", root)
        .env("REMUDA_NODE_ETCD", "off")
        .envs(ports)
        .env("REMUDA_NODE_PORT_API", port.to_string())
        .stdin(Stdio::null());
    Node(command.spawn().unwrap())
}

/// `k3s secrets-encrypt …`, and what it prints if it succeeds.
fn secrets_encrypt(root: &Path, port: u16, args: &[&str]) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["node", "secrets-encrypt"])
        .args(args)
        .env("REMUDA_NODE_ROOT", root)
        .env("REMUDA_NODE_PORT_SUPERVISOR", port.to_string());
    let output = command.output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
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

/// Open descriptors of a process, and its children.
fn held(pid: u32) -> (usize, usize) {
    let children = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(pid)
    });
    (std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(), children.count())
}

async fn those_who_leave_a_pod_leave_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = start(root.path(), port);
    let mut api: Option<Api<Pod>> = None;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "x", "command": ["/bin/sh", "-c", "echo up; exec sleep 300"], "workingDir": "/tmp"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    until("the pod is made", async || {
        let Some(client) = client(root.path()).await else { return false };
        let pods: Api<Pod> = Api::default_namespaced(client);
        let made = pods.create(&Default::default(), &pod).await.is_ok();
        api = Some(pods);
        made
    })
    .await;
    let pods = api.unwrap();
    let log = LogParams::default();
    until("the pod runs", async || pods.logs("p", &log).await.is_ok_and(|log| log == "up\n")).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = closed.local_addr().unwrap().port();

    // Once for what is made once, and then many times for what must not stay.
    let mut before = None;
    for round in 0..8 {
        for number in 0..4 {
            let mut lines = pods
                .log_stream("p", &LogParams { follow: true, ..LogParams::default() })
                .await
                .unwrap()
                .lines();
            assert_eq!(lines.try_next().await.unwrap().as_deref(), Some("up"));
            let params = if number % 2 == 0 {
                AttachParams::interactive_tty()
            } else {
                AttachParams::default().stdin(true)
            };
            let mut process = pods.exec("p", ["sh", "-c", "pwd; exec sleep 300"], &params).await.unwrap();
            let mut said = [0; 4];
            process.stdout().unwrap().read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"/tmp", "it is where its container is");
            let mut forwarded = pods.portforward("p", &[target]).await.unwrap();
            let mut stream = forwarded.take_stream(target).unwrap();
            stream.write_all(b"x").await.unwrap();
            process.abort();
            forwarded.abort();
        }
        // A shell with a terminal is in control of it.
        let mut process = pods
            .exec("p", ["sh", "-c", "cut -d' ' -f8 /proc/$$/stat; exit 3"], &AttachParams::interactive_tty())
            .await
            .unwrap();
        let mut said = String::new();
        process.stdout().unwrap().read_to_string(&mut said).await.unwrap();
        assert!(said.trim().parse::<i32>().is_ok_and(|group| group > 0), "{said:?}");
        let status = process.take_status().unwrap().await.unwrap();
        assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"), "{status:?}");
        drop(process);
        if round == 1 {
            let mut known = (usize::MAX, usize::MAX);
            until("what was opened is closed", async || {
                let now = held(node.0.id());
                let settled = now == known && now.1 == 1;
                known = now;
                tokio::time::sleep(Duration::from_millis(500)).await;
                settled
            })
            .await;
            before = Some(known);
        }
    }
    let (files, children) = before.unwrap();
    // Connections of clients that are kept for the next request come and go.
    until("no more is open than before", async || {
        let (now, left) = held(node.0.id());
        left == children && now <= files + 4
    })
    .await;
}

async fn a_server_killed_in_any_step_of_a_rotation_loses_no_secret() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let secret = |name: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"a": "classified"}}))
            .unwrap()
    };
    let mut node = start(root, port);
    let mut written = 0;
    let stage = |stage: &str| {
        let line = format!("Current Rotation Stage: {stage}\n");
        secrets_encrypt(root, port, &["status"]).is_some_and(|status| {
            status.starts_with("Encryption Status: Enabled\n")
                && status.contains(&line)
                && status.contains("Server Encryption Hashes: All hashes match\n")
        })
    };
    for (step, before) in [("prepare", "start"), ("rotate", "prepare"), ("reencrypt", "rotate")] {
        until("the server is ready for the step", async || stage(before)).await;
        until("a Secret is written", async || {
            let Some(client) = client(root).await else { return false };
            let secrets: Api<Secret> = Api::default_namespaced(client);
            secrets.create(&Default::default(), &secret(step)).await.is_ok()
        })
        .await;
        written += 1;
        // Before, while and right after it is done.
        for delay in [0, 3, 12] {
            let asking = std::thread::spawn({
                let root = root.to_owned();
                move || secrets_encrypt(&root, port, &[step])
            });
            tokio::time::sleep(Duration::from_millis(delay)).await;
            node.0.kill().unwrap();
            node.0.wait().unwrap();
            let _ = asking.join();
            node = start(root, port);
            until("the server is back", async || secrets_encrypt(root, port, &["status"]).is_some()).await;
        }
        // A step that was cut short is made again; one that was made is refused.
        let next = if step == "reencrypt" { "reencrypt_finished" } else { step };
        until("the step is made", async || {
            let _ = secrets_encrypt(root, port, &[step]);
            stage(next)
        })
        .await;
        node.0.kill().unwrap();
        node.0.wait().unwrap();
        node = start(root, port);
    }
    until("every Secret is read", async || {
        let Some(client) = client(root).await else { return false };
        let secrets: Api<Secret> = Api::default_namespaced(client);
        let mut read = 0;
        for name in ["prepare", "rotate", "reencrypt"] {
            let Ok(secret) = secrets.get(name).await else { return false };
            read += usize::from(secret.data.is_some_and(|data| data["a"].0 == b"classified"));
        }
        read == written
    })
    .await;
    let status = secrets_encrypt(root, port, &["status", "-o", "json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["enable"], &status["stage"]), (&json!(true), &json!("reencrypt_finished")));
    assert!(status.get("inactivekeys").is_none(), "{status}");
}
