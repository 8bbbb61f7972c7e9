//! Files that must be whole or not there.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("create {}", .path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// For keys and everything beside them.
pub const PRIVATE: u32 = 0o600;
/// For what others may read.
pub const PUBLIC: u32 = 0o644;

/// Makes a directory with all above it, for its owner only.
pub fn private_dir(path: &Path) -> Result<(), FileError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| FileError::Create { path: path.to_owned(), source })
}

/// Makes a directory with all above it.
pub fn dir(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(|source| FileError::Create { path: path.to_owned(), source })
}

/// Replaces a file: after a crash it is the old one or the new one.
pub fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        dir(parent)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let scratch = path.with_file_name(name);
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().create(true).write(true).truncate(true).mode(mode).open(&scratch)?;
        // The mode of an open is subject to the umask, and ignored for a file a crash has left.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&scratch, path)
    })();
    written.map_err(failed)
}

/// The same, leaving a file that says this already as it is.
pub fn keep(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    write(path, content, mode)
}

/// `None` when there is no such file.
pub fn read(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError::Read { path: path.to_owned(), source }),
    }
}

/// A file that is not there is as good as one that was removed.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(FileError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}
