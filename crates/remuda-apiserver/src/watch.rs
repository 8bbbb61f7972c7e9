//! WATCH: a stream of events that starts exactly where the client is.
//!
//! A watcher holds a position in the store's history, not a queue: a slow one costs no memory
//! and catches up, or is ended when history has moved past it. Events are encoded once and
//! shared by all watchers that want the same form.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use rand::RngExt;
use remuda_store::{Change, Event, Record, Revision, Scope, WatchEnd};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    body::Body,
    call::{Answer, Call},
    convert::is_served_form,
    negotiate::{Shape, response_form},
    options::ListOptions,
    read::{Filter, store_error},
    represent::{self, IncludeObject, View},
    server::Inner,
    status::{ApiError, ApiResult},
};

const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// The last bookmark comes this long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// No watch lasts longer than this many seconds, whatever its client asks for.
const LONGEST: u64 = 24 * 60 * 60;
/// Initial events are sent in pieces of about this size.
const PIECE: usize = 64 << 10;

impl Inner {
    pub(crate) async fn watch(self: &Arc<Self>, call: &Call) -> ApiResult<Answer> {
        let mut options = ListOptions::parse(&call.query)?;
        options.watch = true;
        let mut filter_options = options.clone();
        // A watch on one object is a watch on its name.
        if let Some(name) = &call.path.name {
            let selector = format!("metadata.name={name}");
            filter_options.fields = remuda_objects::selector::FieldSelector::parse(&selector).ok();
        }
        let form = response_form(&call.headers, false)?;
        let filter = Filter::new(&call.resource, &filter_options)?;
        let view = View { resource: call.resource.clone(), form, include: IncludeObject::parse(&call.query) };

        let initial = match options.send_initial_events {
            Some(initial) => initial,
            None => options.resource_version.unwrap_or(0) == 0,
        };
        if initial && let Some(revision) = options.resource_version {
            self.wait_for_revision(revision).await?;
        }
        let (records, after) = if initial {
            let list = ListOptions {
                labels: filter_options.labels.clone(),
                fields: filter_options.fields.clone(),
                ..Default::default()
            };
            let listed = self.list_records(call, &list, &filter).await?;
            (listed.records, listed.revision)
        } else {
            (Vec::new(), options.resource_version.unwrap_or(0))
        };
        let scope = match (filter.only_name(), call.namespace()) {
            (Some(name), Some(namespace)) if call.resource.namespaced => {
                Scope::Key(call.resource.key(Some(namespace), name))
            }
            (Some(name), _) if !call.resource.namespaced => Scope::Key(call.resource.key(None, name)),
            _ => Scope::Prefix(call.resource.collection(call.namespace())),
        };
        let mut ahead = None;
        let events = match self.store.watch(scope.clone(), after) {
            Ok(events) => Some(events),
            // Nothing is that new yet: the stream stays silent until something is.
            Err(remuda_store::Error::Future { .. }) => {
                ahead = Some((scope, after));
                None
            }
            Err(error @ remuda_store::Error::Compacted { .. }) => {
                let line = represent::event_line("ERROR", store_error(error).status().to_string().as_bytes());
                return Ok(Answer::body(200, Body::Stream(Box::pin(futures::stream::iter([line])))));
            }
            Err(error) => return Err(store_error(error)),
        };
        let seconds = match options.timeout_seconds {
            Some(seconds) if seconds > 0 => seconds.min(LONGEST),
            _ => rand::rng().random_range(1800..3600),
        };
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let end = match call.resource.custom() {
            // Ends with the server, too: it is a child of the server's token.
            Some(custom) => custom.crd.gone.clone(),
            None => self.stop.clone(),
        };
        let watcher = Watcher {
            server: self.clone(),
            view,
            filter,
            initial: records.into_iter(),
            // Clients that asked for initial events wait for the mark at their end.
            end_mark: (initial && options.bookmarks).then_some(after),
            events,
            ahead,
            timer: Box::pin(tokio::time::sleep_until(next_bookmark(Instant::now(), deadline))),
            deadline,
            bookmarks: options.bookmarks,
            end: Box::pin(end.cancelled_owned()),
            first: true,
            ended: false,
            _gauge: self.metrics.watcher(),
        };
        let stream = futures::stream::unfold(watcher, |mut watcher| async move {
            let piece = watcher.next().await?;
            Some((piece, watcher))
        });
        Ok(Answer::body(200, Body::Stream(Box::pin(stream))))
    }
}

