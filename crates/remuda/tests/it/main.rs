//! Process tests: the built program, real sockets, real clients.
//!
//! A test that needs a program which is not there says `SKIPPED` and why.

mod client;
mod commands;
mod controllers;
mod harness;
mod kubectl;
mod life;
mod python;
