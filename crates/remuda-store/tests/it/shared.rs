//! Processes that share an identity through etcd.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use remuda_store::{Error, Etcd, EtcdError, EtcdOptions, Keyring, Sealing, Shared, Store, WatchEnd};

use crate::{
    conformance::{create, prefix, update},
    etcd::{Cluster, Proxy},
};

const SECRET: &str = "correct horse battery staple";

fn sealing(keyring: &Arc<Keyring>) -> Sealing {
    Sealing { keyring: keyring.clone(), prefixes: vec!["/core/secrets/".into()] }
}

/// A process of its own that joined the others.
async fn join(options: &EtcdOptions) -> Etcd {
    let shared = match Shared::open(options, SECRET).await.unwrap() {
        Some(shared) => shared,
        None => Shared::create(options, SECRET, b"the payload", None).await.unwrap(),
    };
    let (sealing, shared) = (Some(sealing(shared.keyring())), Some(Arc::new(shared)));
    Etcd::connect(EtcdOptions { sealing, shared, ..options.clone() }).await.unwrap()
}

async fn values(store: &Etcd) -> BTreeSet<String> {
    let page = store.list(prefix("/core/secrets/")).await.unwrap();
    page.records.iter().map(|record| String::from_utf8(record.value.to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_first_processes_agree_on_one_identity() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let options = cluster.options();
    assert!(!Shared::exists(&options).await.unwrap());
    assert!(Shared::open(&options, SECRET).await.unwrap().is_none());
    let payloads: Vec<_> = (0..4).map(|index| format!("identity-number-{index}")).collect();
    let racing = payloads.iter().map(|payload| Shared::create(&options, SECRET, payload.as_bytes(), None));
    let first: Vec<_> = futures::future::join_all(racing).await.into_iter().map(Result::unwrap).collect();
    let late = Shared::open(&options, SECRET).await.unwrap().unwrap();
    for shared in &first {
        assert_eq!(shared.payload(), late.payload());
        assert_eq!(shared.keyring().ids(), late.keyring().ids());
    }
    assert!(late.payload().starts_with(b"identity-number-"));
    assert!(!cluster.holds("identity-number-"));
    assert!(Shared::exists(&options).await.unwrap());
    // It is no part of the store.
    let store = Etcd::connect(options.clone()).await.unwrap();
    assert_eq!(store.current().await, Ok(0));
    // Another part of the same etcd has an identity of its own.
    let elsewhere = EtcdOptions { prefix: "/elsewhere".into(), ..options };
    assert!(Shared::open(&elsewhere, SECRET).await.unwrap().is_none());
}

#[tokio::test]
async fn another_secret_is_refused_and_changes_nothing() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let options = cluster.options();
    Shared::create(&options, SECRET, b"ours", None).await.unwrap();
    let wrong = "incorrect horse battery staple";
    assert!(matches!(Shared::open(&options, wrong).await, Err(EtcdError::WrongSecret)));
    let created = Shared::create(&options, wrong, b"theirs", None).await;
    assert!(matches!(created, Err(EtcdError::WrongSecret)));
    assert_eq!(Shared::open(&options, SECRET).await.unwrap().unwrap().payload(), b"ours");
}

#[tokio::test]
async fn objects_of_unshared_servers_get_no_new_identity_but_may_get_theirs() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let dir = tempfile::tempdir().unwrap();
    let keyring = Arc::new(Keyring::open_or_create(dir.path().join("keyring")).unwrap());
    let unshared = EtcdOptions { sealing: Some(sealing(&keyring)), ..cluster.options() };
    let unshared = Etcd::connect(unshared).await.unwrap();
    let made = unshared.write(create("/core/secrets/a", "old")).await.unwrap();
    let refused = Shared::create(&cluster.options(), SECRET, b"new", None).await;
    assert!(matches!(refused, Err(EtcdError::Unshared)));
    assert!(!Shared::exists(&cluster.options()).await.unwrap());

    Shared::create(&cluster.options(), SECRET, b"theirs", Some(&keyring)).await.unwrap();
    let joined = join(&cluster.options()).await;
    assert_eq!(values(&joined).await, BTreeSet::from(["old".to_owned()]));
    // One that does not know about it cannot write what others could not read some day.
    let late = unshared.write(update("/core/secrets/a", made.revision, "late")).await;
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
    unshared.write(create("/core/configmaps/a", "plain")).await.unwrap();
    joined.write(update("/core/secrets/a", made.revision, "new")).await.unwrap();
    assert_eq!(values(&unshared).await, BTreeSet::from(["new".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_under_the_writes_of_all_processes() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let options = cluster.options();
    let stores = [Arc::new(join(&options).await), Arc::new(join(&options).await)];
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for (index, store) in stores.iter().enumerate() {
        let (store, stop) = (store.clone(), stop.clone());
        writers.spawn(async move {
            let mut values = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                let value = format!("process-{index}-value-{}", values.len());
                store.write(create(&format!("/core/secrets/{value}"), &value)).await.unwrap();
                values.insert(value);
            }
            values
        });
    }
    for round in 0..3 {
        let (key, _) = stores[round % 2].rotate_keys().await.unwrap();
        let late = Shared::open(&options, SECRET).await.unwrap().unwrap();
        assert_eq!(late.keyring().ids(), [key]);
    }
    // Two at a time, too.
    let (one, two) = tokio::join!(stores[0].rotate_keys(), stores[1].rotate_keys());
    let (one, two) = (one.unwrap(), two.unwrap());
    stop.store(true, Ordering::Relaxed);
    let mut written = BTreeSet::new();
    while let Some(values) = writers.join_next().await {
        written.extend(values.unwrap());
    }
    assert!(written.len() > 10, "only {} writes", written.len());
    let late = Shared::open(&options, SECRET).await.unwrap().unwrap();
    let [key] = late.keyring().ids()[..] else { panic!("old keys are left") };
    assert!(key == one.0 || key == two.0);
    // One that knows only the newest key reads everything.
    assert_eq!(values(&join(&options).await).await, written);
    for store in &stores {
        assert_eq!(values(store).await, written);
    }
}

#[tokio::test]
async fn a_process_that_missed_two_rotations_loads_anew() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let store = join(&cluster.options()).await;
    let made = store.write(create("/core/secrets/a", "first")).await.unwrap();
    let proxy = Proxy::start(&cluster.members[0].client).await;
    let behind = join(&EtcdOptions { endpoints: vec![proxy.address.clone()], ..cluster.options() }).await;
    let scope = remuda_store::Scope::Prefix("/core/secrets/".into());
    let mut missed = behind.watch(scope, made.revision).unwrap();
    proxy.open.store(false, Ordering::Relaxed);
    proxy.reset.notify_waiters();
    // Sealed with a key that is gone when the other one comes back.
    store.rotate_keys().await.unwrap();
    store.write(create("/core/secrets/b", "second")).await.unwrap();
    store.rotate_keys().await.unwrap();
    proxy.open.store(true, Ordering::Relaxed);
    assert!(matches!(missed.next().await, Err(WatchEnd::Compacted { .. })));
    assert_eq!(values(&behind).await, BTreeSet::from(["first".to_owned(), "second".to_owned()]));
    behind.write(create("/core/secrets/c", "third")).await.unwrap();
    assert!(values(&store).await.contains("third"));
}
