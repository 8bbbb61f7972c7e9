//! A time for each test.

use std::cell::Cell;

use jiff::{SignedDuration, Timestamp};
use remuda_control::clock::Clock;
use tokio::time::Instant;

/// Follows the runtime's timer from a given moment, so that it stands still when tests pause the timer and jumps when
/// they advance it.
#[derive(Debug, Clone, Copy)]
pub struct TimerClock {
    started: Instant,
    at: Timestamp,
}

impl TimerClock {
    pub fn starting_at(at: Timestamp) -> Self {
        Self { started: Instant::now(), at }
    }
}

impl Clock for TimerClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.saturating_add(passed).unwrap_or(Timestamp::MAX)
    }
}

thread_local! {
    /// API servers ask a function for the time. Each test has a thread, and with it a time of its own.
    static CLOCK: Cell<Option<TimerClock>> = const { Cell::new(None) };
}

/// From here on the API servers of this test go by this clock. It goes on when controllers start again.
pub fn begin(at: Timestamp) -> TimerClock {
    let clock = TimerClock::starting_at(at);
    CLOCK.set(Some(clock));
    clock
}

/// The clock of this test, if it has one.
pub fn clock() -> Option<TimerClock> {
    CLOCK.get()
}

/// The host's time in tests that have no time of their own.
pub fn now() -> Timestamp {
    clock().map_or_else(Timestamp::now, |clock| clock.now())
}
