//! Machine: its phase, its conditions and the order in which it goes away.

pub mod delete;
pub mod drain;
pub mod node;
pub mod phase;
pub mod status;
pub mod volumes;
