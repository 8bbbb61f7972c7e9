//! Snapshots of etcd, read where they lie: plans ask for it before anything depends on one.

mod s3;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use remuda_snapshot::{Report, verify};

/// Which file is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// This one.
    File(PathBuf),
    /// The newest in a directory.
    Newest(PathBuf),
    /// The one of this name in the store that a configuration of K3s or RKE2 names. It is put here meanwhile.
    S3 { config: PathBuf, path: PathBuf },
}

impl Which {
    /// Reads the file from its first byte to its last.
    pub fn read(&self) -> Report {
        let path = match self {
            Which::File(path) => Ok(path.clone()),
            Which::Newest(directory) => newest(directory),
            Which::S3 { config, path } => return s3::read(config, path),
        };
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match path {
            Ok(path) => Report::new(&name(&path), open(&path)),
            Err(error) => Report::new("", Err(error.into())),
        }
    }
}

fn open(path: &Path) -> Result<remuda_snapshot::Verified, remuda_snapshot::Unproven> {
    verify(&mut File::open(path)?)
}

fn newest(directory: &Path) -> io::Result<PathBuf> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // What is being written has a name with a dot in front.
        if !metadata.is_file() || entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        let found = (metadata.modified()?, entry.path());
        newest = newest.max(Some(found));
    }
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::other("there is no snapshot"))
}

#[cfg(test)]
mod tests {
    use remuda_snapshot::write::{self, Bucket};

    use super::*;

    #[test]
    fn the_newest_file_is_read_and_damage_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let empty = Which::Newest(directory.path().to_owned()).read();
        assert_eq!((empty.is_proven(), empty.code.as_str()), (false, "Unreadable"));
        let items = vec![write::revision(2, b"/registry/pods/a/b", b"")];
        let mut file = write::seal(write::database(vec![Bucket { name: "key".to_owned(), items }]));
        let path = directory.path().join("on-demand-a-1");
        fs::write(&path, &file).unwrap();
        fs::write(directory.path().join(".on-demand-a-2.part"), "x").unwrap();
        let read = Which::Newest(directory.path().to_owned()).read();
        assert_eq!((read.file.as_str(), read.verified.unwrap().keys), ("on-demand-a-1", 1));
        file[5000] ^= 1;
        fs::write(&path, &file).unwrap();
        assert_eq!(Which::File(path).read().code, "ChecksumMismatch");
    }
}