struct Watcher {
    server: Arc<Inner>,
    view: View,
    filter: Filter,
    initial: std::vec::IntoIter<Arc<Record>>,
    end_mark: Option<Revision>,
    /// Absent while waiting for the version in `ahead`.
    events: Option<remuda_store::Watch>,
    ahead: Option<(Scope, Revision)>,
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
    bookmarks: bool,
    /// Kept from event to event: registering anew for each would cost as much as sending it.
    end: Pin<Box<WaitForCancellationFutureOwned>>,
    /// No event has been sent yet (Tables carry their columns in the first).
    first: bool,
    ended: bool,
    _gauge: crate::metrics::WatcherGuard,
}

/// When to send the next bookmark: regularly, once shortly before the end, then never.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline);
    if now >= last { deadline } else { last.min(now + BOOKMARK_EVERY) }
}

/// The next batch of events; opens the watch first if its version had not come yet.
async fn next_events(
    server: &Inner,
    events: &mut Option<remuda_store::Watch>,
    ahead: &mut Option<(Scope, Revision)>,
) -> Result<Vec<Arc<Event>>, WatchEnd> {
    if let Some((scope, revision)) = ahead {
        server.store.wait_for(*revision).await;
        *events = Some(match server.store.watch(scope.clone(), *revision) {
            Ok(events) => events,
            Err(remuda_store::Error::Compacted { oldest, .. }) => {
                return Err(WatchEnd::Compacted { oldest });
            }
            Err(_) => return Err(WatchEnd::Closed),
        });
        *ahead = None;
    }
    match events {
        Some(events) => events.next().await,
        None => Err(WatchEnd::Closed),
    }
}

