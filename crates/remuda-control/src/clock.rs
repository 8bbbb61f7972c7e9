//! What time it is, as an argument.
//!
//! A reconcile asks once and passes the answer on, so one decision has one `now`.

use std::{fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

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

/// Moves only when told to. Clones share the time.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

impl ManualClock {
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    pub fn set(&self, now: Timestamp) {
        *self.0.lock() = now;
    }

    /// Stops at the end of time rather than passing it.
    pub fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock();
        *now = now.saturating_add(by).unwrap_or(*now);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// Follows the runtime's timer from a given moment, so that it stands still when tests pause
/// the timer and jumps when they advance it.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), clock.now());
        clock.clone().advance(SignedDuration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.advance(SignedDuration::MAX);
        assert_eq!(clock.now(), Timestamp::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_clock_follows_paused_time() {
        let clock = TimerClock::starting_at(Timestamp::UNIX_EPOCH);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().as_second(), 3600);
    }
}
