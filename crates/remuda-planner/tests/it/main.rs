//! The planner against a cluster in memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(unreachable_pub, reason = "the world is shared with an example")]

mod encryption;
mod gates;
mod hibernation;
mod hostile;
mod lifecycle;
mod operations;
mod plans;
mod quorum;
mod record;
mod removal;
mod tiers;
#[allow(dead_code)]
mod world;
