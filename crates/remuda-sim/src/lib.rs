//! Simulated providers and workload clusters for Cluster API.

mod dice;
pub mod kinds;
pub mod load;
pub mod names;
pub mod objects;
mod options;
pub mod providers;
pub mod scenario;
pub mod workload;

pub use self::{
    dice::{BadLatency, Latency},
    options::{Contract, Failures, Latencies, Options},
};
