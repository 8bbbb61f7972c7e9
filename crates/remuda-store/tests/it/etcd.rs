//! The etcd engine, on real etcd processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    net::TcpListener,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use remuda_store::{
    Change, Embedded, Error, Etcd, EtcdOptions, EtcdTls, Keyring, Options, Policy, Revision, Scope, Sealing,
    Store, Template, WatchEnd, Write,
};

use crate::{
    clients,
    conformance::{self, create, delete, prefix, update},
};

/// A cluster on loopback; its processes end with it.
pub(crate) struct Cluster {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) members: Vec<Member>,
    tls: Option<EtcdTls>,
}

pub(crate) struct Member {
    pub(crate) client: String,
    peer: String,
    process: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn find_etcd() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&paths).map(|dir| dir.join("etcd")).find(|path| path.is_file());
    if found.is_none() {
        // Not through the test harness, which would hide it.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
        let _ =
            fs::File::from(stderr).write_all(b"SKIPPED: no etcd in PATH, the etcd engine was not tested\n");
    }
    found
}

impl Cluster {
    pub(crate) async fn start(size: usize) -> Option<Self> {
        Self::start_with(size, None).await
    }

    async fn start_with(size: usize, tls: Option<(tempfile::TempDir, EtcdTls)>) -> Option<Self> {
        let etcd = find_etcd()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let (dir, tls) = match tls {
            Some((dir, tls)) => (dir, Some(tls)),
            None => (tempfile::tempdir().unwrap(), None),
        };
        let member = |_| Member {
            client: format!("{scheme}://127.0.0.1:{}", free_port()),
            peer: format!("http://127.0.0.1:{}", free_port()),
            process: None,
        };
        let mut cluster = Self { dir, members: (0..size).map(member).collect(), tls };
        for index in 0..size {
            cluster.start_member(&etcd, index);
        }
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while let Err(error) = Etcd::connect(cluster.options()).await {
            assert!(tokio::time::Instant::now() < deadline, "etcd does not start: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(cluster)
    }

    fn start_member(&mut self, etcd: &Path, index: usize) {
        let all: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(index, member)| format!("m{index}={}", member.peer))
            .collect();
        let member = &mut self.members[index];
        let data = self.dir.path().join(format!("m{index}"));
        let existing = data.exists();
        let mut command = Command::new(etcd);
        if let Some(EtcdTls { ca: Some(ca), .. }) = &self.tls {
            let beside = |name| ca.with_file_name(name);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
            command.arg("--cert-file").arg(beside("server.pem"));
            command.arg("--key-file").arg(beside("server.key"));
        }
        let process = command
            .args(["--name", &format!("m{index}"), "--log-level", "error", "--logger", "zap"])
            .arg("--data-dir")
            .arg(&data)
            .args(["--listen-client-urls", &member.client, "--advertise-client-urls", &member.client])
            .args(["--listen-peer-urls", &member.peer, "--initial-advertise-peer-urls", &member.peer])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--initial-cluster-state", if existing { "existing" } else { "new" }])
            .args(["--heartbeat-interval", "20", "--election-timeout", "200"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        member.process = Some(process);
    }

    fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let endpoints = self.members.iter().map(|member| member.client.clone()).collect();
        EtcdOptions { tls: self.tls.clone(), ..EtcdOptions::new(endpoints) }
    }

    /// Whether a text is in any of the members' files.
    pub(crate) fn holds(&self, text: &str) -> bool {
        let mut found = false;
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let bytes = fs::read(path).unwrap();
                    found |= bytes.windows(text.len()).any(|part| part == text.as_bytes());
                }
            }
        }
        found
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

#[tokio::test]
async fn the_etcd_engine_conforms() {
    let Some(cluster) = Cluster::start(1).await else { return };
    conformance::all(&Etcd::connect(cluster.options()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_etcd_engine_end_with_its_state() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let history = Policy { age: Duration::ZERO, events: 30, superseded_bytes: 400, ..Policy::default() };
    let store = Etcd::connect(EtcdOptions { history, ..cluster.options() }).await.unwrap();
    clients::every_client_ends_with_the_stores_state(Arc::new(store), 200).await;
}

#[tokio::test]
async fn two_processes_see_one_store() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let options = EtcdOptions { prefix: "/shared".into(), ..cluster.options() };
    let (one, two) = (Etcd::connect(options.clone()).await.unwrap(), Etcd::connect(options).await.unwrap());
    let foreign = Etcd::connect(cluster.options()).await.unwrap();
    let mut watch = two.watch(Scope::Prefix("/a/things/".into()), 0).unwrap();
    let made = one.write(create("/a/things/1", "x")).await.unwrap();
    // A read elsewhere sees a finished write, whatever others do to etcd's revision.
    for index in 0..20 {
        foreign.write(create(&format!("/b/things/{index}"), "foreign")).await.unwrap();
    }
    assert_eq!(two.get("/a/things/1").await.unwrap().value, Some(made.clone()));
    assert_eq!(two.current().await, Ok(made.revision));
    assert_eq!(two.list(prefix("/")).await.unwrap().records.len(), 1);
    let last = Some(Template::with_slot("final:", 6));
    let end = Write::Delete { key: "/a/things/1".into(), expected: made.revision, last };
    let gone = one.write(end).await.unwrap();
    assert_eq!(gone.value, format!("final:{}", gone.revision));
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap());
    }
    assert_eq!((seen[0].change, &seen[0].record), (Change::Created, &made));
    assert_eq!((seen[1].change, &seen[1].record), (Change::Deleted, &gone));
    assert_eq!(seen[1].previous.as_ref(), Some(&made));
    let missing = two.write(update("/a/things/1", made.revision, "y")).await;
    assert_eq!(missing, Err(Error::Missing));
    let again = two.write(create("/a/things/1", "z")).await.unwrap();
    assert_eq!(one.write(create("/a/things/1", "z")).await, Err(Error::Exists { revision: again.revision }));
    // A process that comes later agrees on what is newest.
    assert_eq!(one.observed(), two.observed());
    let three = Etcd::connect(EtcdOptions { prefix: "/shared".into(), ..cluster.options() }).await.unwrap();
    assert_eq!(three.observed(), one.observed());
    assert_eq!(three.get("/a/things/1").await.unwrap().value, Some(again));
}

