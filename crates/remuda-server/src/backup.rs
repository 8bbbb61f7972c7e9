//! Backups the server makes of itself by a schedule.
//!
//! ```text
//! what is there ─ due ─► pack ─ verify ─► name ─ prune
//! ```
//!
//! Reads   the place of the backups, the store, the keys in the data directory.
//! Writes  backups of this server, and deletes those that are too many. Events of the Namespace `kube-system`.
//! Never   holds the server up, touches files of others, or gives the name of a backup to what was not verified.
//!
//! When the last one was made is read from the names of those that are there, so nothing else has to be kept, and a
//! server that was down when one was due makes one. Between two of them there is a timer and nothing else.

mod name;
mod place;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use remuda_base::Backoff;
use remuda_control::{Chain, Ctx};
use remuda_names::file;
use remuda_objects::cron::Schedule;
use remuda_s3::S3Error;
use remuda_store::{Embedded, Keyring, OpenError, Options, SealError};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::{
    name::{Held, Server},
    place::Place,
};
use crate::{
    archive::{self, ArchiveError, Manifest},
    config::{Backups, ConfigError},
    engine::{self, Engine, MaintenanceError},
};

/// After a failure; doubles.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(60), Duration::from_secs(60 * 60));
const ACTION: &str = "BackUp";
const MADE: &str = "BackupMade";
const FAILED: &str = "BackupFailed";
const NOT_PRUNED: &str = "OldBackupsKept";
/// Whose Events tell of backups: it is there in every server.
const REGARDING: &str = "kube-system";

