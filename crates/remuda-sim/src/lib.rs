//! Simulated providers and workload clusters for Cluster API.

mod dice;
pub mod kinds;
pub mod names;
mod options;
pub mod workload;

pub use self::{
    dice::{BadLatency, Latency},
    options::{Contract, Failures, Latencies, Options},
};
