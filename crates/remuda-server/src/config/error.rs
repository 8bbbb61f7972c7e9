//! What is wrong with the configuration, and what to do about it.

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("invalid --{flag}: {reason}")]
    Invalid { flag: &'static str, reason: String },
    #[error("--{flag} needs --{other} as well")]
    Together { flag: &'static str, other: &'static str },
    #[error("read --{flag} {}", .path.display())]
    Unreadable { flag: &'static str, path: PathBuf, source: io::Error },
    #[error("--{flag} {} can be read by other users (mode {mode:04o})", .path.display())]
    Exposed { flag: &'static str, path: PathBuf, mode: u32 },
    #[error("read configuration file {}", .path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    #[error("configuration file {}{}: {message}", .path.display(), line_suffix(*.line))]
    ParseFile { path: PathBuf, line: Option<u64>, message: String },
    #[error("no place for data: neither XDG_DATA_HOME nor HOME is set")]
    NoDataDir,
}

impl ConfigError {
    pub(crate) fn invalid(flag: &'static str, reason: impl Into<String>) -> ConfigError {
        ConfigError::Invalid { flag, reason: reason.into() }
    }

    pub(crate) fn together(flag: &'static str, other: &'static str) -> ConfigError {
        ConfigError::Together { flag, other }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::Invalid { flag: "bind", .. } => {
                Some("use ADDRESS:PORT, for example --bind 127.0.0.1:8443 or --bind :8443".to_owned())
            }
            ConfigError::Invalid { flag: "datastore", .. } => {
                Some("use embedded, memory or etcd://HOST:2379,HOST:2379".to_owned())
            }
            ConfigError::Invalid { flag: "shared-secret-file", .. } => {
                Some("make one for all servers: head -c 32 /dev/urandom | base64 > FILE".to_owned())
            }
            ConfigError::Exposed { path, .. } => {
                Some(format!("if nobody has read it: chmod 600 {}", path.display()))
            }
            ConfigError::ParseFile { .. } => {
                Some("its keys are the names of the flags; see remuda server --help".to_owned())
            }
            ConfigError::NoDataDir => Some("name a directory with --data-dir".to_owned()),
            _ => None,
        }
    }
}

fn line_suffix(line: Option<u64>) -> String {
    line.map(|line| format!(", line {line}")).unwrap_or_default()
}
