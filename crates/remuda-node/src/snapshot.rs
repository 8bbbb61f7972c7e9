//! Snapshots of a server's state: taken, listed, deleted, by command and by schedule.
//!
//! ```text
//! <data>/server/db/snapshots/on-demand-<node>-<unix time>      asked for; kept until it is deleted
//!                            etcd-snapshot-<node>-<unix time>  of the schedule; the newest few are kept
//! <data>/server/db/.metadata/<file>                            what the cluster was when it was taken
//! ```
//!
//! A file has etcd's form whatever the state is kept in ([`remuda_snapshot`]). A server that keeps it in a store of its
//! own puts a backup of that store into a bucket beside the keys. Files begin under another name and are verified before
//! they get their own, so that one that was cut short is never listed.

pub mod bundle;
pub mod catalog;
pub mod command;
mod schedule;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use remuda_snapshot::{
    Unproven, Verified, verify,
    write::{self, Bucket},
};
use remuda_store::{Embedded, ListQuery, Store};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

pub use self::schedule::run as run_schedule;
use crate::{
    config::Settings,
    etcd::{EtcdError, Members},
    files::{self, FileError, PRIVATE},
};

/// The bucket with the backup of a store of our own, in parts.
pub const STORE_BUCKET: &str = "sandbox";
/// The bucket with the sealed identity of the cluster, where there is no etcd that holds it.
pub const BUNDLE_BUCKET: &str = "bootstrap";
/// Below which the store keeps its keys in etcd.
pub const STORE_PREFIX: &str = "/sandbox";
/// What names of snapshots begin with that were asked for.
pub const ON_DEMAND: &str = "on-demand";
const PART: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("back the store up")]
    Store(#[source] remuda_store::Error),
    #[error("the snapshot that was taken is not whole")]
    Unproven(#[from] Unproven),
    #[error("{name:?} is not the name of a snapshot")]
    Name { name: String },
    #[error("there is no snapshot {name:?} on this server")]
    Missing { name: String },
    #[error("this server keeps no state")]
    NoState,
}

/// Where the state is that snapshots are taken of.
#[derive(Clone)]
pub enum Source {
    Etcd { endpoint: String },
    Store(Arc<Embedded>),
}

/// A snapshot on this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub name: String,
    pub location: String,
    pub size: u64,
    /// Seconds since 1970.
    pub created: i64,
}

/// The snapshots of one server. One operation at a time.
pub struct Snapshots {
    pub settings: Settings,
    pub source: Source,
    /// The identity of the cluster, sealed, for stores that do not hold it.
    pub bundle: Option<(String, Vec<u8>)>,
    pub client: kube::Client,
    alone: tokio::sync::Mutex<()>,
}

impl Snapshots {
    pub fn new(
        settings: Settings,
        source: Source,
        bundle: Option<(String, Vec<u8>)>,
        client: kube::Client,
    ) -> Snapshots {
        Snapshots { settings, source, bundle, client, alone: tokio::sync::Mutex::new(()) }
    }

    /// Takes a snapshot. When this returns it is whole, durable and in the catalogue.
    pub async fn save(&self, prefix: &str) -> Result<(Listed, Verified), SnapshotError> {
        let _alone = self.alone.lock().await;
        let mut created = Timestamp::now().as_second();
        let named = |at: i64| format!("{prefix}-{}-{at}", self.settings.node_name);
        // Two in one second are two.
        while self.path(&named(created))?.exists() {
            created += 1;
        }
        let name = named(created);
        let path = self.path(&name)?;
        files::private_dir(&self.settings.snapshots.directory)?;
        let unfinished = path.with_file_name(format!(".{name}.part"));
        let taken = self.take(&unfinished).await;
        let verified = match taken {
            Ok(verified) => verified,
            Err(error) => {
                let _ = std::fs::remove_file(&unfinished);
                return Err(error);
            }
        };
        self.keep_metadata(&name).await?;
        std::fs::rename(&unfinished, &path)
            .map_err(|source| SnapshotError::Write { path: path.clone(), source })?;
        info!(snapshot = name, revision = verified.revision, keys = verified.keys, "snapshot taken");
        self.tell().await;
        let location = location(&path);
        Ok((Listed { name, location, size: verified.size, created }, verified))
    }

    async fn take(&self, path: &Path) -> Result<Verified, SnapshotError> {
        let failed = |source| SnapshotError::Write { path: path.to_owned(), source };
        match &self.source {
            Source::Etcd { endpoint } => {
                let mut file = File::create(path).map_err(failed)?;
                let members = Members::new(&self.settings.paths, vec![endpoint.clone()])?;
                members.snapshot(&mut file).await?;
                file.sync_all().map_err(failed)?;
            }
            Source::Store(store) => {
                let bytes = self.of_store(store, path).await?;
                files::write(path, &bytes, PRIVATE)?;
            }
        }
        let path = path.to_owned();
        let checked = tokio::task::spawn_blocking(move || verify(&mut File::open(path)?)).await;
        Ok(checked.map_err(|error| failed(io::Error::other(error)))??)
    }

