//! The datastore: opening the one that was chosen, and what can be done with it beside storing.

use std::{
    io::{self, Seek},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use remuda_names::file;
use remuda_store::{
    Embedded, Etcd, EtcdError, EtcdOptions, EtcdTls, Keyring, Memory, OpenError, Options, SealError, Sealing,
    Store,
};
use tokio::{sync::Mutex, time::timeout};
use tracing::warn;

use crate::{
    admin::Rotated,
    archive::{self, ArchiveError, Manifest},
    config::{ClientTls, Datastore},
    datadir::{self, DataDir, DataDirError},
};

/// What is encrypted at rest.
const SEALED: &[&str] = &["/core/secrets/"];

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Key(#[from] DataDirError),
    #[error("open the encryption keys")]
    Keyring(#[source] SealError),
    #[error("open the store")]
    Open(#[source] OpenError),
    #[error("connect to the datastore")]
    Etcd(#[source] EtcdError),
    #[error("connect to the datastore: no answer within {} seconds", CONNECT.as_secs())]
    Silent,
    #[error("open the store")]
    Failed(#[source] io::Error),
}

/// etcd may be starting at the same time as we are, but a wrong address must not go unnoticed.
const CONNECT: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_millis(500);

impl EngineError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            EngineError::Key(error) => error.hint(),
            EngineError::Open(OpenError::Damaged { .. } | OpenError::Incomplete { .. }) => {
                Some("remuda restore makes a new data directory from a backup".to_owned())
            }
            EngineError::Open(OpenError::Seal { .. }) => {
                Some(format!("put back the {} this store was written with", file::KEYRING))
            }
            EngineError::Etcd(EtcdError::Foreign { .. }) => Some(
                "give this server a part of etcd for itself: --datastore etcd://…?prefix=/PATH".to_owned(),
            ),
            EngineError::Etcd(_) | EngineError::Silent => {
                Some("is etcd running there, and are --datastore-ca, -cert and -key right?".to_owned())
            }
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("back up the store")]
    Store(#[source] remuda_store::Error),
    #[error("write the new keys")]
    Keyring(#[source] SealError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("work on the backup")]
    Failed(#[source] io::Error),
}

/// An open datastore.
pub struct Engine {
    kind: Kind,
    /// A backup pairs the store with its keys; a rotation in between would part them.
    maintenance: Mutex<()>,
}

enum Kind {
    Embedded { store: Arc<Embedded>, keyring: Arc<Keyring> },
    Memory(Arc<Memory>),
    Etcd { store: Arc<Etcd>, keyring: Arc<Keyring> },
}

impl Engine {
    pub async fn open(datastore: &Datastore, dir: &DataDir) -> Result<Engine, EngineError> {
        let kind = match datastore {
            Datastore::Memory => Kind::Memory(Arc::new(Memory::default())),
            Datastore::Embedded => {
                let sealing = sealing(dir)?;
                let keyring = sealing.keyring.clone();
                let options = Options { sealing: Some(sealing), ..Options::default() };
                let path = dir.join(file::STORE);
                // Reading a large store takes a while, and is all computation and disk.
                let opening = tokio::task::spawn_blocking(move || Embedded::open(path, options));
                let opened = opening.await.map_err(|error| EngineError::Failed(io::Error::other(error)))?;
                Kind::Embedded { store: Arc::new(opened.map_err(EngineError::Open)?), keyring }
            }
            Datastore::Etcd { endpoints, prefix, tls } => {
                let sealing = sealing(dir)?;
                let keyring = sealing.keyring.clone();
                let options = EtcdOptions {
                    prefix: prefix.clone(),
                    sealing: Some(sealing),
                    tls: (!tls.is_plain()).then(|| client_tls(tls)),
                    ..EtcdOptions::new(endpoints.clone())
                };
                Kind::Etcd { store: Arc::new(connect(options).await?), keyring }
            }
        };
        Ok(Engine { kind, maintenance: Mutex::default() })
    }

    pub fn store(&self) -> Arc<dyn Store> {
        match &self.kind {
            Kind::Embedded { store, .. } => store.clone(),
            Kind::Memory(store) => store.clone(),
            Kind::Etcd { store, .. } => store.clone(),
        }
    }

    /// Makes a backup of the store and of the keys in `dir`, as one file. The file has no name
    /// any more when this returns: it is gone as soon as nobody reads it.
    pub async fn backup(&self, dir: &Path) -> Result<(std::fs::File, Manifest), MaintenanceError> {
        let scratch = Scratch::new(dir);
        let (manifest, _guard) = self.snapshot(&scratch.store).await?;
        let (dir, described) = (dir.to_owned(), manifest.clone());
        let packing = tokio::task::spawn_blocking(move || {
            archive::pack(&scratch.archive, &described, &scratch.store, &dir)
        });
        let packed = packing.await.map_err(|error| MaintenanceError::Failed(io::Error::other(error)))?;
        let mut file = packed?;
        file.rewind().map_err(MaintenanceError::Failed)?;
        Ok((file, manifest))
    }

    /// As [`Engine::backup`], to a file with a name.
    pub async fn backup_to(&self, output: &Path, dir: &Path) -> Result<Manifest, MaintenanceError> {
        let scratch = Scratch::new(dir);
        let (manifest, _guard) = self.snapshot(&scratch.store).await?;
        archive::pack(output, &manifest, &scratch.store, dir)?;
        Ok(manifest)
    }

    async fn snapshot(
        &self,
        path: &Path,
    ) -> Result<(Manifest, tokio::sync::MutexGuard<'_, ()>), MaintenanceError> {
        let guard = self.maintenance.lock().await;
        let store = match &self.kind {
            Kind::Embedded { store, .. } => store,
            Kind::Memory(_) => return Err(MaintenanceError::Unsupported(NOTHING)),
            Kind::Etcd { .. } => {
                let instead =
                    "etcd makes its own backups (etcdctl snapshot save); keep the data directory with them";
                return Err(MaintenanceError::Unsupported(instead));
            }
        };
        let revision = store.backup(path, true).await.map_err(MaintenanceError::Store)?;
        Ok((
            Manifest {
                format: archive::FORMAT,
                created: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                revision,
            },
            guard,
        ))
    }

    /// Makes a new key, encrypts everything with it, forgets the others.
    pub async fn rotate_keys(&self) -> Result<Rotated, MaintenanceError> {
        let _guard = self.maintenance.lock().await;
        let keyring = match &self.kind {
            Kind::Embedded { keyring, .. } | Kind::Etcd { keyring, .. } => keyring,
            Kind::Memory(_) => return Err(MaintenanceError::Unsupported(NOTHING)),
        };
        let old = keyring.ids();
        let key = keyring.rotate().map_err(MaintenanceError::Keyring)?;
        match &self.kind {
            // The checkpoint is written with the new key and takes the place of all that came before.
            Kind::Embedded { store, .. } => store.checkpoint().await.map_err(MaintenanceError::Store)?,
            Kind::Etcd { store, .. } => drop(store.reseal().await.map_err(MaintenanceError::Store)?),
            Kind::Memory(_) => {}
        }
        keyring.retire(&old).map_err(MaintenanceError::Keyring)?;
        Ok(Rotated { key, retired: old.len() })
    }
}

/// Tries for a while: machines often start etcd and us at the same time.
async fn connect(options: EtcdOptions) -> Result<Etcd, EngineError> {
    let started = Instant::now();
    let mut told = false;
    loop {
        let left = CONNECT.saturating_sub(started.elapsed());
        match timeout(left, Etcd::connect(options.clone())).await {
            Ok(Ok(store)) => return Ok(store),
            Ok(Err(EtcdError::Request(error))) if left > RETRY => {
                if !told {
                    warn!(%error, "cannot reach the datastore yet");
                    told = true;
                }
                tokio::time::sleep(RETRY).await;
            }
            Ok(Err(error)) => return Err(EngineError::Etcd(error)),
            Err(_) => return Err(EngineError::Silent),
        }
    }
}

const NOTHING: &str = "the memory datastore keeps nothing on disk";

fn client_tls(tls: &ClientTls) -> EtcdTls {
    let (cert, key) = tls.identity.clone().unzip();
    EtcdTls { ca: tls.ca.clone(), cert, key, server_name: None }
}

pub(crate) fn sealing(dir: &DataDir) -> Result<Sealing, EngineError> {
    let path = dir.join(file::KEYRING);
    datadir::check_key(&path)?;
    let keyring = Keyring::open_or_create(path).map_err(EngineError::Keyring)?;
    let prefixes = SEALED.iter().map(|prefix| (*prefix).to_owned()).collect();
    Ok(Sealing { keyring: Arc::new(keyring), prefixes })
}

/// Files of a backup in the making, removed however it ends.
struct Scratch {
    store: PathBuf,
    archive: PathBuf,
}

impl Scratch {
    fn new(dir: &Path) -> Scratch {
        let dir = dir.join(file::SCRATCH);
        Scratch { store: dir.join("backup.store"), archive: dir.join("backup.tar") }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.store);
        let _ = std::fs::remove_file(&self.archive);
    }
}
