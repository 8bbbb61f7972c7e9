use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt,
};

use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client};
use remuda_auth::identity::User;
use remuda_s3::fake::{self, FakeStore, Fault};
use remuda_store::{Template, Write};
use serde_json::json;

use super::*;
use crate::{
    Server as Process,
    config::{Config, Datastore, Options as Settings},
    datadir::DataDir,
    offline,
    pki::Pki,
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn settings(dir: &Path, schedule: &str, to: &str) -> Settings {
    Settings {
        bind: Some("127.0.0.1:0".to_owned()),
        data_dir: Some(dir.join("data")),
        controllers: Some(false),
        backup_schedule: Some(schedule.to_owned()),
        backup_to: Some(to.to_owned()),
        backup_retention: Some(2),
        ..Settings::default()
    }
}

/// What a server has that backs itself up at three every night.
struct Site {
    dir: tempfile::TempDir,
    scheduled: Scheduled,
    _held: DataDir,
}

impl Site {
    async fn with(settings: impl FnOnce(&Path) -> Settings) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let Config { data_dir, backups, .. } = settings(dir.path()).resolve().unwrap();
        let held = DataDir::open(&data_dir).unwrap();
        let engine = Engine::open(&Datastore::Embedded, &held).await.unwrap();
        let template = Template { bytes: "hush-hush".to_owned().into(), slot: None };
        let write = Write::Create { key: "/core/secrets/a/b".to_owned(), value: template };
        engine.store().write(write).await.unwrap();
        let pki = Pki::open(&held, Timestamp::now()).unwrap();
        let (engine, progress) = (Arc::new(engine), Progress::default());
        let scheduled = Scheduled::new(backups.unwrap(), &pki.ca_pem(), engine, &data_dir, progress);
        Site { dir, scheduled, _held: held }
    }

    async fn local() -> Site {
        Site::with(|dir| settings(dir, "0 3 * * *", dir.join("backups").to_str().unwrap())).await
    }

    fn backups(&self) -> PathBuf {
        self.dir.path().join("backups")
    }

    fn name(&self, made: &str) -> String {
        self.scheduled.server.backup(at(made)).name
    }

    async fn turn(&self, now: &str) -> Result<Turn, BackupError> {
        self.scheduled.turn(at(now)).await
    }

    /// Whether one was made.
    async fn made(&self, now: &str) -> bool {
        self.turn(now).await.unwrap().made.is_some()
    }

    fn scratch(&self) -> usize {
        fs::read_dir(self.scheduled.data_dir.join(file::SCRATCH)).unwrap().count()
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_is_due_at_once_and_a_time_that_was_missed_once() {
    let nightly = Schedule::parse("0 3 * * *").unwrap();
    let now = at("2026-11-19T12:00:00Z");
    for (newest, expected) in [
        (None, "2026-11-19T12:00:00Z"),
        (Some("2026-11-19T03:00:00Z"), "2026-11-20T03:00:00Z"),
        // A week of nights was missed.
        (Some("2026-11-12T03:00:00Z"), "2026-11-19T12:00:00Z"),
        // It was made late, and the next is in time.
        (Some("2026-11-19T11:59:59Z"), "2026-11-20T03:00:00Z"),
        // The clock was ahead then.
        (Some("2030-01-01T03:00:00Z"), "2026-11-20T03:00:00Z"),
    ] {
        assert_eq!(due(&nightly, newest.map(at), now), at(expected), "{newest:?}");
    }
}

#[tokio::test]
async fn a_backup_in_a_directory_is_private_verified_and_can_be_restored() {
    let site = Site::local().await;
    assert!(site.made("2026-11-19T12:00:00Z").await);
    assert!(!site.made("2026-11-20T02:59:59Z").await, "it is not due yet");
    assert!(site.made("2026-11-20T03:00:00Z").await);
    let expected = [site.name("2026-11-19T12:00:00Z"), site.name("2026-11-20T03:00:00Z")];
    assert_eq!(names(&site.backups()), expected);
    let newest = site.backups().join(&expected[1]);
    assert_eq!((mode(&site.backups()), mode(&newest)), (0o700, 0o600));
    assert_eq!(site.scratch(), 0, "something is left in the data directory");
    let target = site.dir.path().join("new");
    offline::restore(&newest, &target).unwrap();
    let again = DataDir::open(&target).unwrap();
    let engine = Engine::open(&Datastore::Embedded, &again).await.unwrap();
    let value = engine.store().get("/core/secrets/a/b").await.unwrap().value.unwrap().value.to_vec();
    engine.store().close().await;
    assert_eq!(value, b"hush-hush");
}

#[tokio::test]
async fn only_own_backups_are_deleted_and_only_those_that_are_too_many() {
    let site = Site::local().await;
    place::create_private(&site.backups()).unwrap();
    let other = Server::new("another").backup(at("2020-01-01T00:00:00Z")).name;
    let strangers = [other, "remuda-2020-01-01.backup".to_owned(), "notes".to_owned()];
    for name in &strangers {
        fs::write(site.backups().join(name), "").unwrap();
    }
    for night in ["2026-11-19T03:00:00Z", "2026-11-20T03:00:00Z", "2026-11-21T03:00:00Z"] {
        assert!(site.made(night).await);
    }
    let mut expected = strangers.to_vec();
    expected.extend([site.name("2026-11-20T03:00:00Z"), site.name("2026-11-21T03:00:00Z")]);
    expected.sort_unstable();
    assert_eq!(names(&site.backups()), expected);
}

#[tokio::test]
async fn a_file_of_a_server_that_was_killed_is_no_backup_and_goes() {
    let site = Site::local().await;
    place::create_private(&site.backups()).unwrap();
    let half = site.scheduled.server.backup(at("2026-11-19T03:00:00Z"));
    let partial = site.backups().join(site.scheduled.server.partial(&half));
    fs::write(&partial, "half of a").unwrap();
    let another = Server::new("another");
    let of_another = another.partial(&another.backup(half.made));
    fs::write(site.backups().join(&of_another), "at work").unwrap();
    // It would be the newest if it counted.
    assert!(site.made("2026-11-19T03:00:01Z").await);
    assert_eq!(names(&site.backups()), [of_another, site.name("2026-11-19T03:00:01Z")]);
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_nothing_and_the_older_backups() {
    let site = Site::local().await;
    assert!(site.made("2026-11-19T03:00:00Z").await);
    let before = names(&site.backups());
    // In place of the file that would be written.
    let next = site.scheduled.server.backup(at("2026-11-20T03:00:00Z"));
    let blocked = site.backups().join(site.scheduled.server.partial(&next));
    fs::create_dir(&blocked).unwrap();
    let refused = site.turn("2026-11-20T03:00:00Z").await.err().unwrap();
    assert!(matches!(refused, BackupError::Make(MaintenanceError::Archive(_))), "{refused}");
    fs::remove_dir(&blocked).unwrap();
    // A key that is lost would make it worthless.
    let key = site.scheduled.data_dir.join(file::CA_KEY);
    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    assert!(matches!(site.turn("2026-11-20T03:00:00Z").await, Err(BackupError::Make(_))));
    fs::write(&key, kept).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!((names(&site.backups()), site.scratch()), (before, 0));
    assert!(site.made("2026-11-20T03:00:00Z").await);
    fs::set_permissions(site.backups(), fs::Permissions::from_mode(0o755)).unwrap();
    let refused = site.turn("2026-11-21T03:00:00Z").await.err().unwrap();
    assert!(matches!(refused, BackupError::Exposed { mode: 0o755, .. }), "{refused}");
    fs::remove_dir_all(site.backups()).unwrap();
    fs::write(site.backups(), "").unwrap();
    assert!(matches!(site.turn("2026-11-21T03:00:00Z").await, Err(BackupError::Directory { .. })));
}

#[tokio::test]
async fn what_cannot_be_restored_is_found() {
    let site = Site::local().await;
    assert!(site.made("2026-11-19T03:00:00Z").await);
    let good = site.backups().join(site.name("2026-11-19T03:00:00Z"));
    let scratch = Scratch::new(&site.scheduled.data_dir).unwrap();
    verify(&good, &scratch).await.unwrap();
    let bytes = fs::read(&good).unwrap();
    let damaged = site.dir.path().join("damaged");
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for length in [0, 100, bytes.len() / 2, end - 10] {
        fs::write(&damaged, &bytes[..length]).unwrap();
        assert!(verify(&damaged, &scratch).await.is_err(), "cut at {length}");
    }
    // The checksums of the archive are right, and the store in it is not.
    let (store, manifest) = (site.dir.path().join("store"), site.dir.path().join("odd"));
    fs::write(&store, "no store").unwrap();
    let described = Manifest { format: archive::FORMAT, created: String::new(), revision: 1 };
    archive::pack(&manifest, &described, &store, &site.scheduled.data_dir).unwrap();
    assert!(matches!(verify(&manifest, &scratch).await, Err(BackupError::Contents(_))));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

struct Remote {
    site: Site,
    store: FakeStore,
}

impl Remote {
    async fn start() -> Remote {
        let objects = tempfile::tempdir().unwrap().keep();
        let store = FakeStore::start(IpAddr::V4(Ipv4Addr::LOCALHOST), &objects).await.unwrap();
        store.make("backups").unwrap();
        let site = Site::with(|dir| {
            let (ca, keys) = (dir.join("ca.pem"), dir.join("keys"));
            fs::write(&ca, store.certificate()).unwrap();
            let (access, secret) = (fake::ACCESS_KEY, fake::SECRET_KEY);
            fs::write(&keys, format!("access-key: {access}\nsecret-key: {secret}\n")).unwrap();
            fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
            Settings {
                backup_s3_endpoint: Some(store.endpoint()),
                backup_s3_ca: Some(ca),
                backup_s3_keys: Some(keys),
                ..settings(dir, "0 3 * * *", "s3://backups/servers/a")
            }
        })
        .await;
        Remote { site, store }
    }

    fn names(&self) -> Vec<String> {
        self.store.names("backups", "servers/a")
    }
}

#[tokio::test]
async fn a_backup_in_a_store_is_read_again_and_old_ones_go() {
    let Remote { site, store } = Remote::start().await;
    store.fault("PUT", Fault::LoseAnswer);
    for night in ["2026-11-19T03:00:00Z", "2026-11-20T03:00:00Z", "2026-11-21T03:00:00Z"] {
        assert!(site.made(night).await);
    }
    assert!(!site.made("2026-11-21T04:00:00Z").await);
    let remote = Remote { site, store };
    let site = &remote.site;
    assert_eq!(remote.names(), [site.name("2026-11-20T03:00:00Z"), site.name("2026-11-21T03:00:00Z")]);
    let read = remote
        .store
        .calls()
        .iter()
        .filter(|call| call.ends_with(".backup") && call.starts_with("GET"))
        .count();
    assert_eq!((read, site.scratch()), (3, 0));
}

#[tokio::test]
async fn a_store_that_refuses_or_returns_something_else_has_no_backup() {
    let remote = Remote::start().await;
    let site = &remote.site;
    remote.store.fault("PUT", Fault::Refuse(403, "AccessDenied"));
    let refused = site.turn("2026-11-19T03:00:00Z").await.err().unwrap();
    assert!(matches!(refused, BackupError::Store(S3Error::Forbidden { .. })), "{refused}");
    assert!(!Chain(&refused).to_string().contains("canary"), "{refused}");
    // It is there, but nothing says that it is whole, and it cannot be deleted either.
    remote.store.fault("GET /backups/servers", Fault::Refuse(403, "AccessDenied"));
    remote.store.fault("DELETE", Fault::Refuse(403, "AccessDenied"));
    remote.store.fault("DELETE", Fault::Refuse(403, "AccessDenied"));
    assert!(site.turn("2026-11-19T03:00:00Z").await.is_err());
    assert_eq!((site.scheduled.doubtful.lock().len(), remote.names().len()), (1, 1));
    let refused = site.turn("2026-11-19T03:00:10Z").await.err().unwrap();
    assert!(matches!(refused, BackupError::Store(S3Error::Forbidden { .. })), "{refused}");
    assert!(site.made("2026-11-19T03:00:20Z").await);
    assert_eq!(remote.names(), [site.name("2026-11-19T03:00:20Z")]);
    assert!(site.scheduled.doubtful.lock().is_empty());
}

#[tokio::test]
async fn a_server_backs_itself_up_and_tells() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().join("backups");
    let config = settings(dir.path(), "0 3 1 1 *", backups.to_str().unwrap()).resolve().unwrap();
    // The first cannot be made, which the server does not mind.
    fs::write(&backups, "").unwrap();
    let running = Box::pin(Process::start(config.clone())).await.unwrap();
    let told = |reason: &'static str, api: remuda_apiserver::ApiServer| async move {
        let client = Client::new(api.client_service(User::api_server()), "default");
        let events: Api<Event> = Api::namespaced(client, "default");
        for _ in 0..3000 {
            let found = events.list(&kube::api::ListParams::default()).await.unwrap();
            if let Some(event) = found.items.into_iter().find(|event| event.reason.as_deref() == Some(reason))
            {
                return event;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there is no Event {reason}");
    };
    let event = told(FAILED, running.api().clone()).await;
    assert_eq!(json!(event.involved_object)["name"], REGARDING);
    running.shutdown().await;
    fs::remove_file(&backups).unwrap();
    let running = Box::pin(Process::start(config)).await.unwrap();
    let event = told(MADE, running.api().clone()).await;
    let held = names(&backups);
    assert!(event.message.unwrap().contains(&held[0]), "{held:?}");
    running.shutdown().await;
    assert_eq!(held.len(), 1);
}
