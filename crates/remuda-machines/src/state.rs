//! What is kept of a machine: the archive in its state Secret.
//!
//! It is rancher-machine's: a compressed tar of the machine's directory with `config.json`, the login key and
//! whatever the driver put there, under the place it has in that program's container. Here it is unpacked to a
//! directory of one's own and packed again under the usual place, so either program can take over.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use remuda_drivers::{
    driver::{Addresses, Config, Ssh},
    secret::Secret,
    ssh::Target,
};
use remuda_plan::machine_state::{self, OURS, Record, StateError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::host::Host;

/// Where machines are in archives.
pub const USUAL_STORE: &str = "/home/machine/.docker/machine";
/// Where the login key is, in a driver's record.
const KEY_PATH: &str = "SSHKeyPath";
/// Files that can be fetched again, and are too large for a Secret.
const LEFT_OUT: &[&str] = &[".iso", ".tar.gz", ".vmdk", ".img"];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{doing}")]
    File { doing: &'static str, source: std::io::Error },
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the state of the machine is not as it was written: {0}")]
    Broken(&'static str),
}

fn file(doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::File { doing, source }
}

/// How far a machine has got. Nothing outside exists before `Creating`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Phase {
    /// Settings and identity are recorded.
    Intended,
    /// The driver may have made something. Records of others, who do not say, begin here.
    #[default]
    Creating,
    /// The server exists.
    Created,
    /// The script has run, or is on its way.
    Delivered,
}

/// A machine's `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub driver_name: String,
    /// The driver's record, with credentials in clear.
    pub driver: Config,
    pub phase: Phase,
    /// Host key of the server, once it is known.
    pub host_key: String,
    /// The host it exists on, if that is a server's own.
    pub host: Option<Host>,
    /// Its server was stopped, and is to stay so.
    pub stopped: bool,
    /// What others wrote and we do not know.
    rest: Map<String, Value>,
}

impl Machine {
    pub fn new(name: &str, driver_name: &str, script: Option<&str>, hostname: &str) -> Self {
        let rest = json!({
            "ConfigVersion": 3,
            "Name": name,
            "HostOptions": {
                "Driver": "", "Memory": 0, "Disk": 0,
                "CustomInstallScript": script.unwrap_or_default(),
                "HostnameOverride": hostname,
                "MachineOS": "", "EngineOptions": null, "SwarmOptions": null, "AuthOptions": null,
            },
        });
        Self {
            driver_name: driver_name.to_owned(),
            driver: Config::default(),
            phase: Phase::Intended,
            host_key: String::new(),
            host: None,
            stopped: false,
            rest: rest.as_object().cloned().unwrap_or_default(),
        }
    }

    fn parse(text: &[u8]) -> Result<Self, Error> {
        let Record { driver_name, driver, mut rest } = Record::parse(text)?;
        let ours = rest.remove(OURS).unwrap_or_default();
        Ok(Self {
            driver_name,
            driver: Config(driver),
            phase: serde_json::from_value(ours["Phase"].clone()).unwrap_or_default(),
            host_key: ours["HostKey"].as_str().unwrap_or_default().to_owned(),
            host: serde_json::from_value(ours["Host"].clone()).ok(),
            stopped: ours[machine_state::STOPPED] == true,
            rest,
        })
    }

    fn render(&self) -> Vec<u8> {
        let mut all = self.rest.clone();
        all.insert("Driver".to_owned(), Value::Object(self.driver.0.clone()));
        all.insert("DriverName".to_owned(), self.driver_name.clone().into());
        let mut ours = json!({"Phase": self.phase, "HostKey": self.host_key});
        if let Some(host) = &self.host {
            ours["Host"] = json!({"ID": host.id, "Name": host.name});
        }
        if self.stopped {
            ours[machine_state::STOPPED] = json!(true);
        }
        all.insert(OURS.to_owned(), ours);
        let mut text = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(b"    ");
        let mut writer = serde_json::Serializer::with_formatter(&mut text, format);
        all.serialize(&mut writer).expect("a JSON object with string keys always serialises");
        text
    }
}

