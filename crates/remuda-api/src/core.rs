//! `cluster.x-k8s.io/v1beta2`.

mod cluster;
mod machine;
mod machine_deployment;
mod machine_drain_rule;
mod machine_health_check;
mod machine_pool;
mod machine_set;
mod shared;

pub use cluster::*;
pub use machine::*;
pub use machine_deployment::*;
pub use machine_drain_rule::*;
pub use machine_health_check::*;
pub use machine_pool::*;
pub use machine_set::*;
pub use shared::*;

#[cfg(test)]
mod tests;
