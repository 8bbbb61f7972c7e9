//! A decision and what it was made of, as data: kept in a file, compared, and made again elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    input::Input,
    output::Output,
    planner::plan,
    redact::{redact, sweep},
    spec::WaitingFor,
};

/// What a [`Record`] says it is.
pub const FORMAT: &str = "remuda.io/planner-input/v1";

/// A decision, as far as people look at it: without plans, in words and codes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Decision {
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// In their order.
    pub writes: Vec<String>,
    /// Machines that were looked at.
    pub machines: BTreeMap<String, Judged>,
}

/// What was decided about a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Judged {
    pub verdict: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl Decision {
    pub fn of(output: &Output) -> Decision {
        let judged = output.machines.iter().map(|(machine, report)| {
            let reasons = report.reasons.iter().map(ToString::to_string).collect();
            (machine.clone(), Judged { verdict: report.verdict.to_string(), reasons })
        });
        Decision {
            outcome: output.outcome.to_string(),
            waiting_for: output.status.waiting_for.clone(),
            writes: output.writes.iter().map(ToString::to_string).collect(),
            machines: judged.collect(),
        }
    }

    /// Where `other` differs, one line each.
    pub fn differences(&self, other: &Decision) -> Vec<String> {
        let mut found = Vec::new();
        let mut compare = |what: &str, one: &str, other: &str| {
            if one != other {
                found.push(format!("{what}: {other:?} instead of {one:?}"));
            }
        };
        compare("outcome", &self.outcome, &other.outcome);
        compare("writes", &self.writes.join("; "), &other.writes.join("; "));
        let names: std::collections::BTreeSet<&String> =
            self.machines.keys().chain(other.machines.keys()).collect();
        for name in names {
            let told = |decision: &Decision| match decision.machines.get(name) {
                None => "not looked at".to_owned(),
                Some(judged) if judged.reasons.is_empty() => judged.verdict.clone(),
                Some(judged) => format!("{}: {}", judged.verdict, judged.reasons.join(", ")),
            };
            compare(&format!("machine {name}"), &told(self), &told(other));
        }
        if self.waiting_for != other.waiting_for {
            found.push("waitingFor: other codes".to_owned());
        }
        found
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub format: String,
    /// Version of the program that wrote it.
    pub program: String,
    /// Secrets were taken out of the input.
    pub redacted: bool,
    /// What is decided otherwise without the secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redaction_changes: Vec<String>,
    /// What was decided about the input as it was.
    pub decision: Decision,
    pub input: Input,
}

impl Record {
    /// With the secrets.
    pub fn whole(input: Input, program: &str) -> Record {
        Record {
            format: FORMAT.to_owned(),
            program: program.to_owned(),
            redacted: false,
            redaction_changes: Vec::new(),
            decision: Decision::of(&plan(&input)),
            input,
        }
    }

    /// Without them.
    pub fn redacted(input: &Input, program: &str) -> Record {
        let safe = redact(input);
        let mut decision = serde_json::to_value(Decision::of(&plan(input))).unwrap_or_default();
        sweep(input, &mut decision);
        let decision: Decision = serde_json::from_value(decision).unwrap_or_default();
        let redaction_changes = decision.differences(&Decision::of(&plan(&safe)));
        Record { redacted: true, redaction_changes, decision, ..Record::whole(safe, program) }
    }

    /// What this program decides, and where that differs from what was recorded.
    pub fn replay(&self) -> (Decision, Vec<String>) {
        let decision = Decision::of(&plan(&self.input));
        let mut differences = self.decision.differences(&decision);
        differences.retain(|difference| !self.redaction_changes.contains(difference));
        (decision, differences)
    }
}
