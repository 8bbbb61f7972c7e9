//! Structural schemas: compile, check, prune, default, validate.

pub mod error;
pub mod schema;
pub mod validation;

pub use error::{FieldError, Reason};
pub use schema::{Additional, ListType, PatchStrategy, Schema, Type};