/// A directory with the machines of one state Secret; in practice one.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// An empty store; what was there is removed.
    pub fn empty(path: &Path) -> Result<Self, Error> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file("empty the store")(error));
            }
            _ => {}
        }
        make_directory(&path.join("machines"))?;
        Ok(Self { path: path.to_owned() })
    }

    /// A store with the content of an archive.
    pub fn unpack(path: &Path, archive: &[u8]) -> Result<Self, Error> {
        let store = Self::empty(path)?;
        if archive.is_empty() {
            return Ok(store);
        }
        for (name, content) in machine_state::files(archive)? {
            let place = store.path.join("machines").join(&name);
            if let Some(parent) = place.parent() {
                make_directory(parent)?;
            }
            let content = if name.file_name().is_some_and(|name| name == "config.json") {
                let machine = name.parent().and_then(Path::to_str).unwrap_or_default();
                store.moved_in(machine, &content)?
            } else {
                content
            };
            write_private(&place, &content)?;
        }
        Ok(store)
    }

    /// Where drivers are told that machines are kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn directory(&self, machine: &str) -> PathBuf {
        self.path.join("machines").join(machine)
    }

    pub fn load(&self, machine: &str) -> Result<Option<Machine>, Error> {
        match fs::read(self.directory(machine).join("config.json")) {
            Ok(text) => Machine::parse(&text).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file("read the record of the machine")(error)),
        }
    }

    pub fn save(&self, name: &str, machine: &Machine) -> Result<(), Error> {
        let directory = self.directory(name);
        make_directory(&directory)?;
        let place = directory.join("config.json");
        let temporary = directory.join("config.json.new");
        write_private(&temporary, &machine.render())?;
        fs::rename(&temporary, &place).map_err(file("write the record of the machine"))
    }

    pub fn forget(&self, machine: &str) -> Result<(), Error> {
        match fs::remove_dir_all(self.directory(machine)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(file("forget the machine")(error))
            }
            _ => Ok(()),
        }
    }

    /// Everything, for the state Secret. The same content gives the same bytes.
    pub fn pack(&self) -> Result<Vec<u8>, Error> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        self.pack_directory(&mut archive, &self.path.join("machines"), 0)?;
        let packed = archive.into_inner().and_then(GzEncoder::finish);
        packed.map_err(file("pack the state of the machine"))
    }

    fn pack_directory(
        &self,
        archive: &mut tar::Builder<impl Write>,
        directory: &Path,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > 16 {
            return Err(Error::Broken("directories go too deep"));
        }
        let read = || file("read the store");
        let mut children: Vec<_> =
            fs::read_dir(directory).map_err(read())?.collect::<Result<_, _>>().map_err(read())?;
        children.sort_by_key(fs::DirEntry::file_name);
        self.append(archive, directory, tar::EntryType::Directory, &[])?;
        for child in children {
            let (path, kind) = (child.path(), child.file_type().map_err(read())?);
            let name = child.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                self.pack_directory(archive, &path, depth + 1)?;
            } else if kind.is_file()
                && !LEFT_OUT.iter().any(|end| name.ends_with(end))
                && !name.ends_with(".new")
            {
                let content = fs::read(&path).map_err(read())?;
                let content = if name == "config.json" { self.moved_out(&content)? } else { content };
                self.append(archive, &path, tar::EntryType::Regular, &content)?;
            }
        }
        Ok(())
    }

    fn append(
        &self,
        archive: &mut tar::Builder<impl Write>,
        path: &Path,
        kind: tar::EntryType,
        content: &[u8],
    ) -> Result<(), Error> {
        let inner =
            path.strip_prefix(&self.path).map_err(|_| Error::Broken("a file is outside of the store"))?;
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(if kind == tar::EntryType::Directory { 0o700 } else { 0o600 });
        header.set_uid(1000);
        header.set_gid(1000);
        header.set_mtime(0);
        let name = format!("{USUAL_STORE}/{}", inner.display());
        append(archive, header, &name, content).map_err(file("pack the state of the machine"))
    }

    /// The record of a machine as it is used here. Users who may write Secrets of the namespace can write it: its paths
    /// lead nowhere but into this store, whatever it says.
    fn moved_in(&self, name: &str, config: &[u8]) -> Result<Vec<u8>, Error> {
        let mut machine = Machine::parse(config)?;
        let from = match machine.driver.str("StorePath") {
            "" => USUAL_STORE.to_owned(),
            path => path.to_owned(),
        };
        let own = self.path.to_string_lossy().into_owned();
        let record = &mut machine.driver.0;
        relocate(record, &from, &own);
        for (field, value) in [("StorePath", own.as_str()), ("MachineName", name)] {
            if record.contains_key(field) {
                record.insert(field.to_owned(), value.into());
            }
        }
        let is_inside = |text: &str| {
            let inner = Path::new(text).strip_prefix(&self.path);
            inner.is_ok_and(|inner| inner.components().all(|part| matches!(part, Component::Normal(_))))
        };
        // An empty one is the usual place in the store.
        if record.get(KEY_PATH).is_some_and(|path| !path.as_str().is_some_and(is_inside)) {
            record.insert(KEY_PATH.to_owned(), "".into());
        }
        Ok(machine.render())
    }

    fn moved_out(&self, config: &[u8]) -> Result<Vec<u8>, Error> {
        let mut machine = Machine::parse(config)?;
        relocate(&mut machine.driver.0, &self.path.to_string_lossy(), USUAL_STORE);
        Ok(machine.render())
    }
}

