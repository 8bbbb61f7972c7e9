//! `--cluster-reset`: one server becomes the whole control plane, with the state it has or with that of a snapshot.
//!
//! Nothing that was there is deleted: it is moved aside when what takes its place is complete. So a reset that was
//! interrupted is simply made again.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use remuda_snapshot::{Unproven, restore, verify};
use remuda_store::{Embedded, OpenError, Options};
use tracing::info;

use crate::{
    config::Settings,
    etcd::{self, EtcdError, Members},
    files::{self, FileError},
    pki::{Pki, PkiError},
    server::state::{self, Mode, StateError},
    snapshot::{
        BUNDLE_BUCKET, STORE_BUCKET,
        bundle::{self, BundleError},
        s3::S3Snapshots,
    },
    token::{Token, TokenError},
};

/// A key that is written beside those of the cluster when it is restored.
const MARKER: &str = "/restored";

#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    #[error("use snapshot {}", .path.display())]
    Unproven { path: PathBuf, source: Unproven },
    #[error("the snapshot is to be taken from S3, and no store is configured")]
    NoStore,
    #[error("take snapshot {name:?} from S3")]
    Download { name: String, source: remuda_s3::S3Error },
    #[error("a restore needs the token of the servers")]
    NoToken,
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error("the snapshot was not taken with this token: it has no identity for it")]
    OtherToken,
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("the snapshot is one of etcd, and there is no etcd on this machine")]
    NoEtcd,
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("restore the store")]
    Store(#[source] OpenError),
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

pub async fn run(settings: &Settings) -> Result<(), ResetError> {
    let Some(reset) = settings.reset.as_ref() else { return alone(settings).await };
    let Some(path) = &reset.restore else { return alone(settings).await };
    if reset.download {
        download(settings, path).await?;
    }
    from_snapshot(settings, path)
}

/// Takes the snapshot from the store. One that was here already is replaced: the store has what was uploaded.
async fn download(settings: &Settings, path: &Path) -> Result<(), ResetError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let s3 = settings.snapshots.s3.clone().ok_or(ResetError::NoStore)?;
    files::private_dir(&settings.snapshots.directory)?;
    let fetched = S3Snapshots::new(s3).download(&name, path).await;
    fetched.map_err(|source| ResetError::Download { name: name.into_owned(), source })
}

/// Takes the state and the identity of the cluster from a snapshot.
fn from_snapshot(settings: &Settings, path: &Path) -> Result<(), ResetError> {
    let unproven = |source| ResetError::Unproven { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(|source| unproven(source.into()))?;
    let verified = verify(&mut file).map_err(unproven)?;
    let parts = restore::bucket(&mut file, STORE_BUCKET).map_err(unproven)?;
    let program = etcd::find(&settings.etcd, Some(&settings.path));
    if parts.is_none() && program.is_none() {
        return Err(ResetError::NoEtcd);
    }
    adopt_identity(settings, path, &mut file)?;
    files::private_dir(&settings.paths.server("db"))?;
    let mode = match parts {
        Some(parts) => {
            let bytes: Vec<u8> = parts.into_iter().flat_map(|(_, part)| part).collect();
            restore_store(settings, &bytes)?;
            Mode::Holder
        }
        None => {
            let database = restore::new_member(&mut file, MARKER).map_err(unproven)?;
            let new = settings.paths.server("db/etcd-new");
            begin(&new)?;
            let place = new.join("member/snap");
            files::private_dir(&place)?;
            files::write(&place.join("db"), &database, files::PRIVATE)?;
            swap(settings, &new, &settings.paths.etcd())?;
            Mode::Member { name: state::member_name(settings), peers: Vec::new() }
        }
    };
    mode.write(settings)?;
    info!(snapshot = %path.display(), revision = verified.revision, keys = verified.keys, "state restored");
    Ok(())
}

fn adopt_identity(settings: &Settings, path: &Path, file: &mut File) -> Result<(), ResetError> {
    let unproven = |source| ResetError::Unproven { path: path.to_owned(), source };
    let token = settings.token.as_deref().ok_or(ResetError::NoToken)?;
    let password = Token::parse(token)?.password;
    let name = bundle::name(&password);
    let beside = restore::bucket(file, BUNDLE_BUCKET).map_err(unproven)?.unwrap_or_default();
    let beside = beside.into_iter().find(|(key, _)| key.as_slice() == name.as_bytes());
    let sealed = match beside {
        Some((_, sealed)) => Some(sealed),
        None => restore::value(file, &name).map_err(unproven)?,
    };
    let files = bundle::open(&password, &sealed.ok_or(ResetError::OtherToken)?)?;
    Ok(Pki::adopt(&settings.paths, &files)?)
}

fn restore_store(settings: &Settings, backup: &[u8]) -> Result<(), ResetError> {
    let paths = &settings.paths;
    let pki = Pki::open(paths, Timestamp::now())?;
    let (copy, new) = (paths.server("db/state-backup"), paths.server("db/state-new"));
    begin(&new)?;
    files::write(&copy, backup, files::PRIVATE)?;
    let options = Options { sealing: Some(state::sealing(&pki)), ..Options::default() };
    let restored = Embedded::restore(&copy, &new, &options);
    let _ = std::fs::remove_file(&copy);
    restored.map_err(ResetError::Store)?;
    swap(settings, &new, &paths.store())
}

/// Removes what an earlier attempt left.
fn begin(path: &Path) -> Result<(), ResetError> {
    match std::fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ResetError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// Puts `new` into the place of `old`, which is moved aside.
fn swap(settings: &Settings, new: &Path, old: &Path) -> Result<(), ResetError> {
    let name = old.file_name().unwrap_or_default().to_string_lossy();
    // Two in one second are two.
    let aside = (Timestamp::now().as_second()..)
        .map(|at| settings.paths.server(&format!("db/{name}-old-{at}")))
        .find(|path| !path.exists())
        .expect("there are more numbers than directories");
    match std::fs::rename(old, &aside) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(ResetError::Write { path: aside, source });
        }
        _ => {}
    }
    std::fs::rename(new, old).map_err(|source| ResetError::Write { path: old.to_owned(), source })
}

/// Makes this server's member the only one of etcd. A server that keeps the state itself is that already.
async fn alone(settings: &Settings) -> Result<(), ResetError> {
    let Some(Mode::Member { name, .. }) = Mode::read(settings)? else { return Ok(()) };
    let program = etcd::find(&settings.etcd, Some(&settings.path)).ok_or(ResetError::NoEtcd)?;
    let own = state::own(settings, program, &name);
    let mut child = own.start_alone(&settings.paths)?;
    let ready = etcd::ready(&Members::new(&settings.paths, vec![own.local_url()])?, &mut child).await;
    state::terminate(&mut child).await;
    ready?;
    Ok(Mode::Member { name, peers: Vec::new() }.write(settings)?)
}
