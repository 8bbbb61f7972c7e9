//! How long to wait before trying again.

use std::time::Duration;

/// Doubling delays with jitter, without an end.
///
/// A fleet whose server went away must not come back in step, so each delay is drawn from the upper
/// half of its step.
#[derive(Debug, Clone)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `base` and never exceeds `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, failures: 0 }
    }

    /// The delay after one more failure. `roll` is a random number.
    pub fn next(&mut self, roll: u64) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1).min(31);
        let step = self.base.saturating_mul(factor).min(self.cap);
        let half = step / 2;
        let span = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_nanos(roll % span)
    }

    /// The delay after one more failure, with randomness of the process.
    pub fn delay(&mut self) -> Duration {
        self.next(rand::random())
    }

    /// Begins again after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_stay_there() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let steps: Vec<u64> = (0..100).map(|_| backoff.next(0).as_millis() as u64 * 2).collect();
        assert_eq!(steps[..8], [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(steps[99], 60_000);
        backoff.reset();
        assert_eq!(backoff.next(0), Duration::from_millis(500));
    }

    #[test]
    fn jitter_stays_between_half_a_step_and_a_step() {
        for roll in [0, 1, 12_345, u64::MAX / 3, u64::MAX] {
            let delay = Backoff::new(Duration::from_secs(4), Duration::from_secs(60)).next(roll);
            assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&delay), "{delay:?}");
        }
    }
}
