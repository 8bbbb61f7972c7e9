//! Real controllers and simulated providers on the real API server over the memory store, while time stands still.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod load;
mod parts;
mod properties;
mod providers;
mod provision;
mod scenarios;
mod world;
