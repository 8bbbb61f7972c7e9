//! What goes back into the plan Secret.

use remuda_plan::{json, key, output::gzip, probe::Statuses, state};

use crate::{
    decide::{Data, Decision, increment, text},
    stamp::Stamp,
};

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Whether every instruction succeeded.
    pub succeeded: bool,
    /// Packed output.
    pub output: Vec<u8>,
    /// When it began.
    pub began: Stamp,
}

/// Marks a pending plan as taken. This is written before anything runs, so that a server never
/// mistakes a running plan for one nobody has seen.
pub fn take(data: &mut Data) {
    let revision = increment(data.get(key::PLAN_REVISION));
    data.insert(key::PLAN_STATE.into(), state::IN_PROGRESS.into());
    data.insert(key::PLAN_REVISION.into(), revision);
}

/// Puts the results of a pass into the Secret's data. `periodic` is `None` when no periodic
/// instruction ran: the stored bytes stay, whoever packed them.
pub fn compose(
    data: &mut Data,
    decision: &Decision,
    checksum: &str,
    ended: Option<&Ended>,
    periodic: Option<Vec<u8>>,
    statuses: &Statuses,
) {
    let mut set = |name: &str, value: Vec<u8>| data.insert(name.to_owned(), value);
    if let Some(packed) = periodic {
        set(key::APPLIED_PERIODIC_OUTPUT, packed);
    }
    set(key::PROBE_STATUSES, json::encode(statuses));
    match ended {
        Some(Ended { succeeded: true, output, began }) => {
            set(key::APPLIED_CHECKSUM, checksum.into());
            set(key::APPLIED_OUTPUT, output.clone());
            set(key::LAST_APPLY_TIME, began.unix_date().into());
            if decision.stateful {
                set(key::PLAN_STATE, state::SUCCEEDED.into());
            }
            clear_failure(data);
            let count = increment(data.get(key::SUCCESS_COUNT));
            data.insert(key::SUCCESS_COUNT.into(), count);
        }
        Some(Ended { succeeded: false, output, began }) => {
            if decision.blank_applied {
                set(key::APPLIED_CHECKSUM, Vec::new());
            }
            set(key::FAILED_CHECKSUM, checksum.into());
            set(key::FAILED_OUTPUT, output.clone());
            set(key::SUCCESS_COUNT, b"0".to_vec());
            set(key::LAST_APPLY_TIME, began.unix_date().into());
            if decision.stateful {
                set(key::PLAN_STATE, state::FAILED.into());
            }
            let count = increment(data.get(key::FAILURE_COUNT));
            data.insert(key::FAILURE_COUNT.into(), count);
        }
        // With plan-state present only an execution says anything about the plan. Other agents mark
        // a failed plan as applied here one pass later; servers have to ignore that, nobody needs it.
        None if decision.stateful => {}
        None if decision.was_failed => {
            set(key::FAILED_CHECKSUM, checksum.into());
        }
        None => {
            set(key::APPLIED_CHECKSUM, checksum.into());
            data.entry(key::APPLIED_OUTPUT.into()).or_default();
            clear_failure(data);
        }
    }
    data.entry(key::APPLIED_PERIODIC_OUTPUT.into()).or_insert_with(|| gzip(b"{}"));
}

fn clear_failure(data: &mut Data) {
    data.insert(key::FAILURE_COUNT.into(), b"0".to_vec());
    data.insert(key::FAILED_OUTPUT.into(), Vec::new());
    data.insert(key::FAILED_CHECKSUM.into(), Vec::new());
}

/// What to do when somebody else wrote the Secret first.
#[derive(Debug, PartialEq, Eq)]
pub enum Merged {
    /// The report is about a plan nobody wants any more.
    Superseded,
    /// The latest data with the report on top.
    Data(Data),
}

