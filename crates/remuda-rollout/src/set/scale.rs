//! How many machines to create or delete.

use std::{fmt, time::Duration};

use jiff::Timestamp;

use super::{
    order::{DeletionOrder, victims},
    preflight::Failure,
};
use crate::view::{Counts, Machine};

/// What to do about the number of machines.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    /// There are as many as there should be.
    Settled,
    Create {
        count: usize,
    },
    /// Machines are missing but none may be made.
    Hold {
        missing: usize,
        why: Hold,
    },
    /// These go. Machines already in deletion are counted but not named.
    Delete {
        names: Vec<String>,
    },
    /// There are too many, but as many as that are going already.
    Leaving {
        count: usize,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Hold {
    /// The `disable-machine-create` annotation.
    Disabled,
    Preflight(Vec<Failure>),
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scale::Settled => f.write_str("settled"),
            Scale::Create { count } => write!(f, "create {count}"),
            Scale::Hold { missing, why: Hold::Disabled } => {
                write!(f, "hold: {missing} missing, automatic creation of new machines is disabled")
            }
            Scale::Hold { missing, why: Hold::Preflight(failures) } => {
                let told: Vec<_> = failures.iter().map(ToString::to_string).collect();
                write!(f, "hold: {missing} missing, {}", told.join("; "))
            }
            Scale::Delete { names } => write!(f, "delete {}", names.join(", ")),
            Scale::Leaving { count } => write!(f, "{count} too many, already in deletion"),
        }
    }
}

/// Decides how many machines come or go.
///
/// A machine in deletion counts until it is gone: its replacement waits for that. `failures` are of the
/// preflight checks, which matter only when machines are made.
pub fn scale(
    machines: &[Machine],
    replicas: i32,
    creation_disabled: bool,
    failures: &[Failure],
    order: DeletionOrder,
    now: Timestamp,
) -> Scale {
    let wanted = usize::try_from(replicas).unwrap_or(0);
    // Machines that moved here in place are not ours to count until the deployment knows.
    let counted: Vec<&Machine> = machines.iter().filter(|machine| !machine.marks.moving).collect();
    if machines.len() < wanted {
        let missing = wanted - machines.len();
        if creation_disabled {
            return Scale::Hold { missing, why: Hold::Disabled };
        }
        if !failures.is_empty() {
            return Scale::Hold { missing, why: Hold::Preflight(failures.to_vec()) };
        }
        return Scale::Create { count: missing };
    }
    if counted.len() <= wanted {
        return Scale::Settled;
    }
    let surplus = counted.len() - wanted;
    let names: Vec<String> = victims(counted, surplus, order, now)
        .into_iter()
        .filter(|machine| machine.deleted.is_none())
        .map(|machine| machine.name.clone())
        .collect();
    if names.is_empty() { Scale::Leaving { count: surplus } } else { Scale::Delete { names } }
}

/// When the counters are worth another look although nothing is known to change.
pub fn requeue_after(replicas: i32, counts: Counts, min_ready_seconds: u32) -> Option<Duration> {
    let (ready, available) = (counts.ready.unwrap_or(0), counts.available.unwrap_or(0));
    match () {
        () if ready != replicas => Some(Duration::from_secs(15)),
        () if min_ready_seconds > 0 && available != replicas => {
            Some(Duration::from_secs(min_ready_seconds.into()))
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, machine};
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

    fn some(names: &str) -> Vec<Machine> {
        let make = |word: &str| {
            let mut machine = machine(word.trim_end_matches(['-', '>']));
            machine.deleted = word.ends_with('-').then(|| at(1));
            machine.marks.moving = word.ends_with('>');
            machine
        };
        names.split_whitespace().map(make).collect()
    }

    /// A name with `-` is in deletion, with `>` has just moved here.
    #[track_caller]
    fn check(replicas: i32, names: &str, expected: &str) {
        let found = scale(&some(names), replicas, false, &[], DeletionOrder::Random, at(100));
        assert_eq!(found.to_string(), expected);
    }

    #[test]
    fn missing_machines_are_made() {
        check(3, "a", "create 2");
        check(3, "a b c", "settled");
        check(0, "", "settled");
        check(-1, "", "settled");
    }

    #[test]
    fn a_machine_in_deletion_counts_until_it_is_gone() {
        check(3, "a b c-", "settled");
        check(2, "a b c-", "1 too many, already in deletion");
        check(1, "a b c-", "delete a");
    }

    #[test]
    fn a_machine_that_moved_here_is_not_counted_against_the_set() {
        check(1, "a b>", "settled");
        check(0, "a b>", "delete a");
    }

    #[test]
    fn a_disabled_set_makes_nothing_but_deletes() {
        let told = |replicas, names| {
            scale(&some(names), replicas, true, &[], DeletionOrder::Random, at(1)).to_string()
        };
        assert_eq!(told(2, "a"), "hold: 1 missing, automatic creation of new machines is disabled");
        assert_eq!(told(0, "a"), "delete a");
    }

    #[test]
    fn unready_machines_are_looked_at_again() {
        let counts =
            |ready, available| Counts { ready: Some(ready), available: Some(available), ..Counts::default() };
        assert_eq!(requeue_after(3, counts(2, 2), 0), Some(Duration::from_secs(15)));
        assert_eq!(requeue_after(3, counts(3, 2), 30), Some(Duration::from_secs(30)));
        assert_eq!(requeue_after(3, counts(3, 3), 30), None);
        assert_eq!(requeue_after(3, counts(3, 2), 0), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn doing_what_it_says_leaves_nothing_to_do(
            replicas in 0..8i32,
            given in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..1000i64), 0..8),
        ) {
            let mut machines: Vec<Machine> = given.iter().enumerate().map(|(place, (deleting, node, made))| Machine {
                deleted: deleting.then(|| at(1)),
                node: node.then(|| "n".into()),
                created: at(*made),
                ..machine(&place.to_string())
            }).collect();
            let decide = |machines: &[Machine]| scale(machines, replicas, false, &[], DeletionOrder::Oldest, at(2000));
            let mut next = 100;
            for _ in 0..3 {
                match decide(&machines) {
                    Scale::Create { count } => {
                        for _ in 0..count {
                            next += 1;
                            machines.push(machine(&next.to_string()));
                        }
                    }
                    Scale::Delete { names } => {
                        let alive = machines.iter().filter(|machine| machine.deleted.is_none()).count();
                        prop_assert!(alive - names.len() >= (replicas as usize).min(alive), "never below what is wanted");
                        for machine in machines.iter_mut().filter(|machine| names.contains(&machine.name)) {
                            machine.deleted = Some(at(2000));
                        }
                    }
                    other => prop_assert!(!matches!(other, Scale::Hold { .. }), "{}", other),
                }
                let again = decide(&machines);
                prop_assert!(matches!(again, Scale::Settled | Scale::Leaving { .. }), "{again}");
                machines.retain(|machine| machine.deleted.is_none());
            }
            prop_assert_eq!(machines.len(), replicas as usize);
        }
    }
}
