//! Writes that the cache has not shown yet.
//!
//! Who counts objects to decide how many to make or delete must see what it made and deleted before, or it
//! does so twice. A reconcile notes what it wrote; the next one of the same object waits until the cache
//! has it.

use std::collections::HashMap;

use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use remuda_control::{Informer, ObjectKey, informer::Cached};

use crate::save::PATIENCE;

#[derive(Debug, Default)]
struct Awaited {
    version: u64,
    /// Deleted objects by key and uid. They must be seen gone, or going.
    deleted: Vec<(ObjectKey, String)>,
}

/// What each root object wrote, until it is seen.
#[derive(Debug, Default)]
pub(crate) struct Pending(Mutex<HashMap<ObjectKey, Awaited>>);

impl Pending {
    /// `root` made or changed `object`.
    pub(crate) fn wrote<K: Resource>(&self, root: &ObjectKey, object: &K) {
        // Versions that are no numbers cannot be waited for.
        let version = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0);
        let mut all = self.0.lock();
        let awaited = all.entry(root.clone()).or_default();
        awaited.version = awaited.version.max(version);
    }

    /// `root` asked for the deletion of `object`.
    pub(crate) fn deleted<K: Resource>(&self, root: &ObjectKey, object: &K) {
        let mut all = self.0.lock();
        let awaited = all.entry(root.clone()).or_default();
        awaited.deleted.push((ObjectKey::of(object.meta()), object.uid().unwrap_or_default()));
    }

    /// Whether the cache shows everything that `root` wrote; waits a little for it.
    pub(crate) async fn settled<K: Cached>(&self, root: &ObjectKey, cache: &Informer<K>) -> bool {
        let version = match self.0.lock().get(root) {
            None => return true,
            Some(awaited) => awaited.version,
        };
        if version > 0 && !cache.wait_for(&version.to_string(), PATIENCE).await {
            return false;
        }
        let mut all = self.0.lock();
        let Some(awaited) = all.get_mut(root) else {
            return true;
        };
        awaited.deleted.retain(|(key, uid)| {
            let found = cache.get(key).filter(|found| found.uid().as_ref() == Some(uid));
            found.is_some_and(|found| found.meta().deletion_timestamp.is_none())
        });
        if awaited.deleted.is_empty() {
            all.remove(root);
            return true;
        }
        false
    }
}
