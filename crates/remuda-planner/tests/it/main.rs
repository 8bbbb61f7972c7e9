//! The planner against a cluster in memory.

mod gates;
mod lifecycle;
mod plans;
mod quorum;
mod removal;
mod tiers;
#[allow(dead_code)]
mod world;
