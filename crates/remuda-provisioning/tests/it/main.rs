//! Controllers of provisioning on an API server in memory.

// Tests spawn what they test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod world;

mod deleting;
mod editing;
mod ending;
mod identity;
mod making;
mod restarting;
mod sharing;
mod telling;
mod together;
