//! What time it is, as an argument.
//!
//! A reconcile asks once and passes the answer on, so one decision has one `now`.

use std::fmt;

use jiff::Timestamp;

pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
