//! Servers on a shared etcd.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    client::{client, config_map_value, create_config_map, create_secret, secret_value},
    harness::{Place, Server, contains, failure, remuda, skipped, success},
};

struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    fn start(dir: &Path) -> Option<Etcd> {
        if Command::new("etcd").arg("--version").output().is_err() {
            skipped("there is no etcd in PATH (Debian: etcd-server)");
            return None;
        }
        // etcd cannot be asked for any free port, so these are free only most likely.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (port, peer) = (free(), free());
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(dir)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Etcd { child, port })
    }

    fn datastore(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn two_servers_share_an_etcd() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let datastore = etcd.datastore();
    let arguments = ["--datastore", datastore.as_str()];
    let first = Server::start(&place.join("first"), &arguments);
    create_secret(&client(&first).await, "kept", "open-sesame").await;

    // The second server needs the keys of the first.
    let second = place.join("second");
    fs::create_dir_all(second.join("pki")).unwrap();
    fs::set_permissions(&second, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for name in ["encryption.keys", "pki/ca.crt", "pki/ca.key", "pki/service-account.key"] {
        fs::copy(first.data_dir.join(name), second.join(name)).unwrap();
    }
    let second = Server::start(&second, &arguments);
    let (a, b) = (client(&first).await, client(&second).await);
    assert_eq!(secret_value(&b, "kept").await.as_deref(), Some("open-sesame"));
    // What one has acknowledged the other knows.
    let mut newest = 0;
    for number in 0..10 {
        let (writer, reader) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let revision = create_config_map(writer, &format!("map-{number}"), "x").await;
        assert!(revision > newest);
        newest = revision;
        assert_eq!(config_map_value(reader, &format!("map-{number}")).await.as_deref(), Some("x"));
    }
    drop(second);
    assert!(!contains(&place.join("etcd"), b"open-sesame"));

    let text = success(remuda().args(["rotate-keys", "--data-dir"]).arg(&first.data_dir));
    assert!(text.starts_with("everything is encrypted with key "), "{text}");
    let text = failure(remuda().args(["backup", "-o", "/nowhere/x", "--data-dir"]).arg(&first.data_dir));
    assert!(text.contains("etcd makes its own backups"), "{text}");
    first.stop();
    let again = Server::start(&place.join("first"), &arguments);
    assert_eq!(secret_value(&client(&again).await, "kept").await.as_deref(), Some("open-sesame"));
}
