//! What must not be readable on disk is not.

use std::{fs, path::Path, sync::Arc};

use remuda_store::{Embedded, Keyring, OpenError, Options, SealError, Sealing, Store, Template, Write};

use crate::conformance::{create, update};

const SECRET: &str = "correct-horse-battery-staple";

fn options(keyring: &Path) -> Options {
    let keyring = Arc::new(Keyring::open_or_create(keyring).unwrap());
    let sealing = Sealing { keyring, prefixes: vec!["/core/secrets/".into()] };
    Options { sealing: Some(sealing), ..Options::default() }
}

fn holds(dir: &Path, text: &str) -> bool {
    fs::read_dir(dir).unwrap().any(|entry| {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn secrets_are_on_disk_only_sealed() {
    let dir = tempfile::tempdir().unwrap();
    let (data, keyring) = (dir.path().join("data"), dir.path().join("keyring"));
    let options = options(&keyring);
    let ring = options.sealing.clone().unwrap().keyring;
    let store = Embedded::open(&data, options.clone()).unwrap();
    let kept = store.write(create("/core/secrets/ns/a", SECRET)).await.unwrap();
    store.write(create("/core/configmaps/ns/a", "plain-as-day")).await.unwrap();
    let gone = store.write(create("/core/secrets/ns/b", "x")).await.unwrap();
    let last = Some(Template::with_slot(format!("{SECRET} "), 3));
    let end = Write::Delete { key: "/core/secrets/ns/b".into(), expected: gone.revision, last };
    store.write(end).await.unwrap();
    assert!(holds(&data, "plain-as-day"));
    assert!(!holds(&data, SECRET), "the log");
    drop(store);
    let store = Embedded::open(&data, options.clone()).unwrap();
    assert_eq!(store.get("/core/secrets/ns/a").await.unwrap().value, Some(kept.clone()));
    store.checkpoint().await.unwrap();
    let backup = dir.path().join("backups");
    fs::create_dir(&backup).unwrap();
    store.backup(backup.join("one"), false).await.unwrap();
    assert!(!holds(&data, SECRET), "the checkpoint");
    assert!(!holds(&backup, SECRET), "the backup");

    let old = ring.ids();
    let active = ring.rotate().unwrap();
    store.write(update("/core/secrets/ns/a", kept.revision, SECRET)).await.unwrap();
    store.checkpoint().await.unwrap();
    ring.retire(&old).unwrap();
    assert_eq!(ring.ids(), [active]);
    drop(store);
    let store = Embedded::open(&data, options.clone()).unwrap();
    assert_eq!(store.get("/core/secrets/ns/a").await.unwrap().value.unwrap().value, SECRET);
    drop(store);

    // The old backup needs the retired key, and says which.
    let target = dir.path().join("restored");
    match Embedded::restore(&backup.join("one"), &target, &options) {
        Err(OpenError::Seal { source: SealError::MissingKey { id, .. }, .. }) => assert_eq!(id, old[0]),
        other => panic!("{:?}", other.map_err(|error| error.to_string())),
    }
    let without = Options { sealing: None, ..options };
    assert!(matches!(
        Embedded::open(&data, without),
        Err(OpenError::Seal { source: SealError::NoKeyring { .. }, .. })
    ));
}
