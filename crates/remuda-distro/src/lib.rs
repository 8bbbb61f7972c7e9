//! What K3s and RKE2 are: their directories, units and ports, and which releases of them there are.
//!
//! ```text
//! distro     which of the two a version is of, and what it calls things
//! version    reading and ordering versions, build metadata included
//! release    the model: releases, channels, arguments, features, charts, images, end of life
//! table      the facts that come with this program (`releases.txt`)
//! document   the document Rancher's metadata service publishes
//! wanted     from what people write (`stable`, `1.35`) to a release
//! maintenance when what disrupts a cluster may begin by itself
//! upgrade    which change of version a cluster can follow
//! encryption whether keys for Secrets can be rotated
//! ```
//!
//! Pure: fetching documents is the business of others. [`Current`] is where all parts of a process look.

pub mod certificates;
mod current;
pub mod distro;
pub mod document;
pub mod encryption;
pub mod maintenance;
pub mod release;
mod table;
pub mod upgrade;
pub mod version;
pub mod wanted;

pub use self::{
    current::Current,
    distro::Distro,
    release::{Catalog, Facts},
};
