//! Objects made from one object, as a set: what is in it is applied, what has left it is deleted.
//!
//! Members do not belong to their maker in the sense of owner references, as Cluster API takes most of them over.
//! They are known by a label instead. A second label holds a hash of what was applied: an object that has it and
//! still has every field we want needs no request, also after a restart.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject},
};
use remuda_control::{Ctx, Informer, Kind, ObjectKey, informer::Cached};
use remuda_names::{
    provisioning::label::APPLIED,
    rancher::{label, object_set},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    error::{Error, is_code},
    naming::sha256_hex,
};

/// Which set of which object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectSet {
    id: &'static str,
    owner_gvk: String,
    owner_namespace: String,
    owner_name: String,
    /// Value of the label all members have.
    hash: String,
}

/// Members by their set, for [`ObjectSet::members`].
const BY_SET: &str = "provisioning/set";

/// Files objects under the set they are members of.
pub(crate) fn index<K: Cached>(cache: &Informer<K>) {
    cache.add_index(BY_SET, |object: &K| {
        object.meta().labels.iter().filter_map(|labels| labels.get(object_set::HASH).cloned()).collect()
    });
}

/// An object as we want it: only the fields that are ours to decide.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Child {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) value: Value,
}

impl Child {
    pub(crate) fn new<K>(object: &K) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let encode = |source| Error::Encode { what: "an object to be applied", source };
        let value = serde_json::to_value(object).map_err(encode)?;
        Ok(Self { kind: Kind::of::<K>(&()), key: ObjectKey::of(object.meta()), value })
    }
}

/// What there is to do about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Write,
    /// Its predecessor is still being deleted.
    Wait,
    /// There is one of its name that was made for something else. It is not ours to change or to delete.
    Foreign,
}

impl ObjectSet {
    pub(crate) fn new<K: Resource<DynamicType = ()>>(id: &'static str, owner: &ObjectMeta) -> Self {
        let owner_gvk = format!("{}, Kind={}", K::api_version(&()), K::kind(&()));
        let owner_namespace = owner.namespace.clone().unwrap_or_default();
        let owner_name = owner.name.clone().unwrap_or_default();
        let text = format!("{id}\n{owner_gvk}\n{owner_namespace}/{owner_name}");
        let hash = sha256_hex(text.as_bytes(), 40);
        Self { id, owner_gvk, owner_namespace, owner_name, hash }
    }

    /// Members of a kind that was filed with [`index`].
    pub(crate) fn members<K: Cached>(&self, cache: &Informer<K>) -> Vec<Arc<K>> {
        cache.by_index(BY_SET, &self.hash)
    }

    pub(crate) fn selector(&self) -> String {
        format!("{}={}", object_set::HASH, self.hash)
    }

    pub(crate) fn has(&self, meta: &ObjectMeta) -> bool {
        meta.labels.as_ref().and_then(|labels| labels.get(object_set::HASH)) == Some(&self.hash)
    }

    /// A member that is deleted when nothing wants it any more.
    pub(crate) fn prunes(&self, meta: &ObjectMeta) -> bool {
        let keep = meta.labels.as_ref().and_then(|labels| labels.get(label::PRUNE));
        self.has(meta) && keep.is_none_or(|keep| keep != "false") && meta.deletion_timestamp.is_none()
    }

    /// Makes an object a member.
    pub(crate) fn mark(&self, child: &mut Child) {
        if let Some(fields) = child.value.as_object_mut() {
            fields.remove("status");
            fields.insert("apiVersion".to_owned(), child.kind.api_version().into());
            fields.insert("kind".to_owned(), child.kind.kind.clone().into());
        }
        let applied = sha256_hex(child.value.to_string().as_bytes(), 16);
        let labels = entry(&mut child.value, "labels");
        labels.insert(object_set::HASH.to_owned(), self.hash.clone().into());
        labels.insert(APPLIED.to_owned(), applied.into());
        let annotations = entry(&mut child.value, "annotations");
        for (key, value) in [
            (object_set::ID, self.id),
            (object_set::OWNER_GVK, &self.owner_gvk),
            (object_set::OWNER_NAME, &self.owner_name),
            (object_set::OWNER_NAMESPACE, &self.owner_namespace),
        ] {
            annotations.insert(key.to_owned(), value.into());
        }
    }

    /// Whether an object was made for the same owner.
    pub(crate) fn made(&self, meta: &ObjectMeta) -> bool {
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        let is = |key: &str, value: &str| annotations.get(key).is_some_and(|known| known == value);
        is(object_set::OWNER_GVK, &self.owner_gvk)
            && is(object_set::OWNER_NAMESPACE, &self.owner_namespace)
            && is(object_set::OWNER_NAME, &self.owner_name)
    }
}

