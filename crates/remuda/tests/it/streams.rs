//! Logs, commands and ports of Pods in a cluster made here, as people come to them: through the server and the
//! tunnel, and at the cluster's own API.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{AttachParams, LogParams, PostParams},
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{client::client_with, foreign::until, harness::skipped, lab::Lab};

/// Where a node of the sandbox distribution says that it is well; Pods have the network of their node.
const HEALTH: u16 = 10248;
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster of two nodes with a Pod on the one that is no server.
struct Scene {
    lab: Lab,
    /// The administrator's way to the cluster, through the server.
    config: PathBuf,
    server: String,
}

impl Scene {
    fn open() -> Option<Scene> {
        let lab = Lab::open(None)?;
        lab.run("cluster create demo --servers 1 --workers 1 --wait --timeout 120s");
        let config = lab.place.join("demo.kubeconfig");
        fs::write(&config, lab.run("get kubeconfig demo")).unwrap();
        let nodes: Vec<String> = lab.nodes("demo").into_iter().map(|(name, _, _)| name).collect();
        let (workers, servers): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|name| name.contains("workers"));
        let scene = Scene { lab, config, server: servers[0].clone() };
        let script =
            "echo begin; echo aside >&2; while ! test -e /tmp/go; do sleep 0.2; done; echo later; sleep 3600";
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "nodeName": workers[0], "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": "x", "command": ["/bin/sh", "-c", script],
                    "volumeMounts": [{"name": "info", "mountPath": "/mnt/info"}],
                }],
                "volumes": [{"name": "info", "downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                ]}}],
            },
        });
        let pods = scene.pods();
        let pod: Pod = serde_json::from_value(pod).unwrap();
        scene.lab.runtime.block_on(pods.create(&PostParams::default(), &pod)).unwrap();
        scene.lab.until("the pod has spoken", PATIENCE, || {
            let log = scene.lab.runtime.block_on(pods.logs("p", &LogParams::default()));
            log.is_ok_and(|log| log.contains("begin\n") && log.contains("aside\n"))
        });
        Some(scene)
    }

    fn pods(&self) -> Api<Pod> {
        let client = self.lab.runtime.block_on(client_with(&self.config, |_| {}));
        Api::default_namespaced(client)
    }

    fn end(self) {
        self.lab.run("cluster delete --yes demo --wait --timeout 60s");
        self.lab.check_nothing_left();
    }
}

#[test]
fn logs_commands_and_ports_are_reached_through_the_tunnel() {
    let Some(scene) = Scene::open() else { return };
    let pods = scene.pods();
    scene.lab.runtime.block_on(async {
        let follow = LogParams { follow: true, tail_lines: Some(0), ..LogParams::default() };
        let mut later = pods.log_stream("p", &follow).await.unwrap().lines();
        // The command is on the Pod's machine and sees its volumes; the Pod sees what the command does.
        let script = "cat /mnt/info/name; echo; cat; touch /tmp/go; exit 7";
        let params = AttachParams::default().stdin(true).stderr(false);
        let mut process = pods.exec("p", ["sh", "-c", script], &params).await.unwrap();
        let mut stdin = process.stdin().unwrap();
        stdin.write_all(b"typed").await.unwrap();
        stdin.shutdown().await.unwrap();
        let mut said = String::new();
        process.stdout().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "p\ntyped");
        let status = process.take_status().unwrap().await.unwrap();
        let causes = status.details.unwrap().causes.unwrap();
        assert_eq!(causes[0].message.as_deref(), Some("7"));
        assert_eq!(later.try_next().await.unwrap().as_deref(), Some("later"));

        let mut forwarded = pods.portforward("p", &[HEALTH]).await.unwrap();
        let mut stream = forwarded.take_stream(HEALTH).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("ok"), "{answer}");
    });
    a_command_ends_with_its_client(&scene);
    scene.end();
}

/// A server's machine and its node stay as they were when somebody leaves without a word.
fn a_command_ends_with_its_client(scene: &Scene) {
    let pods = scene.pods();
    let alive = |marker: &str| {
        let found = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").starts_with(marker)
        });
        found.count()
    };
    let marker = format!("sleep 36{:05}", std::process::id() % 100_000);
    let words: Vec<&str> = marker.split(' ').collect();
    for _ in 0..3 {
        let process =
            scene.lab.runtime.block_on(pods.exec("p", words.clone(), &AttachParams::default())).unwrap();
        scene.lab.until("the command runs", PATIENCE, || alive(&marker) == 1);
        process.abort();
        drop(process);
        scene.lab.until("the command is gone", PATIENCE, || alive(&marker) == 0);
    }
}

