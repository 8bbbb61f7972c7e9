//! Node drivers: the plugin protocol and the built-in drivers.

pub mod amazonec2;
pub mod builtin;
pub mod digitalocean;
pub mod driver;
pub mod error;
pub mod exec;
#[cfg(feature = "fakes")]
pub mod fake;
pub mod flags;
pub mod generic;
pub mod gob;
pub mod http;
pub mod keys;
pub mod log;
pub mod plugin;
pub mod rpc;
pub mod secret;
pub mod ssh;
