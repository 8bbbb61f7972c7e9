//! Process tests: the built program, real sockets, real clients.
//!
//! A test that needs a program which is not there says `SKIPPED` and why.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests throughout")]

mod agents;
mod backups;
mod browser;
mod bundle;
mod capi;
mod capi_provider;
mod client;
mod commands;
mod controllers;
mod dashboard;
mod debug;
mod direct;
mod dist;
mod driver_use;
mod drivers;
mod elsewhere;
mod etcd;
mod everyday;
mod everyday_machines;
mod failures;
mod fields;
mod foreign;
mod guides;
mod harness;
mod hibernation;
mod holding;
mod hosts;
mod imported;
mod kubectl;
mod lab;
mod life;
mod list_api;
mod liveness;
mod local;
mod machine_provider;
mod members;
mod memory;
mod metrics;
mod peered;
mod people;
mod providers;
mod python;
mod real;
mod refusals;
mod releases;
mod remediation;
mod rotation;
mod sharing;
mod situations;
mod snapshots;
mod streams;
mod upgrade;
