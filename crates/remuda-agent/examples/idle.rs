//! What an idle agent costs: `idle COMMAND...`, where COMMAND and the path of a configuration file run an agent,
//! such as `idle target/release/remuda agent run --allow-non-root --config`.
//!
//! Gives the agent a server over TLS, a plan with files, an instruction and probes, waits until all of it is
//! settled, and prints the memory and the processor time of the following seconds.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    fs,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_plan::key;
use rustls::ServerConfig;
use serde_json::json;

#[allow(dead_code)]
#[path = "../tests/it/api.rs"]
mod api;
#[allow(dead_code)]
#[path = "../tests/it/server.rs"]
mod server;

const IDLE: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let dir = tempfile::tempdir().unwrap();
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (issued.cert.der().clone(), issued.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.try_into().unwrap())
        .unwrap();
    let api = api::Api::new();
    let tls = Arc::new(tls);
    let running = api.serve(Some(tls.clone())).await;
    let healthy = async |tls| server::serve(tls, |_| async { server::Answer::text(200, "ok") }).await;
    let (plain, secure) = (healthy(None).await, healthy(Some(tls.clone())).await);
    let authority = dir.path().join("ca.crt");
    fs::write(&authority, issued.cert.pem()).unwrap();
    let file = format!("\"path\":\"{}/file\",\"content\":\"{}\"", dir.path().display(), "QUJD".repeat(8192));
    let kubelet = format!("\"httpGet\":{{\"url\":\"http://{}/healthz\"}}", plain.address);
    let apiserver = format!(
        "\"httpGet\":{{\"url\":\"https://{}/readyz\",\"caCert\":\"{}\"}}",
        secure.address,
        authority.display()
    );
    let plan = format!(
        "{{\"files\":[{{{file}}}],\"instructions\":[{{\"name\":\"one\",\"command\":\"sh\",\"args\":[\"-c\",\
         \"seq 1000\"],\"saveOutput\":true}}],\"probes\":{{\"a\":{{{kubelet}}},\"b\":{{{apiserver}}}}}}}"
    );
    api.change("uid-1", |data| drop(data.insert(key::PLAN.into(), plan.into_bytes()))).await;
    let config = api::configure(dir.path(), "", "");
    // As servers write it.
    let kubeconfig = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: https://{}\n  \
         name: agent\ncontexts:\n- context:\n    cluster: agent\n    user: agent\n  name: agent\n\
         current-context: agent\nkind: Config\npreferences: {{}}\nusers:\n- name: agent\n  user:\n    \
         token: secret-token\n",
        STANDARD.encode(issued.cert.pem()),
        running.address
    );
    let info =
        json!({"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": "demo-machine-plan"});
    fs::write(dir.path().join("var/connection.json"), info.to_string()).unwrap();
    let mut agent =
        Command::new(&command[0]).args(&command[1..]).arg(config).stdin(Stdio::null()).spawn().unwrap();
    let settled = |data: &remuda_agent::decide::Data| {
        data.contains_key(key::APPLIED_CHECKSUM)
            && data
                .get(key::PROBE_STATUSES)
                .is_some_and(|text| String::from_utf8_lossy(text).matches("healthy").count() == 2)
    };
    api.wait("the plan to be applied", settled).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let before = ticks(agent.id());
    tokio::time::sleep(IDLE).await;
    let spent = ticks(agent.id()) - before;
    let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    for line in status
        .lines()
        .filter(|line| ["VmHWM", "VmRSS", "Rss", "Thr"].iter().any(|name| line.starts_with(name)))
    {
        println!("{line}");
    }
    if std::env::var_os("SMAPS").is_some() {
        println!("{}", fs::read_to_string(format!("/proc/{}/smaps", agent.id())).unwrap());
    }
    println!("processor: {} ms in {} s", spent * 10, IDLE.as_secs());
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// Hundredths of a second a process has run.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
