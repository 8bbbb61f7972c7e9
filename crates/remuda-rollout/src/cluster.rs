//! Cluster: its phase, its counters, its conditions and the order in which it goes away.

pub mod counters;
pub mod delete;
pub mod old;
pub mod phase;
pub mod status;
