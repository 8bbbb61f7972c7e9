//! The agent against servers that misbehave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod api;
mod cluster_image;
mod image;
mod install;
mod kill;
mod own_registry;
mod process;
mod push;
mod remote;
mod server;
