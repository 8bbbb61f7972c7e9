//! Where everything is: the files of the machines of one data directory.
//!
//! ```text
//! <data>/sandbox/
//!   lock               held by whoever changes the set of machines or the hub
//!   server.json        how the server is reached; written by the server
//!   addresses          the last address given out
//!   images/            installer images the operator put there
//!   preloaded/         images for containers of the machines' clusters, put there likewise
//!   hub/               life, hub.json, hub.log
//!   relay/             relay.sock, the way from the machines to the server
//!   machines/<id>/     machine.json, work, life, running.json, console.log, run/, root/, overlay/, mnt/
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::Ipv4Addr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use remuda_names::sandbox::DIRECTORY;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{Doing, Error, Result},
    server::{Listen, ServerAddress},
    volume::Volume,
};

/// The machines' network. It exists only in namespaces of ours, so it cannot collide with the host's.
pub(crate) const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 0);
pub(crate) const PREFIX: u8 = 16;
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 213, 0, 1);

/// The relay's socket, in its directory.
pub(crate) const RELAY: &str = "relay.sock";

/// The local machines of one data directory.
#[derive(Debug, Clone)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(DIRECTORY))
    }

    /// By the path a stage was given.
    pub(crate) fn at(sandbox_dir: impl Into<PathBuf>) -> Self {
        Self(sandbox_dir.into())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    pub(crate) fn server(&self) -> PathBuf {
        self.0.join("server.json")
    }

    pub(crate) fn volumes(&self) -> PathBuf {
        self.0.join("volumes.json")
    }

    pub(crate) fn addresses(&self) -> PathBuf {
        self.0.join("addresses")
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    pub(crate) fn preloaded(&self) -> PathBuf {
        self.0.join("preloaded")
    }

    pub(crate) fn hub(&self) -> PathBuf {
        self.0.join("hub")
    }

    pub(crate) fn hub_life(&self) -> PathBuf {
        self.hub().join("life")
    }

    pub(crate) fn hub_record(&self) -> PathBuf {
        self.hub().join("hub.json")
    }

    pub(crate) fn relay(&self) -> PathBuf {
        self.0.join("relay")
    }

    pub(crate) fn machines(&self) -> PathBuf {
        self.0.join("machines")
    }

    pub(crate) fn machine(&self, id: &str) -> Home {
        Home(self.machines().join(id))
    }

    /// The ids of all machines, also of those half made or half removed.
    pub(crate) fn ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in list(&self.machines())? {
            ids.extend(entry.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// The records of all machines that have one.
    pub(crate) fn records(&self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        for id in self.ids()? {
            records.extend(self.machine(&id).record()?);
        }
        Ok(records)
    }
}

/// The files of one machine.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.file("work")
    }

    pub(crate) fn life(&self) -> PathBuf {
        self.file("life")
    }

    pub(crate) fn console(&self) -> PathBuf {
        self.file("console.log")
    }

    /// A file or directory of the machine, by its path there: `etc`, `usr/local`.
    pub(crate) fn private(&self, path: &str) -> PathBuf {
        self.0.join("root").join(path)
    }

    pub(crate) fn record(&self) -> Result<Option<Record>> {
        read_json(&self.file("machine.json"))
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<()> {
        let path = self.file("machine.json");
        write_json(&path, record)?;
        // The one file that must survive a power cut; the rest can be made anew from it.
        let synced = File::open(&path).and_then(|file| file.sync_data());
        synced.doing(|| format!("write {}", path.display()))
    }

    pub(crate) fn running(&self) -> Result<Option<Running>> {
        read_json(&self.file("running.json"))
    }
}

/// What a machine is; written before anything is made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) hostname: String,
    pub(crate) address: Ipv4Addr,
    /// The server's addresses as the machine knows them: the published one, and the one it was born with.
    #[serde(default)]
    pub(crate) servers: Vec<ServerAddress>,
    /// Its private directories are complete.
    #[serde(default)]
    pub(crate) seeded: bool,
    /// It was stopped on purpose.
    #[serde(default)]
    pub(crate) stopped: bool,
    #[serde(default)]
    pub(crate) removing: bool,
    /// The first of the host's users that the machine's users are, if they are not the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) users: Option<u32>,
    /// Directories of the host that it sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<Volume>,
}

impl Record {
    /// Where the machine listens in the server's place.
    pub(crate) fn listens(&self) -> Vec<(Listen, String)> {
        let listen = |server: &ServerAddress| Some((server.endpoint()?.listen(), server.url.clone()));
        let mut all: Vec<(Listen, String)> = Vec::new();
        for (listen, url) in self.servers.iter().filter_map(listen) {
            if !all.iter().any(|(known, _)| (known.address, known.port) == (listen.address, listen.port)) {
                all.push((listen, url));
            }
        }
        all
    }
}

/// What a running machine is part of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) hub: String,
}

/// The hub: a process that holds the shared namespaces, and the relay, which is its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hub {
    pub(crate) id: String,
    pub(crate) holder: i32,
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error).doing(|| format!("read {}", path.display())),
    };
    let damaged = |error: serde_json::Error| Error::Record {
        path: path.display().to_string(),
        problem: error.to_string(),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(damaged)
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let bytes = serde_json::to_vec(value).map_err(io::Error::from).doing(|| "write a record")?;
    replace(path, &bytes, 0o600)
}

/// Ends the names of files that are being written.
pub(crate) const UNFINISHED: &str = ".new";

/// Puts a file in place as a whole, or not at all.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}{UNFINISHED}", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || -> io::Result<()> {
        // In a machine's own directory anything may stand in our way: it is removed, never followed.
        let _ = fs::remove_file(&temporary);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        fs::rename(&temporary, path)
    };
    write().doing(|| format!("write {}", path.display()))
}

pub(crate) fn append_to(path: &Path) -> Result<File> {
    let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    open.doing(|| format!("open {}", path.display()))
}

pub(crate) fn make_dir(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .doing(|| format!("make directory {}", path.display()))
}

/// The entries of a directory; none if it is not there.
pub(crate) fn list(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error).doing(|| format!("list {}", path.display())),
    };
    Ok(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
}

/// Removes a file or a tree, also directories that their owner may not enter. Gone already is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(error) if !is_absent(&error) => Err(error).doing(|| format!("remove {}", path.display())),
        _ => Ok(()),
    };
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.is_dir() {
        return absent_is_fine(fs::remove_file(path));
    }
    // The quick way fails where a service left a directory without permissions behind.
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    // Depth is bounded by memory, not by the stack: machines can nest directories as they like.
    let mut pending = vec![path.to_owned()];
    while let Some(dir) = pending.pop() {
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        for entry in list(&dir)? {
            if fs::symlink_metadata(&entry).is_ok_and(|meta| meta.is_dir()) {
                pending.push(entry);
            }
        }
    }
    absent_is_fine(fs::remove_dir_all(path))
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_closed_directories_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("tree/upper/closed");
        fs::create_dir_all(&closed).unwrap();
        fs::write(closed.join("file"), "x").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        remove_tree(&dir.path().join("tree")).unwrap();
        assert!(!dir.path().join("tree").exists());
        remove_tree(&dir.path().join("tree")).unwrap();
    }

    #[test]
    fn a_record_is_read_back_and_damage_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let home = Place::of(dir.path()).machine("m1");
        assert_eq!(home.record().unwrap(), None);
        make_dir(home.dir(), 0o700).unwrap();
        fs::write(home.file("machine.json"), "{").unwrap();
        assert!(home.record().unwrap_err().to_string().contains("machine.json is damaged"));
    }
}
