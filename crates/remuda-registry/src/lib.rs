//! Images for machines that reach this server and nothing else.
//!
//! * [`bundle`]: images in one file, made where there is internet and read where there is none.
//! * [`upstream`]: a registry elsewhere: what is there, and its bytes.
//! * [`store`]: what was fetched from one, on a bounded disk, once for all who wait for it.
//! * [`serve`]: the reading half of the OCI distribution API over both.
//!
//! Nothing is believed before its digest is right: not what registries send, not what is in a bundle, not what was on
//! this disk before the last crash.

pub mod bundle;
pub mod collect;
mod manifest;
pub mod serve;
pub mod store;
pub mod upstream;

pub use self::{
    bundle::{Bundle, BundleError},
    collect::{CollectError, collect},
    manifest::{Descriptor, Manifest, ManifestError},
    serve::{Mirror, Mirrors, Registry},
    store::{Store, StoreError},
    upstream::{Credentials, Upstream, UpstreamError},
};
