//! The secret that servers on one etcd have in common.

use std::{fmt, path::Path};

use super::ConfigError;
use crate::datadir::{self, DataDirError};

const FLAG: &str = "shared-secret-file";
/// Whoever can read etcd can try secrets as fast as their machines allow.
const SHORTEST: usize = 16;

/// Never shown, not even in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedSecret(String);

impl SharedSecret {
    pub fn new(secret: String) -> SharedSecret {
        SharedSecret(secret)
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedSecret")
    }
}

pub(super) fn resolve(
    given: Option<SharedSecret>,
    file: Option<&Path>,
) -> Result<Option<SharedSecret>, ConfigError> {
    let text = match (given, file) {
        (Some(given), _) => given.0,
        (None, Some(path)) => read(path)?,
        (None, None) => return Ok(None),
    };
    // Editors and shells end lines.
    let text = text.trim();
    let length = text.chars().count();
    if length < SHORTEST {
        let reason = format!("the secret has {length} characters, it needs at least {SHORTEST}");
        return Err(ConfigError::invalid(FLAG, reason));
    }
    Ok(Some(SharedSecret(text.to_owned())))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    if let Err(DataDirError::OpenKey { path, mode }) = datadir::check_key(path) {
        return Err(ConfigError::Exposed { flag: FLAG, path, mode });
    }
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
        flag: FLAG,
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::config::Options;

    fn file(contents: &str, mode: u32) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_secret_is_trimmed_and_not_shown() {
        let (_dir, path) = file("sixteen-or-more!\n", 0o600);
        let secret = resolve(None, Some(&path)).unwrap().unwrap();
        assert_eq!(secret.expose(), "sixteen-or-more!");
        assert_eq!(format!("{secret:?}"), "SharedSecret");
    }

    #[test]
    fn a_short_an_exposed_and_a_missing_secret_are_refused() {
        let (_dir, path) = file("fifteen chars..\n\n\n", 0o600);
        let error = resolve(None, Some(&path)).unwrap_err().to_string();
        let reason = "the secret has 15 characters, it needs at least 16";
        assert_eq!(error, format!("invalid --shared-secret-file: {reason}"));
        let (_dir, path) = file("sixteen-or-more!", 0o644);
        let error = resolve(None, Some(&path)).unwrap_err().to_string();
        assert!(error.ends_with("can be read by other users (mode 0644)"), "{error}");
        assert!(matches!(resolve(None, Some(Path::new("/nowhere"))), Err(ConfigError::Unreadable { .. })));
    }

    #[test]
    fn a_secret_is_for_etcd_and_wins_over_the_file() {
        let secret = Some(SharedSecret::new("sixteen-or-more!".to_owned()));
        let options = Options { shared_secret: secret.clone(), ..Options::default() };
        assert!(options.clone().resolve().is_err());
        let lower = Options {
            datastore: Some("etcd://a".to_owned()),
            shared_secret_file: Some("/nowhere".into()),
            data_dir: Some("/x".into()),
            ..Options::default()
        };
        assert_eq!(options.or(lower).resolve().unwrap().shared_secret, secret);
    }
}
