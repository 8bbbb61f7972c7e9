//! Real controllers on the real API server over the memory store.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod applying;
mod driving;
mod example;
mod finalizing;
mod following;
mod leading;
mod waiting;
mod world;
mod writing;
