//! Upgrades of Remuda itself: what an earlier version wrote opens, what a later one wrote is left alone.
//!
//! `upgrade/data-<n>.tar.gz` are data directories as versions with that format left them; they are written once, by
//! `WRITE_DATA_DIRECTORY=1 cargo test -p remuda --test it upgrade::`, and never again.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder, read::GzDecoder};
use kube::{
    Api, Client,
    api::{DynamicObject, GroupVersionKind, ListParams, PostParams},
    core::ApiResource,
};
use remuda_names::file;
use remuda_server::datadir::FORMAT;
use serde_json::json;

use crate::{
    client::{client, config_map_value, create_config_map, create_secret, secret_value},
    harness::{Place, Server, failure, remuda},
};

/// Made anew at each start, and about the host it was made on.
const LEFT_OUT: [&str; 8] = [
    file::LOCK,
    file::SCRATCH,
    file::ADMIN_KUBECONFIG,
    file::SERVER_CERT,
    file::SERVER_KEY,
    file::AGENT_IMAGES,
    "host-id",
    "sandbox",
];

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/upgrade")
}

fn clusters(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("provisioning.cattle.io", "v1", "Cluster");
    Api::namespaced_with(client.clone(), "fleet-default", &ApiResource::from_gvk(&kind))
}

fn users(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("management.cattle.io", "v3", "User");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

async fn fill(client: &Client) {
    create_config_map(client, "kept", "from before").await;
    create_secret(client, "kept", "hush-hush").await;
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "kept", "namespace": "fleet-default"},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}},
    });
    let cluster: DynamicObject = serde_json::from_value(cluster).unwrap();
    clusters(client).create(&PostParams::default(), &cluster).await.unwrap();
}

async fn check(client: &Client) {
    assert_eq!(config_map_value(client, "kept").await.as_deref(), Some("from before"));
    assert_eq!(secret_value(client, "kept").await.as_deref(), Some("hush-hush"), "sealed with a key of then");
    let cluster = clusters(client).get("kept").await.unwrap();
    assert_eq!(cluster.data["spec"]["kubernetesVersion"], "v1.35.1+k3s1");
    assert!(!users(client).list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// Contents and times of all files below a directory.
fn everything(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        found.insert(
            path,
            (content, metadata.mode(), metadata.mtime_nsec() + metadata.mtime() * 1_000_000_000),
        );
    }
    found
}

fn pack(dir: &Path, to: &Path) {
    let packed = GzBuilder::new().mtime(0).write(fs::File::create_new(to).unwrap(), Compression::best());
    let mut tar = tar::Builder::new(packed);
    tar.mode(tar::HeaderMode::Deterministic);
    for path in everything(dir).keys() {
        let name = path.strip_prefix(dir).unwrap();
        if name.as_os_str().is_empty() || LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
            continue;
        }
        tar.append_path_with_name(path, Path::new("data").join(name)).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
}

/// What a version left, in a place of its own.
fn unpacked(archive: &Path) -> Place {
    let place = Place::new();
    let mut tar = tar::Archive::new(GzDecoder::new(fs::File::open(archive).unwrap()));
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = place.join(entry.path().unwrap().to_str().unwrap());
        if entry.header().entry_type().is_dir() {
            fs::create_dir_all(path).unwrap();
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        private(&path, &content);
    }
    fs::set_permissions(place.data(), fs::Permissions::from_mode(0o700)).unwrap();
    place
}

fn private(path: &Path, content: &[u8]) {
    let mut options = fs::File::options();
    options.write(true).create_new(true).mode(0o600).open(path).unwrap().write_all(content).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_every_format_opens() {
    let current = kept().join(format!("data-{FORMAT}.tar.gz"));
    if env::var_os("WRITE_DATA_DIRECTORY").is_some() && !current.exists() {
        let place = Place::new();
        let server = Server::start(&place.data(), &[]);
        fill(&client(&server).await).await;
        server.stop();
        pack(&place.data(), &current);
    }
    for format in 1..=FORMAT {
        let place = unpacked(&kept().join(format!("data-{format}.tar.gz")));
        let server = Server::start(&place.data(), &[]);
        check(&client(&server).await).await;
        server.stop();
        // What this version made of it opens, too.
        let server = Server::start(&place.data(), &[]);
        check(&client(&server).await).await;
        let written = fs::read_to_string(place.data().join(file::FORMAT)).unwrap();
        assert!(written.starts_with(&format!("format {FORMAT}\n")), "{written}");
        server.stop();
    }
}

#[test]
fn a_newer_format_is_refused_before_anything_is_written() {
    let place = Place::new();
    Server::start(&place.data(), &[]).stop();
    let newer = format!("format {}\nversion 9.9.9\n", FORMAT + 1);
    fs::write(place.data().join(file::FORMAT), newer).unwrap();
    let before = everything(&place.data());
    let data = place.data();
    let data = data.to_str().unwrap();
    let output = place.join("backup");
    for arguments in [
        &["server", "--bind", "127.0.0.1:0", "--data-dir", data][..],
        &["rotate-keys", "--data-dir", data],
        &["backup", "--data-dir", data, "--output", output.to_str().unwrap()],
    ] {
        let said = failure(remuda().args(arguments));
        assert!(said.contains(&format!("has format {}, written by version 9.9.9", FORMAT + 1)), "{said}");
        assert!(said.contains("hint: use version 9.9.9, or a newer one"), "{said}");
    }
    assert!(before == everything(&place.data()), "something was written");
    assert!(!output.exists());
}
