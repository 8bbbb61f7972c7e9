//! `secrets-encryption`: keys for Secrets are changed, on a store of our own and on etcd.

use std::path::Path;

use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret},
};
use kube::{Api, Client, ResourceExt};
use remuda_sandbox_distro::{
    Distribution, Role, Running, Settings,
    config::{EtcdChoice, Reset, find_program},
    encryption::{Encryption, Stage, command},
    http::Peer,
    reset,
    snapshot::command::PATH as SNAPSHOTS,
};
use serde_json::{Value, json};

use crate::world::{self, TOKEN, admin, server_config, settings, until};

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn of(root: &Path, name: &str, server: Option<&Running>, etcd: bool) -> Settings {
    let url = server.map(|server| format!("https://127.0.0.1:{}", server.supervisor_port));
    let mut config = server_config(name);
    config.push(("secrets-encryption", "true"));
    match &url {
        Some(url) => config.push(("server", url.as_str())),
        None => config.push(("cluster-init", "true")),
    }
    let mut settings = settings(root, Distribution::K3s, Role::Server, &config);
    if etcd {
        settings.etcd = EtcdChoice::Auto;
        settings.path = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).unwrap_or_default();
        let ports = &mut settings.ports;
        (ports.etcd_client, ports.etcd_peer, ports.etcd_health) = (port(), port(), port());
    }
    settings
}

async fn post(server: &Running, path: &str, ask: Value) -> Result<Value, String> {
    let ca = std::fs::read_to_string(server.settings.paths.tls("server-ca.crt")).unwrap();
    let tls = remuda_sandbox_distro::tls::client_config(Some(&ca), None).unwrap();
    let peer = Peer { tls: Some(tls), basic: Some(format!("server:{TOKEN}")) };
    let url = format!("https://127.0.0.1:{}{path}", server.supervisor_port);
    peer.post_slowly(&url, &ask).await.map_err(|error| error.to_string())
}

async fn ask(server: &Running, step: &str) -> Result<Value, String> {
    post(server, &command::path(Distribution::K3s), json!({"operation": step})).await
}

/// A step when all servers are said to be ready for it.
async fn step(server: &Running, step: &str) {
    until(&format!("all servers are ready for {step}"), async || {
        ask(server, "status").await.is_ok_and(|status| status["hashmatch"] == true)
    })
    .await;
    ask(server, step).await.unwrap();
}

async fn stage(server: &Running) -> String {
    ask(server, "status").await.unwrap()["stage"].as_str().unwrap().to_owned()
}

async fn again(server: Running) -> Running {
    let settings = server.settings.clone();
    server.shutdown().await;
    world::start(settings).await
}

async fn put(client: &Client, name: &str, value: &str) {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"a": value}})).unwrap();
    until(&format!("{name} is written"), async || {
        secrets.get_opt(name).await.is_ok_and(|there| there.is_some())
            || secrets.create(&Default::default(), &secret).await.is_ok()
    })
    .await;
}

async fn read(client: &Client, name: &str) -> Option<ByteString> {
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    secrets.get_opt(name).await.ok()??.data?.get("a").cloned()
}

fn names(server: &Running) -> Vec<String> {
    Encryption::read(&server.settings.paths).unwrap().unwrap().names().collect()
}

