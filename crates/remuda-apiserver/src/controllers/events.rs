//! Events live for an hour. A heap of expiry times says when to look next; idle costs nothing.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use remuda_store::{Change, Record, Write};
use tokio::sync::Notify;
use tracing::debug;

use super::Term;
use crate::{
    follow::News,
    server::{Inner, StartError},
};

const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// When an event expires, its key, and the revision that does.
type Expiry = (Timestamp, Arc<str>, u64);

#[derive(Default)]
struct Expiries {
    heap: Mutex<BinaryHeap<Reverse<Expiry>>>,
    earlier: Notify,
}

impl Expiries {
    /// Counts the lifetime from the event's last write, as the reference's leases do.
    fn put(&self, record: &Record, now: Timestamp) {
        let at = written_at(record).unwrap_or(now) + LIFETIME;
        let mut heap = self.heap.lock();
        let first = heap.peek().is_none_or(|Reverse((next, ..))| at < *next);
        heap.push(Reverse((at, record.key.clone(), record.revision)));
        if first {
            self.earlier.notify_one();
        }
    }
}

/// The newest time an event carries.
fn written_at(record: &Record) -> Option<Timestamp> {
    let event: serde_json::Value = serde_json::from_slice(&record.value).ok()?;
    let times = [
        &event["lastTimestamp"],
        &event["series"]["lastObservedTime"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    times.iter().filter_map(|time| time.as_str()?.parse().ok()).max()
}

pub(super) async fn start(inner: &Arc<Inner>, term: &Term) -> Result<(), StartError> {
    let expiries = Arc::new(Expiries::default());
    let (told, clock) = (expiries.clone(), inner.config.clock);
    inner
        .follow_quietly(term, "/core/events/", move |news| match news {
            News::Reset(records) => {
                told.heap.lock().clear();
                records.iter().for_each(|record| told.put(record, clock()));
            }
            News::Changed(event) if event.change != Change::Deleted => told.put(&event.record, clock()),
            News::Changed(_) => {}
        })
        .await?;
    let (server, stop) = (inner.clone(), term.stop.clone());
    term.tasks.spawn(async move {
        loop {
            let next = expiries.heap.lock().peek().map(|Reverse((at, ..))| *at);
            let wait = match next {
                Some(at) => Duration::try_from(at.duration_since(server.now())).unwrap_or_default(),
                None => Duration::MAX,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = expiries.earlier.notified() => {}
                () = tokio::time::sleep(wait.min(Duration::from_secs(24 * 3600))) => expire(&server, &expiries).await,
            }
        }
    });
    Ok(())
}

async fn expire(server: &Inner, expiries: &Expiries) {
    loop {
        let (key, revision) = {
            let mut heap = expiries.heap.lock();
            match heap.peek() {
                Some(Reverse((at, ..))) if *at <= server.now() => {}
                _ => return,
            }
            match heap.pop() {
                Some(Reverse((_, key, revision))) => (key, revision),
                None => return,
            }
        };
        // One that was written since has a later entry of its own.
        let write = Write::Delete { key: key.to_string(), expected: revision, last: None };
        if let Err(error) = server.store.write(write).await {
            debug!(%key, %error, "expired event not removed");
        }
    }
}
