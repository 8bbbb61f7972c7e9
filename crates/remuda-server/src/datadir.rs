//! The data directory: who may look into it, who works on it, and how files in it are replaced.
//!
//! Everything below is secret or as good as secret, so nobody but the owner gets in, and a key
//! file that others could read is refused: it may already have been read.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use remuda_names::file;

mod format;

pub use format::FORMAT;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("create data directory {}", .path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("use data directory {}", .path.display())]
    Use { path: PathBuf, source: io::Error },
    #[error("data directory {} is not a directory", .path.display())]
    NotADirectory { path: PathBuf },
    #[error("data directory {} is open to other users and holds other things", .path.display())]
    Shared { path: PathBuf },
    #[error("data directory {} is in use by process {}", .path.display(), holder(*.pid))]
    Locked { path: PathBuf, pid: Option<u32> },
    #[error("key file {} can be read by other users (mode {mode:04o})", .path.display())]
    OpenKey { path: PathBuf, mode: u32 },
    #[error(
        "data directory {} has format {found}{}, this program knows formats up to {FORMAT}; nothing was changed",
        .path.display(), by(.version.as_deref())
    )]
    Newer { path: PathBuf, found: u32, version: Option<String> },
    #[error("{} names no format; nothing was changed", .path.display())]
    NoFormat { path: PathBuf },
    #[error("read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
}

fn by(version: Option<&str>) -> String {
    version.map(|version| format!(", written by version {version}")).unwrap_or_default()
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
}

impl DataDirError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        let own = "choose another directory with --data-dir, or give this one to the user running remuda";
        match self {
            DataDirError::Create { .. } | DataDirError::Use { .. } => Some(own.to_owned()),
            DataDirError::NotADirectory { .. } => Some("choose another one with --data-dir".to_owned()),
            DataDirError::Shared { path } => {
                let path = path.display();
                Some(format!("choose an empty directory with --data-dir, or chmod 700 {path}"))
            }
            DataDirError::Locked { .. } => {
                Some("stop that server first, or choose another directory with --data-dir".to_owned())
            }
            DataDirError::OpenKey { path, .. } => {
                Some(format!("if nobody has read it: chmod 600 {}", path.display()))
            }
            DataDirError::Newer { version, .. } => Some(format!(
                "use {}, or restore a backup that this version made",
                version.as_ref().map_or_else(
                    || "a newer version".to_owned(),
                    |version| format!("version {version}, or a newer one")
                )
            )),
            DataDirError::NoFormat { .. } => Some(
                "it was damaged or is somebody else's; its first line should be such as: format 1".to_owned(),
            ),
            DataDirError::Read { .. } | DataDirError::Write { .. } => None,
        }
    }
}

/// A data directory this process holds; others are kept out until it is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: Flock<File>,
}

/// A predecessor that was told to stop needs a moment to let go of the directory.
const PATIENCE: Duration = Duration::from_millis(500);

impl DataDir {
    /// Creates the directory if it is not there, makes it private and locks it.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        let create = |source| DataDirError::Create { path: path.to_owned(), source };
        // First of all: a program that does not understand what is there must not touch it.
        format::check(path)?;
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(DataDirError::NotADirectory { path: path.to_owned() });
            }
            Ok(metadata) => make_private(path, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent).map_err(create)?;
                }
                fs::DirBuilder::new().mode(0o700).create(path).map_err(create)?;
            }
            Err(source) => return Err(DataDirError::Use { path: path.to_owned(), source }),
        }
        // Paths are kept, handed to other crates and printed: they must not depend on where we are.
        let path = fs::canonicalize(path).map_err(create)?;
        let lock = lock(&path)?;
        let dir = DataDir { path, _lock: lock };
        // Again, as it may have been upgraded while we waited.
        if !format::check(dir.path())? {
            dir.write(file::FORMAT, format::line(crate::VERSION).as_bytes())?;
        }
        dir.create_dir(file::PKI)?;
        dir.empty_scratch()?;
        Ok(dir)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether a server or a command is working on the directory now.
    pub fn is_locked(path: &Path) -> bool {
        let Ok(file) = File::open(path.join(file::LOCK)) else { return false };
        matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)))
    }

    pub(crate) fn create_dir(&self, name: &str) -> Result<PathBuf, DataDirError> {
        let path = self.join(name);
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(path),
            Err(source) => Err(DataDirError::Create { path, source }),
        }
    }

    fn empty_scratch(&self) -> Result<(), DataDirError> {
        let path = self.join(file::SCRATCH);
        match fs::remove_dir_all(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DataDirError::Write { path, source })
            }
            _ => self.create_dir(file::SCRATCH).map(drop),
        }
    }

    /// The contents of a file that only its owner may read; `None` if there is no such file.
    pub fn read_key(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        let path = self.join(name);
        check_key(&path)?;
        read_optional(&path)
    }

    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        read_optional(&self.join(name))
    }

    /// Replaces a file by one only the owner can read. After a crash it is the old or the new one.
    pub fn write(&self, name: &str, contents: &[u8]) -> Result<(), DataDirError> {
        write_private(&self.join(name), contents)
    }
}

fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, DataDirError> {
    match fs::read(path) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(DataDirError::Read { path: path.to_owned(), source }),
    }
}

/// Refuses a key file that others can read. A missing file is fine.
pub(crate) fn check_key(path: &Path) -> Result<(), DataDirError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            Err(DataDirError::OpenKey { path: path.to_owned(), mode: metadata.mode() & 0o7777 })
        }
        _ => Ok(()),
    }
}

/// Writes beside the file, then renames: readers see the old or the new contents, never half.
pub fn write_private(path: &Path, contents: &[u8]) -> Result<(), DataDirError> {
    let write = || -> io::Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = parent.join(name);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(parent)?.sync_all()
    };
    write().map_err(|source| DataDirError::Write { path: path.to_owned(), source })
}

/// Shuts others out of an existing directory, unless it seems to be somebody else's: the chmod
/// of a directory such as `/tmp` named by mistake would do real harm.
fn make_private(path: &Path, metadata: &fs::Metadata) -> Result<(), DataDirError> {
    let wrap = |source| DataDirError::Use { path: path.to_owned(), source };
    let mut entries = fs::read_dir(path).map_err(wrap)?;
    if metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let ours = path.join(file::LOCK).exists() || entries.next().is_none();
    if !ours {
        return Err(DataDirError::Shared { path: path.to_owned() });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(wrap)
}

fn lock(path: &Path) -> Result<Flock<File>, DataDirError> {
    let wrap = |source| DataDirError::Use { path: path.to_owned(), source };
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(file::LOCK))
    };
    let started = Instant::now();
    let mut file = open().map_err(wrap)?;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                let record = || -> io::Result<()> {
                    lock.set_len(0)?;
                    lock.rewind()?;
                    writeln!(lock, "{}", std::process::id())
                };
                let mut record = record;
                record().map_err(wrap)?;
                return Ok(lock);
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                if started.elapsed() >= PATIENCE {
                    let mut pid = String::new();
                    let _ = file.read_to_string(&mut pid);
                    return Err(DataDirError::Locked { path: path.to_owned(), pid: pid.trim().parse().ok() });
                }
                std::thread::sleep(Duration::from_millis(50));
                file
            }
            Err((_, errno)) => return Err(wrap(errno.into())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_new_directory_is_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let dir = DataDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        dir.write("secret", b"x").unwrap();
        assert_eq!(mode(&dir.join("secret")), 0o600);
        assert_eq!(dir.read_key("secret").unwrap().unwrap(), b"x");
        assert_eq!(dir.read_key("missing").unwrap(), None);
    }

    #[test]
    fn an_open_directory_of_somebody_else_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(parent.path().join("letter"), "").unwrap();
        let error = DataDir::open(parent.path()).unwrap_err();
        assert!(matches!(error, DataDirError::Shared { .. }));
        assert_eq!(mode(parent.path()), 0o755);
    }

    #[test]
    fn an_open_empty_directory_is_closed() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
        DataDir::open(parent.path()).unwrap();
        assert_eq!(mode(parent.path()), 0o700);
    }

    #[test]
    fn a_second_holder_learns_who_is_the_first() {
        let parent = tempfile::tempdir().unwrap();
        let first = DataDir::open(parent.path()).unwrap();
        assert!(DataDir::is_locked(parent.path()));
        let error = DataDir::open(parent.path()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("is in use by process {}", std::process::id())), "{error}");
        drop(first);
        assert!(!DataDir::is_locked(parent.path()));
        DataDir::open(parent.path()).unwrap();
    }

    #[test]
    fn a_key_others_can_read_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let dir = DataDir::open(parent.path()).unwrap();
        dir.write("key", b"x").unwrap();
        fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o640)).unwrap();
        let error = dir.read_key("key").unwrap_err();
        assert!(error.to_string().ends_with("can be read by other users (mode 0640)"), "{error}");
        assert!(error.hint().unwrap().starts_with("if nobody has read it: chmod 600 "));
    }

    #[test]
    fn a_file_is_not_a_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(matches!(DataDir::open(file.path()), Err(DataDirError::NotADirectory { .. })));
    }
}