/// Whether a value that was sealed with a key is in any file of the store.
fn on_disk(server: &Running, key: &str) -> bool {
    let id = u64::from_str_radix(key.rsplit('-').next().unwrap(), 16).unwrap().to_le_bytes();
    let files = std::fs::read_dir(server.settings.paths.store()).unwrap().flatten();
    files
        .map(|file| std::fs::read(file.path()).unwrap_or_default())
        .any(|bytes| bytes.windows(id.len()).any(|window| window == id))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_store_of_our_own_are_rotated() {
    let root = tempfile::tempdir().unwrap();
    let server = world::start(of(root.path(), "cp-1", None, false)).await;
    put(&admin(&server).await, "kept", "classified").await;
    let status = ask(&server, "status").await.unwrap();
    assert_eq!((&status["enable"], &status["stage"]), (&json!(true), &json!("start")), "{status}");
    let old = names(&server);
    assert_eq!((old.len(), on_disk(&server, &old[0])), (1, true));
    assert_eq!(status["activekey"], format!("AES-GCM {}", old[0]));
    let refused = ask(&server, "rotate").await.unwrap_err();
    assert!(refused.contains("rotate is not possible in stage start"), "{refused}");

    step(&server, "prepare").await;
    assert!(ask(&server, "prepare").await.unwrap_err().contains("not possible in stage prepare"));
    let server = again(server).await;
    put(&admin(&server).await, "between", "classified").await;
    let prepared = names(&server);
    assert_eq!((prepared.len(), &prepared[0]), (2, &old[0]), "the new key does not seal yet");
    assert!(!on_disk(&server, &prepared[1]));
    step(&server, "rotate").await;
    let server = again(server).await;
    put(&admin(&server).await, "late", "classified").await;
    // A snapshot of this moment has the keys of this moment.
    let saved = post(&server, SNAPSHOTS, json!({"operation": "save", "name": "between"})).await.unwrap();
    step(&server, "reencrypt").await;
    until("all is sealed", async || stage(&server).await == "reencrypt_finished").await;
    assert_eq!(names(&server), [prepared[1].clone()]);
    assert!(on_disk(&server, &prepared[1]) && !on_disk(&server, &old[0]), "nothing is left of the old key");
    let server = again(server).await;
    let keyring = std::fs::read_to_string(server.settings.paths.keyring()).unwrap();
    assert_eq!(keyring.lines().count(), 1, "nor is the key itself");
    for name in ["kept", "between", "late"] {
        assert_eq!(read(&admin(&server).await, name).await.unwrap().0, b"classified");
    }
    let nodes: Api<Node> = Api::all(admin(&server).await);
    until("the Node says it", async || {
        let node = nodes.get("cp-1").await.unwrap();
        let mark = node.annotations().get("k3s.io/encryption-config-hash").cloned().unwrap_or_default();
        mark.starts_with("reencrypt_finished-")
    })
    .await;

    // All at once, without a start in between.
    step(&server, "rotate-keys").await;
    assert_eq!(stage(&server).await, "reencrypt_finished");
    let newest = names(&server);
    assert!(newest.len() == 1 && newest[0] != prepared[1]);
    assert!(!on_disk(&server, &prepared[1]));
    put(&admin(&server).await, "last", "classified").await;
    let server = again(server).await;
    assert_eq!(read(&admin(&server).await, "last").await.unwrap().0, b"classified");

    // The snapshot brings its keys along, and the stage they were in.
    let settings = server.settings.clone();
    server.shutdown().await;
    let restore = Some(settings.snapshots.directory.join(saved["name"].as_str().unwrap()));
    let restoring = Settings { reset: Some(Reset { restore, download: false }), ..settings.clone() };
    reset::run(&restoring).await.unwrap();
    let server = world::start(settings).await;
    assert_eq!(stage(&server).await, "rotate");
    assert_eq!(read(&admin(&server).await, "late").await.unwrap().0, b"classified");
    assert!(read(&admin(&server).await, "last").await.is_none());
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sealing_goes_on_where_it_was_interrupted() {
    let root = tempfile::tempdir().unwrap();
    let server = world::start(of(root.path(), "cp-1", None, false)).await;
    put(&admin(&server).await, "kept", "classified").await;
    step(&server, "prepare").await;
    step(&server, "rotate").await;
    let settings = server.settings.clone();
    server.shutdown().await;
    for stage_then in [Stage::ReencryptRequest, Stage::ReencryptActive] {
        let rotated = Encryption::read(&settings.paths).unwrap().unwrap();
        let rotated = if rotated.stage.is_at_rest() { rotated.prepared().rotated() } else { rotated };
        rotated.at(stage_then).write(&settings.paths).unwrap();
        let server = world::start(settings.clone()).await;
        until("it goes on by itself", async || stage(&server).await == "reencrypt_finished").await;
        assert_eq!(names(&server), [rotated.names().next().unwrap()]);
        let server = again(server).await;
        assert_eq!(read(&admin(&server).await, "kept").await.unwrap().0, b"classified");
        server.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_there_is_nothing_to_rotate() {
    let root = tempfile::tempdir().unwrap();
    let server = world::first(root.path()).await;
    let status = ask(&server, "status").await.unwrap();
    assert!(status["enable"].is_null(), "{status}");
    assert!(ask(&server, "prepare").await.unwrap_err().contains("not enabled"));
    put(&admin(&server).await, "kept", "classified").await;
    // Turned on later, the key in use becomes one that can be changed.
    let mut settings = server.settings.clone();
    server.shutdown().await;
    settings.secrets_encryption = true;
    let server = world::start(settings).await;
    assert_eq!(stage(&server).await, "start");
    assert_eq!(read(&admin(&server).await, "kept").await.unwrap().0, b"classified");
    server.shutdown().await;
}

/// A server without state of its own asks the one that has it.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_pass_requests_on_pass_these_on_too() {
    let roots: Vec<tempfile::TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = world::start(of(roots[0].path(), "cp-1", None, false)).await;
    let two = world::start(of(roots[1].path(), "cp-2", Some(&one), false)).await;
    let client = admin(&two).await;
    until("both are there", async || {
        world::is_ready(&client, "cp-1").await && world::is_ready(&client, "cp-2").await
    })
    .await;
    step(&two, "prepare").await;
    assert_eq!((stage(&one).await, stage(&two).await), ("prepare".to_owned(), "prepare".to_owned()));
    for running in [two, one] {
        running.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_etcd_are_rotated_on_all_servers() {
    if find_program("etcd", None).is_none() {
        return eprintln!("SKIPPED: there is no etcd on this machine (Debian: etcd-server)");
    }
    Box::pin(three()).await;
}

async fn three() {
    let roots: Vec<tempfile::TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = world::start(of(roots[0].path(), "cp-1", None, true)).await;
    let two = world::start(of(roots[1].path(), "cp-2", Some(&one), true)).await;
    let three = world::start(of(roots[2].path(), "cp-3", Some(&one), true)).await;
    let client = admin(&three).await;
    for name in ["cp-1", "cp-2", "cp-3"] {
        until(&format!("{name} is ready"), async || world::is_ready(&client, name).await).await;
    }
    put(&client, "kept", "classified").await;
    let old = names(&one);
    assert_eq!((names(&two), names(&three)), (old.clone(), old.clone()));
    until("rotate-keys is refused for several", async || {
        ask(&one, "rotate-keys").await.is_err_and(|error| error.contains("single server"))
    })
    .await;
    step(&one, "prepare").await;
    // Nothing is sealed with a key that others do not have yet.
    let refused = ask(&one, "rotate").await.unwrap_err();
    assert!(refused.contains("hash does not match between cp-1 and cp-"), "{refused}");
    let mut servers = vec![one, two, three];
    for step_then in ["rotate", "reencrypt"] {
        let mut started = Vec::new();
        for server in servers {
            started.push(again(server).await);
        }
        servers = started;
        put(&admin(&servers[1]).await, step_then, "classified").await;
        step(&servers[0], step_then).await;
    }
    until("all is sealed", async || {
        ask(&servers[0], "status").await.is_ok_and(|status| status["stage"] == "reencrypt_finished")
    })
    .await;
    let new = names(&servers[0]);
    assert!(new.len() == 1 && new != old);
    let mut started = Vec::new();
    for server in servers {
        started.push(again(server).await);
    }
    for server in &started {
        let client = admin(server).await;
        for name in ["kept", "rotate", "reencrypt"] {
            let mut value = None;
            until(&format!("{name} is read"), async || {
                value = read(&client, name).await;
                value.is_some()
            })
            .await;
            assert_eq!(value.unwrap().0, b"classified");
        }
        assert_eq!(names(server), new, "{}", server.settings.node_name);
    }
    for server in started {
        server.shutdown().await;
    }
}
