//! Children of an object, as a set: what is in it is applied, what has left it is deleted.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Named, is_controlled_by, owner_reference, set_controller_reference};
use crate::{
    ctx::Ctx,
    error::{Context, Error, is_code},
    informer::{Cached, Informer},
    key::{Kind, ObjectKey},
};

/// Objects remembered before all are forgotten, and applied once more.
const MEMORY: usize = 100_000;

/// What we last applied, as a hash. An object that still has every field we want, and was given
/// exactly these fields by this process, needs no request; a field that has left the wanted
/// object shows in the hash only.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<(Kind, ObjectKey), (String, u64)>>);

impl Memory {
    fn knows(&self, kind: &Kind, key: &ObjectKey, uid: &str, hash: u64) -> bool {
        let memory = self.0.lock();
        memory.get(&(kind.clone(), key.clone())).is_some_and(|known| known.0 == uid && known.1 == hash)
    }

    fn learn(&self, kind: &Kind, key: &ObjectKey, uid: String, hash: u64) {
        let mut memory = self.0.lock();
        if memory.len() >= MEMORY {
            memory.clear();
        }
        memory.insert((kind.clone(), key.clone()), (uid, hash));
    }

    fn forget(&self, kind: &Kind, key: &ObjectKey) {
        self.0.lock().remove(&(kind.clone(), key.clone()));
    }
}

/// What applying a set did.
#[derive(Debug, Default)]
pub struct Applied {
    /// Objects written, as they are now.
    pub written: Vec<DynamicObject>,
    /// Objects that were as wanted.
    pub unchanged: usize,
    /// Wanted objects whose predecessors are still being deleted. Their deletion wakes the owner.
    pub dying: Vec<ObjectKey>,
    pub pruned: Vec<ObjectKey>,
}

/// Children of one owner under one label. Collect, then [`ApplySet::apply`].
///
/// Pruned is only what carries the label and is controlled by the owner, of the kinds in the set
/// and those named with [`ApplySet::prunes`].
pub struct ApplySet<'a> {
    ctx: &'a Ctx,
    owner: OwnerReference,
    namespace: Option<String>,
    label: (String, String),
    wanted: Vec<Child>,
    kinds: BTreeMap<Kind, Source>,
}

/// How what exists of a kind is found.
#[derive(Default)]
enum Source {
    /// By the set's label, for which the API looks at every object of the namespace.
    #[default]
    Label,
    /// Each by its name.
    Names(Vec<String>),
    Known(Vec<Existing>),
}

struct Child {
    kind: Kind,
    key: ObjectKey,
    value: Value,
}

struct Existing {
    meta: ObjectMeta,
    value: Value,
}

impl Existing {
    fn new(kind: &Kind, object: DynamicObject) -> Result<Self, Error> {
        let encoded = serde_json::to_value(&object);
        let mut value = encoded.map_err(|source| Error::Encode { what: kind.to_string(), source })?;
        if let Value::Object(fields) = &mut value {
            // Items of lists of built-in kinds do not name it.
            fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
        }
        Ok(Self { meta: object.metadata, value })
    }
}

impl<'a> ApplySet<'a> {
    /// Children live in their owner's namespace. The label's value tells sets apart: of different
    /// owners, and of one owner.
    pub fn new<K: Resource>(
        ctx: &'a Ctx,
        owner: &K,
        dynamic: &K::DynamicType,
        label: (&str, &str),
    ) -> Result<Self, Error> {
        Ok(Self {
            ctx,
            owner: owner_reference(owner, dynamic)?,
            namespace: owner.namespace(),
            label: (label.0.to_owned(), label.1.to_owned()),
            wanted: Vec::new(),
            kinds: BTreeMap::new(),
        })
    }

    /// Wants a child. It is applied as it is here, so leave out what others decide.
    pub fn add<S>(&mut self, child: &S) -> Result<&mut Self, Error>
    where
        S: Resource<DynamicType = ()> + Serialize,
    {
        let what = Named::of(child, &()).to_string();
        let value = serde_json::to_value(child).map_err(|source| Error::Encode { what, source })?;
        self.want(Kind::of::<S>(&()), child.meta(), value)
    }

    pub fn add_dynamic(&mut self, child: &DynamicObject, resource: &ApiResource) -> Result<&mut Self, Error> {
        let what = Named::of(child, resource).to_string();
        let value = serde_json::to_value(child).map_err(|source| Error::Encode { what, source })?;
        self.want(Kind::of::<DynamicObject>(resource), child.meta(), value)
    }

    /// Prunes a kind even if none of it is wanted now.
    pub fn prunes<S: Resource<DynamicType = ()>>(&mut self) -> &mut Self {
        self.kinds.entry(Kind::of::<S>(&())).or_default();
        self
    }

