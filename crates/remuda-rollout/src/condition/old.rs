//! Conditions as v1beta1 shows them: with a severity, and merged by it.
//!
//! They are kept beside the others for clients that still read them. Nothing decides by them.

use jiff::Timestamp;

use super::{Status, whole_seconds};

/// How bad a condition that is False is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
    Info,
}

impl Severity {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Error" => Some(Severity::Error),
            "Warning" => Some(Severity::Warning),
            "Info" => Some(Severity::Info),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "Error",
            Severity::Warning => "Warning",
            Severity::Info => "Info",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldCondition {
    pub kind: String,
    pub status: Status,
    /// Only where the status is False.
    pub severity: Option<Severity>,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

impl OldCondition {
    /// True needs no words.
    pub fn good(kind: &str) -> Self {
        let (reason, message) = (String::new(), String::new());
        OldCondition {
            kind: kind.to_owned(),
            status: Status::True,
            severity: None,
            reason,
            message,
            since: None,
        }
    }

    pub fn bad(kind: &str, severity: Severity, reason: &str, message: impl Into<String>) -> Self {
        OldCondition {
            kind: kind.to_owned(),
            status: Status::False,
            severity: Some(severity),
            reason: reason.to_owned(),
            message: message.into(),
            since: None,
        }
    }

    fn says_the_same(&self, other: &OldCondition) -> bool {
        let said = |condition: &OldCondition| {
            let OldCondition { kind, status, severity, reason, message, .. } = condition.clone();
            (kind, status, severity, reason, message)
        };
        said(self) == said(other)
    }

    /// Lower is shown first in a summary. True is shown before Unknown.
    fn urgency(&self) -> u8 {
        match (self.status, self.severity) {
            (Status::False, Some(Severity::Error)) => 0,
            (Status::False, Some(Severity::Warning)) => 1,
            (Status::False, Some(Severity::Info)) => 2,
            (Status::True, _) => 3,
            (Status::Unknown, _) => 4,
            (Status::False, None) => 5,
        }
    }
}

/// Ready first, then by name.
fn rank(kind: &str) -> (bool, &str) {
    (kind != "Ready", kind)
}

/// The old conditions of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OldConditions(Vec<OldCondition>);

impl OldConditions {
    pub fn read(conditions: Vec<OldCondition>) -> Self {
        OldConditions(conditions)
    }

    pub fn as_slice(&self) -> &[OldCondition] {
        &self.0
    }

    pub fn get(&self, kind: &str) -> Option<&OldCondition> {
        self.0.iter().find(|condition| condition.kind == kind)
    }

    /// Sets one condition. Its time moves with whatever it says, not only with the status.
    pub fn set(&mut self, condition: OldCondition, now: Timestamp) {
        let since = Some(whole_seconds(condition.since.unwrap_or(now)));
        match self.0.iter_mut().find(|known| known.kind == condition.kind) {
            Some(known) if known.says_the_same(&condition) => return,
            Some(known) => *known = OldCondition { since: Some(whole_seconds(now)), ..condition },
            None => self.0.push(OldCondition { since, ..condition }),
        }
        self.0.sort_by(|a, b| rank(&a.kind).cmp(&rank(&b.kind)));
    }

    pub fn remove(&mut self, kind: &str) {
        self.0.retain(|condition| condition.kind != kind);
    }

    /// The Ready condition out of these kinds, in this order; nothing if none of them is there.
    ///
    /// `steps` counts how many of some kinds are done instead of telling the first message, as long as no
    /// other kind of the summary is there.
    pub fn summarize(&self, kinds: &[&str], steps: Option<&[&str]>) -> Option<OldCondition> {
        let inputs: Vec<&OldCondition> = self
            .0
            .iter()
            .filter(|condition| condition.kind != "Ready" && kinds.contains(&condition.kind.as_str()))
            .collect();
        let steps = steps.filter(|steps| inputs.iter().all(|input| steps.contains(&input.kind.as_str())));
        let counter = steps.map(|steps| {
            let done = inputs.iter().filter(|input| input.status == Status::True).count();
            format!("{done} of {} completed", steps.len())
        });
        let order = |condition: &OldCondition| kinds.iter().position(|kind| *kind == condition.kind);
        let first = inputs.into_iter().min_by_key(|input| (input.urgency(), order(input)))?;
        Some(merged(first, "Ready", first.reason.clone(), counter))
    }
}

/// The Ready of many objects, with the source of the reason. Objects without one do not count.
pub fn aggregate<'a>(
    sources: impl IntoIterator<Item = (&'a str, &'a str, &'a OldConditions)>,
    target: &str,
) -> Option<OldCondition> {
    let ready = sources.into_iter().filter_map(|(kind, name, conditions)| {
        Some((conditions.get("Ready")?, format!("{kind}/{name}"), name))
    });
    let (first, source, _) = ready.min_by_key(|(condition, _, name)| (condition.urgency(), *name))?;
    let reason = if first.reason.contains('@') {
        first.reason.clone()
    } else {
        format!("{} @ {source}", first.reason)
    };
    Some(merged(first, target, reason, None))
}

/// The Ready of another object under another name.
pub fn mirror(source: &OldConditions, target: &str, fallback: OldCondition) -> OldCondition {
    match source.get("Ready") {
        Some(ready) => OldCondition { kind: target.to_owned(), ..ready.clone() },
        None => OldCondition { kind: target.to_owned(), ..fallback },
    }
}

fn merged(first: &OldCondition, target: &str, reason: String, message: Option<String>) -> OldCondition {
    if first.status == Status::True {
        return OldCondition::good(target);
    }
    let message = message.unwrap_or_else(|| first.message.clone());
    OldCondition { kind: target.to_owned(), reason, message, since: None, ..first.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::at;

    fn conditions(all: &[OldCondition]) -> OldConditions {
        let mut conditions = OldConditions::default();
        for condition in all {
            conditions.set(condition.clone(), at(1));
        }
        conditions
    }

    #[track_caller]
    fn check(all: &[OldCondition], steps: Option<&[&str]>, expected: &str) {
        let found = conditions(all).summarize(&["B", "A", "C"], steps).unwrap();
        let severity = found.severity.map_or("", Severity::as_str);
        assert_eq!(format!("{} {severity} {} {}", found.status, found.reason, found.message), expected);
    }

    #[test]
    fn the_most_severe_wins_and_among_equals_the_order_asked_for() {
        let info = OldCondition::bad("A", Severity::Info, "Waiting", "a");
        let warning = OldCondition::bad("C", Severity::Warning, "Odd", "c");
        check(&[info.clone(), warning.clone()], None, "False Warning Odd c");
        let other = OldCondition::bad("B", Severity::Info, "Booting", "b");
        check(&[info.clone(), other], None, "False Info Booting b");
        check(&[OldCondition::good("A"), OldCondition::good("C")], None, "True   ");
        let unknown = OldCondition { status: Status::Unknown, severity: None, ..info };
        check(&[unknown, OldCondition::good("C")], None, "True   ");
        assert_eq!(conditions(&[warning]).summarize(&["A"], None), None);
    }

    #[test]
    fn steps_are_counted_while_nothing_else_is_there() {
        let all = [OldCondition::good("A"), OldCondition::bad("B", Severity::Info, "Waiting", "b")];
        check(&all, Some(&["A", "B"]), "False Info Waiting 1 of 2 completed");
        let more = [all[0].clone(), all[1].clone(), OldCondition::good("C")];
        check(&more, Some(&["A", "B"]), "False Info Waiting b");
    }

    #[test]
    fn an_aggregate_names_its_source() {
        let bad = conditions(&[OldCondition::bad("Ready", Severity::Warning, "Odd", "x")]);
        let good = conditions(&[OldCondition::good("Ready")]);
        let silent = OldConditions::default();
        let sources = [("Machine", "b", &bad), ("Machine", "a", &good), ("Machine", "c", &silent)];
        let found = aggregate(sources, "MachinesReady").unwrap();
        assert_eq!((found.kind.as_str(), found.reason.as_str()), ("MachinesReady", "Odd @ Machine/b"));
        assert_eq!(aggregate([("Machine", "c", &silent)], "MachinesReady"), None);
    }

    #[test]
    fn the_time_moves_with_what_is_said() {
        let mut all = conditions(&[OldCondition::bad("A", Severity::Info, "Waiting", "one")]);
        all.set(OldCondition::bad("A", Severity::Info, "Waiting", "one"), at(5));
        assert_eq!(all.get("A").unwrap().since, Some(at(1)));
        all.set(OldCondition::bad("A", Severity::Info, "Waiting", "two"), at(5));
        assert_eq!(all.get("A").unwrap().since, Some(at(5)));
        all.set(OldCondition::good("Ready"), at(6));
        assert_eq!(all.as_slice()[0].kind, "Ready");
    }

    #[test]
    fn a_mirror_without_a_source_falls_back() {
        let fallback = OldCondition::bad("x", Severity::Info, "WaitingForMachineSet", "");
        let found = mirror(&OldConditions::default(), "MachineSetReady", fallback);
        assert_eq!((found.kind.as_str(), found.reason.as_str()), ("MachineSetReady", "WaitingForMachineSet"));
    }
}
