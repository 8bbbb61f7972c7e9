//! Release data from a file the operator names.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use jiff::{Timestamp, tz::TimeZone};
use remuda_distro::{
    Catalog,
    document::{self, DocumentError},
    release::Source,
};

/// More than any document has.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReleaseFileError {
    #[error("read --release-data {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("--release-data {} has more than {MAX_BYTES} bytes", .path.display())]
    TooLarge { path: PathBuf },
    #[error("--release-data {}", .path.display())]
    Invalid { path: PathBuf, source: DocumentError },
}

/// Reads and checks a document of Rancher's metadata service.
pub(crate) fn load(path: &Path) -> Result<Arc<Catalog>, ReleaseFileError> {
    let read = |source| ReleaseFileError::Read { path: path.to_owned(), source };
    let metadata = std::fs::metadata(path).map_err(read)?;
    if metadata.len() > MAX_BYTES {
        return Err(ReleaseFileError::TooLarge { path: path.to_owned() });
    }
    let date = metadata.modified().ok().and_then(|time: SystemTime| Timestamp::try_from(time).ok());
    let date = date.map(|time| time.to_zoned(TimeZone::UTC).date());
    let bytes = std::fs::read(path).map_err(read)?;
    let catalog = document::read(&bytes, Source::File(path.display().to_string()), date)
        .map_err(|source| ReleaseFileError::Invalid { path: path.to_owned(), source })?;
    Ok(Arc::new(catalog.completed_by(&Catalog::shipped())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_checked_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.json");
        assert!(matches!(load(&path), Err(ReleaseFileError::Read { .. })));
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(load(&path), Err(ReleaseFileError::Invalid { .. })));
        let document = r#"{"k3s":{"releases":[{"version":"v1.35.9+k3s1",
            "serverArgs":{"a":{"type":"string"}},"agentArgs":{"b":{"type":"string"}}}]}}"#;
        std::fs::write(&path, document).unwrap();
        let catalog = load(&path).unwrap();
        assert!(catalog.find("v1.35.9+k3s1").is_some() && catalog.date.is_some());
        assert!(catalog.end_of_life("v1.35.9+k3s1").is_some(), "the program knows what the file does not");
    }
}
