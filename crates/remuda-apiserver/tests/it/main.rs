//! The API server, from the outside: requests in, answers out, in one process.

#![allow(clippy::unwrap_used)]

mod applying;
mod bundle;
mod collecting;
mod content;
mod converge;
mod conversion;
mod custom;
mod definitions;
mod deletion;
mod harness;
mod hostile;
mod kinds;
mod lists;
mod patches;
mod services;
mod verbs;
mod watches;