/// Brings a report that was made on top of `base` onto the `latest` data.
pub fn merge(base: &Data, ours: &Data, latest: &Data) -> Merged {
    let (before, now) = (text(base, key::PLAN_STATE), text(latest, key::PLAN_STATE));
    let asked_again = before != now && now == state::PENDING;
    if base.get(key::PLAN) != latest.get(key::PLAN) || asked_again {
        return Merged::Superseded;
    }
    let mut merged = latest.clone();
    for name in key::REPORTED {
        // A server that moved the state on, for instance cancelled the plan, has the last word on it.
        if *name == key::PLAN_STATE && before != now {
            continue;
        }
        if let Some(value) = ours.get(*name)
            && base.get(*name) != Some(value)
        {
            merged.insert((*name).to_owned(), value.clone());
        }
    }
    Merged::Data(merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Identity, Reason, Run};

    fn data(text: &str) -> Data {
        text.split_whitespace()
            .map(|word| {
                let (name, value) = word.split_once('=').unwrap();
                (name.to_owned(), value.as_bytes().to_vec())
            })
            .collect()
    }

    fn decision(stateful: bool, was_failed: bool, run: bool) -> Decision {
        let run = if run { Run::Begin(Identity::default()) } else { Run::Skip(Reason::Applied) };
        Decision { stateful, run, take: false, was_failed, attempt: 1, blank_applied: false }
    }

    /// Composes onto `before` and compares the report's keys, empty values shown as `key=`.
    #[track_caller]
    fn check(before: &str, decision: &Decision, succeeded: Option<bool>, expected: &str) {
        let mut after = data(before);
        let ended = succeeded.map(|succeeded| Ended {
            succeeded,
            output: b"out".to_vec(),
            began: Stamp(1_785_747_907),
        });
        compose(&mut after, decision, "C", ended.as_ref(), Some(b"per".to_vec()), &Statuses::new());
        let mut shown: Vec<String> = after
            .iter()
            .filter(|(name, _)| *name != key::PROBE_STATUSES && *name != key::APPLIED_PERIODIC_OUTPUT)
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
            .collect();
        let mut expected: Vec<String> = expected.split_whitespace().map(str::to_owned).collect();
        for line in shown.iter_mut().chain(&mut expected) {
            *line = line.replace("Mon Aug  3 09:05:07 UTC 2026", "@now");
        }
        shown.sort();
        expected.sort();
        assert_eq!(shown, expected);
        assert_eq!(after[key::PROBE_STATUSES], b"{}");
    }

    #[test]
    fn success_clears_failure_and_counts_up() {
        check(
            "failure-count=3 success-count=1 failed-output=x",
            &decision(false, true, true),
            Some(true),
            "applied-checksum=C applied-output=out failed-checksum= failed-output= failure-count=0 success-count=2 last-apply-time=@now",
        );
        check(
            "plan-state=in-progress",
            &decision(true, false, true),
            Some(true),
            "plan-state=succeeded applied-checksum=C applied-output=out failed-checksum= failed-output= failure-count=0 success-count=1 last-apply-time=@now",
        );
    }

    #[test]
    fn failure_counts_up_and_keeps_what_was_applied() {
        check(
            "applied-checksum=B applied-output=o failure-count=1 success-count=4",
            &decision(false, true, true),
            Some(false),
            "applied-checksum=B applied-output=o failed-checksum=C failed-output=out failure-count=2 success-count=0 last-apply-time=@now",
        );
        check(
            "plan-state=in-progress",
            &decision(true, false, true),
            Some(false),
            "plan-state=failed failed-checksum=C failed-output=out failure-count=1 success-count=0 last-apply-time=@now",
        );
        let forced = Decision { blank_applied: true, ..decision(false, false, true) };
        check(
            "applied-checksum=C",
            &forced,
            Some(false),
            "applied-checksum= failed-checksum=C failed-output=out failure-count=1 success-count=0 last-apply-time=@now",
        );
    }

    #[test]
    fn a_pass_without_a_run_confirms_what_is_known() {
        check(
            "applied-output=o failure-count=2 failed-checksum=D",
            &decision(false, false, false),
            None,
            "applied-checksum=C applied-output=o failed-checksum= failed-output= failure-count=0",
        );
        check("failure-count=2", &decision(false, true, false), None, "failure-count=2 failed-checksum=C");
        check(
            "plan-state=failed failure-count=2",
            &decision(true, false, false),
            None,
            "plan-state=failed failure-count=2",
        );
    }

    #[test]
    fn periodic_results_of_others_are_kept_byte_for_byte() {
        let mut after = data("applied-periodic-output=theirs");
        compose(&mut after, &decision(true, false, false), "C", None, None, &Statuses::new());
        assert_eq!(after[key::APPLIED_PERIODIC_OUTPUT], b"theirs");
        let mut fresh = Data::new();
        compose(&mut fresh, &decision(true, false, false), "C", None, None, &Statuses::new());
        assert_eq!(fresh[key::APPLIED_PERIODIC_OUTPUT], gzip(b"{}"));
    }

    #[test]
    fn taking_a_plan_counts_the_revision() {
        let mut taken = data("plan-state=pending plan-revision=4");
        take(&mut taken);
        assert_eq!(taken, data("plan-state=in-progress plan-revision=5"));
    }

    #[test]
    fn a_report_survives_a_write_of_somebody_else() {
        let base = data("plan=P plan-state=in-progress failure-count=0");
        let ours = data("plan=P plan-state=succeeded failure-count=0 applied-checksum=C");
        let latest = data("plan=P plan-state=in-progress failure-count=0 appliedPlan=Q probe-statuses=s");
        let expected = data(
            "plan=P plan-state=succeeded failure-count=0 appliedPlan=Q probe-statuses=s applied-checksum=C",
        );
        assert_eq!(merge(&base, &ours, &latest), Merged::Data(expected));
    }

    #[test]
    fn a_report_about_a_replaced_plan_is_dropped() {
        let base = data("plan=P plan-state=in-progress");
        let ours = data("plan=P plan-state=succeeded");
        assert_eq!(merge(&base, &ours, &data("plan=Q plan-state=pending")), Merged::Superseded);
        assert_eq!(merge(&base, &ours, &data("plan=P plan-state=pending")), Merged::Superseded);
        assert_eq!(merge(&base, &ours, &data("plan-state=in-progress")), Merged::Superseded);
        let cancelled = data("plan=P plan-state=cancelled");
        assert_eq!(merge(&base, &ours, &cancelled), Merged::Data(cancelled.clone()));
    }
}
