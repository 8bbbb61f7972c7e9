//! What a node driver has saved about its machine: `extractedConfig` of the machine's state Secret.
//!
//! It is rancher-machine's archive: a compressed tar of the machine's directory, under the place it has in that
//! program's container. `config.json` in it is the record. Of several files with one name the last counts, as it does
//! for everyone who unpacks the archive.

use std::{
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

use flate2::read::GzDecoder;
use serde_json::{Map, Value};

/// Unpacked, no archive is larger; a Secret holds at most a megabyte.
const LARGEST: u64 = 64 << 20;
/// No record is larger.
const LARGEST_RECORD: u64 = 4 << 20;
/// The name of the record.
pub const RECORD: &str = "config.json";

/// What this program adds to the record.
pub const OURS: &str = "Remuda";
/// In it: `true` if the server was stopped, and is to stay so.
pub const STOPPED: &str = "Stopped";

/// A machine state that cannot be used. Nothing of its content is told: it holds credentials.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("unpack the state of the machine")]
    Unpack(#[source] io::Error),
    #[error("the state of the machine is larger than {LARGEST} bytes, or its record than {LARGEST_RECORD}")]
    TooLarge,
    #[error("the state of the machine is not as it was written: config.json is no object with a driver")]
    Record,
}

impl From<io::Error> for StateError {
    fn from(error: io::Error) -> StateError {
        match error.kind() {
            io::ErrorKind::FileTooLarge => StateError::TooLarge,
            _ => StateError::Unpack(error),
        }
    }
}

/// The record of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub driver_name: String,
    /// The driver's own fields, with credentials in clear.
    pub driver: Map<String, Value>,
    /// Everything else.
    pub rest: Map<String, Value>,
}

impl Record {
    /// The record in an archive. `None` if there is no machine in it.
    pub fn read(archive: &[u8]) -> Result<Option<Record>, StateError> {
        let mut found = unpack(archive, LARGEST, |path| path.file_name().is_some_and(|name| name == RECORD))?;
        found.pop().map(|(_, text)| Record::parse(&text)).transpose()
    }

    pub fn parse(text: &[u8]) -> Result<Record, StateError> {
        // The parser's own message could quote a credential.
        let value: Value = serde_json::from_slice(text).map_err(|_| StateError::Record)?;
        let Value::Object(mut rest) = value else { return Err(StateError::Record) };
        let Some(Value::Object(driver)) = rest.remove("Driver") else { return Err(StateError::Record) };
        let Some(Value::String(driver_name)) = rest.remove("DriverName") else {
            return Err(StateError::Record);
        };
        Ok(Record { driver_name, driver, rest })
    }

    /// The server was stopped, and is to stay so.
    pub fn is_stopped(&self) -> bool {
        self.rest.get(OURS).is_some_and(|ours| ours[STOPPED] == true)
    }

    /// A text the driver saved; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.driver.get(name).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Files of an archive, by their place below `machines`. What would lead elsewhere is left out.
pub fn files(archive: &[u8]) -> Result<Vec<(PathBuf, Vec<u8>)>, StateError> {
    unpack(archive, LARGEST, |_| true)
}

/// Nothing but what is kept is ever in memory.
fn unpack(
    archive: &[u8],
    limit: u64,
    keep: impl Fn(&Path) -> bool,
) -> Result<Vec<(PathBuf, Vec<u8>)>, StateError> {
    let mut archive = tar::Archive::new(Bounded { inner: GzDecoder::new(archive), left: limit });
    let mut found = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path()?.into_owned();
        let Some(inner) = below_machines(&path).filter(|inner| keep(inner)) else { continue };
        if inner.ends_with(RECORD) && entry.size() > LARGEST_RECORD {
            return Err(StateError::TooLarge);
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        found.push((inner, content));
    }
    Ok(found)
}

fn below_machines(path: &Path) -> Option<PathBuf> {
    let mut parts = path.components().skip_while(|part| part.as_os_str() != "machines");
    parts.next()?;
    let inner: PathBuf = parts.clone().collect();
    let plain = parts.all(|part| matches!(part, Component::Normal(_)));
    (plain && inner.components().count() > 1).then_some(inner)
}

/// Fails where `take` would end: a cut archive must not look like a whole one.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use tar::{Builder, Header};

    use super::*;

    const GOOD: &[u8] = br#"{"DriverName":"demo","Driver":{"IPAddress":"1.2.3.4"},"Name":"m1"}"#;

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, path, *content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    /// As Go writes names that are too long for a header.
    fn pax(path: &str, content: &[u8]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        archive.append_pax_extensions([("path", path.as_bytes())]).unwrap();
        let mut header = Header::new_ustar();
        header.set_path("shortened").unwrap();
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.append(&header, content).unwrap();
        archive.into_inner().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_last_record_counts_whatever_the_length_of_its_name() {
        for length in [1, 24, 25, 40, 63, 253] {
            let name = "m".repeat(length);
            let path = format!("management-state/node/nodes/{name}/machines/{name}/config.json");
            for archive in [tar(&[(&path, b"{}"), (&path, GOOD)]), pax(&path, GOOD)] {
                let record = Record::read(&gzip(&archive)).unwrap().unwrap();
                assert_eq!((record.driver_name.as_str(), record.text("IPAddress")), ("demo", "1.2.3.4"));
                assert_eq!((record.text("PrivateIPAddress"), record.rest.len()), ("", 1));
            }
        }
    }

    #[test]
    fn anything_else_is_refused_and_told_without_its_content() {
        assert!(matches!(Record::read(b"x"), Err(StateError::Unpack(_))));
        assert!(matches!(Record::read(&gzip(b"")), Ok(None)));
        assert!(matches!(Record::read(&gzip(&tar(&[("x/machines/m1/id_rsa", b"{}")]))), Ok(None)));
        for text in [
            "{",
            "[]",
            "{}",
            r#"{"DriverName":"demo"}"#,
            r#"{"Driver":{}}"#,
            r#"{"Driver":"canary","DriverName":1}"#,
        ] {
            let error =
                Record::read(&gzip(&tar(&[("x/machines/m1/config.json", text.as_bytes())]))).unwrap_err();
            assert!(matches!(error, StateError::Record), "{text}");
            assert!(!remuda_base::Chain(&error).to_string().contains("canary"));
        }
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused_and_not_cut() {
        let archive = gzip(&tar(&[("x/machines/m1/disk", &[0; 9000]), ("x/machines/m1/config.json", GOOD)]));
        assert_eq!(unpack(&archive, 1 << 20, |_| true).unwrap().len(), 2);
        for limit in [0, 511, 600, 9000] {
            assert!(matches!(unpack(&archive, limit, |_| true), Err(StateError::TooLarge)), "{limit}");
        }
        let large = vec![b' '; (LARGEST_RECORD + 1) as usize];
        let archive = gzip(&tar(&[("x/machines/m1/config.json", &large)]));
        assert!(matches!(Record::read(&archive), Err(StateError::TooLarge)));
    }

    #[test]
    fn entries_that_lead_elsewhere_are_left_out() {
        for (path, inner) in [
            ("/home/machine/.docker/machine/machines/m1/config.json", Some("m1/config.json")),
            ("machines/m1/a/b", Some("m1/a/b")),
            ("/etc/passwd", None),
            ("/x/machines/../../etc/passwd", None),
            ("/x/machines/m1", None),
        ] {
            assert_eq!(below_machines(Path::new(path)), inner.map(PathBuf::from), "{path}");
        }
    }

    proptest! {
        #[test]
        fn random_archives_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = Record::read(&bytes);
            let _ = files(&gzip(&bytes));
        }
    }
}
