//! The API server, from the outside: requests in, answers out, in one process.

#![allow(clippy::unwrap_used)]

mod collecting;
mod content;
mod deletion;
mod harness;
mod verbs;
