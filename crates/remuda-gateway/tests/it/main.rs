//! The gateway on a real listener, a management API in memory, and clusters that are API servers of their own
//! behind agents of the tunnel's client.

// Helpers of tests are tests, and what they spawn ends with the test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod agent_image;
mod assets;
mod downstream;
mod endpoint;
mod import;
mod nodes;
mod proxy;
mod register;
mod registry;
mod roles;
mod script;
mod tunnel;
mod world;