/// kubectl with a kubeconfig. WebSockets, or SPDY as older ones speak it.
fn kubectl(config: &Path, spdy: bool, words: &[&str]) -> Command {
    let mut command = Command::new("kubectl");
    command.env_remove("KUBECONFIG").arg("--kubeconfig").arg(config).args(words);
    for variable in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
        command.env(variable, if spdy { "false" } else { "true" });
    }
    command
}

/// Exit code, output and errors.
fn said(mut command: Command, input: &str) -> (i32, String, String) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Does not outlive a test that fails.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Forwards a port and asks there, several times over the same forwarding.
fn check_forwarding(config: &Path, spdy: bool) {
    let mut command = kubectl(config, spdy, &["port-forward", "pod/p", &format!(":{HEALTH}")]);
    let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let line = lines.next().expect("it says where").unwrap();
    let port: u16 =
        line.split([':', ' ']).find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    for _ in 0..3 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("ok"), "spdy={spdy} {answer}");
    }
}

/// A file goes in and comes back.
fn check_copies(scene: &Scene, spdy: bool) {
    let file = |name: &str| scene.lab.place.join(name).display().to_string();
    let content: Vec<u8> =
        (0..700_000_u32).flat_map(|number| number.wrapping_mul(0x9e37_79b1).to_le_bytes()).collect();
    fs::write(file("there"), &content).unwrap();
    let _ = fs::remove_file(file("back"));
    let path = format!("p:/tmp/copied-{spdy}");
    for words in [["cp", &file("there"), &path], ["cp", &path, &file("back")]] {
        let (code, out, errors) = said(kubectl(&scene.config, spdy, &words), "");
        assert_eq!(code, 0, "spdy={spdy} {words:?} {out}{errors}");
    }
    assert!(fs::read(file("back")).unwrap() == content, "spdy={spdy}");
}

