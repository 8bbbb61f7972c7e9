//! Waking objects when something they depend on changes in a way that matters to them.

use crate::{
    Informer, ObjectKey, Waker,
    informer::{Cached, Subscription},
};

/// Wakes the keys that `keys` names whenever `facts` of an object change, it comes, or it goes. What was there
/// from the beginning wakes nobody: a controller looks at its own objects then anyway.
pub fn when_changed<S: Cached, F: PartialEq>(
    informer: &Informer<S>,
    waker: Waker,
    facts: impl Fn(&S) -> F + Send + Sync + 'static,
    keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> Subscription {
    unless_same(informer, waker, move |old, new| facts(old) == facts(new), keys)
}

/// As [`when_changed`], where comparing is cheaper than taking facts out.
pub fn unless_same<S: Cached>(
    informer: &Informer<S>,
    waker: Waker,
    same: impl Fn(&S, &S) -> bool + Send + Sync + 'static,
    keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> Subscription {
    informer.subscribe(move |change| {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if change.initial || old.zip(new).is_some_and(|(old, new)| same(old, new)) {
            return;
        }
        let mut woken: Vec<ObjectKey> = old.into_iter().chain(new).flat_map(&keys).collect();
        woken.sort();
        woken.dedup();
        for key in woken {
            waker.wake(key);
        }
    })
}