impl Watcher {
    /// The next bytes to send; `None` ends the stream politely.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if let Some(piece) = self.initial_piece().await {
            return Some(piece);
        }
        if let Some(revision) = self.end_mark.take() {
            return Some(self.bookmark(revision, true));
        }
        loop {
            let batch = tokio::select! {
                biased;
                () = &mut self.end => return None,
                batch = next_events(&self.server, &mut self.events, &mut self.ahead) => batch,
                () = &mut self.timer => {
                    let now = Instant::now();
                    if now >= self.deadline {
                        return None;
                    }
                    self.timer.as_mut().reset(next_bookmark(now, self.deadline));
                    if let (true, Some(events)) = (self.bookmarks, &self.events) {
                        let position = events.position();
                        return Some(self.bookmark(position, false));
                    }
                    continue;
                }
            };
            match batch {
                Ok(events) => {
                    if let Some(piece) = self.encode(&events).await {
                        return Some(piece);
                    }
                }
                Err(WatchEnd::Closed) => return None,
                Err(WatchEnd::Compacted { oldest }) => {
                    self.ended = true;
                    let position = self.events.as_ref().map_or(0, remuda_store::Watch::position);
                    let message = format!("too old resource version: {position} ({oldest})");
                    let status = ApiError::expired(message).status();
                    return Some(represent::event_line("ERROR", status.to_string().as_bytes()));
                }
            }
        }
    }

    async fn initial_piece(&mut self) -> Option<Bytes> {
        let mut piece = BytesMut::new();
        while piece.len() < PIECE {
            let Some(record) = self.initial.next() else { break };
            match self.object_bytes(&record).await {
                Ok(bytes) => piece.extend_from_slice(&represent::event_line("ADDED", &bytes)),
                Err(error) => {
                    self.ended = true;
                    let status = error.status().to_string();
                    piece.extend_from_slice(&represent::event_line("ERROR", status.as_bytes()));
                    break;
                }
            }
        }
        (!piece.is_empty()).then(|| piece.freeze())
    }

    /// Encodes a batch; `None` if none of it concerns this watcher.
    async fn encode(&mut self, events: &[Arc<Event>]) -> Option<Bytes> {
        let mut single: Option<Bytes> = None;
        let mut piece = BytesMut::new();
        for event in events {
            let line = match self.kind_of(event).await {
                Ok(None) => continue,
                Ok(Some(kind)) => self.line(event, kind).await,
                Err(error) => Err(error),
            };
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    self.ended = true;
                    represent::event_line("ERROR", error.status().to_string().as_bytes())
                }
            };
            // One event, the usual case, goes out as the shared bytes.
            match single.take() {
                None if piece.is_empty() => single = Some(line),
                None => piece.extend_from_slice(&line),
                Some(earlier) => {
                    piece.extend_from_slice(&earlier);
                    piece.extend_from_slice(&line);
                }
            }
            if self.ended {
                break;
            }
        }
        single.or_else(|| (!piece.is_empty()).then(|| piece.freeze()))
    }

    /// What the event is to this watcher, whose selectors may make an update an arrival or a departure.
    async fn kind_of(&self, event: &Event) -> ApiResult<Option<&'static str>> {
        if self.filter.is_open() {
            return Ok(Some(match event.change {
                Change::Created => "ADDED",
                Change::Updated => "MODIFIED",
                Change::Deleted => "DELETED",
            }));
        }
        let resource = &self.view.resource;
        let before = match &event.previous {
            Some(previous) => self.server.selects(resource, &self.filter, previous).await?,
            None => false,
        };
        let after = event.change != Change::Deleted
            && self.server.selects(resource, &self.filter, &event.record).await?;
        Ok(match (before, after) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        })
    }

    async fn line(&mut self, event: &Event, kind: &'static str) -> ApiResult<Bytes> {
        let left = kind == "DELETED" && event.change != Change::Deleted;
        if left {
            // The object still exists but no longer matches: show what matched, at this revision.
            let Some(previous) = &event.previous else { return Ok(Bytes::new()) };
            let mut object = self.server.decode(&self.view.resource, previous).await?;
            object["metadata"]["resourceVersion"] = event.record.revision.to_string().into();
            let bytes = self.shape(object)?;
            return Ok(represent::event_line(kind, &bytes));
        }
        if self.first && self.view.form.shape == Shape::Table {
            let bytes = self.object_bytes(&event.record).await?;
            return Ok(represent::event_line(kind, &bytes));
        }
        let natural = matches!(
            (event.change, kind),
            (Change::Created, "ADDED") | (Change::Updated, "MODIFIED") | (Change::Deleted, "DELETED")
        );
        if self.view.is_raw() && natural && is_served_form(&self.view.resource, &event.record) {
            let tag = self.view.resource.tag;
            return Ok(event.frames.get_or_insert(tag, || represent::event_line(kind, &event.record.value)));
        }
        let bytes = self.object_bytes(&event.record).await?;
        Ok(represent::event_line(kind, &bytes))
    }

    async fn object_bytes(&mut self, record: &Record) -> ApiResult<Bytes> {
        if self.view.is_raw() && is_served_form(&self.view.resource, record) {
            return Ok(record.value.clone());
        }
        let object = self.server.decode(&self.view.resource, record).await?;
        self.shape(object)
    }

    fn shape(&mut self, object: Value) -> ApiResult<Bytes> {
        let View { resource, form, include } = &self.view;
        let mut shaped = represent::shape_object(resource, object, *form, *include, self.server.now());
        if form.shape == Shape::Table && !std::mem::take(&mut self.first) {
            shaped["columnDefinitions"] = Value::Null;
        }
        Ok(Bytes::from(shaped.to_string()))
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let resource = &self.view.resource;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata});
        let object = match self.view.form.shape {
            Shape::Object => object,
            Shape::PartialMetadata | Shape::PartialMetadataList => {
                represent::partial(&mut object.clone(), self.view.form)
            }
            Shape::Table => {
                let columns = if std::mem::take(&mut self.first) {
                    represent::column_definitions(resource)
                } else {
                    Value::Null
                };
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "columnDefinitions": columns,
                    "rows": [{"cells": [], "object": represent::partial(&mut object.clone(), self.view.form)}],
                })
            }
        };
        represent::event_line("BOOKMARK", object.to_string().as_bytes())
    }
}
