//! Snapshots of a server's state, and servers from snapshots: on etcd where there is one, and on a store of our own.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use remuda_s3::fake::{FakeStore, Fault, SECRET_KEY};
use remuda_sandbox_distro::{
    Distribution, Role, Running, Settings,
    config::{EtcdChoice, Reset, S3Args, find_program},
    http::Peer,
    reset,
    snapshot::command,
};
use serde_json::{Value, json};

use crate::world::{self, TOKEN, admin, server_config, settings};

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn of(root: &Path, etcd: bool) -> Settings {
    let mut config = server_config("cp-1");
    config.push(("cluster-init", "true"));
    let mut settings = settings(root, Distribution::K3s, Role::Server, &config);
    if etcd {
        settings.etcd = EtcdChoice::Auto;
        settings.path = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).unwrap_or_default();
        let ports = &mut settings.ports;
        (ports.etcd_client, ports.etcd_peer, ports.etcd_health) = (port(), port(), port());
    }
    settings
}

async fn ask(server: &Running, token: &str, ask: Value) -> Result<Value, String> {
    let ca = std::fs::read_to_string(server.settings.paths.tls("server-ca.crt")).unwrap();
    let tls = remuda_sandbox_distro::tls::client_config(Some(&ca), None).unwrap();
    let peer = Peer { tls: Some(tls), basic: Some(format!("server:{token}")) };
    let url = format!("https://127.0.0.1:{}{}", server.supervisor_port, command::PATH);
    peer.post_slowly(&url, &ask).await.map_err(|error| error.to_string())
}

async fn put(client: &Client, name: &str) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    maps.create(&Default::default(), &map).await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret =
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"a": "b"}})).unwrap();
    secrets.create(&Default::default(), &secret).await.unwrap();
}

async fn has(client: &Client, name: &str) -> bool {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    maps.get_opt(name).await.unwrap().is_some()
}

async fn catalogue(client: &Client) -> Vec<Value> {
    let kind = GroupVersionKind::gvk("k3s.cattle.io", "v1", "ETCDSnapshotFile");
    let resource = ApiResource::from_gvk_with_plural(&kind, "etcdsnapshotfiles");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    api.list(&Default::default()).await.unwrap().items.into_iter().map(|object| object.data).collect()
}

