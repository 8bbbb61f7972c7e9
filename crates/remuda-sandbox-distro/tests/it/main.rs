//! Nodes in this process: real listeners, real stores, real processes of pods.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod cluster;
mod encryption;
mod highly_available;
mod pods;
mod silence;
mod snapshots;
mod streams;
mod world;
