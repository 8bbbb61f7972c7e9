//! Counts that may be given as a share of a total, such as `maxSurge: 25%`.

use std::fmt;

/// A number of machines, or a share of a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Count(i32),
    Percent(i32),
}

/// A text that is neither a number nor a percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid value {0:?}: must be an integer or a percentage such as 25%")]
pub struct BadAmount(pub String);

impl Amount {
    /// Reads the textual form; only percentages have one.
    pub fn parse(text: &str) -> Result<Self, BadAmount> {
        let digits = text.strip_suffix('%').ok_or_else(|| BadAmount(text.to_owned()))?;
        digits.parse().map(Amount::Percent).map_err(|_| BadAmount(text.to_owned()))
    }

    /// What this is of `total`, rounded up.
    pub fn of_up(self, total: i32) -> i32 {
        match self {
            Amount::Count(count) => count,
            Amount::Percent(percent) => {
                let scaled = i64::from(percent) * i64::from(total);
                clamp(scaled.div_euclid(100) + i64::from(scaled.rem_euclid(100) != 0))
            }
        }
    }

    /// What this is of `total`, rounded down.
    pub fn of_down(self, total: i32) -> i32 {
        match self {
            Amount::Count(count) => count,
            Amount::Percent(percent) => clamp((i64::from(percent) * i64::from(total)).div_euclid(100)),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Count(count) => write!(f, "{count}"),
            Amount::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

fn clamp(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// How far a rollout may go above and below the wanted replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fenceposts {
    pub surge: i32,
    pub unavailable: i32,
}

impl Fenceposts {
    /// Surge rounds up and unavailability down; a rollout that could do neither may lose one machine.
    pub fn resolve(max_surge: Amount, max_unavailable: Amount, replicas: i32) -> Self {
        let surge = max_surge.of_up(replicas).max(0);
        let mut unavailable = max_unavailable.of_down(replicas).max(0);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Fenceposts { surge, unavailable: unavailable.min(replicas.max(0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(replicas: i32, surge: &str, unavailable: &str, expected: (i32, i32)) {
        let amount = |text: &str| match text.parse() {
            Ok(count) => Amount::Count(count),
            Err(_) => Amount::parse(text).unwrap(),
        };
        let posts = Fenceposts::resolve(amount(surge), amount(unavailable), replicas);
        assert_eq!((posts.surge, posts.unavailable), expected);
    }

    #[test]
    fn surge_rounds_up_and_unavailability_down() {
        check(10, "25%", "0%", (3, 0));
        check(10, "0%", "25%", (0, 2));
        check(4, "33%", "33%", (2, 1));
    }

    #[test]
    fn a_rollout_that_could_not_move_may_lose_one_machine() {
        check(1, "0%", "25%", (0, 1));
        check(5, "0", "0", (0, 1));
        check(0, "0", "0", (0, 0));
    }

    #[test]
    fn no_more_can_be_unavailable_than_there_are() {
        check(2, "1", "5", (1, 2));
    }

    #[test]
    fn a_number_in_quotes_is_not_a_percentage() {
        assert_eq!(Amount::parse("3"), Err(BadAmount("3".into())));
        assert_eq!(Amount::parse("x%"), Err(BadAmount("x%".into())));
        assert_eq!(Amount::parse("40%"), Ok(Amount::Percent(40)));
        assert_eq!(Amount::Percent(40).of_down(3), 1);
        assert_eq!(Amount::Percent(40).of_down(2), 0);
        assert_eq!(Amount::Percent(20).of_up(3), 1);
    }
}
