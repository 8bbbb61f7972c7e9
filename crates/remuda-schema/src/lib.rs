//! Structural schemas: compile, check, prune, default, validate.

pub mod schema;
pub mod validation;

pub use schema::{Additional, ListType, PatchStrategy, Schema, Type};
