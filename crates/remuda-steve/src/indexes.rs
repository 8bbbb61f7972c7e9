//! All indexes of an API: made when first asked for, dropped when nothing asks any more.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::Client;
use parking_lot::Mutex;
use remuda_door::Refusal;
use tokio::time::{Instant, sleep_until};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{index::Index, kind::Kind};

/// An index is dropped when it was not used for so long.
const IDLE: Duration = Duration::from_secs(300);
/// Indexes at one time.
const MOST: usize = 512;

pub(crate) struct Indexes {
    /// May read every kind; what a caller sees is decided for each query.
    client: Client,
    known: Mutex<HashMap<String, Arc<Index>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Indexes {
    pub(crate) fn new(client: Client, tasks: TaskTracker, stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { client, known: Mutex::default(), tasks, stop })
    }

    /// The index of a kind, once it is filled. `keeps` asks for objects, not only for their states.
    pub(crate) async fn get(self: &Arc<Self>, kind: &Arc<Kind>, keeps: bool) -> Result<Arc<Index>, Refusal> {
        let index = self.begin(kind, keeps)?;
        index.ready().await?;
        Ok(index)
    }

    /// The same without waiting.
    pub(crate) fn begin(self: &Arc<Self>, kind: &Arc<Kind>, keeps: bool) -> Result<Arc<Index>, Refusal> {
        let mut known = self.known.lock();
        if let Some(index) = known.get(&kind.id) {
            let is_good = !index.is_gone() && index.kind == *kind && (index.keeps || !keeps);
            if is_good {
                index.touch();
                return Ok(index.clone());
            }
            index.stop.cancel();
        }
        if known.len() >= MOST {
            let oldest = known.values().min_by_key(|index| index.used()).cloned();
            let unused = oldest.filter(|index| index.used().elapsed() > Duration::from_secs(1));
            let Some(unused) = unused else {
                return Err(Refusal::not_yet("too many kinds are listed at the same time"));
            };
            unused.stop.cancel();
            known.remove(&unused.kind.id);
        }
        let index = Index::new(kind.clone(), keeps, self.stop.child_token());
        known.insert(kind.id.clone(), index.clone());
        let (indexes, running, client) = (self.clone(), index.clone(), self.client.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = running.run(client) => {}
                () = idle(&running) => {}
            }
            indexes.forget(&running);
        });
        Ok(index)
    }

    /// An index that is there already.
    pub(crate) fn peek(&self, id: &str) -> Option<Arc<Index>> {
        self.known.lock().get(id).filter(|index| !index.is_gone()).cloned()
    }

    fn forget(&self, index: &Arc<Index>) {
        let mut known = self.known.lock();
        index.stop.cancel();
        if known.get(&index.kind.id).is_some_and(|own| Arc::ptr_eq(own, index)) {
            known.remove(&index.kind.id);
            tracing::debug!(kind = index.kind.id, "index dropped");
        }
    }

    /// Kinds, objects and their bytes that are held.
    pub(crate) fn held(&self) -> (usize, usize, usize) {
        let known = self.known.lock();
        known.values().fold((0, 0, 0), |(kinds, rows, bytes), index| {
            let (more_rows, more_bytes) = index.size();
            (kinds + 1, rows + more_rows, bytes + more_bytes)
        })
    }
}

/// Returns when an index was not used for long enough. Sleeps until that can be.
async fn idle(index: &Index) {
    loop {
        let until = index.used() + IDLE;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}
