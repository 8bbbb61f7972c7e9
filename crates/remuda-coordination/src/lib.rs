//! Who works on what: below the controllers of the API server, which are part of it, and those that are its clients.
//!
//! | module | decides |
//! |---|---|
//! | [`queue`] | which worker has which key, and when a key is tried again |
//! | [`election`] | which of several processes works at all: the holder of a Lease |
//!
//! It knows no API: what reads and writes a Lease is a [`election::Leases`].

pub mod election;
pub mod queue;
