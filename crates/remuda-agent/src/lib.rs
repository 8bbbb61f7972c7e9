//! The node agent: applies plans, runs probes, reports back.

mod chain;

pub mod apply;
pub mod backoff;
pub mod client;
pub mod config;
pub mod decide;
pub mod disk;
pub mod environment;
pub mod execute;
pub mod files;
pub mod health;
pub mod history;
pub mod image;
pub mod install;
pub mod interlock;
pub mod journal;
pub mod kube;
pub mod local;
pub mod output;
pub mod periodic;
pub mod plan;
pub mod probe;
pub mod proxy;
pub mod remote;
pub mod report;
pub mod run;
pub mod stamp;
pub mod supervise;
pub mod tls;
pub mod wire;

pub use chain::Chain;
