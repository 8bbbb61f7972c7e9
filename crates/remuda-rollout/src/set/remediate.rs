//! Replacing machines that a health check has given up.

use std::fmt;

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use super::{ladder::Step, preflight::Failure};
use crate::{
    amount::Amount,
    condition::{Condition, Status},
    view::Machine,
};

/// How many may be replaced at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// No deployment, or no limit in it.
    Unlimited,
    /// `remediation.maxInFlight` of a deployment with that many replicas.
    Limited { max_in_flight: Amount, replicas: i32 },
    /// The set is not its deployment's current one: its machines go with the rollout.
    OldRevision,
}

/// What becomes of one machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// Set the condition, then delete.
    Delete,
    /// Keep it to look at, and have another one in its place.
    Preserve {
        until: Timestamp,
    },
    /// Have it restarted or rebooted, which has until then to help.
    Try {
        step: Step,
        until: Timestamp,
        /// It was asked for before.
        asked: bool,
    },
    Old,
    Deferred {
        max_in_flight: Amount,
    },
    Held(Vec<Failure>),
}

impl Fate {
    /// The OwnerRemediated condition that says so.
    pub fn condition(&self) -> Condition {
        let (reason, message) = match self {
            Fate::Delete => ("MachineDeleting", "Machine is deleting".to_owned()),
            Fate::Preserve { until } => (
                "MachinePreserved",
                format!("Machine was replaced and is kept until {}", crate::text::time(*until)),
            ),
            Fate::Try { step, until, .. } => (
                step.reason(),
                format!(
                    "Machine is replaced if {} has not helped by {}",
                    step.as_str(),
                    crate::text::time(*until)
                ),
            ),
            Fate::Old => (
                "CannotBeRemediated",
                "Machine won't be remediated because it is pending removal due to rollout".to_owned(),
            ),
            Fate::Deferred { max_in_flight } => (
                "RemediationDeferred",
                format!(
                    "Waiting because there are already too many remediations in progress \
                     (spec.strategy.remediation.maxInFlight is {max_in_flight})"
                ),
            ),
            Fate::Held(failures) => {
                let lines: Vec<_> = failures.iter().map(|failure| format!("* {failure}")).collect();
                ("RemediationDeferred", lines.join("\n"))
            }
        };
        Condition::new(kind::OWNER_REMEDIATED, Status::False, reason, message)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { reason, message, .. } = self.condition();
        write!(f, "{reason}: {message}")
    }
}

/// What to do about the machines of a set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remediation {
    /// Healthy again: these lose their OwnerRemediated condition.
    pub recovered: Vec<String>,
    /// In the order they are dealt with.
    pub fates: Vec<(String, Fate)>,
}

