//! Directories of the host that machines see, and may write.
//!
//! They are the server's to give, not a machine configuration's: who may create machines may not choose what of the host
//! they see.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A directory of the host, and where machines have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub host: PathBuf,
    pub inside: PathBuf,
}

/// Why there is no such volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    #[error("{0:?} is not HOST:NODE, such as /srv/data:/data")]
    Form(String),
    #[error("{} is no directory of this host", .0.display())]
    NotDirectory(PathBuf),
    #[error("{} is a machine's own: name a directory such as /data or /mnt/data", .0.display())]
    Reserved(PathBuf),
}

/// What a machine runs from.
const RESERVED: [&str; 11] =
    ["bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"];

impl Volume {
    /// Reads `HOST:NODE`. The directory of the host must be there; links in it are followed now, and not later.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub fn parse(text: &str) -> Result<Volume, VolumeError> {
        let form = || VolumeError::Form(text.to_owned());
        let (host, inside) = text.rsplit_once(':').ok_or_else(form)?;
        let inside = Path::new(inside);
        let mut parts = inside.components();
        if parts.next() != Some(Component::RootDir) || host.is_empty() {
            return Err(form());
        }
        let rest: Vec<Component<'_>> = parts.collect();
        if rest.iter().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(form());
        }
        let first = rest.first().map(|part| part.as_os_str());
        if first.is_none_or(|first| RESERVED.iter().any(|reserved| first == *reserved)) {
            return Err(VolumeError::Reserved(inside.to_owned()));
        }
        let found = fs::canonicalize(host).ok().filter(|host| host.is_dir());
        let host = found.ok_or_else(|| VolumeError::NotDirectory(host.into()))?;
        Ok(Volume { host, inside: inside.components().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_directory_of_the_host_and_hides_nothing_of_a_machine() {
        let dir = tempfile::tempdir().unwrap();
        let host = fs::canonicalize(dir.path()).unwrap();
        let of = |inside: &str| Volume::parse(&format!("{}:{inside}", dir.path().display()));
        assert_eq!(of("/mnt/data/").unwrap(), Volume { host, inside: "/mnt/data".into() });
        for reserved in ["/", "/etc", "/usr/local", "/proc/x"] {
            assert!(matches!(of(reserved), Err(VolumeError::Reserved(_))), "{reserved}");
        }
        for form in ["data", "/data/../etc", "", "/../etc"] {
            assert!(matches!(of(form), Err(VolumeError::Form(_))), "{form}");
        }
        assert!(matches!(Volume::parse("/data"), Err(VolumeError::Form(_))));
        let absent = dir.path().join("absent");
        fs::write(&absent, "a file").unwrap();
        assert_eq!(
            Volume::parse(&format!("{}:/data", absent.display())),
            Err(VolumeError::NotDirectory(absent))
        );
    }
}