    /// Looks up what exists of a kind in a cache instead of asking the API. The cache must hold
    /// at least the set's objects, whole.
    pub fn known<S: Cached + Serialize>(&mut self, informer: &Informer<S>) -> Result<&mut Self, Error> {
        let cached = match &self.namespace {
            Some(namespace) => informer.in_namespace(namespace),
            None => informer.list(),
        };
        self.known_of(informer, &cached)
    }

    /// As [`ApplySet::known`], with these objects of the cache, among which are all of the set.
    pub fn known_of<S>(&mut self, informer: &Informer<S>, cached: &[Arc<S>]) -> Result<&mut Self, Error>
    where
        S: Cached + Serialize,
    {
        let mut existing = Vec::new();
        for object in cached.iter().filter(|object| self.is_member(object.meta())) {
            let what = || format!("{} {}", informer.kind(), ObjectKey::of(object.meta()));
            let value =
                serde_json::to_value(&**object).map_err(|source| Error::Encode { what: what(), source })?;
            existing.push(Existing { meta: object.meta().clone(), value });
        }
        self.kinds.insert(informer.kind().clone(), Source::Known(existing));
        Ok(self)
    }

    /// Names that what exists of a kind may have beside those that are wanted.
    pub fn named<S>(&mut self, names: impl IntoIterator<Item = String>) -> &mut Self
    where
        S: Resource<DynamicType = ()>,
    {
        self.kinds.insert(Kind::of::<S>(&()), Source::Names(names.into_iter().collect()));
        self
    }

    fn is_member(&self, meta: &ObjectMeta) -> bool {
        let label = meta.labels.as_ref().and_then(|labels| labels.get(&self.label.0));
        label == Some(&self.label.1)
    }

    fn want(&mut self, kind: Kind, meta: &ObjectMeta, mut value: Value) -> Result<&mut Self, Error> {
        let mut meta = meta.clone();
        if meta.name.is_none() {
            return Err(Error::Incomplete { what: format!("a child {kind}"), field: "name" });
        }
        meta.namespace = self.namespace.clone().or(meta.namespace);
        meta.labels.get_or_insert_default().insert(self.label.0.clone(), self.label.1.clone());
        set_controller_reference(&mut meta, &self.owner)?;
        let key = ObjectKey::of(&meta);
        let what = || format!("{kind} {key}");
        let encoded = serde_json::to_value(applied_metadata(meta));
        let metadata = encoded.map_err(|source| Error::Encode { what: what(), source })?;
        if let Value::Object(fields) = &mut value {
            fields.remove("status");
            if kind.group.is_empty() && kind.kind == "Secret" {
                encode_string_data(fields);
            }
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.kind.clone().into());
            fields.insert("metadata".to_owned(), metadata);
        }
        self.kinds.entry(kind.clone()).or_default();
        self.wanted.push(Child { kind, key, value });
        Ok(self)
    }

    /// Applies the children in the order they were added, then prunes. A failure ends it there:
    /// nothing is pruned unless everything wanted is in place.
    pub async fn apply(mut self) -> Result<Applied, Error> {
        let mut existing = BTreeMap::new();
        for (kind, source) in std::mem::take(&mut self.kinds) {
            let known = match source {
                Source::Known(known) => known,
                Source::Names(names) => self.read_each(&kind, names).await?,
                Source::Label => self.read(&kind).await?,
            };
            for object in known {
                existing.insert((kind.clone(), ObjectKey::of(&object.meta)), object);
            }
        }
        let mut applied = Applied::default();
        for child in &self.wanted {
            let found = existing.remove(&(child.kind.clone(), child.key.clone()));
            self.apply_child(child, found, &mut applied).await?;
        }
        for ((kind, key), object) in existing {
            self.prune(&kind, key, &object, &mut applied).await?;
        }
        Ok(applied)
    }

    fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let (client, resource) = (self.ctx.client.clone(), kind.api_resource());
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    async fn read(&self, kind: &Kind) -> Result<Vec<Existing>, Error> {
        let selector = format!("{}={}", self.label.0, self.label.1);
        let listed = self.api(kind).list(&ListParams::default().labels(&selector)).await;
        listed.context("list", kind)?.items.into_iter().map(|object| Existing::new(kind, object)).collect()
    }

    async fn read_each(&self, kind: &Kind, names: Vec<String>) -> Result<Vec<Existing>, Error> {
        let wanted = self.wanted.iter().filter(|child| child.kind == *kind).map(|child| &child.key.name);
        let names: BTreeSet<String> = wanted.map(ToString::to_string).chain(names).collect();
        let api = self.api(kind);
        let mut existing = Vec::new();
        for name in names {
            let found = api.get_opt(&name).await.context("get", format_args!("{kind} {name}"))?;
            if let Some(object) = found.filter(|found| self.is_member(&found.metadata)) {
                existing.push(Existing::new(kind, object)?);
            }
        }
        Ok(existing)
    }

    async fn apply_child(
        &self,
        child: &Child,
        found: Option<Existing>,
        applied: &mut Applied,
    ) -> Result<(), Error> {
        let what = || format!("{} {}", child.kind, child.key);
        let hash = hash(&child.value);
        if let Some(found) = found {
            if found.meta.deletion_timestamp.is_some() {
                applied.dying.push(child.key.clone());
                return Ok(());
            }
            let uid = found.meta.uid.as_deref().unwrap_or_default();
            if self.ctx.applied.knows(&child.kind, &child.key, uid, hash)
                && contains(&found.value, &child.value)
            {
                applied.unchanged += 1;
                return Ok(());
            }
            set_controller_reference(&mut found.meta.clone(), &self.owner)?;
        }
        let params = PatchParams::apply(&self.ctx.field_manager).force();
        let name = &child.key.name;
        let written = self.api(&child.kind).patch(name, &params, &Patch::Apply(&child.value)).await;
        let written = written.context("apply", what())?;
        let uid = written.uid().unwrap_or_default();
        self.ctx.applied.learn(&child.kind, &child.key, uid, hash);
        applied.written.push(written);
        Ok(())
    }

    async fn prune(
        &self,
        kind: &Kind,
        key: ObjectKey,
        object: &Existing,
        applied: &mut Applied,
    ) -> Result<(), Error> {
        if !is_controlled_by(&object.meta, &self.owner.uid) || object.meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let uid = Preconditions { uid: object.meta.uid.clone(), resource_version: None };
        let params = DeleteParams::background().preconditions(uid);
        match self.api(kind).delete(&key.name, &params).await {
            Ok(_) => {}
            // Gone already, or replaced by something that is not ours to delete.
            Err(error) if is_code(&error, 404) || is_code(&error, 409) => {}
            Err(error) => return Err(error).context("prune", format!("{kind} {key}")),
        }
        self.ctx.applied.forget(kind, &key);
        applied.pruned.push(key);
        Ok(())
    }
}

