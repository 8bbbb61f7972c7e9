//! Which host machines are on that exist on a server's own host.
//!
//! Several servers may share a datastore, and machines of the driver `local` are processes and files below the data
//! directory of one of them. No other server can see them: asked there, the driver would say that they are gone. So
//! the identity of that directory is recorded with each such machine, and its jobs are run by the server that has it.

use std::{fs, io, path::Path};

use remuda_names::machines::file;
use serde::{Deserialize, Serialize};

use crate::state::write_private;

/// A host, as the data directory of a server on it: two servers on one machine have two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Host {
    #[serde(rename = "ID")]
    pub id: String,
    /// For people.
    pub name: String,
}

impl Host {
    /// The host of a data directory. Its identity is made when it is first asked for.
    ///
    /// # Errors
    /// If the directory can be neither read nor written.
    pub fn of(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(file::HOST);
        let id = match fs::read_to_string(&path) {
            Ok(text) if is_identity(text.trim()) => text.trim().to_owned(),
            Ok(_) => return Err(io::Error::other(format!("{} holds no identity", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = format!("{:032x}", rand::random::<u128>());
                let temporary = path.with_extension("new");
                write_private(&temporary, format!("{id}\n").as_bytes()).map_err(io::Error::other)?;
                fs::rename(&temporary, &path)?;
                id
            }
            Err(error) => return Err(error),
        };
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(Self { id, name: name.trim().to_owned() })
    }

    /// As a job gets it in a variable.
    pub(crate) fn variable(&self) -> String {
        format!("{} {}", self.id, self.name)
    }

    pub(crate) fn parse(variable: &str) -> Option<Self> {
        let (id, name) = variable.split_once(' ').unwrap_or((variable, ""));
        is_identity(id).then(|| Self { id: id.to_owned(), name: name.to_owned() })
    }
}

/// It is the value of a label, too.
fn is_identity(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_and_no_two_have_the_same() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host = Host::of(one.path()).unwrap();
        assert_eq!(Host::of(one.path()).unwrap(), host);
        assert_ne!(Host::of(two.path()).unwrap().id, host.id);
        assert_eq!(Host::parse(&host.variable()), Some(host));
        fs::write(one.path().join(file::HOST), "no identity").unwrap();
        assert!(Host::of(one.path()).is_err());
        assert_eq!(Host::parse(""), None);
    }
}
