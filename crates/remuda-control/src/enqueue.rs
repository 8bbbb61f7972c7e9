//! Enqueuing objects when facts they depend on change, and not with every write of another object.

use crate::{
    Enqueuer, Informer, ObjectKey,
    informer::{Cached, Subscription},
};

/// Enqueues the keys that `keys` names whenever `facts` of an object change, it comes, or it goes. The first list
/// enqueues nothing: a controller reconciles its own objects then anyway.
pub fn when_changed<S: Cached, F: PartialEq>(
    informer: &Informer<S>,
    enqueuer: Enqueuer,
    facts: impl Fn(&S) -> F + Send + Sync + 'static,
    keys: impl Fn(&S) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> Subscription {
    unless_same(informer, enqueuer, move |old, new| facts(old) == facts(new), keys)
}

/// As [`when_changed`], where comparing is cheaper than taking facts out.
pub fn unless_same<S: Cached>(
    informer: &Informer<S>,
    enqueuer: Enqueuer,
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
            enqueuer.enqueue(key);
        }
    })
}
