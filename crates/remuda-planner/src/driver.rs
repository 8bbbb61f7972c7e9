//! What a node driver saved about the server it made.

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Deserialize;

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
        let file = config_json(&tar).ok_or(BadState::Empty)?;
        DriverConfig::from_config_json(file)
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

/// The last regular file of that name; a tar is a header block of 512 bytes and the content in such blocks.
fn config_json(tar: &[u8]) -> Option<&[u8]> {
    let mut rest = tar;
    let mut found = None;
    while let Some((header, after)) = rest.split_at_checked(512) {
        let name = text(&header[..100]);
        let prefix =
            if header[257..].starts_with(b"ustar") { text(&header[345..500]) } else { String::new() };
        let Some(size) = octal(&header[124..136]) else { break };
        let Some(content) = after.get(..size) else { break };
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let regular = matches!(header[156], b'0' | 0);
        if regular && path.contains("/machines/") && path.ends_with("/config.json") {
            found = Some(content);
        }
        rest = after.get(size.div_ceil(512) * 512..).unwrap_or_default();
    }
    found
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<usize> {
    let text = text(field);
    usize::from_str_radix(text.trim(), 8).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn tar(path: &str, content: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        let mut out = header.to_vec();
        out.extend_from_slice(content);
        out.resize(out.len().div_ceil(512) * 512 + 1024, 0);
        out
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
