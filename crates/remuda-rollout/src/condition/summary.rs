//! One condition out of several of the same object.

use super::{
    Condition, Conditions, NOT_YET_REPORTED, Status,
    merge::{Class, Reasons, continued, status_of},
};

/// How to summarize. The order of `kinds` is the order of lines in the message.
pub struct Summary<'a> {
    pub target: &'a str,
    pub kinds: &'a [&'a str],
    /// Of `kinds`, those that need not be there.
    pub optional: &'a [&'a str],
    /// Stand in for conditions of their type, if the object has one.
    pub overrides: &'a [Condition],
    pub class: &'a dyn Fn(&Condition) -> Class,
    pub reasons: Reasons,
    /// Last change to the lines before they are joined.
    pub rewrite: Option<fn(Vec<String>) -> Vec<String>>,
}

/// The summary, or nothing if there is nothing to summarize.
pub fn summarize(conditions: &Conditions, how: &Summary<'_>) -> Option<Condition> {
    let mut inputs: Vec<Condition> = Vec::with_capacity(how.kinds.len());
    for (place, kind) in how.kinds.iter().enumerate() {
        if how.kinds[..place].contains(kind) {
            continue;
        }
        match conditions.get(kind) {
            Some(own) => {
                let stand_in = how.overrides.iter().find(|condition| condition.kind == *kind);
                inputs.push(stand_in.unwrap_or(own).clone());
            }
            None if how.optional.contains(kind) => {}
            None => inputs.push(Condition::new(
                kind,
                Status::Unknown,
                NOT_YET_REPORTED,
                "Condition not yet reported",
            )),
        }
    }
    let worst = inputs.iter().map(how.class).min()?;
    let status = status_of(worst, true);
    let mut lines = Vec::new();
    for input in &inputs {
        let info = (how.class)(input) == Class::Info;
        if info && (status != Status::True || input.message.is_empty()) {
            continue;
        }
        let text =
            if input.message.is_empty() { format!(" {}", input.reason) } else { continued(&input.message) };
        lines.push(format!("* {}:{text}", input.kind));
    }
    if let Some(rewrite) = how.rewrite {
        lines = rewrite(lines);
    }
    Some(Condition::new(how.target, status, how.reasons.of(worst), lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::class_of;
    use crate::view::testing::conditions;

    /// `given` is one condition per line: `Type Status Reason message`.
    #[track_caller]
    fn check(given: &str, expected: &str) {
        let how = Summary {
            target: "Ready",
            kinds: &["B", "!C", "A", "Maybe"],
            optional: &["Maybe"],
            overrides: &[],
            class: &|condition| class_of(condition, &["!C"]),
            reasons: Reasons::default(),
            rewrite: None,
        };
        let found = summarize(&conditions(given), &how).unwrap();
        let text = format!("{} {}\n{}", found.status, found.reason, found.message);
        let expected: Vec<_> = expected.lines().map(|line| line.trim_start_matches(' ')).collect();
        let text: Vec<_> = text.lines().map(|line| line.trim_start_matches(' ')).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn all_well_is_true_without_a_message() {
        check("A True Fine\nB True Fine\n!C False Fine", "True InfoReported");
    }

    #[test]
    fn information_shows_only_when_all_is_well() {
        check("A True Fine good\nB True Fine\n!C False Fine", "True InfoReported\n* A: good");
        check(
            "A True Fine good\nB False Broken\n!C False Fine",
            "False IssuesReported
             * B: Broken",
        );
    }

    #[test]
    fn issues_and_unknowns_show_in_the_order_asked_for() {
        check(
            "A Unknown Lost not seen\nB False Broken flat tyre\n!C True Bad on fire",
            "False IssuesReported
             * B: flat tyre
             * !C: on fire
             * A: not seen",
        );
    }

    #[test]
    fn what_is_missing_is_unknown() {
        check(
            "A True Fine\n!C False Fine",
            "Unknown UnknownReported
             * B: Condition not yet reported",
        );
    }
}
