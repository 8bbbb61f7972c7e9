//! MachineDeployment: which MachineSet is current and how many replicas each set gets.
//!
//! [`plan`] is complete: the shell writes what it says, in its order, and makes no choice of its own.

mod complete;
mod find;
mod metadata;
mod on_delete;
mod revision;
mod rolling;
mod scale;
mod status;

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;

pub use complete::{Leftover, clean_up, is_complete};
pub use find::{CreateReason, Found, find};
pub use metadata::{set_annotations, set_labels, set_selector, set_suffix, template_hash, template_labels};
pub use status::{Input as StatusInput, Phase, Status, status};

use crate::{
    amount::{Amount, Fenceposts},
    template::Template,
    view::Counts,
};

/// How machines are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Gradually, within limits.
    Rolling { max_surge: Amount, max_unavailable: Amount },
    /// Only when somebody deletes the old ones.
    OnDelete,
}

/// What a MachineDeployment asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    pub replicas: i32,
    pub strategy: Strategy,
    /// `spec.paused`: nothing is rolled out, scaling goes on.
    pub paused: bool,
    pub rollout_after: Option<Timestamp>,
    pub template: Template,
    /// Both referenced templates exist.
    pub templates_exist: bool,
}

impl Deployment {
    /// Limits of a rolling update; replacing on deletion has none to give.
    pub fn fenceposts(&self) -> Fenceposts {
        match self.strategy {
            Strategy::Rolling { max_surge, max_unavailable } => {
                Fenceposts::resolve(max_surge, max_unavailable, self.replicas)
            }
            Strategy::OnDelete => Fenceposts { surge: 0, unavailable: 0 },
        }
    }

    fn is_rolling(&self) -> bool {
        matches!(self.strategy, Strategy::Rolling { .. })
    }

    /// What the `max-replicas` annotation of its sets says.
    pub fn max_replicas(&self) -> i32 {
        self.replicas.saturating_add(self.fenceposts().surge)
    }
}

/// A MachineSet of the deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    pub name: String,
    pub created: Timestamp,
    pub deleting: bool,
    /// Its controller has seen its latest spec.
    pub observed: bool,
    /// `spec.replicas`
    pub replicas: i32,
    pub counts: Counts,
    pub template: Template,
    pub annotations: Numbers,
}

/// What a deployment noted on a set earlier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    pub revision: Option<String>,
    pub revision_history: Option<String>,
    pub desired_replicas: Option<i32>,
    pub max_replicas: Option<i32>,
}

impl Set {
    fn actual(&self) -> i32 {
        self.counts.replicas.unwrap_or(0)
    }

    fn available(&self) -> i32 {
        self.counts.available.unwrap_or(0)
    }

    fn is_negative(&self) -> bool {
        self.replicas < 0 || self.actual() < 0 || self.available() < 0
    }

    fn clamped(&self) -> Set {
        let least = |count: Option<i32>| count.map(|count| count.max(0));
        let (replicas, available) = (least(self.counts.replicas), least(self.counts.available));
        let counts = Counts { replicas, available, ..self.counts };
        Set { replicas: self.replicas.max(0), counts, ..self.clone() }
    }
}

/// What to write. The new set comes first, then the old ones, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// A set to create; its name and label need a fresh suffix. It starts with these replicas.
    pub create: Option<Create>,
    /// Every set that exists, current and old: metadata and in-place fields of all of them follow the deployment.
    pub sets: Vec<Desired>,
    /// What the deployment's own revision annotation says afterwards.
    pub revision: Option<String>,
    /// Why no set was made although one is needed.
    pub waiting: Option<Waiting>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Create {
    pub reason: CreateReason,
    pub replicas: i32,
    pub revision: String,
}

/// A set as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    pub name: String,
    pub current: bool,
    /// `spec.replicas` before, and after.
    pub from: i32,
    pub replicas: i32,
    pub revision: Option<String>,
    pub revision_history: Option<String>,
    /// The `disable-machine-create` annotation.
    pub disable_create: bool,
    /// Each once, in the order in which they came up.
    pub notes: Vec<Note>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    #[error("cannot create a MachineSet when templates do not exist")]
    Templates,
}

/// Why a set's replicas change, or why they do not although they should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// The current set has more than the deployment asks for.
    TooMany,
    /// There is room to grow. Replacing on deletion knows no surge.
    Room { machines: i32, replicas: i32, surge: Option<i32> },
    /// There is none.
    NoRoom { machines: i32, replicas: i32, surge: Option<i32> },
    /// More machines are available than have to be.
    Spare { available: i32, required: i32 },
    /// The set counted on machines that do not exist, or none of its machines is available.
    Unavailable,
    /// Nothing moves and nothing is planned, because of a machine that will not come up.
    Stuck,
    /// Somebody deleted machines of an old set.
    Deleted,
    /// The deployment is paused but its size changed.
    Proportional,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::TooMany => {
                f.write_str("scale down to align MachineSet spec.replicas to MachineDeployment spec.replicas")
            }
            Note::Room { machines, replicas, surge } => {
                write!(f, "{machines} current Machines < {replicas} MachineDeployment spec.replicas")?;
                surge.map_or(Ok(()), |surge| write!(f, " + {surge} maxSurge"))
            }
            Note::NoRoom { machines, replicas, surge } => {
                write!(f, "{machines} current Machines >= {replicas} MachineDeployment spec.replicas")?;
                surge.map_or(Ok(()), |surge| write!(f, " + {surge} maxSurge"))
            }
            Note::Spare { available, required } => {
                write!(f, "{available} available replicas > {required} minimum available replicas")
            }
            Note::Unavailable => f.write_str(
                "scale down to align to existing Machines or scale down by removing unavailable replicas \
                 (and no available replicas exist on the MachineSet)",
            ),
            Note::Stuck => {
                f.write_str("scaling down by 1 to unblock rollout stuck due to unavailable Machine on oldMS")
            }
            Note::Deleted => f.write_str("scale down to align to existing Machines"),
            Note::Proportional => f.write_str("scale in proportion while the rollout is paused"),
        }
    }
}

