//! Names of backups: whose they are, and when they were made.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use remuda_base::hex;
use remuda_names::PROGRAM;

const FORM: &str = "%Y%m%dT%H%M%SZ";
const END: &str = ".backup";

/// By what a server knows its own backups: its certificate authority, which is in them and stays what it is when
/// one is restored.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// What the names of its backups begin with.
    prefix: String,
}

/// A backup of this server that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    pub(super) made: Timestamp,
    pub(super) name: String,
}

impl Server {
    pub(super) fn new(ca_pem: &str) -> Server {
        let id = hex(&digest(&SHA256, ca_pem.as_bytes()).as_ref()[..6]);
        Server { prefix: format!("{PROGRAM}-{id}-") }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A backup that is made now.
    pub(super) fn backup(&self, now: Timestamp) -> Held {
        let made = Timestamp::from_second(now.as_second()).unwrap_or(now);
        Held { made, name: format!("{}{}{END}", self.prefix, made.strftime(FORM)) }
    }

    /// What this is, if it is a backup of this server.
    pub(super) fn read(&self, name: &str) -> Option<Held> {
        let stamp = name.strip_prefix(&self.prefix)?.strip_suffix(END)?;
        let made = DateTime::strptime(FORM, stamp).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        // Others may write times in other ways: what is not written as we do is not ours.
        Some(self.backup(made)).filter(|held| held.name == name)
    }

    /// The name of a backup while it is in the making.
    pub(super) fn partial(&self, held: &Held) -> String {
        format!(".{}.partial", held.name)
    }

    /// Whether this was to become a backup of this server.
    pub(super) fn is_partial(&self, name: &str) -> bool {
        let inner = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
        inner.is_some_and(|inner| self.read(inner).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_backups_are_known_by_a_server() {
        let (own, other) = (Server::new("a"), Server::new("b"));
        let now: Timestamp = "2026-11-19T03:00:00.5Z".parse().unwrap();
        let held = own.backup(now);
        assert!(
            held.name.starts_with("remuda-") && held.name.ends_with("-20261119T030000Z.backup"),
            "{held:?}"
        );
        assert_eq!(own.read(&held.name), Some(held.clone()));
        assert_eq!(other.read(&held.name), None);
        let partial = own.partial(&held);
        assert!(own.is_partial(&partial) && !other.is_partial(&partial) && own.read(&partial).is_none());
        for name in [
            "remuda-2026-11-15.backup".to_owned(),
            held.name.replace(".backup", ".backup.old"),
            held.name.replace("20261119T", "20261319T"),
            held.name.replace("20261119T", "2026119T"),
            format!("a/{}", held.name),
            String::new(),
        ] {
            assert!(own.read(&name).is_none() && !own.is_partial(&name), "{name}");
        }
    }
}
