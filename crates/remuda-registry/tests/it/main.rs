//! A registry of images for machines, against small registries that the tests start.

#![allow(clippy::unwrap_used, reason = "these are tests throughout")]

mod bundles;
mod fake;
mod mirror;
