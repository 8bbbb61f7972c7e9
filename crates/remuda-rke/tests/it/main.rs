//! Real controllers, ours and those of Cluster API, on the real API server over the memory store. Played by the
//! tests: agents on nodes, the workload cluster and whoever connects to it.

// Helpers of tests are tests, and what they spawn ends with the test.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod agent;
mod crashing;
mod custom;
mod draining;
mod etcd;
mod failing;
mod pool;
mod renewing;
mod stale;
mod tampered;
mod whole;
mod world;