/// The library refuses absolute paths, which is what these archives have. A name that is too long for its field
/// comes before it, in an entry of its own.
fn append(
    archive: &mut tar::Builder<impl Write>,
    mut header: tar::Header,
    name: &str,
    content: &[u8],
) -> std::io::Result<()> {
    if !set_name(&mut header, name) {
        let mut long = tar::Header::new_gnu();
        set_name(&mut long, "././@LongLink");
        long.set_entry_type(tar::EntryType::GNULongName);
        long.set_size(name.len() as u64 + 1);
        long.set_mode(0o644);
        long.set_uid(0);
        long.set_gid(0);
        long.set_mtime(0);
        long.set_cksum();
        archive.append(&long, [name.as_bytes(), b"\0"].concat().as_slice())?;
    }
    header.set_cksum();
    archive.append(&header, content)
}

/// Says whether all of the name is in the field.
fn set_name(header: &mut tar::Header, name: &str) -> bool {
    let field = &mut header.as_old_mut().name;
    let length = name.len().min(field.len());
    field.fill(0);
    field[..length].copy_from_slice(&name.as_bytes()[..length]);
    length == name.len()
}

/// Replaces the place of the store in every path of a record.
fn relocate(record: &mut Map<String, Value>, from: &str, to: &str) {
    for value in record.values_mut() {
        if let Value::String(text) = value
            && let Some(rest) = text.strip_prefix(from)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            *value = format!("{to}{rest}").into();
        }
    }
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(file("make a directory"))
}

pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), Error> {
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(content)).map_err(file("write a file"))
}

/// What a state Secret tells, without unpacking it anywhere.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    pub driver: String,
    pub phase: Option<Phase>,
    pub addresses: Addresses,
    pub ssh: Ssh,
    /// The login key itself.
    pub key: Option<Secret>,
    pub host_key: String,
    /// The identity that everything of the machine carries at its provider.
    pub identity: String,
    /// The host it exists on, if that is a server's own.
    pub host: Option<Host>,
}

impl Facts {
    /// How to log in to the server; `None` if there is no key, or no address yet.
    pub fn target(&self) -> Option<Target> {
        let key = self.key.clone()?;
        let Ssh { host, port, user, .. } = self.ssh.clone();
        (!host.is_empty()).then(|| Target {
            host,
            port,
            user,
            key,
            host_key: self.host_key.clone(),
            patience: std::time::Duration::from_secs(30),
        })
    }
}

