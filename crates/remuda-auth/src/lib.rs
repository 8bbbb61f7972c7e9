//! Who is calling and what they may do: identities, tokens, certificates, RBAC and audit policy.
//!
//! Everything here decides on data handed in. There is no network, no clock and no storage: callers
//! pass the time, look up objects and turn the outcomes into HTTP.

pub mod attributes;
pub mod bootstrap;
pub mod identity;
pub mod jwt;
pub mod keys;
pub mod pem;
mod quote;
pub mod rbac;

#[cfg(test)]
mod testing;
