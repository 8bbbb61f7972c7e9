//! The API server, from the outside: requests in, answers out, in one process.

#![allow(clippy::unwrap_used)]

mod applying;
mod autoscalers;
mod bundle;
mod chain;
mod classes;
mod clients;
mod collecting;
mod content;
mod contention;
mod converge;
mod conversion;
mod corpus;
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
mod indices;
mod kinds;
mod kube_rs;
mod lists;
mod mutations;
mod namespaces;
mod networks;
mod patches;
mod paths;
mod policies;
mod processes;
mod quotas;
mod rbac;
mod services;
mod signing;
mod slow;
mod sockets;
mod strict;
mod verbs;
mod watches;
mod webhooks;
