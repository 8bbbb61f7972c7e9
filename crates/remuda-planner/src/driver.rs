//! What a node driver saved about the server it made.

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Deserialize;
use tar::Archive;

/// Nobody saves more than a few kilobytes; an archive that unpacks to more is not a machine store.
const LIMIT: u64 = 4 << 20;

/// The driver's view of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Driver {
    /// The machine was not made by a node driver.
    #[default]
    None,
    /// Made by one, and not saved yet.
    Unsaved,
    Saved(DriverConfig),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverConfig {
    pub driver: String,
    pub ip_address: String,
    pub private_ip_address: String,
    pub ipv6_address: String,
}

/// A machine state that does not unpack.
#[derive(Debug, thiserror::Error)]
pub enum BadState {
    #[error("unpack machine state")]
    Unpack(#[source] std::io::Error),
    #[error("machine state is larger than {LIMIT} bytes")]
    TooLarge,
    #[error("read config.json of machine state")]
    Json(#[source] serde_json::Error),
    #[error("machine state has no config.json")]
    Empty,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigJson {
    #[serde(default)]
    driver_name: Option<String>,
    #[serde(default)]
    driver: Option<DriverJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DriverJson {
    #[serde(rename = "IPAddress")]
    ip: Option<String>,
    #[serde(rename = "PrivateIPAddress")]
    private: Option<String>,
    #[serde(rename = "IPv6Address")]
    ipv6: Option<String>,
}

impl DriverConfig {
    /// Reads `extractedConfig` of a machine state secret: a gzipped tar with `…/machines/<name>/config.json`.
    pub fn from_state(archive: &[u8]) -> Result<DriverConfig, BadState> {
        let mut tar = Vec::new();
        GzDecoder::new(archive).take(LIMIT + 1).read_to_end(&mut tar).map_err(BadState::Unpack)?;
        if tar.len() as u64 > LIMIT {
            return Err(BadState::TooLarge);
        }
        let file = config_json(&tar).map_err(BadState::Unpack)?.ok_or(BadState::Empty)?;
        DriverConfig::from_config_json(&file)
    }

    pub fn from_config_json(file: &[u8]) -> Result<DriverConfig, BadState> {
        let config: ConfigJson = serde_json::from_slice(file).map_err(BadState::Json)?;
        let driver = config.driver.unwrap_or_default();
        Ok(DriverConfig {
            driver: config.driver_name.unwrap_or_default(),
            ip_address: driver.ip.unwrap_or_default(),
            private_ip_address: driver.private.unwrap_or_default(),
            ipv6_address: driver.ipv6.unwrap_or_default(),
        })
    }
}

/// The last regular file of that name.
fn config_json(tar: &[u8]) -> Result<Option<Vec<u8>>, std::io::Error> {
    let mut found = None;
    for entry in Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let regular = entry.header().entry_type().is_file();
        if regular && path.contains("/machines/") && path.ends_with("/config.json") {
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            found = Some(content);
        }
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use tar::{Builder, Header};

    use super::*;

    fn tar(path: &str, content: &[u8]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content).unwrap();
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
    fn addresses_come_out_of_the_saved_machine() {
        let json = br#"{"DriverName":"digitalocean","Driver":{"IPAddress":"1.2.3.4","PrivateIPAddress":"10.0.0.4"}}"#;
        let state = gzip(&tar("x/machines/demo/config.json", json));
        let config = DriverConfig::from_state(&state).unwrap();
        assert_eq!(config.driver, "digitalocean");
        assert_eq!(config.ip_address, "1.2.3.4");
        assert_eq!(config.private_ip_address, "10.0.0.4");
        assert_eq!(config.ipv6_address, "");
    }

    #[test]
    fn machines_may_have_long_names() {
        let json = br#"{"DriverName":"local","Driver":{"IPAddress":"1.2.3.4"}}"#;
        for length in [24, 25, 40, 63, 253] {
            let name = "m".repeat(length);
            let path = format!("management-state/node/nodes/{name}/machines/{name}/config.json");
            for archive in [tar(&path, json), pax(&path, json)] {
                let config = DriverConfig::from_state(&gzip(&archive)).unwrap();
                assert_eq!(config.ip_address, "1.2.3.4", "{length}");
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(matches!(DriverConfig::from_state(b"x"), Err(BadState::Unpack(_))));
        assert!(matches!(DriverConfig::from_state(&gzip(b"")), Err(BadState::Empty)));
        let other = gzip(&tar("x/machines/demo/id_rsa", b"{}"));
        assert!(matches!(DriverConfig::from_state(&other), Err(BadState::Empty)));
        let broken = gzip(&tar("x/machines/demo/config.json", b"{"));
        assert!(matches!(DriverConfig::from_state(&broken), Err(BadState::Json(_))));
        let bomb = gzip(&vec![0; 5 << 20]);
        assert!(matches!(DriverConfig::from_state(&bomb), Err(BadState::TooLarge)));
    }

    proptest::proptest! {
        #[test]
        fn random_archives_do_not_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2000)) {
            let _ = config_json(&bytes);
        }
    }
}
