//! Role-based access control as Kubernetes defines it.
//!
//! * [`rule`]: one PolicyRule, and whether it permits a request;
//! * [`object`]: the four RBAC kinds, read from JSON;
//! * [`policy`]: the live index over all of them, and the authorizer;
//! * [`cover`] and [`escalation`]: may this user hand out these permissions;
//! * [`aggregate`]: the rules an aggregated ClusterRole should have.

pub mod aggregate;
pub mod cover;
pub mod escalation;
pub mod object;
pub mod policy;
pub mod rule;

/// API group of all RBAC kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";
