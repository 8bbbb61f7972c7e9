//! The datastore: opening the one that was chosen, and what can be done with it beside storing.

use std::{
    io::{self, Seek},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use remuda_names::file;
use remuda_store::{
    Embedded, Etcd, EtcdError, EtcdOptions, EtcdTls, Keyring, Memory, OpenError, Options, SealError, Sealing,
    Shared, Store,
};
use tokio::{sync::Mutex, time::timeout};
use tracing::warn;

use crate::{
    admin::Rotated,
    archive::{self, ArchiveError, Manifest},
    config::{ClientTls, Datastore, SharedSecret},
    datadir::{self, DataDir, DataDirError},
    identity,
    pki::{self, Pki, PkiError},
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
    #[error("{} is there, but the store in {} is not", file::CA_CERT, .path.display())]
    StoreMissing { path: PathBuf },
    #[error("the store is there, but {} is not", file::KEYRING)]
    KeyringMissing,
    #[error("servers on etcd need a shared secret")]
    NoSecret,
    #[error("the servers on this etcd share an identity, and this one has not been told their secret")]
    SecretMissing,
    #[error("the data directory belongs to another certificate authority than the servers on this etcd")]
    OtherIdentity,
    #[error("use the shared identity")]
    Identity(#[source] serde_json::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
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
            EngineError::StoreMissing { path } => Some(format!(
                "put {} back, or restore a backup with remuda restore; for a new server choose an empty \
                 directory with --data-dir",
                path.display()
            )),
            EngineError::KeyringMissing | EngineError::Keyring(_) => Some(format!(
                "put {} back from a backup: without it no Secret in the store can be read",
                file::KEYRING
            )),
            EngineError::Open(OpenError::Seal { .. }) => {
                Some(format!("put back the {} this store was written with", file::KEYRING))
            }
            EngineError::Etcd(EtcdError::Foreign { .. }) => Some(
                "give this server a part of etcd for itself: --datastore etcd://…?prefix=/PATH".to_owned(),
            ),
            EngineError::Etcd(EtcdError::WrongSecret) | EngineError::SecretMissing => Some(
                "give this server the --shared-secret-file of the others; nothing was changed".to_owned(),
            ),
            EngineError::Etcd(EtcdError::Unshared) => Some(format!(
                "first start a server whose data directory has their {} and {}, with the secret",
                file::PKI,
                file::KEYRING
            )),
            EngineError::NoSecret => Some(
                "make one for all of them: head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE; \
                 then --shared-secret-file FILE"
                    .to_owned(),
            ),
            EngineError::OtherIdentity => Some("choose an empty directory with --data-dir".to_owned()),
            EngineError::Pki(error) => error.hint(),
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
    #[error("a backup without the server's keys would be of no use")]
    Keys(#[source] PkiError),
    #[error("work on the backup")]
    Failed(#[source] io::Error),
}

impl MaintenanceError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            MaintenanceError::Archive(error) => error.hint(),
            MaintenanceError::Keys(error) => error.hint(),
            _ => None,
        }
    }
}

/// An open datastore.
pub struct Engine {
    kind: Kind,
    /// A backup pairs the store with its keys; a rotation in between would part them.
    maintenance: Mutex<()>,
}

enum Kind {
    Embedded {
        store: Arc<Embedded>,
        keyring: Arc<Keyring>,
    },
    Memory(Arc<Memory>),
    /// The keyring is in the data directory, or else shared by all servers through etcd.
    Etcd {
        store: Arc<Etcd>,
        keyring: Option<Arc<Keyring>>,
    },
}

impl Engine {
    pub async fn open(datastore: &Datastore, dir: &DataDir) -> Result<Engine, EngineError> {
        let kind = match datastore {
            Datastore::Memory => Kind::Memory(Arc::new(Memory::default())),
            Datastore::Embedded => {
                check_complete(dir)?;
                let sealing = sealing(dir)?;
                let keyring = sealing.keyring.clone();
                let options = Options { sealing: Some(sealing), ..Options::default() };
                let path = dir.join(file::STORE);
                // Reading a large store takes a while, and is all computation and disk.
                let opening = tokio::task::spawn_blocking(move || Embedded::open(path, options));
                let opened = opening.await.map_err(|error| EngineError::Failed(io::Error::other(error)))?;
                let store = Arc::new(opened.map_err(EngineError::Open)?);
                if let Some(left_out) = store.left_out() {
                    warn!(%left_out, revision = store.observed(), "the store was recovered without its last batch");
                }
                Kind::Embedded { store, keyring }
            }
            Datastore::Etcd { endpoints, prefix, tls } => {
                let options = etcd_options(endpoints, prefix, tls);
                if patiently(|| Shared::exists(&options)).await? {
                    return Err(EngineError::SecretMissing);
                }
                let sealing = sealing(dir)?;
                let keyring = sealing.keyring.clone();
                let options = EtcdOptions { sealing: Some(sealing), ..options };
                let store = patiently(|| Etcd::connect(options.clone())).await?;
                Kind::Etcd { store: Arc::new(store), keyring: Some(keyring) }
            }
        };
        Ok(Engine { kind, maintenance: Mutex::default() })
    }

    /// Opens the datastore, and what makes this server itself.
    pub(crate) async fn open_with_identity(
        datastore: &Datastore,
        secret: Option<&SharedSecret>,
        dir: &DataDir,
        now: Timestamp,
    ) -> Result<(Engine, Pki), EngineError> {
        let (Datastore::Etcd { endpoints, prefix, tls }, Some(secret)) = (datastore, secret) else {
            let engine = Engine::open(datastore, dir).await?;
            let required = if engine.has_data() { pki::require(dir) } else { Ok(()) };
            return match required.and_then(|()| Pki::open(dir, now)) {
                Ok(pki) => Ok((engine, pki)),
                Err(error) => {
                    engine.store().close().await;
                    Err(error.into())
                }
            };
        };
        let options = etcd_options(endpoints, prefix, tls);
        let (shared, pki) = identity::join(&options, secret, dir, now).await?;
        let sealing = Some(seal_with(shared.keyring().clone()));
        let options = EtcdOptions { sealing, shared: Some(shared), ..options };
        let store = patiently(|| Etcd::connect(options.clone())).await?;
        let kind = Kind::Etcd { store: Arc::new(store), keyring: None };
        Ok((Engine { kind, maintenance: Mutex::default() }, pki))
    }

    /// Whether a server has worked with this data directory before: its keys were made then.
    fn has_data(&self) -> bool {
        matches!(&self.kind, Kind::Embedded { store, .. } if store.observed() > 0)
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
        pki::check(dir).map_err(MaintenanceError::Keys)?;
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
        pki::check(dir).map_err(MaintenanceError::Keys)?;
        let (dir, output, described) = (dir.to_owned(), output.to_owned(), manifest.clone());
        let packing = tokio::task::spawn_blocking(move || {
            archive::pack(&output, &described, &scratch.store, &dir).map(drop)
        });
        packing.await.map_err(|error| MaintenanceError::Failed(io::Error::other(error)))??;
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
            Kind::Etcd { keyring, .. } => {
                return Err(MaintenanceError::Unsupported(match keyring {
                    Some(_) => {
                        "etcd makes its own backups (etcdctl snapshot save); keep the data directory with them"
                    }
                    None => {
                        "etcd makes its own backups (etcdctl snapshot save); keep the shared secret with them"
                    }
                }));
            }
        };
        let revision = store.backup(path, true).await.map_err(MaintenanceError::Store)?;
        Ok((
            Manifest {
                format: archive::FORMAT,
                created: remuda_base::rfc3339(jiff::Timestamp::now().as_second()),
                revision,
            },
            guard,
        ))
    }

    /// Makes a new key, encrypts everything with it, forgets the others.
    pub async fn rotate_keys(&self) -> Result<Rotated, MaintenanceError> {
        let _guard = self.maintenance.lock().await;
        let keyring = match &self.kind {
            Kind::Embedded { keyring, .. } | Kind::Etcd { keyring: Some(keyring), .. } => keyring,
            Kind::Etcd { store, keyring: None } => {
                let (key, retired) = store.rotate_keys().await.map_err(MaintenanceError::Store)?;
                return Ok(Rotated { key, retired });
            }
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
pub(crate) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, EngineError>
where
    F: Future<Output = Result<T, EtcdError>>,
{
    let started = Instant::now();
    let mut told = false;
    loop {
        let left = CONNECT.saturating_sub(started.elapsed());
        match timeout(left, attempt()).await {
            Ok(Ok(done)) => return Ok(done),
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

fn etcd_options(endpoints: &[String], prefix: &str, tls: &ClientTls) -> EtcdOptions {
    EtcdOptions {
        prefix: prefix.to_owned(),
        tls: (!tls.is_plain()).then(|| client_tls(tls)),
        ..EtcdOptions::new(endpoints.to_vec())
    }
}

const NOTHING: &str = "the memory datastore keeps nothing on disk";

fn client_tls(tls: &ClientTls) -> EtcdTls {
    let (cert, key) = tls.identity.clone().unzip();
    EtcdTls { ca: tls.ca.clone(), cert, key, server_name: None }
}

/// A server makes its encryption keys, its store and its authority in this order. Where a later one
/// is without an earlier one, a file was lost; what takes its place would hide that.
fn check_complete(dir: &DataDir) -> Result<(), EngineError> {
    let path = dir.join(file::STORE);
    let (store, keyring) = (Embedded::exists(&path), dir.join(file::KEYRING).exists());
    // An authority alone is what a server leaves that kept its data in memory.
    if !store && keyring && dir.join(file::CA_CERT).exists() {
        return Err(EngineError::StoreMissing { path });
    }
    if store && !keyring { Err(EngineError::KeyringMissing) } else { Ok(()) }
}

pub(crate) fn sealing(dir: &DataDir) -> Result<Sealing, EngineError> {
    Ok(seal_with(Arc::new(keyring(dir)?)))
}

/// The keyring in the data directory.
pub(crate) fn keyring(dir: &DataDir) -> Result<Keyring, EngineError> {
    let path = dir.join(file::KEYRING);
    datadir::check_key(&path)?;
    Keyring::open_or_create(path).map_err(EngineError::Keyring)
}

pub(crate) fn seal_with(keyring: Arc<Keyring>) -> Sealing {
    Sealing { keyring, prefixes: SEALED.iter().map(|prefix| (*prefix).to_owned()).collect() }
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
