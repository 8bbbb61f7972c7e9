//! The end of the tunnel inside a cluster.
//!
//! Runs as the Deployment `cattle-cluster-agent`, one process that opens a WebSocket to the server, tells it how to
//! use the cluster's API, and from then on dials inside the cluster what the server asks for. It is given
//! what Rancher's agent is given, and speaks to either server.
//!
//! | module | is |
//! |---|---|
//! | [`config`] | what the manifest says |
//! | [`account`] | the API's address, authority and a token for it: what the server is told |
//! | [`connect`] | one attempt: trust, connection, upgrade; every failure names its [`hop`] |
//! | [`authenticate`] | another process, on nodes with an API: who somebody with a token is |
//! | [`health`] | `/healthz` and `/readyz`; the latter says what is wrong |
//!
//! The agent never gives up: whatever fails is tried again with jitter, and `/readyz` and the log say at which hop
//! it failed. Only a configuration nothing can be done with ends it.

pub mod account;
mod api;
pub mod authenticate;
pub mod config;
pub mod connect;
pub mod health;
pub mod hop;
mod listen;
mod run;

pub use authenticate::{Authenticator, AuthenticatorError};
pub use config::{Config, ConfigError};
pub use hop::{Failure, Hop};
pub use run::{Error, Options, allowed, run, serve};
