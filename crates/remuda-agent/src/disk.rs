//! Files that survive a crash.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// A file operation that failed, and on what.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", path.display())]
pub struct DiskError {
    /// In the present tense.
    pub operation: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Adds the operation and the path to an I/O error.
pub trait Context<T> {
    /// `operation` is in the present tense: `write`, `remove`.
    fn on(self, operation: &'static str, path: &Path) -> Result<T, DiskError>;
}

impl<T> Context<T> for io::Result<T> {
    fn on(self, operation: &'static str, path: &Path) -> Result<T, DiskError> {
        self.map_err(|source| DiskError { operation, path: path.to_owned(), source })
    }
}

/// Replaces a file by a complete one or leaves it alone; after return it survives a power cut.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), DiskError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = parent.join(name);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(parent)?.sync_all()
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.on("write", path)
}

/// Reads a file that must not be larger than `limit`.
pub fn read_limited(path: &Path, limit: u64) -> Result<Vec<u8>, DiskError> {
    let read = (|| {
        let mut content = Vec::new();
        File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {limit} bytes")));
        }
        Ok(content)
    })();
    read.on("read", path)
}

/// Reads a file that may be absent.
pub fn read_if_exists(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DiskError> {
    match read_limited(path, limit) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates a directory and its parents.
pub fn create_dirs(path: &Path, mode: u32) -> Result<(), DiskError> {
    let created = (|| {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    })();
    created.on("create directory", path)
}

/// Removes a file or a whole directory; absent is fine. Links are removed, not followed.
pub fn remove_all(path: &Path) -> Result<(), DiskError> {
    let removed = match fs::symlink_metadata(path) {
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    match removed {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        other => other.on("remove", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_complete_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(read_limited(&path, 10).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn reading_is_bounded_and_absence_is_not_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert_eq!(read_if_exists(&path, 10).unwrap(), None);
        fs::write(&path, b"12345678901").unwrap();
        assert!(read_if_exists(&path, 10).is_err());
        remove_all(&path).unwrap();
        remove_all(&path).unwrap();
        remove_all(&path.join("below")).unwrap();
    }
}
