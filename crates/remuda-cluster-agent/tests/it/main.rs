//! The agent against a server and a cluster that are only pretended.

#![allow(clippy::unwrap_used)]

mod agent;
mod hops;
mod life;
mod world;
