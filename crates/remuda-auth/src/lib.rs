//! Who is calling and what they may do: identities, tokens, certificates, RBAC and audit policy.
//!
//! Everything here decides on data handed in. There is no network, no clock and no storage: callers
//! pass the time, look up objects and turn the outcomes into HTTP.

pub mod attributes;
pub mod audit;
pub mod bearer;
pub mod bootstrap;
pub mod component;
mod der;
pub mod identity;
pub mod impersonation;
pub mod jwt;
pub mod keys;
pub mod kubeconfig;
pub mod oidc;
pub mod pem;
pub mod pki;
pub mod principal;
pub mod rbac;
pub mod request_info;
pub mod tokens;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod testing;
