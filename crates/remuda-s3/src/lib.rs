//! S3 stores, as snapshots need them: put, get, list and delete objects of one folder of one bucket.
//!
//! | module | has |
//! |---|---|
//! | [`config`] | where a bucket is, who may use it, and what is wrong with the user's description |
//! | [`client`] | the calls |
//! | [`sign`] | AWS Signature Version 4, for other interfaces of Amazon too |
//! | [`xml`] | their answers |
//!
//! Every call is signed with the hash of what it sends, so that a store refuses what arrived damaged. All of them may
//! be repeated without harm, and are, a few times: an answer that was lost is not a failure. Nothing here follows a
//! redirect, and no error has a secret in it.

pub mod client;
pub mod config;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
pub mod sign;
pub mod xml;

pub use client::{Object, Store};
pub use config::{Config, Lookup};
pub use error::{Field, S3Error};
