//! How values are written and read everywhere: one home for what Go and Kubernetes have a form for.
//!
//! | module | form |
//! |---|---|
//! | [`duration`] | Go durations: `1h30m`, `-1.5s` |
//! | [`quantity`] | Kubernetes quantities: `500m`, `1Gi`, `1e3` |
//! | [`calendar`] | RFC 3339 with whole seconds, and the calendar below it |
//! | [`quote`] | Go's `%q` |
//! | [`hex()`] | lower-case hexadecimal |
//! | [`chain`] | an error and what caused it, on one line |
//! | [`backoff`] | how long to wait after failures |
//! | [`json_stream`] | where objects end in a stream of JSON |
//!
//! Pure, and without dependencies: the smallest programs link it.

pub mod backoff;
pub mod calendar;
pub mod chain;
pub mod duration;
mod hex;
pub mod json_stream;
pub mod quantity;
pub mod quote;

pub use backoff::Backoff;
pub use calendar::rfc3339;
pub use chain::Chain;
pub use hex::hex;