fn entry<'a>(value: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let map = &mut value["metadata"][field];
    if !map.is_object() {
        *map = json!({});
    }
    map.as_object_mut().expect("it was just made an object")
}

/// What there is to do about a marked child, given what exists under its name.
pub(crate) fn need(child: &Child, existing: Option<&Value>) -> Need {
    let Some(existing) = existing else {
        return Need::Write;
    };
    let set = |object: &Value| object["metadata"]["labels"][object_set::HASH].clone();
    if set(existing) != set(&child.value) {
        return Need::Foreign;
    }
    if !existing["metadata"]["deletionTimestamp"].is_null() {
        return Need::Wait;
    }
    if contains(existing, &child.value) { Need::Nothing } else { Need::Write }
}

pub(crate) fn api(client: &Client, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Applies one child. Fields that others decide stay theirs; fields we no longer want go.
pub(crate) async fn apply(ctx: &Ctx, child: &Child) -> Result<DynamicObject, Error> {
    let api = api(&ctx.client, &child.kind.api_resource(), child.key.namespace.as_deref());
    let params = PatchParams::apply(&ctx.field_manager).force();
    let written = api.patch(&child.key.name, &params, &Patch::Apply(&child.value)).await;
    written.map_err(Error::api("apply", format!("{} {}", child.kind, child.key)))
}

/// Asks for the deletion of exactly this object; tells whether it was still there.
pub(crate) async fn delete(ctx: &Ctx, resource: &ApiResource, meta: &ObjectMeta) -> Result<bool, Error> {
    let key = ObjectKey::of(meta);
    let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: None };
    let params = DeleteParams::background().preconditions(preconditions);
    match api(&ctx.client, resource, key.namespace.as_deref()).delete(&key.name, &params).await {
        Ok(_) => Ok(true),
        // Gone already, or another one by now.
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(false),
        Err(source) => Err(Error::Api { verb: "delete", what: format!("{} {key}", resource.kind), source }),
    }
}

/// Whether everything in `part` is in `whole`. Owners may be more and in another order, as several write them;
/// other lists must match.
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
    use remuda_api::core::MachineDeployment;

    use super::*;

    fn set(name: &str) -> ObjectSet {
        let owner = ObjectMeta { name: Some(name.into()), namespace: Some("a".into()), ..Default::default() };
        ObjectSet::new::<remuda_api::provisioning::Cluster>("rke-cluster", &owner)
    }

    fn child(value: Value) -> Child {
        let kind = Kind::of::<MachineDeployment>(&());
        Child { kind, key: ObjectKey::namespaced("a", "x"), value }
    }

    #[test]
    fn members_are_told_apart_by_owner() {
        let mut child = child(json!({"metadata": {"name": "x"}, "spec": {"replicas": 1}, "status": {}}));
        set("demo").mark(&mut child);
        let meta: ObjectMeta = serde_json::from_value(child.value["metadata"].clone()).unwrap();
        assert!(set("demo").has(&meta) && set("demo").made(&meta) && set("demo").prunes(&meta));
        assert!(!set("other").has(&meta) && !set("other").made(&meta));
        assert!(child.value.get("status").is_none());
    }

    #[test]
    fn what_was_applied_and_is_still_there_needs_nothing() {
        let make = |spec: Value| {
            let mut child = child(json!({"metadata": {"name": "x"}, "spec": spec}));
            set("demo").mark(&mut child);
            child
        };
        let wanted = make(json!({"replicas": 1, "list": [{"a": 1}]}));
        let mut existing = wanted.value.clone();
        existing["spec"]["paused"] = json!(true);
        existing["metadata"]["labels"]["theirs"] = json!("x");
        existing["status"] = json!({"replicas": 1});
        assert_eq!(need(&wanted, None), Need::Write);
        assert_eq!(need(&wanted, Some(&existing)), Need::Nothing);
        // A field that left the wanted object shows in the hash only.
        assert_eq!(need(&make(json!({"replicas": 1})), Some(&existing)), Need::Write);
        existing["spec"]["replicas"] = json!(2);
        assert_eq!(need(&wanted, Some(&existing)), Need::Write);
        existing["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(need(&wanted, Some(&existing)), Need::Wait);
    }

    #[test]
    fn owners_of_others_do_not_matter() {
        let whole = json!([{"uid": "2"}, {"uid": "1", "kind": "A"}]);
        assert!(contains(&whole, &json!([{"uid": "1", "kind": "A"}])));
        assert!(!contains(&whole, &json!([{"uid": "3"}])));
        assert!(!contains(&json!(["a", "b"]), &json!(["b"])));
    }
}
