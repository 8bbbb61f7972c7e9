//! Commands against an API server in memory.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod clusters;
mod kubeconfigs;
mod lines;
mod machines;
mod progress;
mod world;
