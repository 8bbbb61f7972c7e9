//! Drivers across process boundaries.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod exec;
mod plugin;
mod rpc;
mod served;
