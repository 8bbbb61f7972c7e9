//! Where backups are: a directory, or a folder of an S3 bucket.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use remuda_s3::Store;

use super::{
    BackupError, Scheduled, Scratch,
    name::{Held, Server},
    verify,
};
use crate::config::BackupPlace;

pub(super) enum Place<'a> {
    Directory { path: PathBuf, server: &'a Server },
    S3 { store: Box<Store>, server: &'a Server },
}

/// A file in the making, gone unless it became a backup.
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl<'a> Place<'a> {
    /// What can be found out without asking a store. A directory is made if it is not there.
    pub(super) fn open(to: &BackupPlace, server: &'a Server) -> Result<Place<'a>, BackupError> {
        match to {
            BackupPlace::Directory(path) => {
                let directory = |source| BackupError::Directory { path: path.clone(), source };
                match fs::metadata(path) {
                    Ok(found) if !found.is_dir() => {
                        return Err(directory(io::ErrorKind::NotADirectory.into()));
                    }
                    // Others could look at names, and put their own files in place of backups.
                    Ok(found) if found.permissions().mode() & 0o077 != 0 => {
                        let mode = found.permissions().mode() & 0o7777;
                        return Err(BackupError::Exposed { path: path.clone(), mode });
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        create_private(path).map_err(directory)?;
                    }
                    Err(error) => return Err(directory(error)),
                }
                Ok(Place::Directory { path: path.clone(), server })
            }
            BackupPlace::S3(store) => Ok(Place::S3 { store: Box::new(store.open()?), server }),
        }
    }

    /// The backups of this server.
    pub(super) async fn list(&self) -> Result<Vec<Held>, BackupError> {
        match self {
            Place::Directory { path, server } => {
                let directory = |source| BackupError::Directory { path: path.clone(), source };
                let mut held = Vec::new();
                for entry in fs::read_dir(path).map_err(directory)? {
                    let entry = entry.map_err(directory)?;
                    let name = entry.file_name();
                    let found = name.to_str().and_then(|name| server.read(name));
                    if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                        held.extend(found);
                    }
                }
                Ok(held)
            }
            Place::S3 { store, server } => {
                let objects = store.list(server.prefix()).await?;
                Ok(objects.iter().filter_map(|object| server.read(&object.name)).collect())
            }
        }
    }

    /// Makes a backup and keeps it, verified. Until it is, nothing has its name.
    pub(super) async fn keep(
        &self,
        held: &Held,
        scheduled: &Scheduled,
        scratch: &Scratch,
    ) -> Result<u64, BackupError> {
        match self {
            Place::Directory { path, server } => {
                let directory = |source| BackupError::Directory { path: path.clone(), source };
                clear(path, server).map_err(directory)?;
                let target = path.join(server.partial(held));
                let mut partial = Partial(Some(target.clone()));
                let size = scheduled.pack(&target).await?;
                verify(&target, scratch).await?;
                fs::rename(&target, path.join(&held.name)).map_err(directory)?;
                partial.0 = None;
                File::open(path).and_then(|dir| dir.sync_all()).map_err(directory)?;
                Ok(size)
            }
            Place::S3 { store, .. } => {
                let packed = scratch.join("packed");
                let size = scheduled.pack(&packed).await?;
                // The name is there as soon as it is uploaded, so what is uploaded is known to be good.
                verify(&packed, scratch).await?;
                let uploaded = upload(store, held, &packed, size, scratch).await;
                if uploaded.is_err() && store.delete(&held.name).await.is_err() {
                    scheduled.doubtful.lock().push(held.clone());
                }
                uploaded.map(|()| size)
            }
        }
    }

    pub(super) async fn delete(&self, held: &Held) -> Result<(), BackupError> {
        match self {
            Place::Directory { path, .. } => match fs::remove_file(path.join(&held.name)) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(BackupError::Directory { path: path.clone(), source })
                }
                _ => Ok(()),
            },
            Place::S3 { store, .. } => Ok(store.delete(&held.name).await?),
        }
    }

    /// Where a backup is, as people write it.
    pub(super) fn location(&self, held: &Held) -> String {
        match self {
            Place::Directory { path, .. } => path.join(&held.name).display().to_string(),
            Place::S3 { store, .. } => store.location(&held.name),
        }
    }
}

/// Uploads a backup, and reads it again where it is now.
async fn upload(
    store: &Store,
    held: &Held,
    packed: &Path,
    size: u64,
    scratch: &Scratch,
) -> Result<(), BackupError> {
    store.put_file(&held.name, packed).await?;
    fs::remove_file(packed).map_err(BackupError::Failed)?;
    store.get_file(&held.name, packed, size).await?;
    verify(packed, scratch).await.map(drop)
}

/// Takes away what a server left behind that ended meanwhile.
fn clear(path: &Path, server: &Server) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| server.is_partial(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}
