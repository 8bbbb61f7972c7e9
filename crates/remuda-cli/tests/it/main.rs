//! Commands against an API server in memory.

mod clusters;
mod kubeconfigs;
mod lines;
mod machines;
mod progress;
mod world;
