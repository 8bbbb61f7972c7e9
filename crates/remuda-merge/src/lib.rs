//! Patches and server-side apply: JSON Patch, merge patch, strategic merge, managed fields.
//!
//! Everything here is a pure function of JSON values and the compiled type tree of
//! [`remuda_schema`]; time is an argument. The semantics follow kube-apiserver, including the
//! quirks of the libraries it uses, because clients were written against those.
//!
//! * [`json_patch`], [`merge_patch`], [`strategic`]: the three classic patch formats.
//! * [`fields`]: the `FieldsV1` set; [`managed`]: the entries of `metadata.managedFields`.
//! * [`apply`]: who owns what after a write, and the server-side apply merge.

pub mod apply;
pub mod fields;
mod gotext;
pub mod json_patch;
pub mod managed;
pub mod merge_patch;
mod meta;
mod order;
pub mod strategic;
#[cfg(test)]
mod testing;
mod typed;