#[tokio::test]
async fn a_copy_that_missed_compacted_history_loads_anew_and_says_so() {
    let Some(mut cluster) = Cluster::start(1).await else { return };
    let etcd = find_etcd().unwrap();
    let store = Etcd::connect(cluster.options()).await.unwrap();
    let old = store.write(create("/a/things/1", "x")).await.unwrap();
    let mut watch = store.watch(Scope::Prefix("/a/things/".into()), old.revision).unwrap();
    // Cut this copy off while another one writes and compacts.
    let proxy = Proxy::start(&cluster.members[0].client).await;
    let cut = EtcdOptions { endpoints: vec![proxy.address.clone()], ..cluster.options() };
    let behind = Etcd::connect(cut).await.unwrap();
    let mut missed = behind.watch(Scope::Prefix("/a/things/".into()), old.revision).unwrap();
    proxy.open.store(false, Ordering::Relaxed);
    proxy.reset.notify_waiters();
    let new = store.write(update("/a/things/1", old.revision, "y")).await.unwrap();
    let newer = store.write(create("/a/things/2", "y")).await.unwrap();
    store.compact(newer.revision).await.unwrap();
    proxy.open.store(true, Ordering::Relaxed);
    assert!(matches!(missed.next().await, Err(WatchEnd::Compacted { .. })));
    assert_eq!(behind.get("/a/things/1").await.unwrap().value, Some(new.clone()));
    assert_eq!(behind.list(prefix("/a/things/")).await.unwrap().records, [new, newer]);
    // The one that saw everything is told because it asked to forget.
    assert!(matches!(watch.next().await, Err(WatchEnd::Compacted { .. })));
    // A restart of etcd ends nothing.
    let mut watch = store.watch(Scope::Prefix("/b/things/".into()), store.observed()).unwrap();
    cluster.kill(0);
    assert!(matches!(store.health().await, Err(Error::Unavailable(_))));
    cluster.start_member(&etcd, 0);
    let made = loop {
        match store.write(create("/b/things/1", "x")).await {
            Ok(made) => break made,
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(watch.next().await.unwrap()[0].record, made);
    store.health().await.unwrap();
}

/// Forwards connections, until it does not.
pub(crate) struct Proxy {
    pub(crate) address: String,
    pub(crate) open: Arc<AtomicBool>,
    pub(crate) reset: Arc<tokio::sync::Notify>,
    _task: tokio::task::JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn start(target: &str) -> Self {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let open = Arc::new(AtomicBool::new(true));
        let reset = Arc::new(tokio::sync::Notify::new());
        let mut task = tokio::task::JoinSet::new();
        let (is_open, resets) = (open.clone(), reset.clone());
        task.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (mut inner, _) = listener.accept().await.unwrap();
                if !is_open.load(Ordering::Relaxed) {
                    continue;
                }
                let (target, resets) = (target.clone(), resets.clone());
                connections.spawn(async move {
                    let Ok(mut outer) = tokio::net::TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut inner, &mut outer) => {}
                        () = resets.notified() => {}
                    }
                });
            }
        });
        Self { address, open, reset, _task: task }
    }
}

