//! Objects made from one object, as a set: what is in it is applied, what has left it is deleted.
//!
//! Members do not belong to their maker in the sense of owner references, as Cluster API takes most of them over.
//! They are known by a label instead.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
pub(crate) use remuda_control::write::{Child, Need, delete_exactly as delete, dynamic_api as api};
use remuda_control::{Informer, informer::Cached};
use remuda_names::rancher::{label, object_set};
use serde_json::Value;

use crate::naming::sha256_hex;

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

/// There is an object of the child's name that was made for something else. It is not ours to change or to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foreign;

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
        child.mark();
        child.metadata("labels").insert(object_set::HASH.to_owned(), self.hash.clone().into());
        let annotations = child.metadata("annotations");
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

/// What there is to do about a marked child, given what exists under its name.
pub(crate) fn need(child: &Child, existing: Option<&Value>) -> Result<Need, Foreign> {
    let set = |object: &Value| object["metadata"]["labels"][object_set::HASH].clone();
    match existing {
        Some(existing) if set(existing) != set(&child.value) => Err(Foreign),
        existing => Ok(child.need(existing)),
    }
}

#[cfg(test)]
mod tests {
    use remuda_api::core::MachineDeployment;
    use remuda_control::{Kind, ObjectKey};
    use serde_json::json;

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
    fn an_object_of_another_set_is_foreign() {
        let mut wanted = child(json!({"metadata": {"name": "x"}}));
        set("demo").mark(&mut wanted);
        assert_eq!(need(&wanted, None), Ok(Need::Write));
        assert_eq!(need(&wanted, Some(&wanted.value)), Ok(Need::Nothing));
        let mut other = child(json!({"metadata": {"name": "x"}}));
        set("other").mark(&mut other);
        other.value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(need(&wanted, Some(&other.value)), Err(Foreign));
        assert_eq!(need(&wanted, Some(&json!({"metadata": {"name": "x"}}))), Err(Foreign));
    }
}
