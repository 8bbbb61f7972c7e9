//! The drivers that come with us.

use std::sync::Arc;

use uuid::Uuid;

use crate::{
    amazonec2::AmazonEc2,
    digitalocean::DigitalOcean,
    driver::Driver,
    generic::Generic,
    http::{Connections, Pace},
    log::Log,
};

/// Their names.
pub const NAMES: &[&str] = &["amazonec2", "digitalocean", "generic"];

/// What built-in drivers need from their surroundings. Clones share connections.
#[derive(Debug, Clone)]
pub struct Context {
    pub log: Log,
    pub pace: Pace,
    /// Where DigitalOcean's API is. EC2 has a flag for its own.
    pub digitalocean: String,
    pub connections: Connections,
}

impl Context {
    pub fn new(log: Log) -> Self {
        Self {
            log,
            pace: Pace::default(),
            digitalocean: "https://api.digitalocean.com".into(),
            connections: Connections::default(),
        }
    }
}

/// A fresh built-in driver of that name.
pub fn open(name: &str, context: Context) -> Option<Arc<dyn Driver>> {
    Some(match name {
        "amazonec2" => Arc::new(AmazonEc2::new(context)),
        "digitalocean" => Arc::new(DigitalOcean::new(context)),
        "generic" => Arc::new(Generic::new(context)),
        _ => return None,
    })
}

/// A new identity for a machine, put into its record before anything is made and into everything that is.
pub(crate) fn identity() -> String {
    Uuid::new_v4().simple().to_string()
}

/// A name that is unique to the machine but still tells people whose it is.
pub(crate) fn unique_name(machine: &str, identity: &str) -> String {
    let short = identity.get(..12).unwrap_or(identity);
    let kept: String = machine.chars().take(200).collect();
    format!("{kept}-{short}")
}