/// What was acknowledged, and the values nobody knows about.
type Outcomes = (Vec<(Revision, String)>, BTreeSet<String>);

/// Writes until told to stop. Returns what was acknowledged and how often nobody knows.
async fn worker(store: Arc<Etcd>, index: usize, stop: Arc<AtomicBool>) -> Outcomes {
    let key = format!("/load/things/{index}");
    let (mut acked, mut unknown) = (Vec::new(), BTreeSet::new());
    let mut found: Option<Revision> = None;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        n += 1;
        let value = format!("{index}-{n}");
        let write = match found {
            None => create(&key, &value),
            Some(expected) if n % 5 == 0 => {
                let last = Some(Template::plain(value.clone()));
                Write::Delete { key: key.clone(), expected, last }
            }
            Some(expected) => update(&key, expected, &value),
        };
        let deletes = matches!(write, Write::Delete { .. });
        match store.write(write).await {
            Ok(record) => {
                assert_eq!(record.value, value.as_bytes());
                acked.push((record.revision, value));
                found = (!deletes).then_some(record.revision);
            }
            Err(Error::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(Error::Unknown(_)) => {
                unknown.insert(value);
                found = loop {
                    match store.get(&key).await {
                        Ok(read) => break read.value.map(|record| record.revision),
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                };
            }
            // Nobody else writes these keys: only a write of unknown outcome can be in the way.
            Err(error) => {
                assert!(!unknown.is_empty(), "{error}");
                found = loop {
                    if let Ok(read) = store.get(&key).await {
                        break read.value.map(|record| record.revision);
                    }
                };
            }
        }
    }
    (acked, unknown)
}

/// Compares what writers were told with what watchers saw. Returns how many outcomes nobody knows.
async fn nothing_lost_nothing_doubled(
    mut workers: tokio::task::JoinSet<Outcomes>,
    stores: [&Etcd; 2],
    watches: &mut [remuda_store::Watch; 2],
) -> usize {
    let mut acked = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    while let Some(done) = workers.join_next().await {
        let (writes, unsure) = done.unwrap();
        for (revision, value) in writes {
            assert_eq!(acked.insert(revision, value), None, "revision {revision} was given twice");
        }
        unknown.extend(unsure);
    }
    assert!(acked.len() > 20, "only {} writes", acked.len());
    let end = stores[0].current().await.unwrap();
    for (watch, store) in watches.iter_mut().zip(stores) {
        store.current().await.unwrap();
        let mut seen = BTreeMap::new();
        loop {
            let events = watch.pending().unwrap();
            if events.is_empty() {
                break;
            }
            for event in events {
                let value = String::from_utf8(event.record.value.to_vec()).unwrap();
                assert_eq!(seen.insert(event.record.revision, value), None);
            }
        }
        assert!(watch.position() >= end);
        for (revision, value) in &acked {
            assert_eq!(seen.get(revision), Some(value), "revision {revision} is lost");
        }
        let values: Vec<_> = seen.values().collect();
        let distinct: BTreeSet<_> = values.iter().collect();
        assert_eq!(values.len(), distinct.len(), "a write happened twice");
        for (revision, value) in &seen {
            assert!(
                acked.contains_key(revision) || unknown.contains(value),
                "{value} was reported as failed"
            );
        }
    }
    unknown.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_connections_leave_no_doubt_about_writes() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let proxy = Proxy::start(&cluster.members[0].client).await;
    let through = EtcdOptions { endpoints: vec![proxy.address.clone()], ..cluster.options() };
    let store = Arc::new(Etcd::connect(through).await.unwrap());
    let direct = Etcd::connect(cluster.options()).await.unwrap();
    let mut watches = [
        store.watch(Scope::Prefix("/load/things/".into()), 0).unwrap(),
        direct.watch(Scope::Prefix("/load/things/".into()), 0).unwrap(),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = tokio::task::JoinSet::new();
    for index in 0..8 {
        workers.spawn(worker(store.clone(), index, stop.clone()));
    }
    for round in 0..20 {
        tokio::time::sleep(Duration::from_millis(30 + round * 7 % 11 * 20)).await;
        proxy.reset.notify_waiters();
    }
    stop.store(true, Ordering::Relaxed);
    let unknown = nothing_lost_nothing_doubled(workers, [&store, &direct], &mut watches).await;
    assert_eq!(unknown, 0, "etcd was there all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_members_loses_and_doubles_nothing() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let etcd = find_etcd().unwrap();
    let store = Arc::new(Etcd::connect(cluster.options()).await.unwrap());
    let mut reversed = cluster.options();
    reversed.endpoints.reverse();
    let other = Etcd::connect(reversed).await.unwrap();
    let mut watches = [
        store.watch(Scope::Prefix("/load/things/".into()), 0).unwrap(),
        other.watch(Scope::Prefix("/load/things/".into()), 0).unwrap(),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = tokio::task::JoinSet::new();
    for index in 0..8 {
        workers.spawn(worker(store.clone(), index, stop.clone()));
    }
    for index in [0, 1, 2, 0, 1, 2] {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.kill(index);
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.start_member(&etcd, index);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let unknown = nothing_lost_nothing_doubled(workers, [&store, &other], &mut watches).await;
    assert!(unknown < 50, "{unknown} writes of unknown outcome");
    let fresh = Etcd::connect(cluster.options()).await.unwrap();
    let state = |page: remuda_store::Page| page.records;
    assert_eq!(
        state(fresh.list(prefix("/")).await.unwrap()),
        state(store.list(prefix("/")).await.unwrap()),
        "a copy made from events equals one that was loaded"
    );
}

#[tokio::test]
async fn secrets_are_sealed_in_etcd_and_move_to_a_new_key() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let keyring = Arc::new(Keyring::open_or_create(dir.path().join("keyring")).unwrap());
    let sealing = Sealing { keyring: keyring.clone(), prefixes: vec!["/core/secrets/".into()] };
    let options = EtcdOptions { sealing: Some(sealing), ..cluster.options() };
    let store = Etcd::connect(options.clone()).await.unwrap();
    let secret = "correct-horse-battery-staple";
    for index in 0..3 {
        store.write(create(&format!("/core/secrets/{index}"), secret)).await.unwrap();
    }
    store.write(create("/core/configmaps/a", "plain-as-day")).await.unwrap();
    let doomed = store.write(create("/core/secrets/doomed", secret)).await.unwrap();
    let last = Some(Template::plain(format!("{secret}!")));
    let key = "/core/secrets/doomed".to_owned();
    store.write(Write::Delete { key, expected: doomed.revision, last }).await.unwrap();
    assert!(cluster.holds("plain-as-day"));
    assert!(!cluster.holds(secret));
    // Another process with its own picture of the keyring follows a rotation.
    let mut theirs = options.clone();
    let ring = Arc::new(Keyring::open_or_create(dir.path().join("keyring")).unwrap());
    theirs.sealing.as_mut().unwrap().keyring = ring.clone();
    let other = Etcd::connect(theirs).await.unwrap();
    let old = keyring.ids();
    keyring.rotate().unwrap();
    assert_eq!(store.reseal().await, Ok(3));
    assert_eq!(store.reseal().await, Ok(0));
    assert_eq!(other.list(prefix("/core/secrets/")).await.unwrap().records.len(), 3);
    assert_eq!(ring.ids(), keyring.ids());
    keyring.retire(&old).unwrap();
    let fresh = Etcd::connect(options).await.unwrap();
    let records = fresh.list(prefix("/core/secrets/")).await.unwrap().records;
    assert!(records.iter().all(|record| record.value == secret));
    assert_eq!(records.len(), 3);
    // Unrelated engines share the format of the keyring.
    let sealing = Sealing { keyring, prefixes: vec!["/core/secrets/".into()] };
    let embedded =
        Embedded::open(dir.path().join("data"), Options { sealing: Some(sealing), ..Options::default() });
    let embedded = embedded.unwrap();
    let made = embedded.write(create("/core/secrets/a", secret)).await.unwrap();
    embedded.write(delete("/core/secrets/a", made.revision)).await.unwrap();
}

#[tokio::test]
async fn tls_needs_the_right_certificates_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "test");
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &issuer).unwrap();
        fs::write(dir.path().join(format!("{name}.pem")), cert.pem()).unwrap();
        fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let tls = EtcdTls {
        ca: Some(dir.path().join("ca.pem")),
        cert: Some(dir.path().join("client.pem")),
        key: Some(dir.path().join("client.key")),
        server_name: None,
    };
    let Some(cluster) = Cluster::start_with(1, Some((dir, tls.clone()))).await else { return };
    let store = Etcd::connect(cluster.options()).await.unwrap();
    let made = store.write(create("/tls/things/a", "x")).await.unwrap();
    assert_eq!(store.get("/tls/things/a").await.unwrap().value, Some(made));
    let anonymous = EtcdTls { cert: None, key: None, ..tls.clone() };
    assert!(Etcd::connect(EtcdOptions { tls: Some(anonymous), ..cluster.options() }).await.is_err());
    let distrustful = EtcdTls { ca: None, ..tls };
    assert!(Etcd::connect(EtcdOptions { tls: Some(distrustful), ..cluster.options() }).await.is_err());
}
