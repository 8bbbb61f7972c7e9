//! How probe results add up to health, and how they are stored.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Probe, lenient::lenient};

/// Health of every probe by name.
pub type Statuses = BTreeMap<String, Status>;

/// Health of one probe. Zero values are not written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Reached its success threshold and has not reached its failure threshold since.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub healthy: bool,
    /// Successes in a row, counted up to the threshold.
    #[serde(skip_serializing_if = "none")]
    pub success_count: i64,
    /// Failures in a row, counted up to the threshold.
    #[serde(skip_serializing_if = "none")]
    pub failure_count: i64,
}

lenient!(Status {
    "healthy" => healthy,
    "successCount" => success_count,
    "failureCount" => failure_count,
});

fn none(count: &i64) -> bool {
    *count == 0
}

/// Reads what is stored; anything unreadable counts as nothing known.
pub fn parse(raw: &[u8]) -> Option<Statuses> {
    serde_json::from_slice::<Option<Statuses>>(raw).ok().map(Option::unwrap_or_default)
}

impl Status {
    /// Health after one more check. Counters stop at their threshold, so a settled probe causes no writes.
    #[must_use]
    pub fn after(mut self, probe: &Probe, succeeded: bool) -> Self {
        let or = |value: i64, default: i64| if value == 0 { default } else { value };
        if succeeded {
            let threshold = or(probe.success_threshold, 1);
            if self.success_count < threshold {
                self.success_count += 1;
                self.healthy |= self.success_count >= threshold;
            }
            self.failure_count = 0;
        } else {
            let threshold = or(probe.failure_threshold, 3);
            if self.failure_count < threshold {
                self.failure_count += 1;
                self.healthy &= self.failure_count < threshold;
            }
            self.success_count = 0;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    /// `checks` is one character per check, `+` or `-`; the answer is one character of health after each.
    #[track_caller]
    fn check(success: i64, failure: i64, checks: &str, expected: &str) {
        let probe = Probe { success_threshold: success, failure_threshold: failure, ..Probe::default() };
        let mut status = Status::default();
        let health: String = checks
            .chars()
            .map(|check| {
                status = status.after(&probe, check == '+');
                if status.healthy { 'H' } else { '.' }
            })
            .collect();
        assert_eq!(health, expected);
    }

    #[test]
    fn thresholds_count_results_in_a_row() {
        check(0, 0, "+--+---+", "HHHHHH.H");
        check(2, 2, "+-++--", "...HH.");
        check(1, 1, "+-+-", "H.H.");
        check(3, 3, "---+++", ".....H");
    }

    #[test]
    fn a_settled_probe_does_not_change() {
        let probe = Probe::default();
        let healthy = Status::default().after(&probe, true);
        assert_eq!(healthy, healthy.after(&probe, true));
        let mut down = Status::default();
        for _ in 0..3 {
            down = down.after(&probe, false);
        }
        assert_eq!(down, down.after(&probe, false));
    }

    #[test]
    fn statuses_have_the_reference_form() {
        let text = r#"{"etcd":{"failureCount":3},"kubelet":{"healthy":true,"successCount":1},"new":{}}"#;
        let statuses = parse(text.as_bytes()).unwrap();
        assert_eq!(json::encode(&statuses), text.as_bytes());
        assert_eq!(parse(b"null"), Some(Statuses::new()));
        assert_eq!(parse(b"[]"), None);
        assert_eq!(parse(br#"{"new":null}"#), Some(Statuses::from([("new".into(), Status::default())])));
    }
}
