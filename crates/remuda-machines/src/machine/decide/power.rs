//! Whether the server of a machine runs: as its Machine says, which follows what its cluster is asked for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use remuda_names::{machines::condition::POWERED, power};

use super::{Act, Decision};
use crate::{
    condition::{self, Is},
    job::class_of,
    machine::view::{Observed, Outcome, Status},
};

/// What failed is tried again after this long, for as long as it is asked for.
const AGAIN: Duration = Duration::from_secs(60);
/// What is noted of a server that may be stopped or not.
const UNKNOWN: &str = "unknown";
/// Why it failed.
const FAILED: &str = "Failed";

/// Whether the server is to be started (`true`) or stopped. A Cluster that is paused is no reason to leave it: stopping
/// a cluster pauses it. A server of which nothing was ever said runs.
pub(super) fn asked(observed: &Observed) -> Option<bool> {
    let capi = observed.capi.as_ref().filter(|capi| !capi.deleting && !observed.deleting)?;
    let asked = capi.power.as_deref()?;
    let is = observed.powered.as_deref().unwrap_or(power::RUNNING);
    if observed.paused || observed.provider_id.is_empty() || asked == is {
        return None;
    }
    match asked {
        power::RUNNING => Some(true),
        power::STOPPED => Some(false),
        _ => None,
    }
}

/// Follows the Job: that it was done is recorded before the Job goes, and one that failed is made again.
pub(super) fn follow(
    observed: &Observed,
    asked: &str,
    outcome: &Outcome,
    mut status: Status,
    now: Timestamp,
) -> Decision {
    let is_noted = observed.powered.as_deref() == Some(asked);
    match outcome {
        Outcome::Running => Decision::new(status, Act::Nothing),
        Outcome::Complete => {
            if condition::get(&status.conditions, POWERED).is_some() {
                condition::set(&mut status.conditions, POWERED, Is::True, "", "", now);
            }
            let act = if is_noted { Act::Prune } else { Act::NotePower { done: asked.to_owned() } };
            Decision::new(status, act)
        }
        Outcome::Failed { message, at } => {
            if observed.powered.as_deref() != Some(UNKNOWN) {
                // It may have come half way: whatever is asked for next is carried out.
                return Decision::new(status, Act::NotePower { done: UNKNOWN.to_owned() });
            }
            let verb = if asked == power::STOPPED { "stopped" } else { "started" };
            let message = format!("the server could not be {verb}: {}", class_of(message).1);
            condition::set(&mut status.conditions, POWERED, Is::False, FAILED, &message, now);
            let passed = now.duration_since(at.unwrap_or(now)).max(SignedDuration::ZERO);
            let passed = Duration::try_from(passed).unwrap_or_default();
            if passed < AGAIN {
                return Decision::new(status, Act::Nothing).after(AGAIN - passed);
            }
            Decision::new(status, Act::Prune)
        }
    }
}