#[test]
fn kubectl_has_logs_commands_and_ports_and_those_without_the_right_do_not() {
    if Command::new("kubectl").args(["version", "--client"]).output().is_err() {
        return skipped("there is no kubectl in PATH: logs, commands and ports by it");
    }
    let Some(scene) = Scene::open() else { return };
    let config = &scene.config;
    for spdy in [false, true] {
        let run = |words: &[&str], input: &str| said(kubectl(config, spdy, words), input);
        let (code, log, errors) = run(&["logs", "p", "--tail=5"], "");
        assert!(code == 0 && log.contains("begin\n"), "{log}{errors}");
        let script = "cat; echo oops >&2; exit 7";
        let (code, out, errors) = run(&["exec", "-i", "p", "--", "sh", "-c", script], "typed");
        assert_eq!((code, out.as_str()), (7, "typed"), "spdy={spdy} {errors}");
        assert!(errors.contains("oops\n") && errors.contains("exit code 7"), "{errors}");
        let (code, out, errors) = run(&["exec", "p", "--", "head", "-c", "1000000", "/dev/zero"], "");
        assert_eq!((code, out.len()), (0, 1_000_000), "spdy={spdy} {errors}");
        let (code, _, errors) = run(&["exec", "p", "--", "/no/such/program"], "");
        assert_eq!(code, 127, "spdy={spdy} {errors}");
        check_forwarding(config, spdy);
        check_copies(&scene, spdy);
        // Runs a Pod, attaches to it, and removes it.
        let words = ["run", "once", "-i", "--rm", "--restart=Never", "--image=x", "--command", "--", "sh"];
        let (code, out, errors) = run(&words, "echo from inside; exit 0\n");
        assert!(code == 0 && out.contains("from inside"), "spdy={spdy} {code} {out}{errors}");
        assert!(out.contains("\"once\" deleted"), "{out}{errors}");
    }
    // What is said later.
    let mut command = kubectl(config, false, &["logs", "-f", "p", "--tail=0"]);
    let mut child = Kept(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(said(kubectl(config, false, &["exec", "p", "--", "touch", "/tmp/go"]), "").0, 0);
    assert_eq!(lines.next().unwrap().unwrap(), "later");
    drop(child);
    check_direct(&scene);
    check_rights(&scene);
    check_credentials_of_nodes(&scene);
    scene.end();
}

/// On the server's own machine, at the cluster's own API.
fn check_direct(scene: &Scene) {
    let direct = |words: &[&str]| {
        let all =
            [&["env", "HOME=/tmp", "kubectl", "--kubeconfig", "/etc/rancher/k3s/k3s.yaml"], words].concat();
        scene.lab.say_to(&format!("machine shell {}", scene.server), &all)
    };
    let (code, text) = direct(&["exec", "p", "--", "sh", "-c", "cat /mnt/info/name; exit 4"]);
    assert!(code != 0 && text.starts_with('p') && text.contains("exit code 4"), "{code} {text}");
    let (code, text) = direct(&["logs", "p", "--timestamps", "--tail=1"]);
    assert!(code == 0 && text.contains("Z later"), "{code} {text}");
}

/// A member of the cluster sees it; whoever owns it may run commands in it.
fn check_rights(scene: &Scene) {
    let lab = &scene.lab;
    let file = |name: &str| lab.place.join(name).display().to_string();
    let data = lab.data().display().to_string();
    let tell = |line: &str, input: &str| {
        let mut command = lab.command(&line.split(' ').collect::<Vec<_>>());
        command.stdin(Stdio::piped());
        let (code, out, errors) = said(command, input);
        assert_eq!(code, 0, "remuda {line}\n{out}{errors}");
        out
    };
    let password = "correct horse battery\n";
    tell(&format!("user create ann --password-stdin --data-dir {data}"), password);
    lab.run("user grant ann --cluster demo --role cluster-member");
    let mine = file("ann.kubeconfig");
    tell(&format!("login --data-dir {data} -u ann --password-stdin --into {mine}"), password);
    let theirs = PathBuf::from(file("ann-demo.kubeconfig"));
    fs::write(&theirs, tell(&format!("get kubeconfig demo --kubeconfig {mine}"), "")).unwrap();
    for spdy in [false, true] {
        for words in [&["exec", "p", "--", "true"][..], &["port-forward", "p", ":80"], &["logs", "p"]] {
            let (code, out, errors) = said(kubectl(&theirs, spdy, words), "");
            assert!(code != 0 && errors.to_lowercase().contains("forbidden"), "{words:?}: {out}{errors}");
        }
    }
    lab.run("user grant ann --cluster demo --role cluster-owner");
    lab.until("she may", PATIENCE, || said(kubectl(&theirs, false, &["exec", "p", "--", "true"]), "").0 == 0);
    // A command that runs ends with the role it needs; what another role allows goes on.
    for spdy in [false, true] {
        lab.run("user grant ann --cluster demo --role cluster-owner");
        lab.until("she may", PATIENCE, || {
            said(kubectl(&theirs, spdy, &["exec", "p", "--", "true"]), "").0 == 0
        });
        let open = |words: &[&str]| {
            let mut command = kubectl(&theirs, spdy, words);
            Kept(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
        };
        let begun = |kept: &mut Kept, with: &str| {
            let mut lines = BufReader::new(kept.0.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().starts_with(with)), "it has begun");
            lines
        };
        let mut shell = open(&["exec", "p", "--", "sh", "-c", "echo here; sleep 600"]);
        let mut watch = open(&["get", "nodes", "-w", "-o", "name"]);
        let _lines = (begun(&mut shell, "here"), begun(&mut watch, "node/"));
        let over = |kept: &mut Kept| kept.0.try_wait().unwrap().is_some();
        lab.run("user revoke ann --cluster demo --role cluster-owner");
        until("the command has ended", Duration::from_secs(3), || over(&mut shell));
        assert!(!over(&mut watch), "members see nodes");
    }
}

/// What is on a machine opens its own plan and nothing else.
fn check_credentials_of_nodes(scene: &Scene) {
    let lab = &scene.lab;
    let info = |machine: &str| -> serde_json::Value {
        let path = "/var/lib/rancher/agent/rancher2_connection_info.json";
        let (code, text) = lab.say_to(&format!("machine shell {machine}"), &["cat", path]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let worker = lab.machines().into_iter().find(|name| name.contains("workers")).unwrap();
    let (mine, other) = (info(&worker), info(&scene.server));
    let config = lab.place.join("node.kubeconfig");
    fs::write(&config, mine["kubeConfig"].as_str().unwrap()).unwrap();
    let (own, other) = (mine["secretName"].as_str().unwrap(), other["secretName"].as_str().unwrap());
    let ask = |line: &str| said(kubectl(&config, false, &line.split(' ').collect::<Vec<_>>()), "");
    let (code, out, errors) = ask(&format!("get secret -n fleet-default {own} -o name"));
    assert_eq!((code, out.trim()), (0, format!("secret/{own}").as_str()), "{errors}");
    let id = lab.run("get kubeconfig demo");
    let (_, id) = id.split_once("/k8s/clusters/").unwrap();
    let id: String =
        id.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect();
    let url = &lab.server.as_ref().unwrap().url;
    for line in [
        format!("get secret -n fleet-default {other}"),
        "get secrets -n fleet-default".to_owned(),
        "get secrets -A".to_owned(),
        format!("delete secret -n fleet-default {own}"),
        "create configmap mine -n fleet-default".to_owned(),
        "get clusters.provisioning.cattle.io -n fleet-default".to_owned(),
        "get clusters.management.cattle.io".to_owned(),
        "get tokens.management.cattle.io".to_owned(),
        format!("--server {url}/k8s/clusters/{id} get nodes"),
    ] {
        let (code, out, errors) = ask(&line);
        assert!(code != 0 && errors.to_lowercase().contains("forbidden"), "{line}: {out}{errors}");
    }
}
