//! Following a part of the store: first everything, then every change, without a gap.

use std::{sync::Arc, time::Duration};

use remuda_base::Backoff;
use remuda_store::{Event, ListQuery, Record, Revision, Scope, Store};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

/// Pause before a watch that could not be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What a follower is told.
pub(crate) enum News<'a> {
    /// Forget everything: this is the whole state now.
    Reset(&'a [Arc<Record>]),
    Changed(&'a Event),
}

/// How far a follower has come. Writers wait on it where a change must be in force at once.
#[derive(Clone)]
pub(crate) struct Progress {
    done: watch::Receiver<Revision>,
}

impl Progress {
    /// Returns when everything up to `revision` has been told.
    pub(crate) async fn reached(&self, revision: Revision) {
        // The sender only goes at shutdown; then nobody needs the answer any more.
        let _ = self.done.clone().wait_for(|done| *done >= revision).await;
    }
}

/// Starts following `prefix`. The first state has been told when this returns.
pub(crate) async fn follow(
    store: Arc<dyn Store>,
    prefix: &str,
    tasks: &TaskTracker,
    stop: CancellationToken,
    mut tell: impl FnMut(News<'_>) + Send + 'static,
) -> Result<Progress, remuda_store::Error> {
    let prefix = prefix.to_owned();
    let mut revision = reset(&*store, &prefix, &mut tell).await?;
    let (sender, done) = watch::channel(revision);
    tasks.spawn(async move {
        loop {
            let mut events = match store.watch(Scope::Prefix(prefix.clone()), revision) {
                Ok(events) => events,
                Err(remuda_store::Error::Compacted { .. }) => {
                    match relist(&*store, &prefix, &mut tell, &stop).await {
                        Some(at) => revision = at,
                        None => return,
                    }
                    sender.send_replace(revision);
                    continue;
                }
                // The list was answered by others; what it saw has not come here yet.
                Err(remuda_store::Error::Future { .. }) => {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = store.wait_for(revision) => continue,
                    }
                }
                Err(remuda_store::Error::Closed) => return,
                Err(error) => {
                    warn!(%prefix, %error, "watch failed, trying again");
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(RETRY) => continue,
                    }
                }
            };
            loop {
                let batch = tokio::select! {
                    () = stop.cancelled() => return,
                    batch = events.next() => batch,
                };
                match batch {
                    Ok(batch) => {
                        for event in &batch {
                            tell(News::Changed(event));
                        }
                        revision = events.position();
                        sender.send_replace(revision);
                    }
                    Err(remuda_store::WatchEnd::Compacted { .. }) => break,
                    Err(remuda_store::WatchEnd::Closed) => return,
                }
            }
        }
    });
    Ok(Progress { done })
}

async fn reset(
    store: &dyn Store,
    prefix: &str,
    tell: &mut (impl FnMut(News<'_>) + Send),
) -> Result<Revision, remuda_store::Error> {
    let page = store.list(ListQuery { prefix: prefix.to_owned(), ..Default::default() }).await?;
    tell(News::Reset(&page.records));
    Ok(page.revision)
}

/// Between lists that fail.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));

/// Lists again until it works or the server stops.
async fn relist(
    store: &dyn Store,
    prefix: &str,
    tell: &mut (impl FnMut(News<'_>) + Send),
    stop: &CancellationToken,
) -> Option<Revision> {
    let mut row = BACKOFF.begin();
    loop {
        match reset(store, prefix, tell).await {
            Ok(revision) => return Some(revision),
            Err(error) => warn!(%prefix, %error, "list failed, trying again"),
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(row.delay()) => {}
        }
    }
}
