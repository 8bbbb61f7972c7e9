//! Structural schemas: compile, check, prune, default, validate.
//!
//! [`compile`] turns the JSON of a definition's version into a [`Schema`]; requests then go through
//! [`Schema::admit`], [`Schema::apply_defaults`] and [`Schema::validate`].

pub mod error;
pub mod format;
pub mod schema;
pub mod validation;

mod compile;
mod crd;
mod default;
mod fieldpath;
mod gotext;
mod listtype;
mod metadata;
mod names;
pub mod near;
mod path;
mod props;
mod prune;
mod ratchet;
pub mod rules;
mod structural;
mod validate;

pub use compile::compile;
pub use crd::{
    Column, Conversion, CrdError, CrdVersion, CrdView, ScalePaths, approval_condition, check_crd,
    check_crd_status, check_scale, crd_warnings, default_crd, record_storage_version, version_rank,
};
pub use error::{FieldError, Reason};
pub use metadata::{MetadataError, coerce_metadata};
pub use props::{RuleSource, SchemaError};
pub use schema::{Additional, Hints, ListType, PatchStrategy, Schema, Type};
pub use structural::check_structural;

#[cfg(test)]
mod properties;
