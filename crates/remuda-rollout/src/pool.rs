//! MachinePool: its phase, its nodes, its conditions and the order in which it goes away.

pub mod delete;
pub mod nodes;
pub mod phase;
pub mod status;
