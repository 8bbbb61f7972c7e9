//! A simulated world for Cluster API: providers, servers, and the clusters that run on them.
//!
//! * [`providers`] are controllers for the kinds in [`kinds`]: infrastructure, bootstrap and control plane, in
//!   either contract, with latencies and failures to choose. Every draw follows from a seed and an object's name.
//! * [`workload`] clusters live in memory, a few kilobytes each, and are reached in process or over one listener.
//! * [`scenario`] replays a script against the real controllers while time stands still, and compares what it
//!   tells with the file. The files are in `scenarios/`.
//! * [`load`] puts thousands of machines on a running server and measures what becomes of them.
//! * [`provision`] does the same one level up: Clusters people write, whose servers, node agents and cluster agents
//!   are simulated.
//!
//! Nothing here knows the controllers under test: they meet in the API.

mod define;
mod dice;
pub mod kinds;
pub mod load;
pub mod names;
pub mod objects;
mod options;
pub mod providers;
pub mod provision;
pub mod scenario;
pub mod workload;

pub use self::{
    define::DefineError,
    dice::{BadLatency, Latency},
    options::{Contract, Failures, Latencies, Options},
};
