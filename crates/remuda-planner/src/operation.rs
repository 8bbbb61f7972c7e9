//! Operations: what is done to a cluster once, when it is asked for.
//!
//! An operation gives machines plans of its own, one phase after the other, and keeps the phase in the status of the
//! control plane: a pass begins where the last one left off, whoever makes it. Plans of the tiers come back when it
//! is done.

pub(crate) mod certificates;
pub(crate) mod encryption;
pub(crate) mod hibernation;
pub(crate) mod renewal;
pub(crate) mod restore;
pub(crate) mod snapshot;

use crate::{
    desired::{Desired, Renderer},
    entry::Entry,
    output::{Delivery, Errand, Failure, Progress, Waiting, Write},
    planner::{Pass, Stop},
};

/// How often an agent tries a plan, and from how many failures on it has failed. `None` is without end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) max_failures: Option<i64>,
    pub(crate) failure_threshold: Option<i64>,
}

impl Limits {
    pub(crate) fn of(times: i64) -> Limits {
        Limits { max_failures: Some(times), failure_threshold: Some(times) }
    }

    pub(crate) const ENDLESS: Limits = Limits { max_failures: None, failure_threshold: None };
}

/// How far a machine is with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assigned {
    Under(Progress),
    Failed,
    Done,
}

/// Gives a machine a plan, unless it has it, and says how far it is.
pub(crate) fn assign(
    writes: &mut Vec<Write>,
    entry: &Entry<'_>,
    desired: &Desired,
    limits: Limits,
) -> Assigned {
    entry.note_wanted(&desired.bytes);
    let Some(node) = entry.node.as_ref().filter(|node| {
        node.plan_bytes == desired.bytes || node.plan().is_some_and(|plan| *plan == desired.plan)
    }) else {
        let joined_to = if entry.init { Some(String::new()) } else { desired.joined_to.clone() };
        let delivery = match entry.node {
            Some(_) => Delivery::Changed { restarts: false },
            None => Delivery::Initial,
        };
        writes.push(Write::Plan(crate::output::PlanWrite {
            machine: entry.name().to_owned(),
            secret: entry.secret.map_or_else(String::new, |secret| secret.name.clone()),
            delivery,
            plan: desired.bytes.clone(),
            joined_to,
            max_failures: limits.max_failures,
            failure_threshold: limits.failure_threshold,
        }));
        return Assigned::Under(Progress::Starting);
    };
    if node.failed {
        Assigned::Failed
    } else if !node.in_sync {
        Assigned::Under(Progress::Applying)
    } else if !node.healthy() {
        Assigned::Under(Progress::Probing)
    } else {
        Assigned::Done
    }
}

/// The same, for a plan everything else waits for.
pub(crate) fn assign_and_check(
    writes: &mut Vec<Write>,
    entry: &Entry<'_>,
    desired: &Desired,
    limits: Limits,
    errand: Errand,
) -> Result<(), Stop> {
    match assign(writes, entry, desired, limits) {
        Assigned::Under(progress) => Err(Waiting::Errand { errands: vec![errand], progress }.into()),
        Assigned::Failed => Err(Failure::Errand { errand }.into()),
        Assigned::Done => Ok(()),
    }
}

/// Renders plans of the cluster of a pass.
pub(crate) fn renderer<'a>(pass: &Pass<'a>) -> Renderer<'a> {
    Renderer::new(pass.input, pass.tokens, pass.status.control_plane_initialized())
}
