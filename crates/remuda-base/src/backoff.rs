//! How long to wait after failures.

use std::time::Duration;

/// Delays that double: `first` after the first failure, never more than `longest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest }
    }

    /// The delay after so many failures in a row. None failed counts as one.
    pub fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }

    /// The same, drawn from its upper half by `random` between 0 and 1: those who failed together do not come back
    /// together, and the longest delay stays the longest.
    pub fn jittered(&self, failures: u32, random: f64) -> Duration {
        self.delay(failures).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// A row of failures that begins now.
    pub const fn begin(self) -> Row {
        Row { backoff: self, failures: 0 }
    }
}

/// Failures in a row, and the delays between them.
#[derive(Debug, Clone)]
pub struct Row {
    backoff: Backoff,
    failures: u32,
}

impl Row {
    /// The delay after one more failure.
    pub fn delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.delay(self.failures)
    }

    /// The same with jitter.
    pub fn jittered(&mut self, random: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.jittered(self.failures, random)
    }

    /// After a success, the next delay is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

    #[test]
    fn delays_double_up_to_the_longest_and_stay_there() {
        let mut row = BACKOFF.begin();
        let delays: Vec<_> = (0..100).map(|_| row.delay().as_secs()).collect();
        assert_eq!(delays[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((delays[99], row.failures()), (60, 100));
        row.reset();
        assert_eq!(row.delay(), Duration::from_secs(1));
        assert_eq!(BACKOFF.delay(0), Duration::from_secs(1));
        assert_eq!(BACKOFF.delay(u32::MAX), Duration::from_secs(60));
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).delay(9), Duration::MAX);
    }

    #[test]
    fn jitter_stays_between_half_a_delay_and_the_whole() {
        for (random, millis) in [(-1.0, 30_000), (0.0, 30_000), (0.5, 45_000), (1.0, 60_000), (7.0, 60_000)] {
            assert_eq!(BACKOFF.jittered(u32::MAX, random), Duration::from_millis(millis));
        }
    }
}
