//! Working on a data directory no server is using.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use remuda_names::file;
use remuda_store::{Embedded, OpenError, Options, Revision};

use crate::{
    admin::Rotated,
    archive::{self, ArchiveError, Manifest},
    config::Datastore,
    datadir::{DataDir, DataDirError},
    engine::{self, Engine, EngineError, MaintenanceError},
};

#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("there is no server's data in {}", .path.display())]
    Nothing { path: PathBuf },
    #[error("{} is not empty", .path.display())]
    NotEmpty { path: PathBuf },
    #[error("look into {}", .path.display())]
    Look { path: PathBuf, source: io::Error },
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Maintenance(#[from] MaintenanceError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("restore the store")]
    Restore(#[source] OpenError),
}

impl OfflineError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            OfflineError::Nothing { .. } => Some(
                "name the server's directory with --data-dir, or the server with --kubeconfig".to_owned(),
            ),
            OfflineError::NotEmpty { .. } => {
                Some("a backup is restored into a new directory; choose one with --data-dir".to_owned())
            }
            OfflineError::DataDir(error) => error.hint(),
            OfflineError::Engine(error) => error.hint(),
            OfflineError::Archive(error) => error.hint(),
            OfflineError::Maintenance(error) => error.hint(),
            _ => None,
        }
    }
}

/// Backs up the embedded store of a data directory, and its keys.
pub async fn backup(data_dir: &Path, output: &Path) -> Result<Manifest, OfflineError> {
    let (dir, engine) = open(data_dir).await?;
    let manifest = engine.backup_to(output, dir.path()).await;
    engine.store().close().await;
    Ok(manifest?)
}

/// Encrypts the embedded store of a data directory with a new key.
pub async fn rotate_keys(data_dir: &Path) -> Result<Rotated, OfflineError> {
    let (_dir, engine) = open(data_dir).await?;
    let rotated = engine.rotate_keys().await;
    engine.store().close().await;
    Ok(rotated?)
}

async fn open(data_dir: &Path) -> Result<(DataDir, Engine), OfflineError> {
    // Opening would set up what is not there, which is not what somebody wants who saves data.
    if !data_dir.join(file::STORE).is_dir() {
        return Err(OfflineError::Nothing { path: data_dir.to_owned() });
    }
    let dir = DataDir::open(data_dir)?;
    let engine = Engine::open(&Datastore::Embedded, &dir).await?;
    Ok((dir, engine))
}

/// Makes a data directory from a backup. Nothing is left behind when it fails.
pub fn restore(backup: &Path, data_dir: &Path) -> Result<(Manifest, Revision), OfflineError> {
    let look = |source| OfflineError::Look { path: data_dir.to_owned(), source };
    let existed = data_dir.exists();
    if existed && fs::read_dir(data_dir).map_err(look)?.next().is_some() {
        return Err(OfflineError::NotEmpty { path: data_dir.to_owned() });
    }
    let dir = DataDir::open(data_dir)?;
    let restored = unpack(backup, &dir);
    if restored.is_err() {
        clear(dir.path(), existed);
    }
    restored
}

fn unpack(backup: &Path, dir: &DataDir) -> Result<(Manifest, Revision), OfflineError> {
    let scratch = dir.join(file::SCRATCH);
    let manifest = archive::unpack(backup, &scratch)?;
    for name in archive::KEEP {
        let from = scratch.join(name);
        if from.exists() {
            let to = dir.join(name);
            fs::rename(&from, &to).map_err(|source| DataDirError::Write { path: to, source })?;
        }
    }
    let options = Options { sealing: Some(engine::sealing(dir)?), ..Options::default() };
    let revision = Embedded::restore(&scratch.join(file::STORE), &dir.join(file::STORE), &options)
        .map_err(OfflineError::Restore)?;
    // What is left there is a second copy of everything.
    let _ = fs::remove_dir_all(&scratch);
    Ok((manifest, revision))
}

