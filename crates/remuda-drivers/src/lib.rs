//! Node drivers: what creates, watches and removes the servers behind machines.
//!
//! Everything is a [`driver::Driver`]:
//!
//! - [`builtin`]: `amazonec2`, `azure`, `digitalocean`, `google` and `hetzner` on their public APIs, `proxmoxve` on
//!   one's own, `generic` for servers that exist;
//! - [`plugin`]: any `docker-machine-driver-*` binary, and the drivers inside `rancher-machine`, as a child
//!   process spoken to by Go's RPC ([`rpc`], [`gob`]); the same module serves a driver of ours to others;
//! - [`exec`]: a program or script of one's own.
//!
//! A machine's record is the JSON docker-machine keeps, so drivers of the same name can take over from each
//! other. Two rules hold for all of ours. **Nothing leaks**: an identity is in the record before the first
//! call that makes something, and whatever is made can be found by it. **Secrets stay put**: they are in
//! records, environments and pipes, never on a command line, in a log ([`log::Log`] scrubs every line), in an
//! error or in `Debug` output.
//!
//! The feature `fakes` has the fake clouds that these rules are tested against.

pub mod amazonec2;
pub mod azure;
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
pub mod google;
pub mod hetzner;
pub mod http;
pub mod install;
pub mod keys;
mod kit;
pub mod log;
pub mod plugin;
pub mod proxmoxve;
mod rest;
pub mod rpc;
pub mod secret;
pub mod ssh;
#[cfg(test)]
mod trial;
pub mod users;
