//! Files and directories of a plan.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD};

use remuda_plan::File;

use crate::disk::{Context, DiskError, create_dirs, remove_all};

/// Why a file is not as the plan wants it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is nowhere to write to.
    #[error("file without a path")]
    NoPath,
    /// The content is not base64.
    #[error("content of {path} is not base64: {reason}")]
    Content {
        /// Of which file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The permissions are not an octal number.
    #[error("permissions {permissions:?} of {path} are not an octal number")]
    Permissions {
        /// Of which file.
        path: String,
        /// As given.
        permissions: String,
    },
    /// Owner or group is no user id.
    #[error("owner {uid}:{gid} of {path} is out of range")]
    Owner {
        /// Of which file.
        path: String,
        /// As given.
        uid: i64,
        /// As given.
        gid: i64,
    },
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Writes or removes one entry.
pub fn apply(file: &File) -> Result<(), FileError> {
    if file.path.is_empty() {
        return Err(FileError::NoPath);
    }
    let path = Path::new(&file.path);
    if file.action == "delete" {
        let removed = if file.directory { remove_all(path) } else { remove_one(path) };
        return Ok(removed?);
    }
    let mode = mode(file)?;
    if file.directory {
        create_dirs(path, mode)?;
    } else {
        let content = STANDARD
            .decode(file.content.as_bytes())
            .map_err(|error| FileError::Content { path: file.path.clone(), reason: error.to_string() })?;
        write(path, &content)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).on("set permissions of", path)?;
    own(file, path)
}

/// In place, so that what is bound or linked to the file sees the change.
fn write(path: &Path, content: &[u8]) -> Result<(), DiskError> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == content.len() as u64)
        && fs::read(path).is_ok_and(|existing| existing == content)
    {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_dirs(parent, 0o755)?;
    }
    fs::write(path, content).on("write", path)
}

fn remove_one(path: &Path) -> Result<(), DiskError> {
    // An empty directory goes too, as `remove` on other systems does.
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(path),
        _ => fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.on("remove", path),
    }
}

fn mode(file: &File) -> Result<u32, FileError> {
    if file.permissions.is_empty() {
        return Ok(if file.directory { 0o755 } else { 0o600 });
    }
    let parsed = i32::from_str_radix(&file.permissions, 8).ok().filter(|mode| *mode >= 0);
    let parsed = parsed.and_then(|mode| u32::try_from(mode).ok());
    let refused =
        || FileError::Permissions { path: file.path.clone(), permissions: file.permissions.clone() };
    Ok(parsed.ok_or_else(refused)? & 0o777)
}

fn own(file: &File, path: &Path) -> Result<(), FileError> {
    let (Ok(uid), Ok(gid)) = (u32::try_from(file.uid), u32::try_from(file.gid)) else {
        return Err(FileError::Owner { path: file.path.clone(), uid: file.uid, gid: file.gid });
    };
    let metadata = fs::metadata(path).on("read", path)?;
    if metadata.uid() != uid || metadata.gid() != gid {
        chown(path, Some(uid), Some(gid)).on("change owner of", path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine(path: &Path) -> File {
        File {
            path: path.to_str().unwrap().to_owned(),
            uid: nix::unistd::geteuid().as_raw().into(),
            gid: nix::unistd::getegid().as_raw().into(),
            ..File::default()
        }
    }

    fn bits(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_get_content_parents_and_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        let file = File { content: STANDARD.encode("hello").into(), ..mine(&path) };
        apply(&file).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), bits(&path)), (&b"hello"[..], 0o600));
        let before = fs::metadata(&path).unwrap().ino();
        apply(&File { content: STANDARD.encode("other").into(), permissions: "4755".into(), ..file.clone() })
            .unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), bits(&path)), (&b"other"[..], 0o755));
        assert_eq!(fs::metadata(&path).unwrap().ino(), before);
    }

    #[test]
    fn directories_are_made_and_removed_with_everything_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d/e");
        let entry = File { directory: true, permissions: "0700".into(), ..mine(&path) };
        apply(&entry).unwrap();
        assert_eq!(bits(&path), 0o700);
        fs::write(path.join("x"), "x").unwrap();
        let gone = File { action: "delete".into(), ..entry };
        apply(&gone).unwrap();
        apply(&gone).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_entry_does_not_remove_a_full_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("x"), "x").unwrap();
        assert!(apply(&File { action: "delete".into(), ..mine(dir.path()) }).is_err());
        apply(&File { action: "delete".into(), ..mine(&dir.path().join("nothing")) }).unwrap();
    }

    #[test]
    fn nonsense_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for file in [
            File::default(),
            File { content: "***".into(), ..mine(&path) },
            File { permissions: "rwx".into(), ..mine(&path) },
            File { permissions: "-644".into(), ..mine(&path) },
            File { uid: -1, ..mine(&path) },
            File { path: "/dev/null/x".into(), ..mine(&path) },
        ] {
            assert!(apply(&file).is_err(), "{file:?}");
        }
    }
}
