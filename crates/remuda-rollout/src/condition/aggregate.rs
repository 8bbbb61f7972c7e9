//! One condition out of the same condition of many objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::{
    Condition, Conditions, NOT_YET_REPORTED, Status,
    merge::{Class, Owner, Reasons, class_of, continued, status_of},
};
use crate::text;

/// At most this many messages are shown, and this many names with each.
const SHOWN: usize = 3;

/// An object that contributes.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    pub owner: Owner,
    pub conditions: &'a Conditions,
}

/// How to aggregate condition `kind` of every source into `target`.
#[derive(Debug, Clone, Copy)]
pub struct Aggregate<'a> {
    pub kind: &'a str,
    pub target: &'a str,
    /// True is the bad status, of the sources and of the result.
    pub negative: bool,
    pub reasons: Reasons,
}

/// The aggregate, or nothing without sources.
pub fn aggregate(sources: &[Source<'_>], how: Aggregate<'_>) -> Option<Condition> {
    let missing = Condition::new(
        how.kind,
        Status::Unknown,
        NOT_YET_REPORTED,
        format!("Condition {} not yet reported", how.kind),
    );
    let negative: &[&str] = if how.negative { &[how.kind] } else { &[] };
    let mut inputs: Vec<Input<'_>> = sources
        .iter()
        .map(|source| {
            let condition = source.conditions.get(how.kind).unwrap_or(&missing);
            Input { owner: &source.owner, condition, class: class_of(condition, negative) }
        })
        .collect();
    // A condition nobody set yet has no time; it sorts before all others, as the zero time does.
    inputs.sort_by_key(|input| input.condition.since.unwrap_or(Timestamp::MIN));
    let worst = inputs.iter().map(|input| input.class).min()?;
    if worst == Class::Info {
        inputs.retain(|input| !input.condition.message.is_empty());
    } else {
        inputs.retain(|input| input.class != Class::Info);
        inputs.sort_by_key(|input| input.class);
    }
    let status = status_of(worst, !how.negative);
    Some(Condition::new(how.target, status, how.reasons.of(worst), messages(&inputs).join("\n")))
}

struct Input<'a> {
    owner: &'a Owner,
    condition: &'a Condition,
    class: Class,
}

