//! Objects and where to find them.
//!
//! One cache for all types: it holds objects without knowing their type, so that this code is compiled once and not
//! for every kind in every crate. [`super::Informer`] is the typed shell.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube::core::ObjectMeta;

use crate::key::ObjectKey;

/// An object of the one type that its informer is about.
pub(super) type Object = Arc<dyn Any + Send + Sync>;

type IndexFn = Arc<dyn Fn(&dyn Any) -> Vec<String> + Send + Sync>;

/// One object before and after a change, of whatever type it is; [`super::Change`] is the same with a type.
pub(super) struct AnyChange {
    pub(super) old: Option<Object>,
    pub(super) new: Option<Object>,
    pub(super) initial: bool,
}

pub(super) struct Cache {
    /// Where objects of this type have their metadata.
    meta: fn(&dyn Any) -> &ObjectMeta,
    pub(super) objects: HashMap<ObjectKey, Object>,
    namespaces: HashMap<Arc<str>, BTreeMap<Arc<str>, Object>>,
    indexes: HashMap<&'static str, Index>,
    pub(super) unreadable: BTreeSet<ObjectKey>,
}

struct Index {
    of: IndexFn,
    entries: HashMap<String, BTreeSet<ObjectKey>>,
}

impl Index {
    fn file(&mut self, key: &ObjectKey, object: &dyn Any) {
        for value in (self.of)(object) {
            self.entries.entry(value).or_default().insert(key.clone());
        }
    }

    fn unfile(&mut self, key: &ObjectKey, object: &dyn Any) {
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

impl Cache {
    pub(super) fn new(meta: fn(&dyn Any) -> &ObjectMeta) -> Self {
        Self {
            meta,
            objects: HashMap::new(),
            namespaces: HashMap::new(),
            indexes: HashMap::new(),
            unreadable: BTreeSet::new(),
        }
    }

    pub(super) fn meta<'a>(&self, object: &'a Object) -> &'a ObjectMeta {
        (self.meta)(&**object)
    }

    pub(super) fn add_index(&mut self, name: &'static str, of: IndexFn) {
        if self.indexes.contains_key(name) {
            return;
        }
        let mut index = Index { of, entries: HashMap::new() };
        for (key, object) in &self.objects {
            index.file(key, &**object);
        }
        self.indexes.insert(name, index);
    }

