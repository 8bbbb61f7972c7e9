//! Where backups are: a directory, or a folder of an S3 bucket.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use remuda_s3::Store;
use tokio::runtime::Handle;

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
        // Who drops it must not wait for a file system that hangs. What is left behind goes with the next backup.
        if let (Some(path), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || fs::remove_file(path));
        }
    }
}

/// Does something in a directory that may be far away and not answer.
async fn there<T: Send + 'static>(
    directory: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T, BackupError> {
    let path = directory.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&path)).await.map_err(io::Error::other);
    let failed = |source| BackupError::Directory { path: directory.to_owned(), source };
    done.and_then(|done| done).map_err(failed)
}

impl<'a> Place<'a> {
    /// What can be found out without asking a store. A directory is made if it is not there.
    pub(super) async fn open(to: &BackupPlace, server: &'a Server) -> Result<Place<'a>, BackupError> {
        match to {
            BackupPlace::Directory(path) => {
                match there(path, open_directory).await? {
                    // Others could look at names, and put their own files in place of backups.
                    mode if mode & 0o077 != 0 => Err(BackupError::Exposed { path: path.clone(), mode }),
                    _ => Ok(Place::Directory { path: path.clone(), server }),
                }
            }
            BackupPlace::S3(store) => Ok(Place::S3 { store: Box::new(store.open()?), server }),
        }
    }

    /// The backups of this server.
    pub(super) async fn list(&self) -> Result<Vec<Held>, BackupError> {
        match self {
            Place::Directory { path, server } => {
                let files = there(path, files).await?;
                Ok(files.iter().filter_map(|name| server.read(name)).collect())
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
                let left = there(path, files).await?.into_iter().filter(|name| server.is_partial(name));
                let left: Vec<String> = left.collect();
                there(path, move |path| left.iter().try_for_each(|name| fs::remove_file(path.join(name))))
                    .await?;
                let target = path.join(server.partial(held));
                let mut partial = Partial(Some(target.clone()));
                let size = scheduled.pack(&target).await?;
                verify(&target, scratch).await?;
                let name = held.name.clone();
                there(path, move |path| fs::rename(&target, path.join(name))).await?;
                partial.0 = None;
                there(path, |path| File::open(path)?.sync_all()).await?;
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
            Place::Directory { path, .. } => {
                let name = held.name.clone();
                let delete = move |path: &Path| match fs::remove_file(path.join(name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    deleted => deleted,
                };
                there(path, delete).await
            }
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

/// Makes the directory if it is not there, and answers its mode.
fn open_directory(path: &Path) -> io::Result<u32> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(io::ErrorKind::NotADirectory.into()),
        Ok(found) => Ok(found.permissions().mode() & 0o7777),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_private(path).map(|()| 0o700),
        Err(error) => Err(error),
    }
}

/// Names of the files in a directory.
fn files(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // A backup is neither a link nor a directory.
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

pub(super) fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}
