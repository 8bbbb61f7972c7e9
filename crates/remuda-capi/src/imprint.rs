//! Labels and annotations that a parent gives to its children, and takes away again.
//!
//! Others label the same objects, so only keys that came from the parent may go when the parent no longer has
//! them. Which those are is told by the API's record of who manages what; the caches of children keep that
//! part of it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use kube::Resource;
use remuda_api::core::{Machine, MachineSet};
use remuda_control::Informers;
use serde_json::{Map, Value, json};

/// Field manager of what a MachineSet writes to its Machines and to the objects behind them.
pub(crate) const SET: &str = "capi-machineset";
/// Field manager of what a MachineSet notes on its Machines: what it wrote as [`SET`] and no longer gives goes.
pub(crate) const SET_NOTES: &str = "capi-machineset-notes";
/// Field manager of what a MachineDeployment writes to its MachineSets.
pub(crate) const DEPLOYMENT: &str = "capi-machinedeployment";

/// Has caches keep what [`Given::read`] looks for. To be called before they are filled.
pub(crate) fn keep(informers: &Informers) {
    informers.trim(|machine: &mut Machine| trim(machine.meta_mut(), SET));
    informers.trim(|set: &mut MachineSet| trim(set.meta_mut(), DEPLOYMENT));
}

fn trim(meta: &mut ObjectMeta, manager: &str) {
    let Some(entries) = meta.managed_fields.take() else {
        return;
    };
    let kept: Vec<ManagedFieldsEntry> = entries
        .into_iter()
        .filter(|entry| entry.manager.as_deref() == Some(manager) && entry.subresource.is_none())
        .filter_map(|entry| {
            let metadata = entry.fields_v1?.0.get_mut("f:metadata")?.take();
            let part = |key: &str| metadata.get(key).cloned().unwrap_or_default();
            let kept = json!({"f:labels": part("f:labels"), "f:annotations": part("f:annotations")});
            Some(ManagedFieldsEntry {
                manager: entry.manager,
                operation: entry.operation,
                fields_v1: Some(FieldsV1(json!({"f:metadata": kept}))),
                ..ManagedFieldsEntry::default()
            })
        })
        .collect();
    meta.managed_fields = (!kept.is_empty()).then_some(kept);
}

/// Keys that one manager gave to an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

impl Given {
    pub(crate) fn read(meta: &ObjectMeta, manager: &str) -> Self {
        let mut given = Self::default();
        let entries = meta.managed_fields.iter().flatten();
        for entry in entries.filter(|entry| entry.manager.as_deref() == Some(manager)) {
            let metadata = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:metadata"));
            let keys = |part: &str| {
                let fields = metadata.and_then(|metadata| metadata.get(part)).and_then(Value::as_object);
                let keys = fields.into_iter().flat_map(Map::keys);
                keys.filter_map(|key| key.strip_prefix("f:")).map(str::to_owned).collect::<Vec<_>>()
            };
            given.labels.extend(keys("f:labels"));
            given.annotations.extend(keys("f:annotations"));
        }
        given
    }

    /// The merge patch of `metadata` that gives an object these labels and annotations, and takes those away
    /// that were given before and no longer are. Empty if there is nothing to do.
    pub(crate) fn patch(
        &self,
        meta: &ObjectMeta,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Map<String, Value> {
        let mut patch = Map::new();
        let parts = [
            ("labels", &meta.labels, labels, &self.labels),
            ("annotations", &meta.annotations, annotations, &self.annotations),
        ];
        for (part, has, wanted, given) in parts {
            let none = BTreeMap::new();
            let changed = change(has.as_ref().unwrap_or(&none), wanted, given);
            if !changed.is_empty() {
                patch.insert(part.to_owned(), Value::Object(changed));
            }
        }
        patch
    }
}

fn change(
    has: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    given: &BTreeSet<String>,
) -> Map<String, Value> {
    let stale = given.iter().filter(|key| has.contains_key(*key) && !wanted.contains_key(*key));
    let stale = stale.map(|key| (key.clone(), Value::Null));
    let new = wanted.iter().filter(|(key, value)| has.get(*key) != Some(value));
    stale.chain(new.map(|(key, value)| (key.clone(), json!(value)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn only_what_was_given_is_taken_away() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:old": {}, "f:same": {}}, "f:finalizers": {}},
            "f:spec": {},
        });
        let entry = |manager: &str, fields: Value| ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            fields_v1: Some(FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        };
        let theirs = json!({"f:metadata": {"f:labels": {"f:theirs": {}}}});
        let mut meta = ObjectMeta {
            labels: Some(map(&[("old", "1"), ("same", "1"), ("theirs", "1")])),
            managed_fields: Some(vec![entry(SET, fields), entry("somebody", theirs)]),
            ..ObjectMeta::default()
        };
        trim(&mut meta, SET);
        assert_eq!(meta.managed_fields.as_ref().map(Vec::len), Some(1));
        let patch = Given::read(&meta, SET).patch(&meta, &map(&[("same", "1"), ("new", "2")]), &map(&[]));
        assert_eq!(Value::Object(patch), json!({"labels": {"old": null, "new": "2"}}));
        let settled = Given::read(&meta, SET).patch(&meta, &map(&[("same", "1"), ("old", "1")]), &map(&[]));
        assert!(settled.is_empty());
    }
}
