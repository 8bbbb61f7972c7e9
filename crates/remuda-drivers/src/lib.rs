//! Node drivers: the plugin protocol and the built-in drivers.

pub mod driver;
pub mod error;
pub mod flags;
pub mod gob;
pub mod log;
pub mod plugin;
pub mod rpc;
pub mod secret;
