//! Composes store, API server and controllers into one running server.
//!
//! [`config::Options`] becomes a checked [`config::Config`]; [`Server::start`] turns that into a
//! [`Running`] server. [`admin`] talks to one, [`offline`] works where none is running.

pub mod accept;
mod addresses;
pub mod admin;
mod api;
pub mod archive;
mod audit_trail;
mod backup;
pub mod capi;
pub mod config;
pub mod controllers;
mod credential_checks;
pub mod datadir;
pub mod doors;
mod driver_use;
pub mod engine;
mod explain;
mod front;
mod gather;
pub mod groups;
mod identity;
mod known_names;
pub mod kubeconfig;
pub mod listen;
mod management;
mod metrics;
mod node_actions;
pub mod offline;
mod peers;
mod people;
pub mod pki;
mod plan_accounts;
pub mod preflight;
pub mod rancher;
mod releases;
mod rotate;
mod server;
pub mod serving;
mod shipped;
pub mod tls;
pub mod tokens;
mod visible;
mod webhooks;

pub use server::{Ended, Running, Server, StartError};

/// What the server says it is, and which image of the cluster agent goes with it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
