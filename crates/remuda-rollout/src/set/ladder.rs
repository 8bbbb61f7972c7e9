//! What is tried with an unhealthy Machine before it is replaced: its service is restarted, then its server.
//!
//! Each step is asked for by an annotation of the Machine with the time it was asked for, and has a while to help. What
//! was tried is read from there, so the next reconcile knows it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use remuda_names::annotation::{REBOOT_REQUESTED, RESTART_REQUESTED};
use serde_json::Value;

/// A Machine that was well for so long after a step begins with the first again when it falls ill.
const HELPED: SignedDuration = SignedDuration::from_hours(1);
/// The longest a step is waited for.
const LONGEST: i64 = 24 * 3600;

/// What can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The service of the distribution, by the agent.
    RestartService,
    /// The server, by its driver.
    Reboot,
}

impl Step {
    const ALL: [Step; 2] = [Step::RestartService, Step::Reboot];

    pub fn as_str(self) -> &'static str {
        match self {
            Step::RestartService => "restart-service",
            Step::Reboot => "reboot",
        }
    }

    /// The annotation of a Machine that asks for it.
    pub fn annotation(self) -> &'static str {
        match self {
            Step::RestartService => RESTART_REQUESTED,
            Step::Reboot => REBOOT_REQUESTED,
        }
    }

    /// The reason of the condition while it is waited for.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Step::RestartService => "RestartingService",
            Step::Reboot => "Rebooting",
        }
    }
}

/// What `remuda.io/remediation-steps` asks for, such as `restart-service=5m,reboot=10m`: steps in their order, each
/// with
/// the time it has to help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ladder(Vec<(Step, SignedDuration)>);

/// Why a text is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadLadder {
    Step(String),
    Wait(String),
    Order,
}

impl fmt::Display for BadLadder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => {
                let quoted = Value::from(step.as_str());
                write!(f, "has a step {quoted}: it must be restart-service=TIME or reboot=TIME")
            }
            Self::Wait(step) => {
                write!(f, "must say how long {step} has to help, from 1s to 24h, such as {step}=5m")
            }
            Self::Order => f.write_str("must name restart-service before reboot, and each once"),
        }
    }
}

impl Ladder {
    pub fn parse(text: &str) -> Result<Ladder, BadLadder> {
        let mut steps = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, wait) = part.split_once('=').unwrap_or((part, ""));
            let step = Step::ALL.into_iter().find(|step| step.as_str() == name.trim());
            let step = step.ok_or_else(|| BadLadder::Step(name.trim().to_owned()))?;
            let seconds = remuda_base::duration::seconds(wait.trim());
            let seconds = seconds.filter(|seconds| (1..=LONGEST).contains(seconds));
            let seconds = seconds.ok_or_else(|| BadLadder::Wait(step.as_str().to_owned()))?;
            steps.push((step, SignedDuration::from_secs(seconds)));
        }
        if steps.is_sorted_by(|a: &(Step, SignedDuration), b| a.0 < b.0) {
            Ok(Ladder(steps))
        } else {
            Err(BadLadder::Order)
        }
    }

    fn wait(&self, step: Step) -> SignedDuration {
        self.0.iter().find(|(known, _)| *known == step).map_or(SignedDuration::ZERO, |(_, wait)| *wait)
    }

    /// What is next with an unhealthy Machine, by what was tried with it: a step and when it was asked for.
    pub fn next(&self, tried: Option<(Step, Timestamp)>, now: Timestamp) -> Next {
        let end = |at: Timestamp, wait: SignedDuration| at.checked_add(wait).unwrap_or(Timestamp::MAX);
        let after = match tried {
            Some((step, at)) => {
                let until = end(at, self.wait(step));
                if until > now {
                    return Next::Wait { step, until };
                }
                Some(step).filter(|_| end(until, HELPED) > now)
            }
            None => None,
        };
        let next = self.0.iter().find(|(step, _)| after.is_none_or(|after| *step > after));
        next.map_or(Next::Replace, |(step, wait)| Next::Try { step: *step, until: end(now, *wait) })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Try {
        step: Step,
        until: Timestamp,
    },
    /// It was asked for, and may yet help.
    Wait {
        step: Step,
        until: Timestamp,
    },
    Replace,
}

