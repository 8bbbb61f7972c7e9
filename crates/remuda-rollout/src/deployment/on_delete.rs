//! Replacing machines only when somebody deletes the old ones.

use super::{Draft, Note, rolling, total};

pub(super) fn roll(draft: &mut Draft<'_>) {
    rolling::grow(draft);
    let old = total(draft.old.iter().map(|set| set.replicas));
    let current = draft.intents.get(draft.current_name()).copied().unwrap_or(draft.current_replicas());
    let mut surplus = old.saturating_add(current).saturating_sub(draft.deployment.replicas);
    // A machine that is gone is not asked for again.
    for set in draft.old.clone() {
        let gone = set.replicas.saturating_sub(set.actual());
        if set.replicas > 0 && gone > 0 {
            draft.intend(&set.name, set.replicas - gone, Note::Deleted);
            surplus = surplus.saturating_sub(gone);
        }
    }
    // What is still too much goes from the oldest sets. The step starts where the first pass ended;
    // upstream starts again from the set's replicas and so undoes that pass.
    for set in draft.old.clone() {
        let replicas = draft.intended(set);
        let step = replicas.min(surplus);
        if replicas > 0 && step > 0 {
            draft.intend(&set.name, replicas - step, Note::TooMany);
            surplus = surplus.saturating_sub(step);
        }
    }
}
