//! What expires: Events after an hour, bootstrap tokens when they say. A heap of times says when to look next; idle
//! costs nothing.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use remuda_auth::{request_info::Verb, tokens::BOOTSTRAP_SECRET_TYPE};
use remuda_store::{Change, Record, Write};
use tokio::sync::Notify;
use tracing::debug;

use super::Term;
use crate::{
    follow::News,
    options::DeleteOptions,
    read::store_error,
    server::{Inner, StartError},
    status::ApiResult,
};

const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Where bootstrap tokens are looked for.
const TOKENS: &str = "/core/secrets/kube-system/";

/// When something expires, its key, and the revision that does.
type Expiry = (Timestamp, Arc<str>, u64);

#[derive(Default)]
struct Expiries {
    heap: Mutex<BinaryHeap<Reverse<Expiry>>>,
    earlier: Notify,
}

impl Expiries {
    fn put(&self, record: &Record, at: Timestamp) {
        let mut heap = self.heap.lock();
        let first = heap.peek().is_none_or(|Reverse((next, ..))| at < *next);
        heap.push(Reverse((at, record.key.clone(), record.revision)));
        if first {
            self.earlier.notify_one();
        }
    }
}

/// When an object expires: counted for Events from the last write, as the reference's leases do.
type Expires = fn(&Record, Timestamp) -> Option<Timestamp>;

fn event_expires(record: &Record, now: Timestamp) -> Option<Timestamp> {
    Some(written_at(record).unwrap_or(now) + LIFETIME)
}

/// A token without a time stays.
fn token_expires(record: &Record, _: Timestamp) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Secret {
        #[serde(default, rename = "type")]
        type_: String,
        #[serde(default)]
        data: std::collections::HashMap<String, String>,
    }
    let secret: Secret = serde_json::from_slice(&record.value).ok()?;
    if secret.type_ != BOOTSTRAP_SECRET_TYPE {
        return None;
    }
    let expiration = STANDARD.decode(secret.data.get("expiration")?).ok()?;
    std::str::from_utf8(&expiration).ok()?.trim().parse().ok()
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
    start_one(inner, term, "/core/events/", event_expires).await?;
    start_one(inner, term, TOKENS, token_expires).await
}

async fn start_one(
    inner: &Arc<Inner>,
    term: &Term,
    prefix: &str,
    expires: Expires,
) -> Result<(), StartError> {
    let expiries = Arc::new(Expiries::default());
    let (told, clock) = (expiries.clone(), inner.config.clock);
    let put = move |record: &Record| {
        if let Some(at) = expires(record, clock()) {
            told.put(record, at);
        }
    };
    let told = expiries.clone();
    inner
        .follow_quietly(term, prefix, move |news| match news {
            News::Reset(records) => {
                told.heap.lock().clear();
                records.iter().for_each(|record| put(record));
            }
            News::Changed(event) if event.change != Change::Deleted => put(&event.record),
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
        if let Err(error) = remove(server, &key, revision).await {
            debug!(%key, %error, "what has expired is not removed");
        }
    }
}

/// One that was written since has a later entry of its own.
async fn remove(server: &Inner, key: &str, revision: u64) -> ApiResult<()> {
    if let Some(name) = key.strip_prefix(TOKENS) {
        let call = server.own_call("", "secrets", Verb::Delete, Some("kube-system"), Some(name))?;
        let options =
            DeleteOptions { resource_version: Some(revision.to_string()), ..DeleteOptions::default() };
        return server.delete_object(&call, &options).await.map(drop);
    }
    let write = Write::Delete { key: key.to_owned(), expected: revision, last: None };
    server.store.write(write).await.map(drop).map_err(store_error)
}
