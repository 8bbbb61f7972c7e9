//! What a node driver saved about the server it made.

use remuda_plan::machine_state::{Record, StateError};
use serde::{Deserialize, Serialize};

/// The driver's view of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Driver {
    /// The machine was not made by a node driver.
    #[default]
    None,
    /// Made by one, and not saved yet.
    Unsaved,
    Saved(DriverConfig),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverConfig {
    pub driver: String,
    pub ip_address: String,
    pub private_ip_address: String,
    pub ipv6_address: String,
    /// Its server was stopped, and is to stay so.
    #[serde(default)]
    pub stopped: bool,
}

impl DriverConfig {
    /// Of the state Secret of a machine. `None` if there is no machine in it yet.
    pub fn from_state(archive: &[u8]) -> Result<Option<DriverConfig>, StateError> {
        Ok(Record::read(archive)?.map(DriverConfig::from))
    }
}

impl From<Record> for DriverConfig {
    fn from(record: Record) -> DriverConfig {
        let text = |name: &str| record.text(name).to_owned();
        DriverConfig {
            ip_address: text("IPAddress"),
            private_ip_address: text("PrivateIPAddress"),
            ipv6_address: text("IPv6Address"),
            stopped: record.is_stopped(),
            driver: record.driver_name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_out_of_the_saved_machine() {
        let json = br#"{"DriverName":"digitalocean","Driver":{"IPAddress":"1.2.3.4","PrivateIPAddress":"10.0.0.4"}}"#;
        let config = DriverConfig::from(Record::parse(json).unwrap());
        assert_eq!(config.driver, "digitalocean");
        assert_eq!(config.ip_address, "1.2.3.4");
        assert_eq!(config.private_ip_address, "10.0.0.4");
        assert_eq!(config.ipv6_address, "");
        assert!(!config.stopped);
        let json = br#"{"DriverName":"local","Driver":{},"Remuda":{"Phase":"Created","Stopped":true}}"#;
        assert!(DriverConfig::from(Record::parse(json).unwrap()).stopped);
    }
}
