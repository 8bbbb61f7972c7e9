//! Real controllers on the real API server over the memory store; providers are played by the tests.

// Helpers of tests are tests, and what they spawn ends with the test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod cluster;
mod fleet;
mod health_check;
mod ipam;
mod machine;
mod machine_deployment;
mod machine_deployment_whole;
mod machine_set;
mod odd;
mod pool;
mod resource_set;
mod workload;
mod world;