/// What will be asked of each set, while it is being worked out.
struct Draft<'a> {
    deployment: &'a Deployment,
    current: Option<&'a Set>,
    /// A set that does not exist yet, with no replicas, counts as current.
    creating: bool,
    /// Oldest first.
    old: Vec<&'a Set>,
    intents: BTreeMap<&'a str, i32>,
    notes: BTreeMap<&'a str, Vec<Note>>,
}

/// A sum that stays at the largest number instead of passing it.
fn total(numbers: impl Iterator<Item = i32>) -> i32 {
    numbers.fold(0, i32::saturating_add)
}

/// The key of a set to be created: no object has an empty name.
const NEW: &str = "";

impl<'a> Draft<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Set> {
        self.old.iter().copied().chain(self.current)
    }

    fn current_name(&self) -> &'a str {
        self.current.map_or(NEW, |set| set.name.as_str())
    }

    fn current_replicas(&self) -> i32 {
        self.current.map_or(0, |set| set.replicas)
    }

    /// Machines that exist or will, counting each set at its larger side.
    fn machines(&self) -> i32 {
        total(self.all().map(|set| set.replicas.max(set.actual())))
    }

    fn intend(&mut self, name: &'a str, replicas: i32, note: Note) {
        self.intents.insert(name, replicas);
        self.note(name, note);
    }

    fn note(&mut self, name: &'a str, note: Note) {
        let known = self.notes.entry(name).or_default();
        if !known.contains(&note) {
            known.push(note);
        }
    }

    fn intended(&self, set: &Set) -> i32 {
        self.intents.get(set.name.as_str()).copied().unwrap_or(set.replicas)
    }
}

/// Decides about every set of the deployment.
pub fn plan(deployment: &Deployment, sets: &[Set], now: Timestamp) -> Plan {
    // No schema forbids negative replicas; they mean none.
    if deployment.replicas < 0 || sets.iter().any(Set::is_negative) {
        let deployment = Deployment { replicas: deployment.replicas.max(0), ..deployment.clone() };
        return plan(&deployment, &sets.iter().map(Set::clamped).collect::<Vec<_>>(), now);
    }
    let found = find(deployment, sets, now);
    let mut old = found.old.clone();
    old.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let missing = found.current.is_err() && !deployment.paused;
    let mut draft = Draft {
        deployment,
        current: found.current.as_ref().ok().copied(),
        creating: missing && deployment.templates_exist,
        old,
        intents: BTreeMap::new(),
        notes: BTreeMap::new(),
    };
    let waiting = (missing && !deployment.templates_exist).then_some(Waiting::Templates);
    if deployment.paused {
        scale::scale(&mut draft);
    } else if draft.current.is_some() || draft.creating {
        match deployment.strategy {
            Strategy::Rolling { .. } => rolling::roll(&mut draft),
            Strategy::OnDelete => on_delete::roll(&mut draft),
        }
    }
    finish(draft, found.current.err(), waiting)
}

/// Turns intents into what is written.
fn finish(draft: Draft<'_>, reason: Option<CreateReason>, waiting: Option<Waiting>) -> Plan {
    let revisions = revision::next(draft.current, &draft.old);
    let mut sets = Vec::with_capacity(draft.old.len() + 1);
    for set in draft.current.into_iter().chain(draft.old.iter().copied()) {
        let current = draft.current.is_some_and(|current| current.name == set.name);
        let own = set.annotations.clone();
        let (revision, revision_history) = if current {
            (Some(revisions.revision.clone()), revisions.history.clone())
        } else {
            (own.revision, own.revision_history)
        };
        sets.push(Desired {
            name: set.name.clone(),
            current,
            from: set.replicas,
            replicas: draft.intended(set),
            revision,
            revision_history,
            disable_create: !current && !draft.deployment.is_rolling(),
            notes: draft.notes.get(set.name.as_str()).cloned().unwrap_or_default(),
        });
    }
    let create = match (draft.creating, reason) {
        (true, Some(reason)) => Some(Create {
            reason,
            replicas: draft.intents.get(NEW).copied().unwrap_or(0),
            revision: revisions.revision.clone(),
        }),
        _ => None,
    };
    let known = draft.current.is_some() || create.is_some();
    Plan { create, sets, revision: known.then_some(revisions.revision), waiting }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
