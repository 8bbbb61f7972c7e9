//! Which set is current and which are old.

use std::fmt;

use jiff::Timestamp;

use super::{Deployment, Set};
use crate::{template::Difference, text};

/// The sets of a deployment, sorted out.
#[derive(Debug, Clone, PartialEq)]
pub struct Found<'a> {
    /// The set to grow, or why there is none.
    pub current: Result<&'a Set, CreateReason>,
    /// All others, in no particular order.
    pub old: Vec<&'a Set>,
}

/// Why a new set is needed.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateReason {
    None,
    /// No set has the wanted template.
    Differ(Vec<(String, Vec<Difference>)>),
    /// A set has it, but is older than the wished rollout.
    RolloutAfter(Timestamp),
}

impl fmt::Display for CreateReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateReason::None => f.write_str("no MachineSets exist for the MachineDeployment"),
            CreateReason::Differ(sets) => {
                f.write_str("couldn't find MachineSet matching MachineDeployment spec template: ")?;
                let told = sets.iter().map(|(name, differences)| {
                    let why: Vec<_> = differences.iter().map(ToString::to_string).collect();
                    format!("MachineSet {name} needs rollout: {}", why.join(", "))
                });
                f.write_str(&told.collect::<Vec<_>>().join("; "))
            }
            CreateReason::RolloutAfter(after) => write!(
                f,
                "spec.rollout.after on MachineDeployment set to {}, no MachineSet has been created afterwards",
                text::time(*after)
            ),
        }
    }
}

/// Finds the current set: the largest with the wanted template, then the oldest, then by name.
///
/// Once `rollout_after` has passed, only sets made since count: setting it to now replaces every machine.
pub fn find<'a>(deployment: &Deployment, sets: &'a [Set], now: Timestamp) -> Found<'a> {
    if sets.is_empty() {
        return Found { current: Err(CreateReason::None), old: Vec::new() };
    }
    let mut order: Vec<&Set> = sets.iter().collect();
    order.sort_by(|a, b| {
        b.replicas.cmp(&a.replicas).then_with(|| (a.created, &a.name).cmp(&(b.created, &b.name)))
    });
    let due = deployment.rollout_after.filter(|after| *after <= now);
    let mut current = None;
    let mut matching = false;
    let mut old = Vec::new();
    let mut differing = Vec::new();
    for set in order {
        let mut differences = set.template.differences(&deployment.template);
        let stale = due.is_some_and(|after| set.created < after);
        if differences.is_empty() {
            matching = true;
            if current.is_none() && !stale {
                current = Some(set);
                continue;
            }
        } else {
            if stale {
                differences.push(Difference::RolloutAfterExpired);
            }
            differing.push((set.name.clone(), differences));
        }
        old.push(set);
    }
    let current = match (current, matching, due) {
        (Some(set), ..) => Ok(set),
        (None, true, Some(after)) => Err(CreateReason::RolloutAfter(after)),
        _ => Err(CreateReason::Differ(differing)),
    };
    Found { current, old }
}