    pub(super) fn keys_by_index(&self, index: &str, value: &str) -> Vec<ObjectKey> {
        let keys = self.indexes.get(index).and_then(|index| index.entries.get(value));
        keys.map(|keys| keys.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn by_index(&self, index: &str, value: &str) -> Vec<Object> {
        let keys = self.indexes.get(index).and_then(|index| index.entries.get(value));
        keys.into_iter().flatten().filter_map(|key| self.objects.get(key).cloned()).collect()
    }

    pub(super) fn in_namespace(&self, namespace: &str) -> Vec<Object> {
        self.namespaces.get(namespace).map(|names| names.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn all(&self) -> Vec<Object> {
        self.objects.values().cloned().collect()
    }

    fn insert(&mut self, key: &ObjectKey, object: Object) -> Option<Object> {
        let old = self.objects.insert(key.clone(), object.clone());
        for index in self.indexes.values_mut() {
            if let Some(old) = &old {
                index.unfile(key, &**old);
            }
            index.file(key, &*object);
        }
        if let Some(namespace) = &key.namespace {
            self.namespaces.entry(namespace.clone()).or_default().insert(key.name.clone(), object);
        }
        old
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Object> {
        let old = self.objects.remove(key)?;
        for index in self.indexes.values_mut() {
            index.unfile(key, &*old);
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

    pub(super) fn apply(&mut self, new: Object) -> Vec<AnyChange> {
        let key = ObjectKey::of(self.meta(&new));
        self.unreadable.remove(&key);
        let old = self.insert(&key, new.clone());
        vec![AnyChange { old, new: Some(new), initial: false }]
    }

    /// `last` is the state the object was deleted in. Objects that were never cached are not told.
    pub(super) fn delete(&mut self, key: &ObjectKey, last: Option<Object>) -> Vec<AnyChange> {
        self.unreadable.remove(key);
        let Some(cached) = self.take(key) else {
            return Vec::new();
        };
        vec![AnyChange { old: Some(last.unwrap_or(cached)), new: None, initial: false }]
    }

    /// Replaces everything by a list. Told is only what differs: an object deleted and created
    /// again under its name is a deletion and a creation.
    ///
    /// An object the list has but we cannot read keeps its last readable state: taking it for
    /// deleted could make a controller replace it.
    pub(super) fn replace(
        &mut self,
        list: Vec<Object>,
        unreadable: BTreeSet<ObjectKey>,
        initial: bool,
    ) -> Vec<AnyChange> {
        let mut listed: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for object in list {
            listed.insert(ObjectKey::of(self.meta(&object)), object);
        }
        let gone = self.objects.keys().filter(|key| !listed.contains_key(key) && !unreadable.contains(key));
        let gone: Vec<ObjectKey> = gone.cloned().collect();
        self.unreadable = unreadable;
        let mut changes = Vec::new();
        for key in gone {
            let old = self.take(&key);
            changes.push(AnyChange { old, new: None, initial: false });
        }
        for (key, new) in listed {
            let known = self.objects.get(&key).map(|known| {
                let (known, new) = (self.meta(known), self.meta(&new));
                (known.uid == new.uid, known.resource_version == new.resource_version)
            });
            match known {
                Some((true, true)) => continue,
                Some((false, _)) => {
                    let old = self.take(&key);
                    changes.push(AnyChange { old, new: None, initial: false });
                }
                Some((true, false)) | None => {}
            }
            let old = self.insert(&key, new.clone());
            changes.push(AnyChange { old, new: Some(new), initial });
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;

    use super::{super::meta_of, *};

    fn empty() -> Cache {
        Cache::new(meta_of::<ConfigMap>)
    }

    fn typed(object: &Object) -> &ConfigMap {
        object.downcast_ref().unwrap()
    }

    fn object(name: &str, uid: &str, version: &str) -> Object {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some("a".to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object.metadata.labels = Some([("team".to_owned(), format!("t{version}"))].into());
        Arc::new(object)
    }

    fn told(changes: &[AnyChange]) -> Vec<String> {
        let version = |object: &Option<Object>| {
            object.as_ref().map_or("-".to_owned(), |object| typed(object).resource_version().unwrap())
        };
        let line = |change: &AnyChange| {
            let name = typed(change.new.as_ref().or(change.old.as_ref()).unwrap()).name_any();
            format!("{name} {}→{}", version(&change.old), version(&change.new))
        };
        changes.iter().map(line).collect()
    }

    #[test]
    fn a_new_list_tells_only_what_differs() {
        let mut cache = empty();
        let first = vec![object("kept", "1", "1"), object("changed", "2", "2"), object("gone", "3", "3")];
        assert_eq!(cache.replace(first, BTreeSet::new(), true).len(), 3);
        let second = vec![object("kept", "1", "1"), object("changed", "2", "9"), object("new", "5", "10")];
        let changes = cache.replace(second, BTreeSet::new(), false);
        assert_eq!(told(&changes), ["gone 3→-", "changed 2→9", "new -→10"]);
    }

    #[test]
    fn a_name_that_was_used_again_is_a_deletion_and_a_creation() {
        let mut cache = empty();
        cache.replace(vec![object("a", "1", "1")], BTreeSet::new(), true);
        let changes = cache.replace(vec![object("a", "2", "7")], BTreeSet::new(), false);
        assert_eq!(told(&changes), ["a 1→-", "a -→7"]);
    }

    #[test]
    fn an_object_that_became_unreadable_is_not_taken_for_deleted() {
        let mut cache = empty();
        cache.replace(vec![object("a", "1", "1")], BTreeSet::new(), true);
        let key = ObjectKey::namespaced("a", "a");
        assert!(cache.replace(Vec::new(), [key.clone()].into(), false).is_empty());
        assert!(cache.objects.contains_key(&key));
        assert_eq!(told(&cache.delete(&key, None)), ["a 1→-"]);
        assert!(cache.unreadable.is_empty());
    }

    #[test]
    fn indexes_follow_every_kind_of_change() {
        let mut cache = empty();
        cache.apply(object("early", "0", "1"));
        cache.add_index(
            "team",
            Arc::new(|object: &dyn Any| {
                let object: &ConfigMap = object.downcast_ref().unwrap();
                object.labels().values().cloned().collect()
            }),
        );
        let names = |cache: &Cache, value: &str| -> Vec<String> {
            cache.by_index("team", value).iter().map(|object| typed(object).name_any()).collect()
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
