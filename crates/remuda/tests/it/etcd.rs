//! Servers on a shared etcd.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest},
    coordination::v1::Lease,
    core::v1::{ConfigMap, ServiceAccount},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
    config::AuthInfo,
};

use crate::{
    client::{
        client, client_with, config_map, config_map_value, create_config_map, create_secret, secret_value,
    },
    harness::{Place, Server, contains, ended_with, failure, remuda, skipped, success},
};

pub(crate) struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    pub(crate) fn start(dir: &Path) -> Option<Etcd> {
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

/// A secret file and the arguments for servers that share it.
pub(crate) struct Sharing {
    datastore: String,
    secret: String,
}

impl Sharing {
    pub(crate) fn new(place: &Place, etcd: &Etcd) -> Sharing {
        let secret = secret_file(place, "secret", "correct horse battery staple");
        Sharing { datastore: etcd.datastore(), secret }
    }

    pub(crate) fn arguments(&self) -> [&str; 4] {
        ["--datastore", &self.datastore, "--shared-secret-file", &self.secret]
    }
}

fn secret_file(place: &Place, name: &str, text: &str) -> String {
    let path = place.write(name, &format!("{text}\n"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A client with one server's kubeconfig for another server.
async fn client_of_for(kubeconfig: &Server, server: &Server) -> Client {
    let url = server.url.clone();
    client_with(&kubeconfig.kubeconfig(), |kubeconfig| {
        kubeconfig.clusters[0].cluster.as_mut().unwrap().server = Some(url);
    })
    .await
}

/// A client of a server that shows a token instead of a certificate.
async fn client_by_token(server: &Server, token: String) -> Client {
    client_with(&server.kubeconfig(), |kubeconfig| {
        kubeconfig.auth_infos[0].auth_info =
            Some(AuthInfo { token: Some(token.into()), ..AuthInfo::default() });
    })
    .await
}

async fn account_token(client: &Client) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let made = async {
        // The account is made by a controller.
        while accounts.get_opt("default").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made).await.unwrap();
    let request = TokenRequest::default();
    let answer = accounts.create_token_request("default", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// Who runs the API's controllers, once somebody does.
async fn leader(client: &Client, except: &str) -> String {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let elected = async {
        loop {
            let lease = leases.get_opt("remuda-api-controllers").await.unwrap();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            if !holder.is_empty() && holder != except {
                return holder;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, elected).await.expect("nobody runs the controllers")
}

/// An owner goes, and what it owns goes with it. Returns how long that took.
async fn collects(client: &Client, name: &str) -> Duration {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let owner = maps.create(&PostParams::default(), &config_map(name, "x")).await.unwrap();
    let mut owned = config_map(&format!("{name}-owned"), "x");
    owned.metadata.owner_references = Some(vec![owner.owner_ref(&()).unwrap()]);
    maps.create(&PostParams::default(), &owned).await.unwrap();
    maps.delete(name, &DeleteParams::background()).await.unwrap();
    let started = Instant::now();
    let gone = async {
        while maps.get_opt(&format!("{name}-owned")).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("nobody collects garbage");
    started.elapsed()
}

const PATIENCE: Duration = Duration::from_secs(40);

#[tokio::test]
async fn replicas_with_a_common_secret_are_one_server() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    // Both at once: they have to agree who is first.
    let (first, second) = std::thread::scope(|scope| {
        let start = |name| Server::start(&place.join(name), &sharing.arguments());
        let (first, second) = (scope.spawn(move || start("first")), scope.spawn(move || start("second")));
        (first.join().unwrap(), second.join().unwrap())
    });
    for server in [&first, &second] {
        for name in ["encryption.keys", "pki/ca.crt", "pki/ca.key", "pki/service-account.key"] {
            assert!(!server.data_dir.join(name).exists(), "{name} is in etcd");
        }
    }
    // The certificates of one are good for the other, in both directions.
    let (a, b) = (client_of_for(&second, &first).await, client_of_for(&first, &second).await);
    create_secret(&a, "kept", "open-sesame").await;
    assert_eq!(secret_value(&b, "kept").await.as_deref(), Some("open-sesame"));
    assert!(!contains(&place.join("etcd"), b"open-sesame"));
    assert!(!contains(&place.join("etcd"), b"PRIVATE KEY"));
    // What one has acknowledged the other knows.
    let mut newest = 0;
    for number in 0..10 {
        let (writer, reader) = if number % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let revision = create_config_map(writer, &format!("map-{number}"), "x").await;
        assert!(revision > newest);
        newest = revision;
        assert_eq!(config_map_value(reader, &format!("map-{number}")).await.as_deref(), Some("x"));
    }
    // A token of one is good for the other.
    let by_token = client_by_token(&second, account_token(&a).await).await;
    let reviews: Api<SelfSubjectReview> = Api::all(by_token);
    let myself = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    let user = myself.status.unwrap().user_info.unwrap();
    assert_eq!(user.username.as_deref(), Some("system:serviceaccount:default:default"));

    let text = success(remuda().args(["rotate-keys", "--data-dir"]).arg(&second.data_dir));
    assert!(text.starts_with("everything is encrypted with key "), "{text}");
    assert!(text.ends_with("keys forgotten: 1\n"), "{text}");
    for (number, client) in [&a, &b].into_iter().enumerate() {
        create_secret(client, &format!("new-{number}"), "open-barley").await;
    }
    for client in [&a, &b] {
        assert_eq!(secret_value(client, "kept").await.as_deref(), Some("open-sesame"));
        for number in 0..2 {
            let value = secret_value(client, &format!("new-{number}")).await;
            assert_eq!(value.as_deref(), Some("open-barley"));
        }
    }
    let text = failure(remuda().args(["backup", "-o", "/nowhere/x", "--data-dir"]).arg(&first.data_dir));
    assert!(text.contains("etcd makes its own backups"), "{text}");
    // A third one that has seen nothing of it, by the variable instead of the file.
    drop((first, second));
    let third = Server::start_with(&place.join("third"), &["--datastore", &sharing.datastore], |command| {
        command.env("REMUDA_SHARED_SECRET", "correct horse battery staple");
    });
    assert_eq!(secret_value(&client(&third).await, "kept").await.as_deref(), Some("open-sesame"));
}

#[tokio::test]
async fn controllers_run_in_one_replica_and_move_when_it_ends() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let start = |name: &str| Server::start(&place.join(name), &sharing.arguments());
    let first = start("first");
    let first_leader = leader(&client(&first).await, "").await;
    let (second, third) = (start("second"), start("third"));
    let clients = [client(&second).await, client(&third).await];
    collects(&clients[0], "before").await;
    assert_eq!(leader(&clients[0], "").await, first_leader, "a newcomer takes over from nobody");
    first.kill();
    let took = collects(&clients[1], "after-a-kill").await;
    assert!(took < Duration::from_secs(25), "{took:?}");
    let second_leader = leader(&clients[0], &first_leader).await;

    // One that is told to stop hands over at once.
    let runs = |server: &Server| server.log().contains("this server runs the API's controllers");
    let (leading, other) = if runs(&second) { (second, third) } else { (third, second) };
    assert!(runs(&leading) && !runs(&other));
    let (_, status) = leading.stop();
    assert!(status.success());
    let other_client = client(&other).await;
    let started = Instant::now();
    let third_leader = leader(&other_client, &second_leader).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_ne!(third_leader, first_leader);
    collects(&other_client, "after-a-stop").await;
}

#[tokio::test]
async fn the_secret_must_be_there_long_enough_and_right() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let ended = |name: &str, arguments: &[&str], code: i32| {
        let bind = ["server", "--bind", "127.0.0.1:0", "--datastore", &sharing.datastore];
        ended_with(remuda().args(bind).args(arguments).arg("--data-dir").arg(place.join(name)), code)
    };
    let refused = |name: &str, arguments: &[&str]| ended(name, arguments, 1);
    let text = refused("other", &[]);
    assert!(text.contains("error: servers on etcd need a shared secret\nhint: make one"), "{text}");
    let short = secret_file(&place, "short", "fifteen-letters");
    // Wrong usage, which is found before anything is looked at.
    let text = ended("other", &["--shared-secret-file", &short], 2);
    assert!(text.contains("the secret has 15 characters, it needs at least 16"), "{text}");
    assert!(!place.join("other").exists());

    let first = Server::start(&place.join("first"), &sharing.arguments());
    let wrong = secret_file(&place, "wrong", "incorrect horse battery staple");
    let text = refused("other", &["--shared-secret-file", &wrong]);
    assert!(text.contains("the shared secret is not the one the identity in etcd was stored with"), "{text}");
    assert!(text.contains("hint: give this server the --shared-secret-file of the others"), "{text}");
    // A server with an identity of its own does not belong here.
    let own = Server::start(&place.join("own"), &[]);
    own.stop();
    let text = refused("own", &[]);
    assert!(text.contains("has not been told their secret"), "{text}");
    let text = refused("own", &["--shared-secret-file", &sharing.secret]);
    assert!(text.contains("belongs to another certificate authority"), "{text}");
    create_secret(&client(&first).await, "fine", "still").await;
}

#[tokio::test]
async fn servers_with_copied_keys_can_begin_to_share_them() {
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    // Made elsewhere, as before there was a secret.
    let old = place.join("old");
    Server::start(&old, &[]).stop();
    let first = Server::start(&old, &["--datastore", &sharing.datastore]);
    create_secret(&client(&first).await, "kept", "open-sesame").await;
    let text = success(remuda().args(["rotate-keys", "--data-dir"]).arg(&first.data_dir));
    assert!(text.starts_with("everything is encrypted with key "), "{text}");
    let kubeconfig = fs::read(first.kubeconfig()).unwrap();
    first.stop();

    let stranger = ["server", "--bind", "127.0.0.1:0"];
    let stranger = failure(
        remuda().args(stranger).args(sharing.arguments()).arg("--data-dir").arg(place.join("stranger")),
    );
    assert!(stranger.contains("not the identity of the servers that wrote them"), "{stranger}");
    let first = Server::start(&old, &sharing.arguments());
    let second = Server::start(&place.join("second"), &sharing.arguments());
    fs::write(place.join("kubeconfig"), kubeconfig).unwrap();
    let url = second.url.clone();
    let with_old = client_with(&place.join("kubeconfig"), |kubeconfig| {
        kubeconfig.clusters[0].cluster.as_mut().unwrap().server = Some(url);
    })
    .await;
    assert_eq!(secret_value(&with_old, "kept").await.as_deref(), Some("open-sesame"));
    create_secret(&client(&second).await, "new", "open-barley").await;
    assert_eq!(secret_value(&client(&first).await, "new").await.as_deref(), Some("open-barley"));
}