#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    #[error("use the directory {}", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("the directory {} is open to other users (mode {mode:04o}); chmod 700 it", .path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("{} has room for {free} bytes, and {needed} are needed there for a moment", .path.display())]
    NoRoom { path: PathBuf, free: u64, needed: u64 },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] S3Error),
    #[error(transparent)]
    Make(#[from] MaintenanceError),
    #[error("the backup could not be restored")]
    Archive(#[source] ArchiveError),
    #[error("the keys in the backup cannot be read")]
    Keys(#[source] SealError),
    #[error("the store in the backup could not be restored")]
    Contents(#[source] OpenError),
    #[error("the store in the backup has revision {found}, and {expected} was saved")]
    Revision { found: u64, expected: u64 },
    #[error("work on the backup")]
    Failed(#[source] io::Error),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// How backups by schedule go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    outcomes: Family<Labels, Counter>,
    last: Arc<Mutex<Option<Timestamp>>>,
}

impl Progress {
    pub(crate) fn register(&self, registry: &mut Registry) {
        for outcome in ["succeeded", "failed"] {
            let _ = self.outcomes.get_or_create(&Labels { outcome });
        }
        registry.register(
            "remuda_backups",
            "Backups of the server by schedule, by outcome",
            self.outcomes.clone(),
        );
    }

    fn count(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&Labels { outcome }).inc();
    }

    /// When the newest one was made, if one is known.
    pub(crate) fn last(&self) -> Option<Timestamp> {
        *self.last.lock()
    }
}

/// What backups are made of, and how.
pub(crate) struct Scheduled {
    config: Backups,
    server: Server,
    engine: Arc<Engine>,
    data_dir: PathBuf,
    progress: Progress,
    /// What was uploaded, is not known to be whole, and could not be deleted. It counts as no backup.
    doubtful: Mutex<Vec<Held>>,
}

/// Makes backups when they are due, until told to stop.
pub(crate) async fn run(ctx: Arc<Ctx>, scheduled: Arc<Scheduled>, stop: CancellationToken) {
    let regarding = Namespace {
        metadata: ObjectMeta { name: Some(REGARDING.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let mut failures = BACKOFF.begin();
    loop {
        let Some(turn) = stop.run_until_cancelled(scheduled.turn(ctx.clock.now())).await else { return };
        let wait = match turn {
            Ok(Turn { newest, made }) => {
                failures.reset();
                *scheduled.progress.last.lock() = Some(newest);
                if let Some(Made { location, size, kept }) = made {
                    scheduled.progress.count("succeeded");
                    info!(%location, size, "the server was backed up");
                    ctx.recorder.normal(&regarding, MADE, ACTION, format!("{location}: {size} bytes"));
                    if let Some(error) = kept {
                        let error = Chain(&error).to_string();
                        warn!(%error, "old backups are not deleted");
                        ctx.recorder.warning(&regarding, NOT_PRUNED, ACTION, error);
                    }
                }
                let now = ctx.clock.now();
                let next = due(&scheduled.config.schedule, Some(newest), now);
                Duration::try_from(next.duration_since(now)).unwrap_or_default()
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                let wait = failures.jittered(rand::random());
                scheduled.progress.count("failed");
                warn!(%error, ?wait, "the server is not backed up; tried again");
                ctx.recorder.warning(&regarding, FAILED, ACTION, error);
                wait
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// When the next backup is due: at once where there is none yet, or where the time after the newest has passed.
fn due(schedule: &Schedule, newest: Option<Timestamp>, now: Timestamp) -> Timestamp {
    // A clock that was set back must not put backups off.
    let next = newest.map(|newest| schedule.next(newest.min(now)));
    next.map_or(now, |next| next.unwrap_or(Timestamp::MAX)).max(now)
}

struct Turn {
    newest: Timestamp,
    /// Nothing if none was due.
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    location: String,
    size: u64,
    /// Why those that are too many are there still.
    kept: Option<BackupError>,
}

impl Scheduled {
    /// Backups of the server with this certificate authority.
    pub(crate) fn new(
        config: Backups,
        ca_pem: &str,
        engine: Arc<Engine>,
        data_dir: &Path,
        progress: Progress,
    ) -> Scheduled {
        let (server, data_dir) = (Server::new(ca_pem), data_dir.to_owned());
        Scheduled { config, server, engine, data_dir, progress, doubtful: Mutex::default() }
    }

    /// Makes a backup if one is due.
    async fn turn(&self, now: Timestamp) -> Result<Turn, BackupError> {
        let place = Place::open(&self.config.to, &self.server).await?;
        self.delete_doubtful(&place).await?;
        let held = place.list().await?;
        let newest = held.iter().map(|held| held.made).max();
        if let Some(newest) = newest.filter(|_| due(&self.config.schedule, newest, now) > now) {
            return Ok(Turn { newest, made: None });
        }
        let held = self.server.backup(now);
        let scratch = Scratch::new(&self.data_dir)?;
        self.check_room(&scratch)?;
        let size = place.keep(&held, self, &scratch).await?;
        let kept = self.prune(&place).await.err();
        let location = place.location(&held);
        Ok(Turn { newest: held.made, made: Some(Made { location, size, kept }) })
    }

    /// Packs a backup into a new file.
    async fn pack(&self, path: &Path) -> Result<u64, BackupError> {
        self.engine.backup_to(path, &self.data_dir).await?;
        let size = tokio::fs::metadata(path).await.map_err(BackupError::Failed)?;
        Ok(size.len())
    }

    async fn delete_doubtful(&self, place: &Place<'_>) -> Result<(), BackupError> {
        let doubtful = self.doubtful.lock().clone();
        for held in doubtful {
            place.delete(&held).await?;
            self.doubtful.lock().retain(|other| *other != held);
        }
        Ok(())
    }

    async fn prune(&self, place: &Place<'_>) -> Result<(), BackupError> {
        let mut held = place.list().await?;
        held.sort_unstable();
        let many = held.len().saturating_sub(self.config.retention.get());
        for old in &held[..many] {
            place.delete(old).await?;
            info!(location = %place.location(old), "an old backup was deleted");
        }
        Ok(())
    }

    /// A backup must not be what fills the disk the server works on.
    fn check_room(&self, scratch: &Scratch) -> Result<(), BackupError> {
        /// What is left for the server meanwhile.
        const RESERVE: u64 = 64 << 20;
        // What is saved and what it is packed into, later that and what is unpacked.
        const COPIES: u64 = 2;
        let store = remuda_store::DiskUsage::of(&self.data_dir.join(file::STORE)).bytes;
        let needed = store.saturating_mul(COPIES).saturating_add(RESERVE);
        let Ok(disk) = nix::sys::statvfs::statvfs(&scratch.0) else { return Ok(()) };
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        if free < needed {
            return Err(BackupError::NoRoom { path: self.data_dir.clone(), free, needed });
        }
        Ok(())
    }
}

/// A directory for one backup in the making, gone when it ends however it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(data_dir: &Path) -> Result<Scratch, BackupError> {
        let path = data_dir.join(file::SCRATCH).join("scheduled");
        let _ = std::fs::remove_dir_all(&path);
        place::create_private(&path).map_err(BackupError::Failed)?;
        Ok(Scratch(path))
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Does with a backup what a restore does, but for keeping anything of it.
async fn verify(backup: &Path, scratch: &Scratch) -> Result<Manifest, BackupError> {
    let (backup, dir) = (backup.to_owned(), scratch.join("unpacked"));
    let verified = tokio::task::spawn_blocking(move || {
        place::create_private(&dir).map_err(BackupError::Failed)?;
        let manifest = archive::unpack(&backup, &dir).map_err(BackupError::Archive);
        let manifest = manifest.and_then(|manifest| verify_unpacked(manifest, &dir));
        let _ = std::fs::remove_dir_all(&dir);
        manifest
    });
    verified.await.map_err(|error| BackupError::Failed(io::Error::other(error)))?
}

fn verify_unpacked(manifest: Manifest, dir: &Path) -> Result<Manifest, BackupError> {
    let keyring = Keyring::open_or_create(dir.join(file::KEYRING)).map_err(BackupError::Keys)?;
    let options = Options { sealing: Some(engine::seal_with(Arc::new(keyring))), ..Options::default() };
    let found = Embedded::verify(&dir.join(file::STORE), &options).map_err(BackupError::Contents)?;
    match found == manifest.revision {
        true => Ok(manifest),
        false => Err(BackupError::Revision { found, expected: manifest.revision }),
    }
}

#[cfg(test)]
mod tests;
