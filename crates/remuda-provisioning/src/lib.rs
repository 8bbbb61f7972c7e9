//! What provisioning Clusters may be, and how what belongs to them is named.
//!
//! Nothing here reads or writes an object: the rules get what they judge.

pub mod admission;
pub mod naming;
