//! Objects and where to find them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube::Resource;

use super::Change;
use crate::key::ObjectKey;

type IndexFn<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

pub(super) struct Cache<K> {
    pub(super) objects: HashMap<ObjectKey, Arc<K>>,
    namespaces: HashMap<Arc<str>, BTreeMap<Arc<str>, Arc<K>>>,
    indexes: HashMap<&'static str, Index<K>>,
    pub(super) unreadable: BTreeSet<ObjectKey>,
}

struct Index<K> {
    of: IndexFn<K>,
    entries: HashMap<String, BTreeSet<ObjectKey>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            namespaces: HashMap::new(),
            indexes: HashMap::new(),
            unreadable: BTreeSet::new(),
        }
    }
}

impl<K> Index<K> {
    fn file(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.of)(object) {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    fn unfile(&mut self, key: &ObjectKey, object: &K) {
        for value in (self.of)(object) {
            if let Some(keys) = self.entries.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

impl<K> Cache<K> {
    pub(super) fn add_index(&mut self, name: &'static str, of: IndexFn<K>) {
        if self.indexes.contains_key(name) {
            return;
        }
        let mut index = Index { of, entries: HashMap::new() };
        for (key, object) in &self.objects {
            index.file(key, object);
        }
        self.indexes.insert(name, index);
    }

    pub(super) fn keys_by_index(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        let keys = self.indexes.get(index).and_then(|index| index.entries.get(value));
        keys.map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn by_index(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let keys = self.indexes.get(index).and_then(|index| index.entries.get(value));
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.namespaces.get(namespace).map(|names| names.values().cloned().collect()).unwrap_or_default()
    }

    fn insert(&mut self, key: &ObjectKey, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.objects.insert(key.clone(), object.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.unfile(key, old);
            }
            index.file(key, &object);
        }
        if let Some(namespace) = &key.namespace {
            self.namespaces.entry(namespace.clone()).or_default().insert(key.name.clone(), object);
        }
        old
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        for index in self.indexes.values_mut() {
            index.unfile(key, &old);
        }
        if let Some(namespace) = &key.namespace
            && let Some(names) = self.namespaces.get_mut(namespace)
        {
            names.remove(&key.name);
            if names.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        Some(old)
    }
}

impl<K: Resource> Cache<K> {
    pub(super) fn apply(&mut self, object: K) -> Vec<Change<K>> {
        let key = ObjectKey::of(object.meta());
        self.unreadable.remove(&key);
        let new = Arc::new(object);
        let old = self.insert(&key, new.clone());
        vec![Change { old, new: Some(new), initial: false }]
    }

    /// `last` is the state the object was deleted in. Objects nobody heard of are not told.
    pub(super) fn delete(&mut self, key: &ObjectKey, last: Option<K>) -> Vec<Change<K>> {
        self.unreadable.remove(key);
        let Some(cached) = self.take(key) else {
            return Vec::new();
        };
        let last = last.map_or(cached, Arc::new);
        vec![Change { old: Some(last), new: None, initial: false }]
    }

    /// Replaces everything by a list. Told is only what differs: an object deleted and created
    /// again under its name is a deletion and a creation.
    ///
    /// An object the list has but we cannot read keeps its last readable state: taking it for
    /// deleted could make somebody replace it.
    pub(super) fn replace(
        &mut self,
        list: Vec<K>,
        unreadable: BTreeSet<ObjectKey>,
        initial: bool,
    ) -> Vec<Change<K>> {
        let mut listed: BTreeMap<ObjectKey, K> = BTreeMap::new();
        for object in list {
            listed.insert(ObjectKey::of(object.meta()), object);
        }
        let gone = self.objects.keys().filter(|key| !listed.contains_key(key) && !unreadable.contains(key));
        let gone: Vec<ObjectKey> = gone.cloned().collect();
        self.unreadable = unreadable;
        let mut changes = Vec::new();
        for key in gone {
            let old = self.take(&key);
            changes.push(Change { old, new: None, initial: false });
        }
        for (key, object) in listed {
            let known = self.objects.get(&key).map(|known| {
                let (known, object) = (known.meta(), object.meta());
                (known.uid == object.uid, known.resource_version == object.resource_version)
            });
            match known {
                Some((true, true)) => continue,
                Some((false, _)) => {
                    let old = self.take(&key);
                    changes.push(Change { old, new: None, initial: false });
                }
                Some((true, false)) | None => {}
            }
            let new = Arc::new(object);
            let old = self.insert(&key, new.clone());
            changes.push(Change { old, new: Some(new), initial });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;

    use super::*;

    fn object(name: &str, uid: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("a".to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object.metadata.labels = Some([("team".to_owned(), format!("t{version}"))].into());
        object
    }

    fn told(changes: &[Change<ConfigMap>]) -> Vec<String> {
        let version = |object: &Option<Arc<ConfigMap>>| {
            object.as_ref().map_or("-".to_owned(), |object| object.resource_version().unwrap())
        };
        let line = |change: &Change<ConfigMap>| {
            let name = change.object().unwrap().name_any();
            format!("{name} {}→{}", version(&change.old), version(&change.new))
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn a_new_list_tells_only_what_differs() {
        let mut cache = Cache::default();
        let first = vec![object("kept", "1", "1"), object("changed", "2", "2"), object("gone", "3", "3")];
        assert_eq!(cache.replace(first, BTreeSet::new(), true).len(), 3);
        let second = vec![object("kept", "1", "1"), object("changed", "2", "9"), object("new", "5", "10")];
        let changes = cache.replace(second, BTreeSet::new(), false);
        assert_eq!(told(&changes), ["gone 3→-", "changed 2→9", "new -→10"]);
    }

    #[test]
    fn a_name_that_was_used_again_is_a_deletion_and_a_creation() {
        let mut cache = Cache::default();
        cache.replace(vec![object("a", "1", "1")], BTreeSet::new(), true);
        let changes = cache.replace(vec![object("a", "2", "7")], BTreeSet::new(), false);
        assert_eq!(told(&changes), ["a 1→-", "a -→7"]);
    }

    #[test]
    fn an_object_that_became_unreadable_is_not_taken_for_deleted() {
        let mut cache = Cache::default();
        cache.replace(vec![object("a", "1", "1")], BTreeSet::new(), true);
        let key = ObjectKey::namespaced("a", "a");
        assert!(cache.replace(Vec::new(), [key.clone()].into(), false).is_empty());
        assert!(cache.objects.contains_key(&key));
        assert_eq!(told(&cache.delete(&key, None)), ["a 1→-"]);
        assert!(cache.unreadable.is_empty());
    }

    #[test]
    fn indexes_follow_every_kind_of_change() {
        let mut cache = Cache::default();
        cache.apply(object("early", "0", "1"));
        cache.add_index("team", Arc::new(|object: &ConfigMap| object.labels().values().cloned().collect()));
        let names = |cache: &Cache<ConfigMap>, value: &str| -> Vec<String> {
            cache.by_index("team", value).iter().map(|object| object.name_any()).collect()
        };
        cache.apply(object("late", "1", "1"));
        assert_eq!(names(&cache, "t1"), ["early", "late"]);
        cache.apply(object("late", "1", "2"));
        assert_eq!((names(&cache, "t1"), names(&cache, "t2")), (vec!["early".into()], vec!["late".into()]));
        cache.delete(&ObjectKey::namespaced("a", "late"), None);
        cache.replace(vec![object("early", "0", "3")], BTreeSet::new(), false);
        assert_eq!(names(&cache, "t3"), ["early"]);
        assert_eq!(cache.in_namespace("a").len(), 1);
        cache.replace(Vec::new(), BTreeSet::new(), false);
        assert!(cache.indexes["team"].entries.is_empty() && cache.namespaces.is_empty());
        assert!(cache.by_index("nobody's", "x").is_empty());
    }
}
