//! What comes to Pods from outside, by the API: logs, commands, ports.

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{AttachParams, LogParams, PostParams},
};
use remuda_sandbox_distro::{Running, http::Peer, pki::Issued, tls};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::world::{admin, agent, first, is_pod_ready, is_ready, phase, until};

async fn pod(client: &Client, name: &str, node: &str, containers: Value) -> Api<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": name}, "spec": {
        "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": containers,
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods
}

/// A container that runs a script.
fn shell(script: &str) -> Value {
    json!({"name": "main", "image": "x", "command": ["/bin/sh", "-c", script],
           "env": [{"name": "COLOUR", "value": "blue"}]})
}

/// A server and an agent, and a Pod on the agent that runs a script.
struct Scene {
    _roots: [tempfile::TempDir; 2],
    server: Running,
    worker: Running,
    client: Client,
    pods: Api<Pod>,
}

impl Scene {
    async fn with(container: Value) -> Scene {
        let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let server = first(roots[0].path()).await;
        let client = admin(&server).await;
        let worker = agent(roots[1].path(), "worker", &server, &[]).await;
        until("the worker is ready", async || is_ready(&client, "worker").await).await;
        let pods = pod(&client, "p", "worker", json!([container])).await;
        until("the pod runs", async || pods.get("p").await.is_ok_and(|pod| is_pod_ready(&pod))).await;
        Scene { _roots: roots, server, worker, client, pods }
    }

    async fn end(self) {
        self.worker.shutdown().await;
        self.server.shutdown().await;
    }
}

fn params() -> LogParams {
    LogParams::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_read_while_and_after_a_process_runs() {
    let root = tempfile::tempdir().unwrap();
    let go = root.path().join("go");
    let script = format!(
        "echo one; echo two >&2; while ! test -e {}; do sleep 0.1; done; echo three; exit 3",
        go.display()
    );
    let scene = Scene::with(shell(&script)).await;
    let pods = &scene.pods;
    until("it has spoken", async || {
        pods.logs("p", &params()).await.is_ok_and(|log| log.lines().count() == 2)
    })
    .await;
    let tail = LogParams { tail_lines: Some(0), follow: true, ..params() };
    let mut later = pods.log_stream("p", &tail).await.unwrap().lines();
    let stamped =
        pods.logs("p", &LogParams { timestamps: true, tail_lines: Some(1), ..params() }).await.unwrap();
    let (time, text) = stamped.split_once(' ').unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && text.ends_with('\n'), "{stamped}");
    assert_eq!(pods.logs("p", &LogParams { limit_bytes: Some(3), ..params() }).await.unwrap().len(), 3);
    let refused =
        pods.logs("p", &LogParams { container: Some("other".to_owned()), ..params() }).await.unwrap_err();
    assert!(refused.to_string().contains("container other is not valid for pod p"), "{refused}");
    let refused = pods.logs("p", &LogParams { previous: true, ..params() }).await.unwrap_err();
    assert!(refused.to_string().contains("previous terminated container"), "{refused}");
    assert!(pods.logs("none", &params()).await.unwrap_err().to_string().contains("not found"));

    std::fs::write(&go, "").unwrap();
    assert_eq!(later.try_next().await.unwrap().as_deref(), Some("three"));
    assert_eq!(later.try_next().await.unwrap(), None, "following ends with the process");
    until("the pod has failed", async || phase(&pods.get("p").await.unwrap()) == "Failed").await;
    let mut lines: Vec<String> =
        pods.logs("p", &params()).await.unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["one", "three", "two"]);
    let refused = pods.exec("p", ["true"], &AttachParams::default()).await.err().unwrap().to_string();
    assert!(refused.contains("400") || refused.contains("is not running"), "{refused}");
    Box::pin(scene.end()).await;
}