/// Decides which machines to replace. Machines in deletion for that reason use up the budget.
pub fn remediate(machines: &[Machine], budget: Budget, failures: &[Failure]) -> Remediation {
    let alive = || machines.iter().filter(|machine| machine.deleted.is_none());
    let recovered = alive()
        .filter(|machine| {
            machine.conditions.is_true(kind::HEALTH_CHECK_SUCCEEDED)
                && machine.conditions.is_false(kind::OWNER_REMEDIATED)
        })
        .map(|machine| machine.name.clone())
        .collect();
    let mut sick: Vec<&Machine> = alive().filter(|machine| machine.awaits_remediation()).collect();
    sick.sort_by(|a, b| {
        let key =
            |machine: &&Machine| (!machine.marks.remediate, std::cmp::Reverse::<Timestamp>(machine.created));
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    let in_flight = machines.iter().filter(|machine| is_being_replaced(machine)).count();
    let (allowed, refusal) = match budget {
        Budget::OldRevision => (0, Fate::Old),
        Budget::Unlimited => (usize::MAX, Fate::Delete),
        Budget::Limited { max_in_flight, replicas } => {
            let limit = usize::try_from(max_in_flight.of_up(replicas)).unwrap_or(0);
            (limit.saturating_sub(in_flight), Fate::Deferred { max_in_flight })
        }
    };
    let fate = |place: usize| match place {
        place if place >= allowed => refusal.clone(),
        _ if !failures.is_empty() => Fate::Held(failures.to_vec()),
        _ => Fate::Delete,
    };
    let fates =
        sick.into_iter().enumerate().map(|(place, machine)| (machine.name.clone(), fate(place))).collect();
    Remediation { recovered, fates }
}

fn is_being_replaced(machine: &Machine) -> bool {
    let condition = machine.conditions.get(kind::OWNER_REMEDIATED);
    machine.deleted.is_some()
        && condition.is_some_and(|condition| {
            condition.status == Status::False && condition.reason == "MachineDeleting"
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, conditions, flat, machine};

    /// One machine per line: `name made sick|well|recovered|replaced [asked]`.
    #[track_caller]
    fn check(budget: Budget, given: &str, expected: &str) {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let mut machine = machine(words[0]);
            machine.created = at(words[1].parse().unwrap());
            machine.conditions = conditions(match words[2] {
                "sick" => "HealthCheckSucceeded False X\nOwnerRemediated False WaitingForRemediation",
                "recovered" => "HealthCheckSucceeded True X\nOwnerRemediated False WaitingForRemediation",
                "replaced" => "HealthCheckSucceeded False X\nOwnerRemediated False MachineDeleting",
                _ => "HealthCheckSucceeded True X",
            });
            machine.deleted = (words[2] == "replaced").then(|| at(1));
            machine.marks.remediate = words.get(3) == Some(&"asked");
            machine
        };
        let machines: Vec<_> =
            given.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect();
        let found = remediate(&machines, budget, &[]);
        let mut text: String = found.recovered.iter().map(|name| format!("{name} recovered\n")).collect();
        for (name, fate) in &found.fates {
            text.push_str(&format!("{name} {}\n", fate.condition().reason));
        }
        assert_eq!(flat(&text), flat(expected));
    }

    const LIMIT: Budget = Budget::Limited { max_in_flight: Amount::Count(1), replicas: 3 };

    #[test]
    fn without_a_limit_all_sick_machines_go() {
        check(
            Budget::Unlimited,
            "a 1 sick
             b 2 well
             c 3 sick
             d 4 recovered",
            "d recovered
             c MachineDeleting
             a MachineDeleting",
        );
    }

    #[test]
    fn the_newest_goes_first_unless_somebody_asks() {
        check(
            LIMIT,
            "a 1 sick asked
             b 9 sick",
            "a MachineDeleting
             b RemediationDeferred",
        );
        check(LIMIT, "a 1 sick\nb 9 sick", "b MachineDeleting\na RemediationDeferred");
        check(LIMIT, "b 9 sick\na 9 sick", "a MachineDeleting\nb RemediationDeferred");
    }

    #[test]
    fn a_replacement_under_way_uses_up_the_budget() {
        check(LIMIT, "a 1 replaced\nb 2 sick", "b RemediationDeferred");
    }

    #[test]
    fn shares_of_the_budget_round_up() {
        let share = Budget::Limited { max_in_flight: Amount::Percent(20), replicas: 3 };
        check(share, "a 1 sick\nb 2 sick", "b MachineDeleting\na RemediationDeferred");
    }

    #[test]
    fn machines_of_an_old_revision_are_left_to_the_rollout() {
        check(Budget::OldRevision, "a 1 sick", "a CannotBeRemediated");
    }

    #[test]
    fn the_message_names_the_limit() {
        let told = Fate::Deferred { max_in_flight: Amount::Percent(20) }.condition().message;
        let expected = "Waiting because there are already too many remediations in progress \
                        (spec.strategy.remediation.maxInFlight is 20%)";
        assert_eq!(told, expected);
    }
}