/// From the first snapshot to the last, on what `etcd` says.
async fn life(etcd: bool) {
    let root = tempfile::tempdir().unwrap();
    let settings = of(root.path(), etcd);
    let server = world::start(settings.clone()).await;
    let client = admin(&server).await;
    put(&client, "kept").await;
    assert!(ask(&server, "wrong", json!({"operation": "list"})).await.is_err(), "only servers may");
    let saved = ask(&server, TOKEN, json!({"operation": "save", "name": "on-demand"})).await.unwrap();
    let file = saved["name"].as_str().unwrap().to_owned();
    assert!(file.starts_with("on-demand-cp-1-"), "{saved}");
    assert!(saved["verified"]["objects"]["/sandbox/o/core/configmaps"].as_u64().unwrap() > 0, "{saved}");
    let listed = catalogue(&client).await;
    assert_eq!(listed[0]["spec"]["snapshotName"], file.as_str());
    assert_eq!(listed[0]["status"]["readyToUse"], true);

    // Those of the schedule are pruned, those that were asked for are not.
    ask(&server, TOKEN, json!({"operation": "save", "name": "etcd-snapshot"})).await.unwrap();
    assert_eq!(catalogue(&client).await.len(), 2);
    let pruned = ask(&server, TOKEN, json!({"operation": "prune", "retention": 0})).await.unwrap();
    assert_eq!(pruned.as_array().unwrap().len(), 1);
    assert_eq!(catalogue(&client).await.len(), 1);
    assert!(ask(&server, TOKEN, json!({"operation": "delete", "names": ["../token"]})).await.is_err());

    // One that cannot be taken is told, and stays told until it is deleted.
    let away = root.path().join("away");
    std::fs::rename(&settings.snapshots.directory, &away).unwrap();
    std::fs::write(&settings.snapshots.directory, "in the way").unwrap();
    assert!(ask(&server, TOKEN, json!({"operation": "save", "name": "doomed"})).await.is_err());
    std::fs::remove_file(&settings.snapshots.directory).unwrap();
    std::fs::rename(&away, &settings.snapshots.directory).unwrap();
    let told = catalogue(&client).await;
    let failed = told.iter().find(|entry| entry["status"]["readyToUse"] == false).expect("it is told");
    assert!(failed["status"]["error"]["message"].as_str().unwrap().contains("create"), "{failed}");
    let name = failed["spec"]["snapshotName"].clone();
    ask(&server, TOKEN, json!({"operation": "delete", "names": [name]})).await.unwrap();
    assert_eq!(catalogue(&client).await.len(), 1);

    put(&client, "late").await;
    server.shutdown().await;

    // What a plan does before it: the server forgets who it is.
    std::fs::remove_dir_all(settings.paths.server("tls")).unwrap();
    std::fs::remove_dir_all(settings.paths.server("cred")).unwrap();
    let path = settings.snapshots.directory.join(&file);
    let with = |token: &str, restore: &Path| Settings {
        token: Some(token.to_owned()),
        reset: Some(Reset { restore: Some(restore.to_owned()), download: false }),
        ..settings.clone()
    };
    let other = reset::run(&with("other", &path)).await.unwrap_err();
    assert!(other.to_string().contains("not taken with this token"), "{other}");
    let damaged = root.path().join("damaged");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9000] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    assert!(reset::run(&with(TOKEN, &damaged)).await.is_err());
    reset::run(&with(TOKEN, &path)).await.unwrap();
    // Twice is no harm: an agent may apply its plan again.
    reset::run(&with(TOKEN, &path)).await.unwrap();

    let server = world::start(settings.clone()).await;
    let client = admin(&server).await;
    assert!(has(&client, "kept").await && !has(&client, "late").await);
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    assert_eq!(secrets.get("kept").await.unwrap().data.unwrap()["a"].0, b"b", "keys came back too");
    put(&client, "after").await;
    world::until("the catalogue is of now", async || catalogue(&client).await.len() == 1).await;
    ask(&server, TOKEN, json!({"operation": "delete", "names": [file]})).await.unwrap();
    assert!(!path.exists() && catalogue(&client).await.is_empty());
    server.shutdown().await;

    // A reset without a snapshot keeps what there is.
    reset::run(&Settings { reset: Some(Reset::default()), ..settings.clone() }).await.unwrap();
    let server = world::start(settings).await;
    assert!(has(&admin(&server).await, "after").await);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_our_own_is_saved_and_restored() {
    Box::pin(life(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_is_saved_and_restored() {
    if find_program("etcd", None).is_none() {
        return eprintln!("SKIPPED: there is no etcd on this machine (Debian: etcd-server)");
    }
    Box::pin(life(true)).await;
}

/// A store with a bucket, and what a server says about it.
struct Remote {
    fake: FakeStore,
    _place: tempfile::TempDir,
}

impl Remote {
    async fn open() -> Remote {
        let place = tempfile::tempdir().unwrap();
        let fake = FakeStore::start([127, 0, 0, 1].into(), place.path()).await.unwrap();
        fake.make("backups").unwrap();
        Remote { fake, _place: place }
    }

    fn args(&self) -> S3Args {
        let config = remuda_s3::Config { folder: "demo".to_owned(), ..self.fake.config("backups") };
        S3Args { config, retention: 1 }
    }

    /// As the command asks: with the store of the configuration.
    async fn ask(&self, server: &Running, mut message: Value) -> Result<Value, String> {
        message["s3"] = json!(self.args());
        ask(server, TOKEN, message).await
    }

    fn files(&self) -> Vec<String> {
        self.fake.names("backups", "demo")
    }
}

/// Entries of the catalogue for the store.
async fn stored(client: &Client) -> Vec<Value> {
    let mut all = catalogue(client).await;
    all.retain(|entry| entry["spec"]["nodeName"] == "s3");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_put_into_a_store_and_come_back_from_it_to_an_empty_server() {
    let remote = Remote::open().await;
    let root = tempfile::tempdir().unwrap();
    let settings = of(root.path(), false);
    let server = world::start(settings.clone()).await;
    let client = admin(&server).await;
    put(&client, "kept").await;
    let saved = remote.ask(&server, json!({"operation": "save", "name": "on-demand"})).await.unwrap();
    let file = saved["name"].as_str().unwrap().to_owned();
    assert_eq!(saved["s3Error"], Value::Null, "{saved}");
    assert_eq!(remote.files(), std::slice::from_ref(&file));
    let entry = stored(&client).await.remove(0);
    assert_eq!(entry["spec"]["location"], format!("s3://backups/demo/{file}"));
    assert_eq!(entry["spec"]["s3"]["bucket"], "backups");
    assert_eq!(entry["status"]["readyToUse"], true);
    assert!(!entry.to_string().contains(SECRET_KEY));
    let listed = remote.ask(&server, json!({"operation": "list"})).await.unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 2, "here and there: {listed}");

    // What the store refuses is a snapshot on the server all the same, and its trouble is told.
    remote.fake.fault("PUT /backups/demo/on-demand", Fault::Refuse(403, "AccessDenied"));
    let told = remote.ask(&server, json!({"operation": "save", "name": "on-demand"})).await.unwrap();
    assert!(told["s3Error"].as_str().unwrap().contains("may not write"), "{told}");
    let entries = stored(&client).await;
    let failed = entries.iter().find(|entry| entry["status"]["readyToUse"] == false).expect("it is told");
    assert!(failed["status"]["error"]["message"].as_str().unwrap().contains("may not write"), "{failed}");
    assert_eq!(remote.files(), std::slice::from_ref(&file));

    // Of the schedule one moment is kept; what was asked for stays, also if a server is gone that took it.
    for _ in 0..2 {
        remote.ask(&server, json!({"operation": "save", "name": "etcd-snapshot"})).await.unwrap();
    }
    let stored_at = root.path().join("stale");
    std::fs::write(&stored_at, "x").unwrap();
    let store = remuda_s3::Store::new(remote.args().config).unwrap();
    store.put_file("etcd-snapshot-gone-1000", &stored_at).await.unwrap();
    remote.ask(&server, json!({"operation": "prune", "retention": 5})).await.unwrap();
    let files = remote.files();
    assert!(files.contains(&file) && !files.contains(&"etcd-snapshot-gone-1000".to_owned()), "{files:?}");
    let first: Vec<String> =
        files.iter().filter(|name| name.starts_with("etcd-snapshot-")).cloned().collect();
    assert!(!first.is_empty());

    // Deleted there and here, with what was kept about it.
    remote.ask(&server, json!({"operation": "delete", "names": first})).await.unwrap();
    assert_eq!(remote.files(), std::slice::from_ref(&file));
    put(&client, "late").await;
    server.shutdown().await;

    // Another server, on another disk, that knows the token and the store.
    let other = tempfile::tempdir().unwrap();
    let mut empty = of(other.path(), false);
    empty.snapshots.s3 = Some(remote.args());
    let restore = |name: &str| Settings {
        reset: Some(Reset { restore: Some(empty.snapshots.directory.join(name)), download: true }),
        ..empty.clone()
    };
    let missing = reset::run(&restore("on-demand-missing-1")).await.unwrap_err();
    let missing = remuda_control::Chain(&missing).to_string();
    assert!(missing.contains("there is no \"demo/on-demand-missing-1\""), "{missing}");
    reset::run(&restore(&file)).await.unwrap();
    let server = world::start(empty.clone()).await;
    let client = admin(&server).await;
    assert!(has(&client, "kept").await && !has(&client, "late").await);
    world::until("the store is listed", async || !stored(&client).await.is_empty()).await;
    server.shutdown().await;
}