/// What a command said and how it ended.
async fn run(pods: &Api<Pod>, script: &str, input: &str) -> (String, String, String) {
    let params = AttachParams::default().stdin(true);
    let mut process = pods.exec("p", ["sh", "-c", script], &params).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    stdin.shutdown().await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) = (process.stdout().unwrap(), process.stderr().unwrap());
    let status = process.take_status().unwrap();
    let (first, second, status) =
        tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err), status);
    first.unwrap();
    second.unwrap();
    let status = status.unwrap();
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    (out, err, code.and_then(|cause| cause.message).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_have_input_output_and_exit_codes() {
    let scene = Scene::with(shell("sleep 600")).await;
    let said = run(&scene.pods, "cat; echo $COLOUR; echo oops >&2; exit 7", "hello ").await;
    assert_eq!(said, ("hello blue\n".to_owned(), "oops\n".to_owned(), "7".to_owned()));
    let said = run(&scene.pods, "wc -c", &"x".repeat(300_000)).await;
    assert_eq!((said.0.trim(), said.2.as_str()), ("300000", ""));
    let said = run(&scene.pods, "head -c 3000000 /dev/zero | tr '\\0' y", "").await;
    assert_eq!((said.0.len(), said.2.as_str()), (3_000_000, ""));

    // With the client its command goes, and what that has started.
    let params = AttachParams::default();
    let mut process = scene.pods.exec("p", ["sh", "-c", "echo $$; sleep 600"], &params).await.unwrap();
    let mut line = [0; 16];
    let read = process.stdout().unwrap().read(&mut line).await.unwrap();
    let pid: i32 = std::str::from_utf8(&line[..read]).unwrap().trim().parse().unwrap();
    process.abort();
    drop(process);
    let path = format!("/proc/{pid}");
    until("the command is gone", async || !std::path::Path::new(&path).exists()).await;

    // A terminal.
    let params = AttachParams::interactive_tty();
    let mut process = scene.pods.exec("p", ["sh"], &params).await.unwrap();
    let mut sizes = process.terminal_size().unwrap();
    futures::SinkExt::send(&mut sizes, kube::api::TerminalSize { width: 99, height: 33 }).await.unwrap();
    let mut stdin = process.stdin().unwrap();
    stdin
        .write_all(b"until test \"$(stty size)\" = '33 99'; do sleep 0.1; done; echo so it is; exit 4\n")
        .await
        .unwrap();
    let mut text = String::new();
    process.stdout().unwrap().read_to_string(&mut text).await.unwrap();
    // What was typed is echoed with more behind it; a prompt may stand before, if the shell was slow to start.
    assert!(text.contains("so it is\r\n"), "{text:?}");
    let status = process.take_status().unwrap().await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"));
    Box::pin(scene.end()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_attached_speaks_to_the_process_itself() {
    let mut container = shell("while read line; do echo \"heard $line\"; done; echo over");
    container["stdin"] = true.into();
    container["stdinOnce"] = true.into();
    let scene = Scene::with(container).await;
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut process = scene.pods.attach("p", &params).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    stdin.write_all(b"you\n").await.unwrap();
    let mut heard = [0; 10];
    stdout.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"heard you\n");
    drop((stdin, stdout, process));
    until("its input ends with the first who had it", async || {
        phase(&scene.pods.get("p").await.unwrap()) == "Succeeded"
    })
    .await;
    assert_eq!(scene.pods.logs("p", &LogParams::default()).await.unwrap(), "heard you\nover\n");
    Box::pin(scene.end()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_forwarded_both_ways() {
    let scene = Scene::with(shell("sleep 600")).await;
    // Processes of Pods share the network of their node, and so do we.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut text = [0; 5];
        stream.read_exact(&mut text).await.unwrap();
        stream.write_all(&text.repeat(100_000)).await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let asking = async {
        let mut forwarded = scene.pods.portforward("p", &[port]).await.unwrap();
        let mut stream = forwarded.take_stream(port).unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.unwrap();
        assert!(text == b"hello".repeat(100_000), "{} bytes", text.len());
    };
    tokio::join!(serving, asking);

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let mut forwarded = scene.pods.portforward("p", &[closed]).await.unwrap();
    let why = forwarded.take_error(closed).unwrap().await.unwrap_or_default();
    assert!(why.contains("failed to connect to localhost"), "{why}");
    Box::pin(scene.end()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_answers_nobody_but_the_api_server() {
    let scene = Scene::with(shell("echo secret; sleep 600")).await;
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let status = nodes.get("worker").await.unwrap().status.unwrap();
    let port = status.daemon_endpoints.unwrap().kubelet_endpoint.unwrap().port;
    let url = format!("https://127.0.0.1:{port}/containerLogs/default/p/main");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let files = &scene.server.settings.paths;
    let ca = read(files.tls("server-ca.crt"));
    let ask = async |identity: Option<&str>| {
        let issued = identity.map(|name| Issued {
            cert: read(files.tls(&format!("{name}.crt"))),
            key: read(files.tls(&format!("{name}.key"))),
        });
        let tls = tls::client_config(Some(&ca), issued.as_ref()).unwrap();
        let answer = Peer { tls: Some(tls), basic: None }.get(&url).await;
        answer.map(|text| String::from_utf8_lossy(&text).into_owned()).map_err(|error| error.to_string())
    };
    until("it has spoken", async || ask(Some("client-kube-apiserver")).await.as_deref() == Ok("secret\n"))
        .await;
    let refused = ask(None).await.unwrap_err();
    assert!(refused.contains("401"), "{refused}");
    for other in ["client-kube-proxy", "client-admin"] {
        let refused = ask(Some(other)).await.unwrap_err();
        assert!(refused.contains("403") && refused.contains("is not the API server"), "{refused}");
    }
    Box::pin(scene.end()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_start_before_said_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    until("the node is ready", async || is_ready(&client, "cp-1").await).await;
    let mark = root.path().join("mark");
    let script = format!(
        "if test -e {0}; then echo again; sleep 600; else echo first; touch {0}; exit 1; fi",
        mark.display()
    );
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "cp-1", "terminationGracePeriodSeconds": 1, "containers": [shell(&script)],
    }});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    until("it was started again", async || pods.logs("p", &params()).await.is_ok_and(|log| log == "again\n"))
        .await;
    let before = pods.logs("p", &LogParams { previous: true, ..params() }).await.unwrap();
    assert_eq!(before, "first\n");
    server.shutdown().await;
}
