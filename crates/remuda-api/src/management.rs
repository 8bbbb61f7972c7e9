//! `management.cattle.io/v3`: identities of clusters, their registration, drivers, settings and access.
//!
//! Definitions of these kinds are open, or we know only parts of them; what has no field here is in `other`.

mod access;
mod cluster;
mod driver;
mod identity;
mod node;
mod registration;
mod settings;

pub use access::*;
pub use cluster::*;
pub use driver::*;
pub use identity::*;
pub use node::*;
pub use registration::*;
pub use settings::*;

use serde_json::{Map, Value};

/// What has no field here.
pub type Other = Map<String, Value>;

#[cfg(test)]
mod tests;
