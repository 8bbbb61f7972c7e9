//! Waiting for the first object of some kinds: who has nothing to look after need not run.

use std::time::Duration;

use futures::{StreamExt, future::select_all, pin_mut};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchParams},
    core::WatchEvent,
};
use remuda_base::Backoff;
use tokio_util::sync::CancellationToken;

use crate::Chain;

/// Between attempts, at first and at most.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

/// Returns when there is an object of one of the kinds; `false` if told to stop before.
pub async fn first_of(client: &Client, kinds: &[ApiResource], stop: &CancellationToken) -> bool {
    if kinds.is_empty() {
        return stop.run_until_cancelled(std::future::pending::<()>()).await.is_some();
    }
    let looks = kinds.iter().map(|kind| Box::pin(keep_looking(client, kind)));
    stop.run_until_cancelled(select_all(looks)).await.is_some()
}

async fn keep_looking(client: &Client, kind: &ApiResource) {
    let api = Api::all_with(client.clone(), kind);
    let mut row = BACKOFF.begin();
    loop {
        match look(&api).await {
            Ok(true) => return,
            // Watches end after a while; the next begins at once.
            Ok(false) => row.reset(),
            Err(error) => {
                tracing::debug!(kind = kind.kind, error = %Chain(&error), "cannot be watched yet");
                tokio::time::sleep(row.delay()).await;
            }
        }
    }
}

/// Whether there is one, now or before the watch ends.
async fn look(api: &Api<DynamicObject>) -> kube::Result<bool> {
    let found = api.list_metadata(&ListParams::default().limit(1)).await?;
    if !found.items.is_empty() {
        return Ok(true);
    }
    let version = found.metadata.resource_version.unwrap_or_default();
    let events = api.watch_metadata(&WatchParams::default(), &version).await?;
    pin_mut!(events);
    while let Some(event) = events.next().await.transpose()? {
        match event {
            WatchEvent::Added(_) | WatchEvent::Modified(_) => return Ok(true),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(false)
}