/// The step that was asked for last, from the annotations of a Machine. A time that cannot be parsed counts as none.
pub fn tried<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<(Step, Timestamp)> {
    let asked = |step: Step| Some((step, annotation(step.annotation())?.parse::<Timestamp>().ok()?));
    Step::ALL.into_iter().filter_map(asked).max_by_key(|(step, at)| (*at, *step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn a_ladder_is_read_or_refused() {
        assert!(Ladder::parse("restart-service=5m,reboot=10m").is_ok());
        assert!(Ladder::parse(" reboot = 1h ").is_ok());
        for (text, words) in [
            ("", "restart-service=TIME"),
            ("pray=5m", "\"pray\""),
            ("reboot", "reboot=5m"),
            ("reboot=0s", "reboot=5m"),
            ("reboot=48h", "24h"),
            ("reboot=soon", "reboot=5m"),
            ("reboot=5m,restart-service=5m", "before reboot"),
            ("reboot=5m,reboot=5m", "each once"),
        ] {
            let told = Ladder::parse(text).unwrap_err().to_string();
            assert!(told.contains(words), "{text}: {told}");
        }
    }

    /// What is next `now`, if a step was tried `at` a time.
    #[track_caller]
    fn check(ladder: &str, tried: Option<(Step, i64)>, now: i64, expected: Next) {
        let ladder = Ladder::parse(ladder).unwrap();
        assert_eq!(ladder.next(tried.map(|(step, time)| (step, at(time))), at(now)), expected);
    }

    const BOTH: &str = "restart-service=5m,reboot=10m";

    #[test]
    fn steps_follow_each_other_and_then_the_machine_is_replaced() {
        use Step::{Reboot, RestartService};
        check(BOTH, None, 0, Next::Try { step: RestartService, until: at(300) });
        check(BOTH, Some((RestartService, 0)), 299, Next::Wait { step: RestartService, until: at(300) });
        check(BOTH, Some((RestartService, 0)), 300, Next::Try { step: Reboot, until: at(900) });
        check(BOTH, Some((Reboot, 300)), 899, Next::Wait { step: Reboot, until: at(900) });
        check(BOTH, Some((Reboot, 300)), 900, Next::Replace);
        check("restart-service=5m", Some((RestartService, 0)), 300, Next::Replace);
    }

    #[test]
    fn what_helped_for_long_is_tried_again_first() {
        use Step::{Reboot, RestartService};
        check(
            BOTH,
            Some((RestartService, 0)),
            300 + 3599,
            Next::Try { step: Reboot, until: at(300 + 3599 + 600) },
        );
        check(BOTH, Some((Reboot, 0)), 600 + 3600, Next::Try { step: RestartService, until: at(4200 + 300) });
    }

    #[test]
    fn a_step_that_is_no_longer_wanted_is_not_waited_for() {
        check(
            "reboot=10m",
            Some((Step::RestartService, 0)),
            1,
            Next::Try { step: Step::Reboot, until: at(601) },
        );
        check("restart-service=5m", Some((Step::Reboot, 0)), 1, Next::Replace);
    }

    #[test]
    fn the_last_step_is_the_one_that_was_asked_for_last() {
        let read = |restart: &str, reboot: &str| {
            let (restart, reboot) = (restart.to_owned(), reboot.to_owned());
            tried(|key| match key {
                RESTART_REQUESTED => Some(restart.as_str()),
                REBOOT_REQUESTED => Some(reboot.as_str()),
                _ => None,
            })
        };
        let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z");
        assert_eq!(read(one, two).unwrap().0, Step::Reboot);
        assert_eq!(read(two, one).unwrap().0, Step::RestartService);
        assert_eq!(read("never", one).unwrap().0, Step::Reboot);
        assert_eq!(read("", ""), None);
    }
}