/// The most telling messages of each kind, then how many objects had others.
fn messages(inputs: &[Input<'_>]) -> Vec<String> {
    let mut by_kind: BTreeMap<&str, HashMap<&str, Vec<&str>>> = BTreeMap::new();
    let mut class: HashMap<&str, Class> = HashMap::new();
    let mut of_control_plane: BTreeSet<&str> = BTreeSet::new();
    let mut control_planes: BTreeSet<&str> = BTreeSet::new();
    for Input { owner, condition, class: own } in inputs {
        let message = condition.message.as_str();
        by_kind.entry(&owner.kind).or_default().entry(message).or_default().push(&owner.name);
        class.entry(message).and_modify(|known| *known = (*known).min(*own)).or_insert(*own);
        if owner.control_plane {
            of_control_plane.insert(message);
            control_planes.insert(&owner.name);
        }
    }
    let mut lines = Vec::new();
    let mut left = SHOWN;
    for (kind, reporters) in by_kind {
        let mut order: Vec<(&str, Vec<&str>)> = reporters.into_iter().collect();
        order.sort_by_cached_key(|(message, names)| {
            let first = !of_control_plane.contains(message);
            (first, class[message], usize::MAX - names.len(), names.join(","))
        });
        let mut others: BTreeMap<Class, usize> = BTreeMap::new();
        for (message, mut names) in order {
            if left == 0 {
                *others.entry(class[message]).or_default() += names.len();
                continue;
            }
            left -= 1;
            names.sort_by_key(|name| (!control_planes.contains(name), *name));
            let noun = if names.len() == 1 { kind.to_owned() } else { text::plural(kind) };
            lines.push(format!("* {noun} {}:{}", text::list(&names, SHOWN), continued(message)));
        }
        for (class, count) in others {
            let noun = if count == 1 { kind.to_owned() } else { text::plural(kind) };
            let what = match class {
                Class::Issue => "with other issues",
                Class::Unknown => "with status unknown",
                Class::Info => "with additional info",
            };
            lines.push(format!("And {count} {noun} {what}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::conditions;

    /// `given` is one object per line: `kind/name[!] Status message`; `!` marks the control plane.
    #[track_caller]
    fn check(negative: bool, given: &str, expected: &str) {
        let objects: Vec<(Owner, Conditions)> = given
            .lines()
            .map(|line| {
                let mut words = line.trim().splitn(3, ' ');
                let (kind, name) = words.next().unwrap().split_once('/').unwrap();
                let owner = Owner {
                    kind: kind.to_owned(),
                    name: name.trim_end_matches('!').to_owned(),
                    control_plane: name.ends_with('!'),
                };
                let status = words.next().unwrap();
                let message = words.next().unwrap_or("");
                let own = if status == "-" { String::new() } else { format!("Ready {status} R {message}") };
                (owner, conditions(&own))
            })
            .collect();
        let sources: Vec<_> =
            objects.iter().map(|(owner, conditions)| Source { owner: owner.clone(), conditions }).collect();
        let how = Aggregate { kind: "Ready", target: "MachinesReady", negative, reasons: Reasons::default() };
        let found = aggregate(&sources, how).unwrap();
        let text = format!("{} {}\n{}", found.status, found.reason, found.message);
        let expected: Vec<_> = expected.lines().map(str::trim_start).collect();
        assert_eq!(text.trim_end().lines().map(str::trim_start).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn objects_that_agree_say_nothing() {
        check(false, "Machine/a True\nMachine/b True", "True InfoReported");
    }

    #[test]
    fn equal_messages_share_a_line() {
        check(
            false,
            "Machine/b False broken\nMachine/a False broken\nMachine/c False odd\nMachine/d True fine",
            "False IssuesReported
             * Machines a, b: broken
             * Machine c: odd",
        );
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        check(
            false,
            "Machine/a False x\nMachine/b False x\nMachine/c False x\nMachine/d False x\nMachine/e False x",
            "False IssuesReported
             * Machines a, b, c, ... (2 more): x",
        );
    }

    #[test]
    fn three_messages_are_shown_and_the_rest_counted() {
        check(
            false,
            "Machine/a False 1\nMachine/b False 2\nMachine/c False 3\nMachine/d False 4\nMachine/e False 5
             Machine/f Unknown 6\nMachine/g True 7",
            "False IssuesReported
             * Machine a: 1
             * Machine b: 2
             * Machine c: 3
             And 2 Machines with other issues
             And 1 Machine with status unknown",
        );
    }

    #[test]
    fn the_control_plane_goes_first() {
        check(
            false,
            "Machine/a False worker\nMachine/b False worker\nMachine/z! Unknown lost",
            "False IssuesReported
             * Machine z: lost
             * Machines a, b: worker",
        );
    }

    #[test]
    fn kinds_are_kept_apart_in_alphabetical_order() {
        check(
            false,
            "MachinePool/p False x\nMachineDeployment/d False x",
            "False IssuesReported
             * MachineDeployment d: x
             * MachinePool p: x",
        );
    }

    #[test]
    fn a_silent_object_is_unknown() {
        check(
            false,
            "Machine/a True\nMachine/b -",
            "Unknown UnknownReported
             * Machine b: Condition Ready not yet reported",
        );
    }

    #[test]
    fn true_is_the_bad_status_of_negative_conditions() {
        check(true, "Machine/a False\nMachine/b True busy", "True IssuesReported\n* Machine b: busy");
        check(true, "Machine/a False", "False InfoReported");
    }

    #[test]
    fn bullets_of_members_are_indented() {
        check(
            false,
            "Machine/a False * X: y",
            "False IssuesReported
             * Machine a:
             * X: y",
        );
    }
}
