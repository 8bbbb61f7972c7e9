//! Waiting for one object to be as somebody needs it.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt, pin_mut};
use kube::{
    Api, Resource,
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use remuda_base::Backoff;
use serde::de::DeserializeOwned;

/// Between watches that fail, at first and at most.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// Returns the object once `is_done` accepts it; `None` is accepted as an object that is not there.
///
/// A watch that ends or fails is opened again from a new list. An error is returned only when the object cannot be
/// listed. There is no deadline here: whoever waits knows theirs.
pub async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    is_done: impl Fn(Option<&K>) -> bool,
) -> kube::Result<Option<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let only = format!("metadata.name={name}");
    let mut attempts = BACKOFF.begin();
    loop {
        let found = api.list(&ListParams::default().fields(&only)).await?;
        let version = found.metadata.resource_version.unwrap_or_default();
        let object = found.items.into_iter().next();
        if is_done(object.as_ref()) {
            return Ok(object);
        }
        let Ok(events) = api.watch(&WatchParams::default().fields(&only), &version).await else {
            tokio::time::sleep(attempts.delay()).await;
            continue;
        };
        pin_mut!(events);
        loop {
            match events.next().await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    if is_done(Some(&object)) {
                        return Ok(Some(object));
                    }
                }
                Some(Ok(WatchEvent::Deleted(_))) => {
                    if is_done(None) {
                        return Ok(None);
                    }
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => break,
            }
        }
        // A server that ends every watch at once is not asked without a pause.
        tokio::time::sleep(attempts.delay()).await;
    }
}
