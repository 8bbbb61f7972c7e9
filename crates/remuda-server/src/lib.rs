//! Composes store, API server and controllers into one running server.

pub mod accept;
pub mod admin;
pub mod archive;
pub mod config;
pub mod datadir;
pub mod engine;
pub mod kubeconfig;
pub mod listen;
pub mod offline;
pub mod tls;
