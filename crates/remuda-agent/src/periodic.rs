//! When a periodic instruction is due and what its result looks like.

use remuda_plan::{
    PeriodicInstruction,
    output::{Blob, PeriodicResult},
};

use crate::stamp::Stamp;

const DEFAULT_PERIOD: i64 = 600;
const COOL_DOWN: i64 = 30;

/// What one run of an instruction gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// -1 when it was killed or did not start.
    pub exit_code: i64,
    /// Standard output, line by line.
    pub stdout: Vec<u8>,
    /// Standard error, line by line.
    pub stderr: Vec<u8>,
}

/// The attempt number to run it with now, or `None` if it is not time yet. `forced` is set in a pass
/// that ran the one-time instructions: what they changed should show at once.
pub fn due(
    instruction: &PeriodicInstruction,
    previous: Option<&PeriodicResult>,
    now: Stamp,
    forced: bool,
) -> Option<i64> {
    let Some(previous) = previous else { return Some(1) };
    let failed_at = Stamp::parse(&previous.last_failed_run_time);
    let failures = if failed_at.is_some() { previous.failures.max(0) } else { 0 };
    let attempt = failures.saturating_add(1);
    if forced {
        return Some(attempt);
    }
    let waits = |since: Stamp, seconds: i64| now.since(since).is_some_and(|elapsed| elapsed < seconds);
    let period = if instruction.period_seconds == 0 { DEFAULT_PERIOD } else { instruction.period_seconds };
    let succeeded_at = Stamp::parse(&previous.last_successful_run_time);
    if succeeded_at.is_some_and(|at| waits(at, period)) {
        return None;
    }
    if failed_at.is_some_and(|at| waits(at, COOL_DOWN * failures.clamp(1, 6))) {
        return None;
    }
    Some(attempt)
}

/// The result to report after a run.
pub fn result(
    instruction: &PeriodicInstruction,
    previous: Option<&PeriodicResult>,
    ran: Ran,
    now: Stamp,
) -> PeriodicResult {
    let succeeded = ran.exit_code == 0;
    let earlier = previous.filter(|previous| Stamp::parse(&previous.last_successful_run_time).is_some());
    let failures = previous
        .filter(|previous| Stamp::parse(&previous.last_failed_run_time).is_some())
        .map_or(0, |previous| previous.failures.max(0));
    PeriodicResult {
        name: instruction.name.clone(),
        stdout: Blob(ran.stdout),
        stderr: Blob(if instruction.save_stderr_output { ran.stderr } else { Vec::new() }),
        exit_code: ran.exit_code,
        last_successful_run_time: if succeeded {
            now.unix_date()
        } else {
            earlier.map(|previous| previous.last_successful_run_time.clone()).unwrap_or_default()
        },
        failures: if succeeded { 0 } else { failures.saturating_add(1) },
        last_failed_run_time: if succeeded { String::new() } else { now.unix_date() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp(1_785_747_907);

    fn ago(seconds: i64) -> String {
        Stamp(NOW.0 - seconds).unix_date()
    }

    /// `last` is `ok <seconds ago>` and/or `bad <seconds ago> <failures>`.
    #[track_caller]
    fn check(period: i64, last: &str, forced: bool, expected: Option<i64>) {
        let instruction = PeriodicInstruction { period_seconds: period, ..PeriodicInstruction::default() };
        let mut previous = PeriodicResult::default();
        let words: Vec<&str> = last.split(' ').collect();
        for (at, word) in words.iter().enumerate() {
            match *word {
                "ok" => previous.last_successful_run_time = ago(words[at + 1].parse().unwrap()),
                "bad" => {
                    previous.last_failed_run_time = ago(words[at + 1].parse().unwrap());
                    previous.failures = words[at + 2].parse().unwrap();
                }
                _ => {}
            }
        }
        let previous = (!last.is_empty()).then_some(&previous);
        assert_eq!(due(&instruction, previous, NOW, forced), expected, "{last}");
    }

    #[test]
    fn it_runs_when_its_period_is_over() {
        check(0, "", false, Some(1));
        check(0, "ok 599", false, None);
        check(0, "ok 600", false, Some(1));
        check(10, "ok 9", false, None);
        check(10, "ok 10", false, Some(1));
        check(10, "ok 1", true, Some(1));
        check(10, "ok -100", false, Some(1));
    }

    #[test]
    fn it_cools_down_longer_after_each_failure_up_to_three_minutes() {
        check(10, "bad 29 0", false, None);
        check(10, "bad 30 0", false, Some(1));
        check(10, "bad 59 2", false, None);
        check(10, "bad 60 2", false, Some(3));
        check(10, "bad 179 99", false, None);
        check(10, "bad 180 99", false, Some(100));
        check(10, "bad 1 4", true, Some(5));
        check(600, "ok 20 bad 90 1", false, None);
    }

    #[test]
    fn a_failure_keeps_the_time_of_the_last_success() {
        let instruction = PeriodicInstruction::default();
        let first = result(&instruction, None, Ran { exit_code: 0, ..Ran::default() }, NOW);
        assert_eq!((first.failures, first.last_failed_run_time.as_str()), (0, ""));
        let stderr = b"e\n".to_vec();
        let second = result(
            &instruction,
            Some(&first),
            Ran { exit_code: 3, stderr, ..Ran::default() },
            Stamp(NOW.0 + 9),
        );
        assert_eq!(second.last_successful_run_time, NOW.unix_date());
        assert_eq!((second.failures, second.exit_code), (1, 3));
        assert_eq!(second.stderr, Blob::default());
        let third = result(&instruction, Some(&second), Ran { exit_code: -1, ..Ran::default() }, NOW);
        assert_eq!(third.failures, 2);
    }
}
