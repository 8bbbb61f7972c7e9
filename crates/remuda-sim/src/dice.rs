//! Chance that can be repeated: every draw follows from a seed, an object and a purpose.
//!
//! Nothing depends on the order in which objects are looked at, nor on how often.

use std::{fmt, str::FromStr, time::Duration};

/// A stream of numbers of one object for one purpose.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, parts: &[&str]) -> Self {
        // FNV-1a, with a separator so that parts do not run into each other.
        let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed;
        for byte in parts.iter().flat_map(|part| part.bytes().chain([0xff])) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(hash)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// At least 0, less than 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Less than `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }
}

/// How long something takes.
///
/// As text: `3s` always, `1s..5s` anything between, `exp:3s` exponential with that mean,
/// `log:3s/0.5` log-normal with that median and that sigma.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Latency {
    Constant(Duration),
    Uniform { from: Duration, to: Duration },
    Exponential { mean: Duration },
    LogNormal { median: Duration, sigma: f64 },
}

/// Nothing simulated takes longer.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl Latency {
    pub const ZERO: Self = Self::Constant(Duration::ZERO);

    pub const fn seconds(seconds: u64) -> Self {
        Self::Constant(Duration::from_secs(seconds))
    }

    pub(crate) fn draw(&self, dice: &mut Dice) -> Duration {
        let seconds = match *self {
            Self::Constant(duration) => return duration.min(LONGEST),
            Self::Uniform { from, to } => {
                from.as_secs_f64() + (to.as_secs_f64() - from.as_secs_f64()) * dice.unit()
            }
            Self::Exponential { mean } => -(1.0 - dice.unit()).ln() * mean.as_secs_f64(),
            Self::LogNormal { median, sigma } => {
                let (radius, angle) = ((1.0 - dice.unit()).ln() * -2.0, dice.unit() * std::f64::consts::TAU);
                median.as_secs_f64() * (sigma * radius.sqrt() * angle.cos()).exp()
            }
        };
        // A whole number of milliseconds, as the timer has them.
        let milliseconds = (seconds.max(0.0) * 1000.0).min(LONGEST.as_millis() as f64);
        Duration::from_millis(milliseconds as u64)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no latency: write 3s, 1s..5s, exp:3s or log:3s/0.5")]
pub struct BadLatency {
    text: String,
}

impl FromStr for Latency {
    type Err = BadLatency;

    fn from_str(text: &str) -> Result<Self, BadLatency> {
        let parse = || {
            if let Some((from, to)) = text.split_once("..") {
                let (from, to) = (duration(from)?, duration(to)?);
                return (from <= to).then_some(Self::Uniform { from, to });
            }
            if let Some(mean) = text.strip_prefix("exp:") {
                return Some(Self::Exponential { mean: duration(mean)? });
            }
            if let Some((median, sigma)) = text.strip_prefix("log:").and_then(|rest| rest.split_once('/')) {
                let sigma = sigma.parse().ok().filter(|sigma: &f64| (0.0..=10.0).contains(sigma))?;
                return Some(Self::LogNormal { median: duration(median)?, sigma });
            }
            duration(text).map(Self::Constant)
        };
        parse().ok_or_else(|| BadLatency { text: text.to_owned() })
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(duration) => write!(f, "{duration:?}"),
            Self::Uniform { from, to } => write!(f, "{from:?}..{to:?}"),
            Self::Exponential { mean } => write!(f, "exp:{mean:?}"),
            Self::LogNormal { median, sigma } => write!(f, "log:{median:?}/{sigma}"),
        }
    }
}

/// A duration as Go writes it, of reasonable length.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    remuda_base::duration::parse(text.trim()).filter(|duration| *duration <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_object_and_purpose_only() {
        let draw = |seed, parts: &[&str]| Dice::new(seed, parts).unit();
        assert_eq!(draw(1, &["a", "b"]).to_bits(), draw(1, &["a", "b"]).to_bits());
        assert_ne!(draw(1, &["a", "b"]).to_bits(), draw(2, &["a", "b"]).to_bits());
        assert_ne!(draw(1, &["a", "b"]).to_bits(), draw(1, &["ab"]).to_bits());
    }

    #[test]
    fn draws_are_spread_evenly() {
        let mut dice = Dice::new(7, &["spread"]);
        let mean = (0..10_000).map(|_| dice.unit()).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
        assert!((0..1000).all(|_| dice.below(3) < 3));
        let often = (0..10_000).filter(|_| dice.happens(0.1)).count();
        assert!((900..1100).contains(&often), "{often}");
    }

    #[test]
    fn latencies_are_read_as_written() {
        for text in ["0", "3s", "1.5s", "2m", "1s..5s", "exp:3s", "log:3s/0.5"] {
            let latency: Latency = text.parse().unwrap();
            assert_eq!(latency.to_string().parse(), Ok(latency), "{text}");
        }
        for text in ["", "3", "s", "-1s", "5s..1s", "log:3s", "log:3s/x", "1e99h", "NaNs", "..", "exp:"] {
            assert!(text.parse::<Latency>().is_err(), "{text}");
        }
    }

    #[test]
    fn latencies_stay_where_they_belong() {
        let mut dice = Dice::new(3, &[]);
        let uniform: Latency = "1s..5s".parse().unwrap();
        for _ in 0..1000 {
            let drawn = uniform.draw(&mut dice);
            assert!((Duration::from_secs(1)..=Duration::from_secs(5)).contains(&drawn));
        }
        for text in ["exp:4s", "log:4s/0.4"] {
            let latency: Latency = text.parse().unwrap();
            let mean = (0..4000).map(|_| latency.draw(&mut dice).as_secs_f64()).sum::<f64>() / 4000.0;
            assert!((3.5..5.0).contains(&mean), "{text}: {mean}");
        }
    }
}
