//! Finalizers: an object whose cleanup is ours is not gone before it is done.
//!
//! Adding and removing are JSON patches that test what they rely on, so they neither depend on
//! the newest version of the object nor disturb the finalizers of others.

use std::{fmt::Debug, future::Future};

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Named;
use crate::error::{Context, Error, is_code};

/// What to do with an object that has, or should have, our finalizer.
#[derive(Debug)]
pub enum Finalizer<K> {
    /// It lives and our finalizer is on it: this is its state.
    Active(K),
    /// It is being deleted. Clean up, whatever was or was not set up, then [`remove_finalizer`] it.
    Deleting(K),
    /// It is being deleted and waits for others, or is gone: none of our business any more.
    Gone,
}

/// Puts our finalizer on a live object. Call it before anything that needs cleanup is made.
pub async fn ensure_finalizer<K>(
    api: &Api<K>,
    object: K,
    dynamic: &K::DynamicType,
    finalizer: &str,
) -> Result<Finalizer<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let ours = object.finalizers().iter().any(|known| known == finalizer);
    match (object.meta().deletion_timestamp.is_some(), ours) {
        (false, true) => return Ok(Finalizer::Active(object)),
        (true, true) => return Ok(Finalizer::Deleting(object)),
        (true, false) => return Ok(Finalizer::Gone),
        (false, false) => {}
    }
    let known = object.finalizers();
    let mut steps = vec![json!({"op": "test", "path": "/metadata/uid", "value": object.uid()})];
    if known.is_empty() {
        // To the API server a missing field tests equal to null.
        steps.push(json!({"op": "test", "path": "/metadata/finalizers", "value": null}));
        steps.push(json!({"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}));
    } else {
        steps.push(json!({"op": "test", "path": "/metadata/finalizers", "value": known}));
        steps.push(json!({"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}));
    }
    match patch(api, &object, dynamic, steps).await? {
        // It may have begun to die between our look and our patch: the API then refuses new
        // finalizers. Had it let one through, we would have to clean up.
        Some(object) if object.meta().deletion_timestamp.is_some() => Ok(Finalizer::Deleting(object)),
        Some(object) => Ok(Finalizer::Active(object)),
        None => Ok(Finalizer::Gone),
    }
}

/// Takes our finalizer off. An object without it, or one that is gone, is fine.
pub async fn remove_finalizer<K>(
    api: &Api<K>,
    object: &K,
    dynamic: &K::DynamicType,
    finalizer: &str,
) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let Some(index) = object.finalizers().iter().position(|known| known == finalizer) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{index}");
    let steps = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": object.uid()}),
        json!({"op": "test", "path": path, "value": finalizer}),
        json!({"op": "remove", "path": path}),
    ];
    patch(api, object, dynamic, steps).await.map(drop)
}

/// Both at once: guards the object, then calls `live` while it lives, or `cleanup` and releases it
/// when it dies. `cleanup` may be called more than once and must succeed where `live` never ran.
pub async fn finalize<K, T, E, L, C>(
    api: &Api<K>,
    object: K,
    dynamic: &K::DynamicType,
    finalizer: &str,
    live: impl FnOnce(K) -> L,
    cleanup: impl FnOnce(K) -> C,
) -> Result<Option<T>, E>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    E: From<Error>,
    L: Future<Output = Result<T, E>>,
    C: Future<Output = Result<(), E>>,
{
    match ensure_finalizer(api, object, dynamic, finalizer).await? {
        Finalizer::Active(object) => live(object).await.map(Some),
        Finalizer::Deleting(object) => {
            cleanup(object.clone()).await?;
            remove_finalizer(api, &object, dynamic, finalizer).await?;
            Ok(None)
        }
        Finalizer::Gone => Ok(None),
    }
}

/// `None` when the object is gone. A test that fails means that our view is old.
async fn patch<K>(
    api: &Api<K>,
    object: &K,
    dynamic: &K::DynamicType,
    steps: Vec<Value>,
) -> Result<Option<K>, Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let what = Named::of(object, dynamic);
    let steps = serde_json::from_value(Value::Array(steps));
    let steps = steps.map_err(|source| Error::Encode { what: what.to_string(), source })?;
    let patch: Patch<()> = Patch::Json(steps);
    match api.patch(&object.name_any(), &PatchParams::default(), &patch).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if is_code(&error, 404) => Ok(None),
        Err(source) if is_code(&source, 422) => Err(Error::Stale { what: what.to_string(), source }),
        Err(error) => Err(error).context("write finalizers of", what),
    }
}
