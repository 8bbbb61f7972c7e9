//! Process tests: the built program, real sockets, real clients.
//!
//! A test that needs a program which is not there says `SKIPPED` and why.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests throughout")]

mod capi;
mod client;
mod commands;
mod controllers;
mod direct;
mod drivers;
mod etcd;
mod failures;
mod foreign;
mod harness;
mod holding;
mod imported;
mod kubectl;
mod lab;
mod life;
mod local;
mod peered;
mod people;
mod providers;
mod python;
mod sharing;
mod streams;
