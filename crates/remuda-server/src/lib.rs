//! Composes store, API server and controllers into one running server.

pub mod accept;
pub mod config;
pub mod datadir;
pub mod listen;
pub mod tls;
