//! Rolling update: grow the current set and shrink the old ones, within limits.

use super::{Draft, Note, Set, total};

pub(super) fn roll(draft: &mut Draft<'_>) {
    grow(draft);
    shrink(draft);
    unlock(draft);
}

/// Brings the current set towards the deployment's replicas, as far as the surge allows.
pub(super) fn grow(draft: &mut Draft<'_>) {
    let wanted = draft.deployment.replicas;
    let (name, has) = (draft.current_name(), draft.current_replicas());
    if has > wanted {
        draft.intend(name, wanted, Note::TooMany);
    }
    if has >= wanted {
        return;
    }
    let surge = draft.deployment.fenceposts().surge;
    let machines = draft.machines();
    let said = draft.deployment.is_rolling().then_some(surge);
    let room = wanted.saturating_add(surge).saturating_sub(machines);
    if room <= 0 {
        draft.note(name, Note::NoRoom { machines, replicas: wanted, surge: said });
        return;
    }
    // Without a surge there is no limit of its own: what is missing is exactly the room.
    let grown = has + room.min(wanted - has);
    draft.intend(name, grown, Note::Room { machines, replicas: wanted, surge: said });
}

/// Shrinks old sets by what is not needed to stay available.
///
/// What is already on its way out and what the current set has not brought up yet counts as gone, so a
/// broken template stops the rollout before it eats the last good machine.
fn shrink(draft: &mut Draft<'_>) {
    if total(draft.old.iter().map(|set| set.replicas)) == 0 {
        return;
    }
    let required = (draft.deployment.replicas - draft.deployment.fenceposts().unavailable).max(0);
    let asked = total(draft.all().map(|set| set.replicas));
    let leaving = total(draft.all().map(|set| {
        let asked = set.replicas.min(draft.intended(set));
        set.actual().saturating_sub(asked).max(0)
    }));
    let coming = draft.current.map_or(0, |set| set.replicas.saturating_sub(set.available()).max(0));
    let mut budget = Budget {
        room: asked.saturating_sub(leaving).saturating_sub(required).saturating_sub(coming),
        available: total(draft.all().map(Set::available)),
        required,
    };
    // First machines that serve nobody, then the others.
    for only_unavailable in [true, false] {
        for set in draft.old.clone() {
            budget.take(draft, set, only_unavailable);
        }
    }
}

struct Budget {
    room: i32,
    available: i32,
    required: i32,
}

impl Budget {
    fn take<'a>(&mut self, draft: &mut Draft<'a>, set: &'a Set, only_unavailable: bool) {
        let replicas = draft.intended(set);
        if self.room <= 0 || replicas <= 0 {
            return;
        }
        let most = if only_unavailable { replicas.saturating_sub(set.available()).max(0) } else { replicas };
        let mut step = most.min(self.room);
        if step == 0 {
            return;
        }
        let before = self.available;
        if set.available() > 0 {
            let mut deleted = (set.actual() - (replicas - step)).max(0);
            // The set picks its victims itself: each may be one that is available.
            let spare = (self.available - self.required).max(0);
            if deleted > spare {
                let floor = (set.actual() - spare).min(replicas);
                step = (replicas - floor).max(0);
                deleted = (set.actual() - floor).max(0);
            }
            self.available -= set.available().min(deleted);
        }
        if step > 0 {
            let note = if before == self.available {
                Note::Unavailable
            } else {
                Note::Spare { available: before, required: self.required }
            };
            draft.intend(&set.name, (replicas - step).max(0), note);
            self.room -= step;
        }
    }
}

/// Takes one machine of an old set that will not come up, if nothing else can move.
///
/// This may go below what has to be available: the machine that is removed serves nobody, but the set
/// might choose another.
fn unlock(draft: &mut Draft<'_>) {
    let actual = total(draft.old.iter().map(|set| set.actual()));
    let available = total(draft.old.iter().map(|set| set.available()));
    let moving = draft.creating
        || !draft.intents.is_empty()
        || draft.all().any(|set| set.replicas != set.actual())
        || draft.current.is_some_and(|set| set.available() != set.actual());
    if actual == 0 || actual == available || moving {
        return;
    }
    let stuck = draft.old.iter().copied().find(|set| set.available() != set.actual() && set.replicas > 0);
    if let Some(set) = stuck {
        draft.intend(&set.name, set.replicas - 1, Note::Stuck);
    }
}