    /// The store in the form of a snapshot: its keys as an index, its backup beside them.
    async fn of_store(&self, store: &Embedded, path: &Path) -> Result<Vec<u8>, SnapshotError> {
        let backup = path.with_extension("backup");
        let revision = store.backup(&backup, true).await.map_err(SnapshotError::Store)?;
        let bytes = std::fs::read(&backup);
        let _ = std::fs::remove_file(&backup);
        let bytes = bytes.map_err(|source| SnapshotError::Write { path: backup, source })?;
        let query = ListQuery { prefix: "/".to_owned(), at: Some(revision), ..ListQuery::default() };
        let page = store.list(query).await.map_err(SnapshotError::Store)?;
        let number = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
        let key = |record: &Arc<remuda_store::Record>| {
            write::revision(
                number(record.revision),
                format!("{STORE_PREFIX}/o{}", record.key).as_bytes(),
                b"",
            )
        };
        let parts = bytes.chunks(PART).enumerate();
        let parts = parts.map(|(at, part)| ((at as u64).to_be_bytes().to_vec(), part.to_vec())).collect();
        let bundle =
            self.bundle.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone())).collect();
        let bucket = |name: &str, items| Bucket { name: name.to_owned(), items };
        Ok(write::seal(write::database(vec![
            bucket("key", page.records.iter().map(key).collect()),
            bucket(STORE_BUCKET, parts),
            bucket(BUNDLE_BUCKET, bundle),
        ])))
    }

    /// What the cluster is now, for those who will restore more than its data.
    async fn keep_metadata(&self, name: &str) -> Result<(), SnapshotError> {
        let metadata = catalog::extra_metadata(&self.client, self.settings.distribution).await;
        if metadata.is_empty() {
            return Ok(());
        }
        files::private_dir(&self.settings.paths.snapshot_metadata())?;
        let text = serde_json::to_string(&metadata).expect("a map of text");
        Ok(files::write(&self.settings.paths.snapshot_metadata().join(name), text.as_bytes(), PRIVATE)?)
    }

    pub fn list(&self) -> Result<Vec<Listed>, SnapshotError> {
        list(&self.settings)
    }

    /// Deletes snapshots. One that is gone already is no error to those who want it gone.
    pub async fn delete(&self, names: &[String]) -> Result<(), SnapshotError> {
        let _alone = self.alone.lock().await;
        for name in names {
            remove(&self.path(name)?)?;
            remove(&self.settings.paths.snapshot_metadata().join(name))?;
            info!(snapshot = name, "snapshot deleted");
        }
        self.tell().await;
        Ok(())
    }

    /// Deletes those of the schedule that are too many. Those that were asked for are kept.
    pub async fn prune(&self, retention: usize) -> Result<Vec<String>, SnapshotError> {
        let names =
            surplus(&self.list()?, &self.settings.snapshots.name, &self.settings.node_name, retention);
        if !names.is_empty() {
            self.delete(&names).await?;
        }
        Ok(names)
    }

    /// Brings the catalogue in the cluster up to date. Files count: what cannot be told now is told next time.
    pub async fn tell(&self) {
        let listed = match self.list() {
            Ok(listed) => listed,
            Err(error) => return warn!(error = %remuda_control::Chain(&error), "snapshots cannot be listed"),
        };
        if let Err(error) = catalog::write(&self.client, &self.settings, &listed).await {
            warn!(error = %remuda_control::Chain(&error), "the catalogue of snapshots is not up to date");
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        path(&self.settings, name)
    }
}

/// Where a snapshot lies. Names come from others: none leads out of the directory.
fn path(settings: &Settings, name: &str) -> Result<PathBuf, SnapshotError> {
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    match plain {
        true => Ok(settings.snapshots.directory.join(name)),
        false => Err(SnapshotError::Name { name: name.to_owned() }),
    }
}

fn location(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn remove(path: &Path) -> Result<(), SnapshotError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(SnapshotError::Write { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// The snapshots of a server, oldest first.
pub fn list(settings: &Settings) -> Result<Vec<Listed>, SnapshotError> {
    let directory = &settings.snapshots.directory;
    let failed = |source| SnapshotError::File(FileError::Read { path: directory.clone(), source });
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut listed = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let metadata = entry.metadata().map_err(failed)?;
        if name.starts_with('.') || !metadata.is_file() {
            continue;
        }
        let changed = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
        let named = name.rsplit('-').next().and_then(|time| time.parse().ok());
        let created = named.or(changed.map(Timestamp::as_second)).unwrap_or_default();
        listed.push(Listed { location: location(&entry.path()), size: metadata.len(), created, name });
    }
    listed.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    Ok(listed)
}

/// Names of those of the schedule beyond the newest `retention`.
fn surplus(listed: &[Listed], prefix: &str, node: &str, retention: usize) -> Vec<String> {
    let prefix = format!("{prefix}-{node}-");
    let scheduled: Vec<_> = listed.iter().filter(|one| one.name.starts_with(&prefix)).collect();
    let too_many = scheduled.len().saturating_sub(retention);
    scheduled[..too_many].iter().map(|one| one.name.clone()).collect()
}

/// What was kept about a snapshot.
pub fn metadata(settings: &Settings, name: &str) -> BTreeMap<String, String> {
    let text = files::read(&settings.paths.snapshot_metadata().join(name)).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_snapshots_of_the_schedule_are_too_many() {
        let listed =
            |name: &str, created| Listed { name: name.to_owned(), location: String::new(), size: 1, created };
        let all = [
            listed("etcd-snapshot-a-1", 1),
            listed("on-demand-a-2", 2),
            listed("etcd-snapshot-a-3", 3),
            listed("etcd-snapshot-b-4", 4),
            listed("etcd-snapshot-a-5", 5),
        ];
        assert_eq!(surplus(&all, "etcd-snapshot", "a", 2), ["etcd-snapshot-a-1"]);
        assert_eq!(surplus(&all, "etcd-snapshot", "a", 0).len(), 3);
        assert!(surplus(&all, "etcd-snapshot", "a", 5).is_empty());
    }
}
