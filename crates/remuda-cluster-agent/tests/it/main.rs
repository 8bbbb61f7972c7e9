//! The agent against a server and a cluster that are only pretended.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod agent;
mod authenticate;
mod hops;
mod life;
mod world;