/// Takes away what a failed restore has put there; the directory was empty before.
fn clear(dir: &Path, existed: bool) {
    if !existed {
        let _ = fs::remove_dir_all(dir);
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

#[cfg(test)]
mod tests {
    use remuda_store::{Template, Write};

    use super::*;
    use crate::pki::Pki;

    fn create(key: &str, value: &str) -> Write {
        Write::Create { key: key.to_owned(), value: Template { bytes: value.to_owned().into(), slot: None } }
    }

    async fn filled() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let (held, engine) = {
            let held = DataDir::open(dir.path()).unwrap();
            let engine = Engine::open(&Datastore::Embedded, &held).await.unwrap();
            (held, engine)
        };
        engine.store().write(create("/core/secrets/a/b", "hush-hush")).await.unwrap();
        Pki::open(&held, jiff::Timestamp::now()).unwrap();
        engine.store().close().await;
        dir
    }

    async fn value(dir: &Path) -> (Vec<u8>, Revision) {
        let (_held, engine) = open(dir).await.unwrap();
        let record = engine.store().get("/core/secrets/a/b").await.unwrap().value.unwrap();
        let current = engine.store().current().await.unwrap();
        engine.store().close().await;
        (record.value.to_vec(), current)
    }

    fn contains(dir: &Path, needle: &[u8]) -> bool {
        fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.path() {
            path if path.is_dir() => contains(&path, needle),
            path => fs::read(path).unwrap().windows(needle.len()).any(|part| part == needle),
        })
    }

    #[tokio::test]
    async fn a_restored_directory_has_the_data_the_keys_and_a_later_revision() {
        let dir = filled().await;
        let output = dir.path().join("out");
        let manifest = backup(dir.path(), &output).await.unwrap();
        let target = tempfile::tempdir().unwrap();
        let target = target.path().join("new");
        let (restored, revision) = restore(&output, &target).unwrap();
        assert_eq!(restored, manifest);
        assert!(revision > manifest.revision);
        for name in archive::KEEP {
            assert_eq!(fs::read(target.join(name)).unwrap(), fs::read(dir.path().join(name)).unwrap());
        }
        let (value, current) = value(&target).await;
        assert_eq!(value, b"hush-hush");
        assert_eq!(current, revision);
        assert!(!contains(&target, b"hush-hush") && !contains(dir.path(), b"hush-hush"));
    }

    #[tokio::test]
    async fn a_directory_with_anything_in_it_is_not_restored_into() {
        let dir = filled().await;
        let output = dir.path().join("out");
        backup(dir.path(), &output).await.unwrap();
        assert!(matches!(restore(&output, dir.path()), Err(OfflineError::NotEmpty { .. })));
    }

    #[tokio::test]
    async fn a_failed_restore_leaves_nothing_behind() {
        let dir = filled().await;
        let output = dir.path().join("out");
        backup(dir.path(), &output).await.unwrap();
        let mut bytes = fs::read(&output).unwrap();
        bytes.truncate(bytes.len() / 2);
        fs::write(&output, bytes).unwrap();
        let target = tempfile::tempdir().unwrap();
        assert!(restore(&output, target.path()).is_err());
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
        assert!(restore(&output, &target.path().join("new")).is_err());
        assert!(!target.path().join("new").exists());
    }

    #[tokio::test]
    async fn a_rotation_leaves_one_new_key_and_all_values_readable() {
        let dir = filled().await;
        let before = fs::read(dir.path().join(file::KEYRING)).unwrap();
        let rotated = rotate_keys(dir.path()).await.unwrap();
        assert_eq!(rotated.retired, 1);
        let after = fs::read_to_string(dir.path().join(file::KEYRING)).unwrap();
        assert_eq!(after.lines().count(), 1);
        assert_ne!(before, after.as_bytes());
        assert_eq!(value(dir.path()).await.0, b"hush-hush");
    }

    #[tokio::test]
    async fn incomplete_or_damaged_data_is_not_backed_up() {
        for name in archive::KEEP {
            let dir = filled().await;
            for contents in [Some("-----BEGIN NOTHING-----"), None] {
                match contents {
                    Some(contents) => fs::write(dir.path().join(name), contents).unwrap(),
                    None => fs::remove_file(dir.path().join(name)).unwrap(),
                }
                let output = dir.path().join("out");
                let refused = backup(dir.path(), &output).await.unwrap_err();
                assert!(!output.exists(), "{name}: {refused}");
                assert!(refused.hint().is_some(), "{name}: {refused:?}");
            }
        }
        let dir = filled().await;
        let log = dir.path().join("store").join(format!("wal-{:020}.log", 1));
        let mut bytes = fs::read(&log).unwrap();
        bytes[100] ^= 1;
        fs::write(&log, bytes).unwrap();
        let refused = backup(dir.path(), &dir.path().join("out")).await.unwrap_err();
        assert!(matches!(refused, OfflineError::Engine(EngineError::Open(OpenError::Damaged { .. }))));
    }

    #[tokio::test]
    async fn nothing_is_set_up_where_there_is_no_server() {
        let dir = tempfile::tempdir().unwrap();
        let result = backup(dir.path(), &dir.path().join("out")).await;
        assert!(matches!(result, Err(OfflineError::Nothing { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
