//! Children of an object, as a set: what is in it is applied, what has left it is deleted.
//!
//! Nothing is remembered here: what was applied stands in the objects themselves, as a hash.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aws_lc_rs::digest::{SHA256, digest};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use remuda_base::hex;
use remuda_names::provisioning::label::APPLIED;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Named, is_controlled_by, owner_reference, set_controller_reference};
use crate::{
    ctx::Ctx,
    error::{Context, Error, is_code},
    informer::{Cached, Informer},
    key::{Kind, ObjectKey},
};

/// An object as its controller wants it: only the fields that are the controller's to decide.
#[derive(Debug, Clone, PartialEq)]
pub struct Child {
    pub kind: Kind,
    pub key: ObjectKey,
    pub value: Value,
}

/// What there is to do about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Write,
    /// Its predecessor is still being deleted.
    Wait,
}

impl Child {
    pub fn new<K>(object: &K) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        Self::of(object, &())
    }

    fn of<K: Resource + Serialize>(object: &K, dynamic: &K::DynamicType) -> Result<Self, Error> {
        let what = || Named::of(object, dynamic).to_string();
        let value = serde_json::to_value(object).map_err(|source| Error::Encode { what: what(), source })?;
        Ok(Self { kind: Kind::of::<K>(dynamic), key: ObjectKey::of(object.meta()), value })
    }

    /// Notes in the child what is applied, as a hash. An object that has it and still has every field that is wanted
    /// needs no request, also after a restart; a field that has left the wanted object shows in the hash only.
    pub fn mark(&mut self) {
        if let Some(fields) = self.value.as_object_mut() {
            fields.remove("status");
            fields.insert("apiVersion".to_owned(), self.kind.api_version().into());
            fields.insert("kind".to_owned(), self.kind.kind.clone().into());
        }
        // Object maps of `serde_json` are ordered, so equal values have equal texts.
        let mut applied = hex(digest(&SHA256, self.value.to_string().as_bytes()));
        applied.truncate(16);
        self.metadata("labels").insert(APPLIED.to_owned(), applied.into());
    }

    /// Labels or annotations.
    pub fn metadata(&mut self, field: &str) -> &mut Map<String, Value> {
        let map = &mut self.value["metadata"][field];
        if !map.is_object() {
            *map = Value::Object(Map::new());
        }
        map.as_object_mut().expect("it was just made an object")
    }

    /// What there is to do, given what exists under the name of this marked child.
    pub fn need(&self, existing: Option<&Value>) -> Need {
        match existing {
            None => Need::Write,
            Some(existing) if !existing["metadata"]["deletionTimestamp"].is_null() => Need::Wait,
            Some(existing) if contains(existing, &self.value) => Need::Nothing,
            Some(_) => Need::Write,
        }
    }

    /// Applies it. Fields that others decide stay theirs; fields that are no longer wanted go.
    pub async fn apply(&self, ctx: &Ctx) -> Result<DynamicObject, Error> {
        let api = dynamic_api(&ctx.client, &self.kind.api_resource(), self.key.namespace.as_deref());
        let params = PatchParams::apply(&ctx.field_manager).force();
        let written = api.patch(&self.key.name, &params, &Patch::Apply(&self.value)).await;
        written.context("apply", format_args!("{} {}", self.kind, self.key))
    }
}

