//! What has become of a plan: the one reading of what its agent reports.
//!
//! Agents of newer servers keep a state; others only write checksums and counts. The planner, the condition
//! `PlanApplied` and `why` all ask here, so that none of them goes on where another stops.

use crate::{digest::sha256_hex, key, state};

/// The report on the plan that is in the Secret now. What was reported about an earlier plan does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// There is a plan.
    pub delivered: bool,
    /// The plan was applied, to the last byte.
    pub applied: bool,
    /// The last attempt failed. The agent may well try again.
    pub failing: bool,
    /// It failed as often as the server allows ([`key::FAILURE_THRESHOLD`]): nothing goes on before it succeeds or
    /// another plan comes.
    pub failed: bool,
    /// It failed, and the agent stops trying, or never will ([`key::MAX_FAILURES`]): people are told.
    pub gave_up: bool,
    /// Failures in a row, of whatever plan.
    pub failures: i64,
}

impl Report {
    /// `value` gives the content of a key of the Secret, empty if there is none.
    pub fn read<'a>(value: impl Fn(&str) -> &'a [u8]) -> Report {
        let plan = value(key::PLAN);
        let failures = number(value(key::FAILURE_COUNT)).unwrap_or(0);
        if plan.is_empty() {
            return Report { failures, ..Report::default() };
        }
        let state = std::str::from_utf8(value(key::PLAN_STATE)).unwrap_or_default();
        let ended = state == state::FAILED;
        let checksum = value(key::FAILED_CHECKSUM);
        let failing = ended || (!checksum.is_empty() && checksum == sha256_hex(plan).as_bytes());
        let threshold = number(value(key::FAILURE_THRESHOLD)).unwrap_or(1);
        let most = number(value(key::MAX_FAILURES));
        Report {
            delivered: true,
            applied: match state {
                state::SUCCEEDED => true,
                state::IN_PROGRESS | state::FAILED => false,
                _ => value(key::APPLIED_PLAN) == plan,
            },
            failing,
            failed: ended || (failing && failures > 0 && threshold != -1 && failures >= threshold),
            gave_up: ended || (failing && most.is_some_and(|most| most == -1 || failures >= most)),
            failures,
        }
    }
}

fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// `data` is `key=value` per line; answers the words that hold.
    #[track_caller]
    fn check(data: &str, expected: &str) {
        let mut secret = BTreeMap::new();
        for line in data.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').unwrap();
            secret.insert(key.to_owned(), value.replace("HASH", &sha256_hex(b"{}")).into_bytes());
        }
        let report = Report::read(|key| secret.get(key).map(Vec::as_slice).unwrap_or_default());
        let words = [
            (report.delivered, "delivered"),
            (report.applied, "applied"),
            (report.failing, "failing"),
            (report.failed, "failed"),
            (report.gave_up, "gave-up"),
        ];
        let words: Vec<_> = words.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect();
        assert_eq!(words.join(" "), expected, "{data}");
    }

    #[test]
    fn a_plan_is_applied_once_its_bytes_were_or_its_state_says_so() {
        check("", "");
        check("plan=", "");
        check("plan={}", "delivered");
        check("plan={}\nappliedPlan={}", "delivered applied");
        check("plan={}\nappliedPlan={ }", "delivered");
        check("plan={}\nplan-state=succeeded", "delivered applied");
        check("plan={}\nappliedPlan={}\nplan-state=in-progress", "delivered");
        check("plan={}\nappliedPlan={}\nplan-state=pending", "delivered applied");
        check("plan={}\nappliedPlan={}\nplan-state=failed", "delivered failing failed gave-up");
    }

    #[test]
    fn failures_count_for_this_plan_and_from_the_threshold_on() {
        check("plan={}\nfailure-count=1\nfailed-checksum=HASH", "delivered failing failed");
        check("plan={}\nfailure-count=1\nfailed-checksum=other", "delivered");
        check("plan={}\nfailure-count=0\nfailed-checksum=HASH", "delivered failing");
        check("plan={}\nfailure-count=many\nfailed-checksum=HASH", "delivered failing");
        // A Windows worker: its first failures are expected.
        check("plan={}\nfailure-count=2\nfailed-checksum=HASH\nfailure-threshold=3", "delivered failing");
        check(
            "plan={}\nfailure-count=3\nfailed-checksum=HASH\nfailure-threshold=3",
            "delivered failing failed",
        );
        check("plan={}\nfailure-count=9\nfailed-checksum=HASH\nfailure-threshold=-1", "delivered failing");
        // An old failure beside a newer success of the same bytes.
        check(
            "plan={}\nappliedPlan={}\nfailure-count=1\nfailed-checksum=HASH",
            "delivered applied failing failed",
        );
    }

    #[test]
    fn an_agent_gives_up_at_its_limit_and_one_without_a_limit_says_so_at_once() {
        let failing = "plan={}\nfailed-checksum=HASH\nfailure-threshold=9";
        check(&format!("{failing}\nmax-failures=3\nfailure-count=2"), "delivered failing");
        check(&format!("{failing}\nmax-failures=3\nfailure-count=3"), "delivered failing gave-up");
        check(&format!("{failing}\nmax-failures=3\nfailure-count=4"), "delivered failing gave-up");
        check(&format!("{failing}\nmax-failures=-1\nfailure-count=1"), "delivered failing gave-up");
    }
}
