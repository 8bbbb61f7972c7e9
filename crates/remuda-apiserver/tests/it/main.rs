//! The API server, from the outside: requests in, answers out, in one process.

#![allow(clippy::unwrap_used)]

mod applying;
mod bundle;
mod clients;
mod collecting;
mod content;
mod converge;
mod conversion;
mod custom;
mod definitions;
mod deletion;
mod discover;
mod elections;
mod garbage;
mod guards;
mod harness;
mod hooks;
mod hostile;
mod identity;
mod kinds;
mod kube_rs;
mod lists;
mod namespaces;
mod patches;
mod policies;
mod processes;
mod rbac;
mod services;
mod signing;
mod sockets;
mod verbs;
mod watches;
mod webhooks;