pub fn dynamic_api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Asks for the deletion of exactly this object; tells whether it was still there.
pub async fn delete_exactly(ctx: &Ctx, resource: &ApiResource, meta: &ObjectMeta) -> Result<bool, Error> {
    let key = ObjectKey::of(meta);
    let uid = Preconditions { uid: meta.uid.clone(), resource_version: None };
    let params = DeleteParams::background().preconditions(uid);
    match dynamic_api(&ctx.client, resource, key.namespace.as_deref()).delete(&key.name, &params).await {
        Ok(_) => Ok(true),
        // Gone already, or another one by now, which is not ours to delete.
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(false),
        Err(error) => Err(error).context("delete", format_args!("{} {key}", resource.kind)),
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
        self.want(Child::new(child)?, child.meta())
    }

    pub fn add_dynamic(&mut self, child: &DynamicObject, resource: &ApiResource) -> Result<&mut Self, Error> {
        self.want(Child::of(child, resource)?, child.meta())
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

    fn want(&mut self, mut child: Child, meta: &ObjectMeta) -> Result<&mut Self, Error> {
        let mut meta = meta.clone();
        if meta.name.is_none() {
            return Err(Error::Incomplete { what: format!("a child {}", child.kind), field: "name" });
        }
        meta.namespace = self.namespace.clone().or(meta.namespace);
        meta.labels.get_or_insert_default().insert(self.label.0.clone(), self.label.1.clone());
        set_controller_reference(&mut meta, &self.owner)?;
        child.key = ObjectKey::of(&meta);
        let encoded = serde_json::to_value(applied_metadata(meta));
        let what = || format!("{} {}", child.kind, child.key);
        let metadata = encoded.map_err(|source| Error::Encode { what: what(), source })?;
        if let Value::Object(fields) = &mut child.value {
            if child.kind.group.is_empty() && child.kind.kind == "Secret" {
                encode_string_data(fields);
            }
            fields.insert("metadata".to_owned(), metadata);
        }
        child.mark();
        self.kinds.entry(child.kind.clone()).or_default();
        self.wanted.push(child);
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
            let is_ours = is_controlled_by(&object.meta, &self.owner.uid);
            if is_ours && object.meta.deletion_timestamp.is_none() {
                delete_exactly(self.ctx, &kind.api_resource(), &object.meta).await?;
                applied.pruned.push(key);
            }
        }
        Ok(applied)
    }

    fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        dynamic_api(&self.ctx.client, &kind.api_resource(), self.namespace.as_deref())
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
        match child.need(found.as_ref().map(|found| &found.value)) {
            Need::Nothing => applied.unchanged += 1,
            Need::Wait => applied.dying.push(child.key.clone()),
            Need::Write => {
                if let Some(found) = found {
                    set_controller_reference(&mut found.meta.clone(), &self.owner)?;
                }
                applied.written.push(child.apply(self.ctx).await?);
            }
        }
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

/// Whether everything in `part` is in `whole`. Owners may be more and in another order, as several write them; other
/// lists must match.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(key, part)| match whole.get(key) {
            Some(whole) => contains(whole, part),
            None => is_nothing(part),
        }),
        (Value::Array(whole), Value::Array(part)) => {
            let in_place = whole.len() == part.len()
                && whole.iter().zip(part).all(|(whole, part)| contains(whole, part));
            in_place || !part.is_empty() && part.iter().all(|part| is_owner_in(whole, part))
        }
        (whole, part) => whole == part,
    }
}

fn is_owner_in(whole: &[Value], part: &Value) -> bool {
    part.get("uid")
        .is_some_and(|uid| whole.iter().any(|whole| whole.get("uid") == Some(uid) && contains(whole, part)))
}

/// Empty values come back as absent ones.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
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
        // A list of things with names is whole all the same: a subject that was slipped into a RoleBinding goes.
        let bound = json!({"subjects": [{"name": "a"}, {"name": "b"}]});
        assert!(!contains(&bound, &json!({"subjects": [{"name": "a"}]})));
        assert!(!contains(&json!(["a", "b"]), &json!(["b"])));
    }

    #[test]
    fn what_was_applied_and_is_still_there_needs_nothing() {
        let make = |spec: Value| {
            let map = k8s_openapi::api::core::v1::ConfigMap::default();
            let mut child = Child::new(&map).unwrap();
            child.value["spec"] = spec;
            child.value["status"] = json!({});
            child.mark();
            child
        };
        let wanted = make(json!({"replicas": 1, "list": [{"a": 1}]}));
        assert_eq!(wanted.value.get("status"), None);
        let mut existing = wanted.value.clone();
        existing["spec"]["paused"] = json!(true);
        existing["metadata"]["labels"]["theirs"] = json!("x");
        existing["status"] = json!({"replicas": 1});
        assert_eq!(wanted.need(None), Need::Write);
        assert_eq!(wanted.need(Some(&existing)), Need::Nothing);
        // A field that left the wanted object shows in the hash only.
        assert_eq!(make(json!({"replicas": 1})).need(Some(&existing)), Need::Write);
        existing["spec"]["replicas"] = json!(2);
        assert_eq!(wanted.need(Some(&existing)), Need::Write);
        existing["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(wanted.need(Some(&existing)), Need::Wait);
    }
}
