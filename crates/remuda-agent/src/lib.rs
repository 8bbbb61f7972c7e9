//! The node agent: applies plans, runs probes, reports back.

pub mod backoff;
pub mod decide;
pub mod health;
pub mod output;
pub mod periodic;
pub mod plan;
pub mod report;
pub mod stamp;
pub mod wire;
