//! What the API knows of objects: metadata rules, selectors, tables, and the defaults and validation of built-in kinds.
//!
//! Everything here is a pure function of JSON values. Objects come from clients, so no shape is taken for
//! granted: a field of the wrong type counts as missing, never as a reason to stop.

pub mod autoscaling;
pub mod columns;
pub mod compute;
pub mod cron;
pub mod defaults;
pub mod fields;
mod json;
pub mod jsonpath;
pub mod limits;
pub mod meta;
pub mod names;
pub mod path;
pub mod quota;
pub mod selector;
pub mod status;
pub mod validate;

#[cfg(test)]
mod hostile;
