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
pub mod s3;
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
use self::{
    catalog::{Catalogue, Kept},
    s3::S3Snapshots,
};
use crate::{
    config::Settings,
    etcd::{EtcdError, Members},
    files::{self, FileError, PRIVATE},
    pki::{Pki, PkiError},
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
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the store of snapshots")]
    S3(#[from] remuda_s3::S3Error),
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

/// The identity of the cluster, and what it is sealed with.
pub struct Bundle {
    pub pki: Arc<Pki>,
    pub password: String,
}

impl Bundle {
    /// As it is now: keys for Secrets change.
    fn sealed(&self) -> Result<(Vec<u8>, Vec<u8>), PkiError> {
        let sealed = bundle::seal(&self.password, &self.pki.shared()?);
        Ok((bundle::name(&self.password).into_bytes(), sealed))
    }
}

/// What came of taking a snapshot.
#[derive(Debug)]
pub struct Saved {
    pub listed: Listed,
    pub verified: Verified,
    /// Why it did not get into the store it was to be put into as well.
    pub s3_error: Option<String>,
}

/// The snapshots of one server. One operation at a time.
pub struct Snapshots {
    pub settings: Settings,
    pub source: Source,
    /// The identity of the cluster, for stores that do not hold it.
    pub bundle: Option<Bundle>,
    pub client: kube::Client,
    alone: tokio::sync::Mutex<()>,
}

impl Snapshots {
    pub fn new(
        settings: Settings,
        source: Source,
        bundle: Option<Bundle>,
        client: kube::Client,
    ) -> Snapshots {
        Snapshots { settings, source, bundle, client, alone: tokio::sync::Mutex::new(()) }
    }

    /// Takes a snapshot. When this returns it is whole, durable and in the catalogue. A store that does not take it
    /// is told about in the catalogue: the snapshot on this server is as good as without one.
    pub async fn save(&self, prefix: &str, s3: Option<&S3Snapshots>) -> Result<Saved, SnapshotError> {
        let _alone = self.alone.lock().await;
        let mut created = Timestamp::now().as_second();
        let named = |at: i64| format!("{prefix}-{}-{at}", self.settings.node_name);
        // Two in one second are two.
        while self.path(&named(created))?.exists() {
            created += 1;
        }
        let name = named(created);
        let path = self.path(&name)?;
        let unfinished = path.with_file_name(format!(".{name}.part"));
        let taken = match files::private_dir(&self.settings.snapshots.directory) {
            Ok(()) => self.take(&unfinished).await,
            Err(error) => Err(error.into()),
        };
        let verified = match taken {
            Ok(verified) => verified,
            Err(error) => {
                let _ = std::fs::remove_file(&unfinished);
                self.tell_failed(&name, &path, created, &error).await;
                return Err(error);
            }
        };
        self.keep_metadata(&name).await?;
        std::fs::rename(&unfinished, &path)
            .map_err(|source| SnapshotError::Write { path: path.clone(), source })?;
        info!(snapshot = name, revision = verified.revision, keys = verified.keys, "snapshot taken");
        let s3_error = match s3 {
            Some(s3) => self.upload(s3, &name, &path, verified.size, created).await.err(),
            None => None,
        };
        self.tell(s3).await;
        let listed = Listed { name, location: location(&path), size: verified.size, created };
        Ok(Saved { listed, verified, s3_error })
    }

    /// Those who look for a snapshot of the schedule find why there is none.
    async fn tell_failed(&self, name: &str, path: &Path, created: i64, error: &SnapshotError) {
        let why = remuda_control::Chain(error).to_string();
        let own = Catalogue::of_node(&self.client, &self.settings.node_name);
        let listed = Listed { name: name.to_owned(), location: location(path), size: 0, created };
        if let Err(error) = own.put(&listed, &BTreeMap::new(), Some(&why)).await {
            stale(&error);
        }
    }

    /// Puts a snapshot of this server into the store. Answers why it could not.
    async fn upload(
        &self,
        s3: &S3Snapshots,
        name: &str,
        path: &Path,
        size: u64,
        created: i64,
    ) -> Result<(), String> {
        let metadata = metadata(&self.settings, name);
        let uploaded = s3.upload(name, path, &metadata).await;
        let Err(error) = uploaded else {
            info!(snapshot = name, "snapshot uploaded");
            return Ok(());
        };
        let why = remuda_control::Chain(&error).to_string();
        warn!(snapshot = name, error = why, "the snapshot is not in S3");
        let record = Catalogue::of_store(&self.client, s3.place());
        if let Err(error) = record.put(&s3.at(name, size, created), &metadata, Some(&why)).await {
            stale(&error);
        }
        Err(why)
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
        // After the backup: keys are added before anything is sealed with them.
        let bundle = self.bundle.iter().map(Bundle::sealed).collect::<Result<_, PkiError>>()?;
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

    /// Those of this server, and those in the store.
    pub async fn all(&self, s3: Option<&S3Snapshots>) -> Result<Vec<Listed>, SnapshotError> {
        let mut listed = self.list()?;
        if let Some(s3) = s3 {
            listed.extend(s3.list().await?);
        }
        Ok(listed)
    }

    /// Deletes snapshots, here and in the store. One that is gone already is no error to those who want it gone.
    pub async fn delete(&self, names: &[String], s3: Option<&S3Snapshots>) -> Result<(), SnapshotError> {
        let _alone = self.alone.lock().await;
        for name in names {
            let path = self.path(name)?;
            if let Some(s3) = s3 {
                self.delete_remote(s3, name).await?;
            }
            files::remove(&path)?;
            files::remove(&self.settings.paths.snapshot_metadata().join(name))?;
            // One that failed has no file whose absence would tell.
            let gone = Listed { name: name.clone(), location: location(&path), size: 0, created: 0 };
            let own = Catalogue::of_node(&self.client, &self.settings.node_name);
            if let Err(error) = own.forget(&gone).await {
                stale(&error);
            }
            info!(snapshot = name, "snapshot deleted");
        }
        self.tell(s3).await;
        Ok(())
    }

    async fn delete_remote(&self, s3: &S3Snapshots, name: &str) -> Result<(), SnapshotError> {
        s3.delete(name).await?;
        // At once: a list may still have it, and an object that is young is not judged by lists.
        let record = Catalogue::of_store(&self.client, s3.place());
        if let Err(error) = record.forget(&s3.at(name, 0, 0)).await {
            stale(&error);
        }
        Ok(())
    }

    /// Deletes those of the schedule that are too many, here and in the store. Those that were asked for are kept.
    pub async fn prune(
        &self,
        retention: usize,
        s3: Option<&S3Snapshots>,
    ) -> Result<Vec<String>, SnapshotError> {
        let prefix = &self.settings.snapshots.name;
        let mut names = surplus(&self.list()?, prefix, &self.settings.node_name, retention);
        if !names.is_empty() {
            // What the store keeps is counted by itself.
            self.delete(&names, None).await?;
        }
        if let Some(s3) = s3 {
            let too_many = s3::surplus(&s3.list().await?, prefix, s3.retention());
            for name in &too_many {
                self.delete_remote(s3, name).await?;
                info!(snapshot = name, "snapshot deleted from S3");
            }
            names.extend(too_many);
        }
        Ok(names)
    }

    /// The store of the configuration this server began with.
    pub fn configured(&self) -> Option<S3Snapshots> {
        self.settings.snapshots.s3.clone().map(S3Snapshots::new)
    }

    /// Brings the catalogue in the cluster up to date. Files count: what cannot be told now is told next time.
    pub async fn tell(&self, s3: Option<&S3Snapshots>) {
        let read = Timestamp::now();
        let kept = Kept { settings: &self.settings, s3: None };
        match self.list() {
            Ok(listed) => {
                let own = Catalogue::of_node(&self.client, &self.settings.node_name);
                if let Err(error) = own.write(&listed, read, &kept).await {
                    stale(&error);
                }
            }
            Err(error) => stale(&error),
        }
        let Some(s3) = s3 else { return };
        match s3.list().await {
            Ok(listed) => {
                let store = Catalogue::of_store(&self.client, s3.place());
                let kept = Kept { settings: &self.settings, s3: Some(s3) };
                if let Err(error) = store.write(&listed, read, &kept).await {
                    stale(&error);
                }
            }
            Err(error) => stale(&error),
        }
    }

    fn path(&self, name: &str) -> Result<PathBuf, SnapshotError> {
        path(&self.settings, name)
    }
}

/// Files count: what cannot be told now is told next time.
fn stale(error: &(dyn std::error::Error + 'static)) {
    warn!(error = %remuda_control::Chain(error), "the catalogue of snapshots is not up to date");
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
        let named = moment_of(&name);
        let created = named.or(changed.map(Timestamp::as_second)).unwrap_or_default();
        listed.push(Listed { location: location(&entry.path()), size: metadata.len(), created, name });
    }
    listed.sort_by(|one, other| (one.created, &one.name).cmp(&(other.created, &other.name)));
    Ok(listed)
}

/// When a snapshot was taken, which its name ends in.
fn moment_of(name: &str) -> Option<i64> {
    name.rsplit('-').next().and_then(|time| time.parse().ok())
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