/// Reads the archive of a state Secret. `None` if there is no machine in it.
pub fn facts(archive: &[u8]) -> Result<Option<Facts>, Error> {
    if archive.is_empty() {
        return Ok(None);
    }
    let entries = machine_state::files(archive)?;
    // The last one counts, as when it is unpacked.
    let named =
        |name: &str| entries.iter().rev().find(|(path, _)| path.file_name().is_some_and(|file| file == name));
    let Some((_, config)) = named("config.json") else { return Ok(None) };
    let machine = Machine::parse(config)?;
    let ssh = machine.driver.ssh();
    let host_key = match machine.driver.str("SSHHostKey") {
        "" => machine.host_key.clone(),
        known => known.to_owned(),
    };
    let key_name = Path::new(&ssh.key_path).file_name().and_then(|name| name.to_str()).unwrap_or("id_rsa");
    let key = named(key_name).or_else(|| named("id_rsa"));
    let key = key.and_then(|(_, key)| String::from_utf8(key.clone()).ok());
    Ok(Some(Facts {
        addresses: machine.driver.addresses(),
        identity: machine.driver.str("RemudaID").to_owned(),
        key: key.map(Secret::new),
        phase: Some(machine.phase),
        driver: machine.driver_name,
        host: machine.host,
        host_key,
        ssh,
    }))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use proptest::prelude::*;

    use super::*;

    fn machine(store: &Store) -> Machine {
        let mut machine = Machine::new("m1", "demo", Some("/run/secrets/machine/value"), "m1");
        machine.driver = Config::named("m1", &store.path.to_string_lossy());
        let key = store.path.join("machines/m1/id_rsa");
        machine.driver.0.insert("SSHKeyPath".into(), key.to_string_lossy().into());
        machine.driver.0.insert("IPAddress".into(), "192.0.2.7".into());
        machine
    }

    #[test]
    fn a_machine_survives_packing_and_moving() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::empty(&dir.path().join("a")).unwrap();
        store.save("m1", &machine(&store)).unwrap();
        write_private(&store.directory("m1").join("id_rsa"), b"KEY").unwrap();
        write_private(&store.directory("m1").join("disk.img"), b"large").unwrap();
        let packed = store.pack().unwrap();
        assert_eq!(store.pack().unwrap(), packed);

        let other = Store::unpack(&dir.path().join("b"), &packed).unwrap();
        let loaded = other.load("m1").unwrap().unwrap();
        assert_eq!(loaded.phase, Phase::Intended);
        assert_eq!(loaded.driver.str("StorePath"), other.path.to_string_lossy());
        assert!(loaded.driver.str("SSHKeyPath").starts_with(&*other.path.to_string_lossy()));
        assert!(!other.directory("m1").join("disk.img").exists());
        assert_eq!(other.pack().unwrap(), packed);

        let facts = facts(&packed).unwrap().unwrap();
        assert_eq!((facts.driver.as_str(), facts.addresses.ip.as_str()), ("demo", "192.0.2.7"));
        assert_eq!(facts.target().unwrap().host, "192.0.2.7");
        assert_eq!(facts.key.unwrap().expose(), "KEY");
        assert!(facts.ssh.key_path.starts_with(USUAL_STORE));
        other.forget("m1").unwrap();
        assert_eq!(super::facts(&other.pack().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_record_leads_nowhere_but_into_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::empty(&dir.path().join("a")).unwrap();
        for (path, key, name) in [
            ("/etc", "/etc/cron.d/x", "m1"),
            ("/", "/root/.ssh/authorized_keys", "../../etc"),
            ("", "/home/machine/.docker/machine/../../../../etc/shadow", "m1"),
            ("/home/machine/.docker/machine", "relative", "/abs"),
        ] {
            let mut machine = machine(&store);
            for (field, value) in [("StorePath", path), ("SSHKeyPath", key), ("MachineName", name)] {
                machine.driver.0.insert(field.into(), value.into());
            }
            let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
            let record = machine.render();
            store
                .append(
                    &mut archive,
                    &store.directory("m1").join("config.json"),
                    tar::EntryType::Regular,
                    &record,
                )
                .unwrap();
            let packed = archive.into_inner().unwrap().finish().unwrap();
            let other = Store::unpack(&dir.path().join("b"), &packed).unwrap();
            let loaded = other.load("m1").unwrap().unwrap().driver;
            assert_eq!(loaded.str("StorePath"), other.path.to_string_lossy(), "{path}");
            assert_eq!(loaded.str("MachineName"), "m1", "{name}");
            let key_path = PathBuf::from(loaded.ssh().key_path);
            assert!(key_path.starts_with(&other.path), "{key}: {}", key_path.display());
            assert!(key_path.components().all(|part| part != Component::ParentDir), "{}", key_path.display());
        }
    }

    #[test]
    fn machines_may_have_long_names() {
        let dir = tempfile::tempdir().unwrap();
        for length in [40, 49, 50, 51, 63, 100, 200] {
            let name = "m".repeat(length);
            let store = Store::empty(&dir.path().join(format!("{length}-a"))).unwrap();
            store.save(&name, &machine(&store)).unwrap();
            write_private(&store.directory(&name).join("id_rsa"), b"KEY").unwrap();
            let packed = store.pack().unwrap();
            let other = Store::unpack(&dir.path().join(format!("{length}-b")), &packed).unwrap();
            assert!(other.load(&name).unwrap().is_some(), "{length}");
            assert!(other.directory(&name).join("id_rsa").exists(), "{length}");
            assert!(facts(&packed).unwrap().is_some(), "{length}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_broken_archive_is_refused_without_panic(at in 0usize..2000, byte in any::<u8>(), plain in any::<bool>()) {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::empty(&dir.path().join("a")).unwrap();
            store.save("m1", &machine(&store)).unwrap();
            let mut archive = store.pack().unwrap();
            if plain {
                // Behind the compression, where damage is not noticed by a checksum.
                let mut tar = Vec::new();
                GzDecoder::new(archive.as_slice()).read_to_end(&mut tar).unwrap();
                let place = at % tar.len();
                tar[place] = byte;
                let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(&tar).unwrap();
                archive = packed.finish().unwrap();
            } else {
                let place = at % archive.len();
                archive[place] = byte;
            }
            let _ = facts(&archive);
            if let Ok(store) = Store::unpack(&dir.path().join("b"), &archive) {
                prop_assert!(store.path().starts_with(dir.path()));
            }
        }
    }

    #[test]
    fn a_record_of_another_program_may_have_made_something() {
        let record = br#"{"ConfigVersion":3,"Driver":{"MachineName":"m1"},"DriverName":"demo","Name":"m1"}"#;
        assert_eq!(Machine::parse(record).unwrap().phase, Phase::Creating);
        assert!(Machine::parse(b"[]").is_err());
        assert!(Machine::parse(b"{\"canary").unwrap_err().to_string().find("canary").is_none());
        assert!(facts(b"nonsense").is_err());
    }
}
