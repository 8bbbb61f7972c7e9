//! What an agent lives through.

use std::{
    fs,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_cluster_agent::{Config, Hop, account::Account};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

use crate::{
    agent::Agent,
    world::{CLUSTER, Cluster, Management, Tls, eventually, soon},
};

#[tokio::test]
async fn a_cluster_registers_and_is_reached_through_the_tunnel() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let mut agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    agent.connected().await;
    eventually("session", || server.is_connected()).await;

    let (path, parameters) = server.admitted().remove(0);
    assert_eq!(path, "/v3/connect/register");
    assert_eq!(parameters["cluster"]["address"], cluster.address.to_string());
    assert_eq!(parameters["cluster"]["token"], "lasting");
    let ca = BASE64_STANDARD.decode(parameters["cluster"]["caCert"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(ca).unwrap().starts_with("-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(cluster.state.lock().reference.as_deref(), Some("cattle-system/cattle-token"));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let inside = listener.local_addr().unwrap();
    let mut service = JoinSet::new();
    service.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"from inside").await.unwrap();
    });
    let mut stream = soon(server.tunnel.dial(CLUSTER, "tcp", &inside.to_string())).await.unwrap();
    let mut text = String::new();
    soon(stream.read_to_string(&mut text)).await.unwrap();
    assert_eq!(text, "from inside");
    agent.stop().await;
    eventually("end of session", || !server.is_connected()).await;
}

#[tokio::test]
async fn a_server_that_asks_for_more_than_it_may_loses_the_tunnel() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let mut agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    agent.connected().await;
    eventually("session", || server.is_connected()).await;
    let mut stream = soon(server.tunnel.dial(CLUSTER, "unix", "/run/containerd.sock")).await.unwrap();
    assert!(soon(stream.read_u8()).await.is_err());
    assert!(agent.complaint().await.contains("connect not allowed: unix//run/containerd.sock"));
    eventually("the tunnel to come back", || server.admitted().len() > 1 && server.is_connected()).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_server_that_restarts_gets_its_tunnel_back() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let mut agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    agent.connected().await;
    let address = server.kill().await;
    agent.complaint().await;
    let server = Management::start_at(address, &tls).await;
    eventually("session", || server.is_connected()).await;
    assert_eq!(server.admitted()[0].0, "/v3/connect");

    // Another certificate under the same address is not trusted, however well it was before.
    let address = server.kill().await;
    let stranger = Management::start_at(address, &Tls::new()).await;
    loop {
        let complaint = agent.complaint().await;
        if complaint.starts_with("TLS: ") && complaint.contains("checksum") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(stranger.admitted().is_empty());
    agent.stop().await;
}

#[tokio::test]
async fn without_a_lasting_token_the_server_is_told_of_every_new_one() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    cluster.state.lock().forbidden = true;
    let server = Management::start(&tls).await;
    let agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    eventually("session", || server.is_connected()).await;
    assert_eq!(server.admitted()[0].1["cluster"]["token"], "mounted");
    cluster.mount_token("rotated");
    eventually("another registration", || server.admitted().len() > 1).await;
    assert_eq!(server.admitted()[1].1["cluster"]["token"], "rotated");
    agent.stop().await;
}

#[tokio::test]
async fn a_cluster_that_fills_in_no_tokens_is_waited_for_only_once() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    cluster.state.lock().idle = true;
    let server = Management::start(&tls).await;
    let mut config = cluster.config(&format!("https://{}", server.address), &tls);
    let account = soon(Account::read(&config)).await.unwrap();
    assert_eq!(account.token, "mounted");
    let start = Instant::now();
    assert_eq!(soon(Account::read(&config)).await.unwrap(), account);
    assert!(start.elapsed() < Duration::from_secs(3));
    config.api = "127.0.0.1:1".into();
    assert_eq!(Account::read(&config).await.unwrap_err().hop, Hop::Cluster);
}

#[tokio::test]
async fn a_token_that_exists_is_used_as_it_is() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    {
        let mut state = cluster.state.lock();
        state.reference = Some("cattle-system/cattle-token-x7k2q".into());
        let secret = json!({
            "type": "kubernetes.io/service-account-token",
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "cattle"}},
            "data": {"token": BASE64_STANDARD.encode("theirs")},
        });
        state.secrets.insert("cattle-token-x7k2q".into(), secret);
    }
    let server = Management::start(&tls).await;
    let mut agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    agent.connected().await;
    assert_eq!(server.admitted()[0].1["cluster"]["token"], "theirs");
    assert_eq!(cluster.state.lock().secrets.len(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn probes_are_told_what_is_wrong() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let bind = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let ask = async |path: &str| {
        let mut stream = TcpStream::connect(bind).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        soon(stream.read_to_string(&mut text)).await.unwrap();
        text
    };
    let config = cluster.config(&format!("https://{}", server.address), &tls);
    let config = Config { health: Some(bind.to_string()), token: Some("wrong".into()), ..config };
    let mut agent = Agent::start(config.clone());
    agent.complaint().await;
    assert!(ask("/healthz").await.starts_with("HTTP/1.1 200 "));
    let ready = ask("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    agent.stop().await;

    let mut agent = Agent::start(Config { token: None, ..config });
    agent.connected().await;
    let ready = ask("/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200 ") && ready.ends_with("ok"), "{ready}");
    agent.stop().await;
}

#[test]
fn five_hundred_reconnects_leave_nothing_behind() {
    // Alone in its process: memory and descriptors are those of all that runs in it.
    const ALONE: &str = "REMUDA_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "life::five_hundred_reconnects_leave_nothing_behind"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(reconnect_five_hundred_times());
}

async fn reconnect_five_hundred_times() {
    let (tls, cluster) = (Tls::new(), Cluster::start().await);
    let server = Management::start(&tls).await;
    let mut agent = Agent::start(cluster.config(&format!("https://{}", server.address), &tls));
    let round = async |number: usize| {
        eventually("session", || server.is_connected() && server.admitted().len() == number).await;
        server.tunnel.disconnect(CLUSTER);
    };
    for number in 1..=50 {
        round(number).await;
    }
    agent.connected().await;
    let before = usage();
    for number in 51..=550 {
        round(number).await;
    }
    agent.connected().await;
    // A session that stayed would cost more than 40 KiB, five hundred of them 20 MiB.
    eventually("usage to be as it was", || {
        let now = usage();
        now.descriptors <= before.descriptors + 4
            && now.tasks <= before.tasks + 4
            && now.resident <= before.resident + (4 << 20)
    })
    .await;
    agent.stop().await;
}

struct Usage {
    descriptors: usize,
    tasks: usize,
    /// Bytes.
    resident: usize,
}

fn usage() -> Usage {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    Usage {
        descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
        tasks: Handle::current().metrics().num_alive_tasks(),
        resident: pages * 4096,
    }
}
