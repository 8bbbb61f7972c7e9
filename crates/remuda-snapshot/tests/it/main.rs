//! Snapshots that are whole, and all the ways in which they are not.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests throughout")]

mod damage;
mod real;
mod restore;
mod writer;
