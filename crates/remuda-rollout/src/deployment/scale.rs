//! Scaling while the rollout is paused: every set keeps its share.

use super::{Draft, Note, Set, total};

pub(super) fn scale(draft: &mut Draft<'_>) {
    let wanted = draft.deployment.replicas;
    if let Some(set) = only_active_or_latest(draft) {
        resize(draft, set, wanted);
        return;
    }
    if draft.current.is_some_and(|set| is_saturated(set, wanted)) {
        for set in draft.old.clone() {
            resize(draft, set, 0);
        }
        return;
    }
    if draft.deployment.is_rolling() {
        spread(draft);
    }
}

fn resize<'a>(draft: &mut Draft<'a>, set: &'a Set, replicas: i32) {
    if set.replicas != replicas {
        draft.intend(&set.name, replicas, Note::Proportional);
    }
}

/// The set that has all replicas, or if none has any, the current or else the newest one.
fn only_active_or_latest<'a>(draft: &Draft<'a>) -> Option<&'a Set> {
    let active: Vec<&Set> = draft.all().filter(|set| set.replicas > 0).collect();
    match active.as_slice() {
        [] => draft.current.or(draft.old.last().copied()),
        [set] => Some(*set),
        _ => None,
    }
}

/// The current set has everything and is up, and knew it when it was written.
fn is_saturated(set: &Set, wanted: i32) -> bool {
    set.replicas == wanted && set.available() == wanted && set.annotations.desired_replicas == Some(wanted)
}

/// Spreads the difference over active sets in proportion to their size; what rounding leaves goes to the first.
fn spread(draft: &mut Draft<'_>) {
    let wanted = draft.deployment.replicas;
    let allowed = if wanted > 0 { draft.deployment.max_replicas() } else { 0 };
    let mut active: Vec<&Set> = draft.all().filter(|set| set.replicas > 0).collect();
    let missing = allowed.saturating_sub(total(active.iter().map(|set| set.replicas)));
    if missing == 0 {
        return;
    }
    active.sort_by(|a, b| {
        let older = (a.created, &a.name).cmp(&(b.created, &b.name));
        let age = if missing > 0 { older.reverse() } else { older };
        b.replicas.cmp(&a.replicas).then(age)
    });
    let actual = total(draft.all().map(Set::actual));
    let mut given = 0_i32;
    let mut sizes = Vec::with_capacity(active.len());
    for set in &active {
        let left = missing.saturating_sub(given);
        let share = share(set, wanted, allowed, actual);
        let share = if missing > 0 { share.min(left) } else { share.max(left) };
        given = given.saturating_add(share);
        sizes.push(set.replicas.saturating_add(share));
    }
    if let Some(first) = sizes.first_mut() {
        *first = first.saturating_add(missing.saturating_sub(given)).max(0);
    }
    for (set, size) in active.into_iter().zip(sizes) {
        resize(draft, set, size);
    }
}

fn share(set: &Set, wanted: i32, allowed: i32, actual: i32) -> i32 {
    if wanted == 0 {
        return -set.replicas;
    }
    let whole = f64::from(set.annotations.max_replicas.unwrap_or(actual));
    if whole <= 0.0 {
        // Nothing to be in proportion to; the remainder rule places everything.
        return 0;
    }
    let size = f64::from(set.replicas) * f64::from(allowed) / whole;
    (size.round() as i32).saturating_sub(set.replicas)
}
