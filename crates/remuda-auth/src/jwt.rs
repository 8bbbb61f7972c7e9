//! Service account tokens: JSON web tokens signed by the server.
//!
//! [`issue`] makes them, [`verify`] checks them and remembers the outcome, [`discovery`] publishes the keys.
//! Whether the service account and the bound objects still exist is for the caller to look up:
//! [`claims::ServiceAccountToken`] says which.

pub mod claims;
pub mod discovery;
pub mod issue;
pub mod verify;

/// The usual issuer and audience of tokens for the API server.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc";
/// Issuer of tokens kept in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
