//! Writing status.

use std::fmt::Debug;

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::object::HasStatus,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::Named;
use crate::{
    ctx::Ctx,
    error::{Context, Error},
    key::Kind,
};

/// Writes the status that was decided from exactly this state of the object: if the object has
/// changed meanwhile, that is a conflict and the decision is made again. `None` when nothing
/// differs and nothing is written.
pub async fn write_status<K>(
    ctx: &Ctx,
    api: &Api<K>,
    object: &K,
    status: &K::Status,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + HasStatus + Clone + DeserializeOwned + Debug,
    K::Status: Serialize,
{
    patch_status(ctx, api, object, &(), object.status(), status, true).await
}

/// Writes what differs between the object's status and `status`, on whatever the object is by
/// now. For statuses that several controllers write, each its own fields; lists are replaced as
/// a whole.
pub async fn merge_status<K>(
    ctx: &Ctx,
    api: &Api<K>,
    object: &K,
    status: &K::Status,
) -> Result<Option<K>, Error>
where
    K: Resource<DynamicType = ()> + HasStatus + Clone + DeserializeOwned + Debug,
    K::Status: Serialize,
{
    patch_status(ctx, api, object, &(), object.status(), status, false).await
}

/// The form behind [`write_status`] and [`merge_status`], for objects of any kind.
pub async fn patch_status<K, S>(
    ctx: &Ctx,
    api: &Api<K>,
    object: &K,
    dynamic: &K::DynamicType,
    before: Option<&S>,
    after: &S,
    exact: bool,
) -> Result<Option<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    S: Serialize,
{
    let what = Named::of(object, dynamic);
    let value = |status: Option<&S>| {
        let value = status.map_or(Ok(Value::Null), serde_json::to_value);
        value.map_err(|source| Error::Encode { what: what.to_string(), source })
    };
    let (before, after) = (value(before)?, value(Some(after))?);
    let Some(difference) = difference(&before, &after) else {
        return Ok(None);
    };
    // The uid keeps us from writing to a successor of the same name.
    let mut metadata = Map::new();
    if let Some(uid) = object.uid() {
        metadata.insert("uid".to_owned(), uid.into());
    }
    if let Some(version) = object.resource_version().filter(|_| exact) {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    let patch = json!({"metadata": metadata, "status": difference});
    let params = PatchParams { field_manager: Some(ctx.field_manager.to_string()), ..PatchParams::default() };
    let written = api.patch_status(&object.name_any(), &params, &Patch::Merge(patch)).await;
    written.map(Some).context("write status of", what)
}

/// Applies our part of a status, for statuses that several controllers write item by item. The
/// API takes away what we applied before and do not apply now.
pub async fn apply_status<K>(
    ctx: &Ctx,
    api: &Api<K>,
    object: &K,
    dynamic: &K::DynamicType,
    status: &impl Serialize,
) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let kind = Kind::of::<K>(dynamic);
    let patch = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {"uid": object.uid()},
        "status": status,
    });
    let params = PatchParams::apply(&ctx.field_manager).force();
    let written = api.patch_status(&object.name_any(), &params, &Patch::Apply(patch)).await;
    written.context("apply status of", Named::of(object, dynamic))
}

/// The merge patch that makes `after` of `before`; `None` when they are equal.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let Value::Object(after) = after else {
        return Some(after.clone());
    };
    let none = Map::new();
    // Onto anything but an object, a patch starts from an empty one.
    let before = before.as_object().unwrap_or(&none);
    let mut patch = Map::new();
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in after {
        let changed = match before.get(key) {
            Some(before) => difference(before, value),
            // A null would delete, and is nothing to begin with.
            None if value.is_null() => None,
            None => Some(value.clone()),
        };
        if let Some(changed) = changed {
            patch.insert(key.clone(), changed);
        }
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: Value, after: Value, expected: Value) {
        assert_eq!(difference(&before, &after).unwrap_or(Value::Null), expected);
    }

    #[test]
    fn a_difference_holds_only_what_differs() {
        check(json!({"a": 1}), json!({"a": 1}), Value::Null);
        check(
            json!({"a": 1, "gone": true, "deep": {"x": 1, "y": [1]}}),
            json!({"a": 1, "new": "n", "deep": {"x": 2, "y": [1]}}),
            json!({"gone": null, "new": "n", "deep": {"x": 2}}),
        );
        check(json!({"y": [1, 2]}), json!({"y": [1]}), json!({"y": [1]}));
        check(json!({"y": [1, 2]}), json!({"y": null}), json!({"y": null}));
        check(Value::Null, json!({"a": {"b": 1}, "c": null}), json!({"a": {"b": 1}}));
        check(Value::Null, json!({}), json!({}));
    }
}
