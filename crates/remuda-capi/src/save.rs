//! Writes what a reconcile changed in its object.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_control::{Ctx, Informer, write::difference};
use remuda_names::capi::condition as kind;
use serde_json::{Map, Value, json};

use crate::{
    error::{Error, is_code},
    managed::Managed,
};

/// How often conditions are merged anew when others write at the same time.
const ATTEMPTS: usize = 5;
/// A cache that lags longer than this will be seen as old by the next write.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Writes the difference between an object as it was read and as it should be, and waits until the cache has
/// seen it. `None` if there was nothing to write, or nobody left to write it for.
///
/// Metadata and spec go first, then the status. Conditions that the kind does not own stay as others wrote them.
pub(crate) async fn save<K: Managed>(
    ctx: &Ctx,
    api: &Api<K>,
    cache: &Informer<K>,
    before: &K,
    after: &K,
) -> Result<Option<K>, Error> {
    if before == after {
        return Ok(None);
    }
    let after = &pause_observed(before, after);
    let what = || format!("{} {}/{}", K::KIND, before.namespace().unwrap_or_default(), before.name_any());
    let encode = |object: &K| {
        serde_json::to_value(object).map_err(|source| remuda_control::Error::Encode { what: what(), source })
    };
    let (old, new) = (encode(before)?, encode(after)?);
    let params = PatchParams { field_manager: Some(ctx.field_manager.to_string()), ..PatchParams::default() };
    let mut written = None;
    if let Some(patch) = main_patch(&old, &new, before.uid()) {
        match api.patch(&before.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(object) => written = Some(object),
            Err(error) if is_code(&error, 404) => return Ok(None),
            Err(source) => return Err(Error::Api { verb: "write", what: what(), source }),
        }
    }
    if let Some(status) = difference(&old["status"], &new["status"]) {
        let base = written.clone().unwrap_or_else(|| before.clone());
        match save_status(api, &params, before, base, after, status).await {
            Ok(Some(object)) => written = Some(object),
            Ok(None) => return Ok(None),
            Err(source) => return Err(Error::Api { verb: "write status of", what: what(), source }),
        }
    }
    if let Some(version) = written.as_ref().and_then(ResourceExt::resource_version) {
        cache.wait_for(&version, PATIENCE).await;
    }
    Ok(written)
}

/// What is said of a pause holds for the generation that was looked at. It is written with what else is, and alone
/// it is no reason to write: the first write of a generation has it.
fn pause_observed<K: Managed>(before: &K, after: &K) -> K {
    let goes_on = |condition: &Condition| condition.type_ == kind::PAUSED && condition.status == "False";
    let mut after = after.clone();
    if let Some(place) = after.conditions().iter().position(goes_on) {
        after.conditions_mut()[place].observed_generation = before.meta().generation;
    }
    after
}

/// The merge patch of everything but the status. Lists of owners and finalizers are replaced as a whole, so
/// they must not have changed meanwhile.
fn main_patch(old: &Value, new: &Value, uid: Option<String>) -> Option<Value> {
    let mut metadata = Map::new();
    let mut exact = false;
    for key in ["labels", "annotations", "ownerReferences", "finalizers"] {
        let (old, new) = (&old["metadata"][key], &new["metadata"][key]);
        let empty = |value: &Value| {
            value.is_null()
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(Map::is_empty)
        };
        if empty(old) && empty(new) {
            continue;
        }
        if let Some(difference) = difference(old, new) {
            exact |= difference.is_array() || difference.is_null();
            metadata.insert(key.to_owned(), difference);
        }
    }
    let spec = difference(&old["spec"], &new["spec"]);
    if metadata.is_empty() && spec.is_none() {
        return None;
    }
    metadata.insert("uid".to_owned(), json!(uid));
    if exact {
        metadata.insert("resourceVersion".to_owned(), old["metadata"]["resourceVersion"].clone());
    }
    let mut patch = json!({"metadata": metadata});
    if let Some(spec) = spec {
        patch["spec"] = spec;
    }
    Some(patch)
}

async fn save_status<K: Managed>(
    api: &Api<K>,
    params: &PatchParams,
    before: &K,
    mut base: K,
    after: &K,
    mut status: Value,
) -> Result<Option<K>, kube::Error> {
    let name = before.name_any();
    let conditions = status.get("conditions").is_some();
    for attempt in 1.. {
        let mut metadata = json!({"uid": before.uid()});
        if conditions {
            let merged = merge(base.conditions(), before.conditions(), after.conditions(), K::OWNED);
            status["conditions"] = serde_json::to_value(merged).map_err(kube::Error::SerdeError)?;
            metadata["resourceVersion"] = json!(base.resource_version());
        }
        let patch = json!({"metadata": metadata, "status": status});
        match api.patch_status(&name, params, &Patch::Merge(patch)).await {
            Ok(object) => return Ok(Some(object)),
            Err(error) if is_code(&error, 404) => return Ok(None),
            Err(error) if is_code(&error, 409) && attempt < ATTEMPTS => match api.get_opt(&name).await? {
                Some(newer) if newer.uid() == before.uid() => base = newer,
                _ => return Ok(None),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Three ways: what is ours, or what we changed, is as `after` has it; everything else as the server has it.
fn merge(server: &[Condition], before: &[Condition], after: &[Condition], owned: &[&str]) -> Vec<Condition> {
    let find = |list: &[Condition], kind: &str| list.iter().find(|known| known.type_ == kind).cloned();
    let ours = |kind: &str| owned.contains(&kind) || find(before, kind) != find(after, kind);
    let mut merged: Vec<Condition> = after
        .iter()
        .filter(|condition| ours(&condition.type_) || find(server, &condition.type_).is_some())
        .map(|condition| {
            let theirs = find(server, &condition.type_).filter(|_| !ours(&condition.type_));
            theirs.unwrap_or_else(|| condition.clone())
        })
        .collect();
    for condition in server {
        if find(&merged, &condition.type_).is_none() && !ours(&condition.type_) {
            merged.push(condition.clone());
        }
    }
    merged
}