/// What of an object's metadata a controller decides.
fn applied_metadata(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        labels: meta.labels,
        annotations: meta.annotations,
        owner_references: meta.owner_references,
        finalizers: meta.finalizers,
        ..ObjectMeta::default()
    }
}

/// The API stores a Secret's `stringData` as `data`, but keeps `data` when what was applied as
/// `stringData` is applied no more. As `data` from the start, fields that leave do leave.
fn encode_string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(strings)) = secret.remove("stringData") else {
        return;
    };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let Some(data) = data.as_object_mut() else {
        return;
    };
    for (key, value) in strings {
        let bytes = ByteString(value.as_str().unwrap_or_default().into());
        // Bytes always have a text.
        data.insert(key, serde_json::to_value(bytes).unwrap_or_default());
    }
}

/// Object maps of `serde_json` are ordered, so equal values have equal texts.
fn hash(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Whether everything in `part` is in `whole`. Lists of named things may hold more and be in
/// another order, as several writers share them; other lists must match.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, part)| match whole.get(key) {
            Some(whole) => contains(whole, part),
            None => is_nothing(part),
        }),
        (Value::Array(whole), Value::Array(part)) => {
            let in_place = whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| contains(whole, part));
            in_place || part.iter().all(|part| identity(part).is_some_and(|id| named(whole, &id, part)))
        }
        (whole, part) => whole == part,
    }
}

/// Empty values come back as absent ones.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn identity(item: &Value) -> Option<(&'static str, &Value)> {
    ["uid", "name"].into_iter().find_map(|field| Some((field, item.get(field)?)))
}

fn named(whole: &[Value], (field, id): &(&'static str, &Value), part: &Value) -> bool {
    whole.iter().any(|whole| whole.get(field) == Some(*id) && contains(whole, part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn string_data_becomes_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y"}});
        encode_string_data(secret.as_object_mut().unwrap());
        assert_eq!(secret, json!({"data": {"a": "eA==", "b": "eQ=="}}));
    }

    #[test]
    fn a_defaulted_or_shared_object_still_contains_what_was_applied() {
        let whole = json!({
            "metadata": {"ownerReferences": [{"uid": "2"}, {"uid": "1", "kind": "A"}]},
            "spec": {"replicas": 1, "strategy": "Recreate", "ports": [{"port": 1, "protocol": "TCP"}]},
        });
        let part = json!({
            "metadata": {"ownerReferences": [{"uid": "1", "kind": "A"}], "labels": {}},
            "spec": {"replicas": 1, "ports": [{"port": 1}]},
        });
        assert!(contains(&whole, &part));
        assert!(!contains(&whole, &json!({"spec": {"replicas": 2}})));
        assert!(!contains(&whole, &json!({"spec": {"ports": [{"port": 1}, {"port": 2}]}})));
        assert!(!contains(&whole, &json!({"metadata": {"ownerReferences": [{"uid": "3"}]}})));
        assert!(!contains(&whole, &json!({"spec": {"paused": true}})));
    }
}
