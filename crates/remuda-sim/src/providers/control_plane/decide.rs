//! Which Machine comes or goes next.

use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::core::Machine;
use remuda_control::write::conditions;
use remuda_names::capi::{annotation, condition};

use crate::kinds::SimControlPlane;

/// A Machine of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Have {
    pub(super) name: String,
    pub(super) created: Timestamp,
    pub(super) deleting: bool,
    /// As the control plane's spec asks.
    pub(super) up_to_date: bool,
    /// It has a Node.
    pub(super) joined: bool,
    /// A health check wants it replaced.
    pub(super) unhealthy: bool,
}

impl Have {
    pub(super) fn of(machine: &Machine, object: &SimControlPlane) -> Self {
        let status = machine.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let is_false =
            |kind: &str| conditions::get(conditions, kind).is_some_and(|known| known.status == "False");
        let template = &object.spec.machine_template.spec.infrastructure_ref.name;
        // The SimMachine has the same annotation; the Machine repeats it so that one look is enough.
        let made_from = machine.annotations().get(annotation::CLONED_FROM_NAME);
        Self {
            name: machine.name_any(),
            created: machine.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: machine.metadata.deletion_timestamp.is_some(),
            up_to_date: machine.spec.version == object.spec.version
                && made_from.is_none_or(|made_from| made_from == template),
            joined: status.is_some_and(|status| !status.node_ref.name.is_empty()),
            unhealthy: is_false(condition::HEALTH_CHECK_SUCCEEDED) && is_false(condition::OWNER_REMEDIATED),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Rest,
    /// A Machine of this number.
    Create(usize),
    Delete(String),
}

/// The number at the end of a name that [`name`] made.
fn ordinal(have: &Have) -> usize {
    have.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

/// Names are numbered, so that a Machine made twice collides with itself.
pub(super) fn name(control_plane: &str, ordinal: usize) -> String {
    format!("{control_plane}-{ordinal}")
}

/// The next change, given that all earlier ones are done. Old Machines go one by one, after a new one has come.
pub(super) fn next_step(wanted: usize, initialized: bool, have: &[Have]) -> Step {
    let create = || Step::Create(1 + have.iter().map(ordinal).max().unwrap_or(0));
    let delete = |have: &Have| Step::Delete(have.name.clone());
    if have.iter().any(|machine| machine.deleting) {
        return Step::Rest;
    }
    if have.is_empty() {
        return if wanted > 0 { create() } else { Step::Rest };
    }
    let mut by_age: Vec<&Have> = have.iter().collect();
    by_age.sort_by_key(|machine| (machine.created, ordinal(machine)));
    // The only one is not replaced: with it the cluster would go.
    if let Some(sick) = by_age.iter().find(|machine| machine.unhealthy)
        && have.len() > 1
    {
        return delete(sick);
    }
    if !initialized || have.iter().any(|machine| !machine.joined) {
        return Step::Rest;
    }
    let outdated = by_age.iter().find(|machine| !machine.up_to_date);
    match (outdated, have.len()) {
        (Some(oldest), count) if count > wanted => delete(oldest),
        (Some(_), _) => create(),
        (None, count) if count < wanted => create(),
        (None, count) if count > wanted => delete(by_age[0]),
        (None, _) => Step::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One Machine per word: a number, then `d` deleting, `o` outdated, `n` not joined, `u` unhealthy.
    #[track_caller]
    fn check(wanted: usize, initialized: bool, machines: &str, expected: &str) {
        let have: Vec<Have> = machines
            .split_whitespace()
            .map(|word| {
                let number: usize = word.trim_end_matches(char::is_alphabetic).parse().unwrap();
                Have {
                    name: name("cp", number),
                    created: Timestamp::UNIX_EPOCH,
                    deleting: word.contains('d'),
                    up_to_date: !word.contains('o'),
                    joined: !word.contains('n'),
                    unhealthy: word.contains('u'),
                }
            })
            .collect();
        let step = match next_step(wanted, initialized, &have) {
            Step::Rest => "rest".to_owned(),
            Step::Create(ordinal) => format!("create {ordinal}"),
            Step::Delete(name) => format!("delete {name}"),
        };
        assert_eq!(step, expected, "{machines}");
    }

    #[test]
    fn the_first_machine_comes_alone() {
        check(3, false, "", "create 1");
        check(3, false, "1n", "rest");
        check(3, false, "1", "rest");
        check(3, true, "1", "create 2");
        check(3, true, "1 2n", "rest");
        check(3, true, "1 2", "create 3");
        check(3, true, "1 2 3", "rest");
        check(0, true, "", "rest");
    }

    #[test]
    fn the_oldest_goes_first_and_alone() {
        check(1, true, "1 2 3", "delete cp-1");
        check(1, true, "1d 2 3", "rest");
        check(1, true, "2 3", "delete cp-2");
    }

    #[test]
    fn a_new_machine_comes_before_an_old_one_goes() {
        check(3, true, "1o 2o 3o", "create 4");
        check(3, true, "1o 2o 3o 4n", "rest");
        check(3, true, "1o 2o 3o 4", "delete cp-1");
        check(3, true, "2o 3o 4", "create 5");
        check(1, true, "1o", "create 2");
        check(1, true, "1o 2", "delete cp-1");
        check(1, true, "2", "rest");
    }

    #[test]
    fn a_sick_machine_is_replaced_unless_it_is_the_only_one() {
        check(3, true, "1 2u 3", "delete cp-2");
        check(3, true, "1 2un 3", "delete cp-2");
        check(1, true, "1u", "rest");
    }
}
