//! WATCH: a stream of events that starts exactly where the client is.
//!
//! A watcher holds a position in the store's history, not a queue: a slow one costs no memory
//! and catches up, or is ended when history has moved past it. Events are encoded once and
//! shared by all watchers that want the same form.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, future::BoxFuture};
use rand::RngExt;
use remuda_auth::identity::User;
use remuda_store::{Change, Event, Record, Revision, Scope, Store, WatchEnd};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::{
    body::Body,
    call::{Answer, Call},
    convert::is_served_form,
    filter::Filter,
    negotiate::{Shape, response_form},
    options::{ListOptions, VersionMatch},
    poll_when_woken::PollWhenWoken,
    read::store_error,
    registry::Resource,
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

/// A watch that begins: who watches what.
pub struct ObservedWatch<'a> {
    pub user: &'a User,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: Option<&'a str>,
    /// The only object that is watched, if it is one.
    pub name: Option<&'a str>,
}

/// Is told of watches. An open watch is how it is known that a client is there: nothing has to be polled.
pub trait WatchObserver: Send + Sync {
    /// What is given back is dropped when the watch ends.
    fn begins(&self, watch: &ObservedWatch<'_>) -> Option<Box<dyn Send + Sync>>;
}

impl Inner {
    pub(crate) async fn watch(self: &Arc<Self>, call: &Call) -> ApiResult<Answer> {
        let mut options = ListOptions::parse(&call.query)?;
        options.watch = true;
        let form = response_form(&call.headers, false)?;
        let filter = Filter::new(&call.resource, &options)?;
        let view = View { resource: call.resource.clone(), form, include: IncludeObject::parse(&call.query) };

        let initial = match options.send_initial_events {
            Some(initial) => initial,
            None => options.resource_version.unwrap_or(0) == 0,
        };
        if initial
            && let Some(revision) = options.resource_version
            && let Err(error) = self.wait_for_revision(revision).await
        {
            // Who asked for initial events reads a stream, whatever comes of it.
            return if options.send_initial_events.is_some() { Ok(ended_by(&error)) } else { Err(error) };
        }
        let (records, after) = if initial {
            let list = ListOptions {
                labels: options.labels.clone(),
                fields: options.fields.clone(),
                resource_version: options.resource_version,
                version_match: options.resource_version.map(|_| VersionMatch::NotOlderThan),
                ..Default::default()
            };
            let listed = self.list_records(call, &list, &filter).await?;
            (listed.records, listed.revision)
        } else {
            let after = match options.resource_version.filter(|revision| *revision > 0) {
                Some(revision) => revision,
                // Whoever wants no initial events and names no version is told what happens from now on.
                None => self.store.current().await.map_err(store_error)?,
            };
            (Vec::new(), after)
        };
        let scope = match (filter.only_name(), call.namespace()) {
            (Some(name), Some(namespace)) if call.resource.namespaced => {
                Scope::Key(call.resource.key(Some(namespace), name))
            }
            (Some(name), _) if !call.resource.namespaced => Scope::Key(call.resource.key(None, name)),
            _ => Scope::Prefix(call.resource.collection(call.namespace())),
        };
        let source = match self.store.watch(scope.clone(), after) {
            Ok(events) => Source::Open(events),
            // Nothing is that new yet: the stream stays silent until something is.
            Err(remuda_store::Error::Future { .. }) => {
                Source::Ahead(open_later(self.store.clone(), scope, after).boxed())
            }
            Err(error @ remuda_store::Error::Compacted { .. }) => {
                return Ok(ended_by(&store_error(error)));
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
        let observed = self.config.watch_observer.as_ref().and_then(|observer| {
            observer.begins(&ObservedWatch {
                user: &call.user,
                group: &call.resource.group,
                resource: &call.resource.plural,
                namespace: call.namespace(),
                name: filter.only_name(),
            })
        });
        let encoder = Encoder { server: self.clone(), view, filter, first: true, ended: false };
        let alarm = Alarm {
            timer: Box::pin(tokio::time::sleep_until(next_bookmark(Instant::now(), deadline))),
            end: Box::pin(end.cancelled_owned()),
        };
        let watcher = Watcher {
            shared: encoder.shares().then(|| call.resource.clone()),
            source,
            alarm: PollWhenWoken::new(alarm),
            // Clients that asked for initial events wait for the mark at their end.
            end_mark: (initial && options.bookmarks).then_some(after),
            stage: Stage::Initial(Box::new(encoder), records.into_iter()),
            bookmarks: options.bookmarks,
            deadline,
            _gauge: self.metrics.watcher(),
            _observed: observed,
        };
        Ok(Answer::body(200, Body::Stream(Box::pin(watcher))))
    }
}

/// A stream that says why there is none.
fn ended_by(error: &ApiError) -> Answer {
    let line = represent::event_line("ERROR", error.status().to_string().as_bytes());
    Answer::body(200, Body::Stream(Box::pin(futures::stream::iter([line]))))
}

type Records = std::vec::IntoIter<Arc<Record>>;

struct Watcher {
    /// The resource, if its events go out as bytes that all watchers share.
    shared: Option<Arc<Resource>>,
    source: Source,
    alarm: PollWhenWoken<Alarm>,
    stage: Stage,
    end_mark: Option<Revision>,
    bookmarks: bool,
    deadline: Instant,
    _gauge: crate::metrics::WatcherGuard,
    _observed: Option<Box<dyn Send + Sync>>,
}

/// Where events come from.
enum Source {
    Open(remuda_store::Watch),
    /// The version asked for has not come yet.
    Ahead(BoxFuture<'static, Result<remuda_store::Watch, WatchEnd>>),
}

/// What a watcher is doing.
enum Stage {
    Initial(Box<Encoder>, Records),
    /// Some forms take a conversion, which may ask somebody else.
    Encoding(BoxFuture<'static, Encoded>),
    Waiting(Box<Encoder>),
    Ended,
}

struct Encoded {
    encoder: Box<Encoder>,
    /// Initial objects not sent yet.
    left: Records,
    piece: Option<Bytes>,
}

/// What may interrupt the wait for events.
struct Alarm {
    timer: Pin<Box<Sleep>>,
    end: Pin<Box<WaitForCancellationFutureOwned>>,
}

enum Interruption {
    Timer,
    End,
}

impl Future for Alarm {
    type Output = Interruption;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Interruption> {
        if self.end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Interruption::End);
        }
        self.timer.as_mut().poll(context).map(|()| Interruption::Timer)
    }
}

/// Makes what one watcher is sent.
struct Encoder {
    server: Arc<Inner>,
    view: View,
    filter: Filter,
    /// No event has been sent yet (Tables carry their columns in the first).
    first: bool,
    ended: bool,
}

/// When to send the next bookmark: regularly, once shortly before the end, then never.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(deadline);
    if now >= last { deadline } else { last.min(now + BOOKMARK_EVERY) }
}

/// Opens a watch whose version has not come yet.
async fn open_later(
    store: Arc<dyn Store>,
    scope: Scope,
    revision: Revision,
) -> Result<remuda_store::Watch, WatchEnd> {
    store.wait_for(revision).await;
    store.watch(scope, revision).map_err(|error| match error {
        remuda_store::Error::Compacted { oldest, .. } => WatchEnd::Compacted { oldest },
        _ => WatchEnd::Closed,
    })
}

impl Source {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Arc<Event>>, WatchEnd>> {
        loop {
            match self {
                Self::Open(events) => return events.poll_next(context),
                Self::Ahead(opening) => *self = Self::Open(ready!(opening.as_mut().poll(context))?),
            }
        }
    }

    fn position(&self) -> Option<Revision> {
        match self {
            Self::Open(events) => Some(events.position()),
            Self::Ahead(_) => None,
        }
    }
}

impl futures::Stream for Watcher {
    type Item = Bytes;

    /// The next bytes to send; `None` ends the stream politely.
    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                Stage::Waiting(encoder) => {
                    if let Some(revision) = this.end_mark.take() {
                        return Poll::Ready(Some(encoder.bookmark(revision, true)));
                    }
                    if let Poll::Ready(interruption) = this.alarm.poll(context) {
                        let now = Instant::now();
                        if matches!(interruption, Interruption::End) || now >= this.deadline {
                            this.stage = Stage::Ended;
                            continue;
                        }
                        this.alarm.change().timer.as_mut().reset(next_bookmark(now, this.deadline));
                        if let (true, Some(position)) = (this.bookmarks, this.source.position()) {
                            return Poll::Ready(Some(encoder.bookmark(position, false)));
                        }
                        continue;
                    }
                    match ready!(this.source.poll(context)) {
                        Ok(events) => {
                            if let Some(resource) = &this.shared
                                && let Some(piece) = shared_lines(resource, &events)
                            {
                                return Poll::Ready(Some(piece));
                            }
                            this.stage.next(|encoder| encoder.encode(events).boxed());
                        }
                        Err(WatchEnd::Closed) => this.stage = Stage::Ended,
                        Err(WatchEnd::Compacted { oldest }) => {
                            let position = this.source.position().unwrap_or(0);
                            this.stage = Stage::Ended;
                            let message = format!("too old resource version: {position} ({oldest})");
                            let status = ApiError::expired(message).status();
                            let line = represent::event_line("ERROR", status.to_string().as_bytes());
                            return Poll::Ready(Some(line));
                        }
                    }
                }
                Stage::Initial(_, records) => {
                    let records = std::mem::take(records);
                    this.stage.next(|encoder| encoder.initial(records).boxed());
                }
                Stage::Encoding(encoding) => {
                    let Encoded { encoder, left, piece } = ready!(encoding.as_mut().poll(context));
                    this.stage = if encoder.ended {
                        Stage::Ended
                    } else if left.len() > 0 {
                        Stage::Initial(encoder, left)
                    } else {
                        Stage::Waiting(encoder)
                    };
                    if piece.is_some() {
                        return Poll::Ready(piece);
                    }
                }
                Stage::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl Stage {
    /// Leaves the encoder to what it has to do next.
    fn next(&mut self, work: impl FnOnce(Box<Encoder>) -> BoxFuture<'static, Encoded>) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Initial(encoder, _) | Self::Waiting(encoder) => Self::Encoding(work(encoder)),
            busy => busy,
        };
    }
}

/// Events as everybody sees them, unless one of them is stored in another form.
fn shared_lines(resource: &Resource, events: &[Arc<Event>]) -> Option<Bytes> {
    let line = |event: &Event| {
        is_served_form(resource, &event.record).then(|| shared_line(resource, event, natural_kind(event)))
    };
    // One event, the usual case, goes out as the shared bytes.
    if let [event] = events {
        return line(event);
    }
    let lines = events.iter().map(|event| line(event)).collect::<Option<Vec<_>>>()?;
    Some(lines.concat().into())
}

fn shared_line(resource: &Resource, event: &Event, kind: &str) -> Bytes {
    event.frames.get_or_insert(resource.tag, || represent::event_line(kind, &event.record.value))
}

/// What an event is to who watches everything.
fn natural_kind(event: &Event) -> &'static str {
    match event.change {
        Change::Created => "ADDED",
        Change::Updated => "MODIFIED",
        Change::Deleted => "DELETED",
    }
}

impl Encoder {
    /// Whether events go out as bytes that all watchers share.
    fn shares(&self) -> bool {
        self.filter.is_open() && self.view.is_raw()
    }

    async fn initial(mut self: Box<Self>, mut records: Records) -> Encoded {
        let mut piece = BytesMut::new();
        while piece.len() < PIECE {
            let Some(record) = records.next() else { break };
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
        Encoded { encoder: self, left: records, piece: (!piece.is_empty()).then(|| piece.freeze()) }
    }

    /// Encodes a batch, of which perhaps nothing concerns this watcher.
    async fn encode(mut self: Box<Self>, events: Vec<Arc<Event>>) -> Encoded {
        let mut piece = BytesMut::new();
        for event in &events {
            let line = match self.kind_of(event).await {
                Ok(None) => continue,
                Ok(Some(kind)) => self.line(event, kind).await,
                Err(error) => Err(error),
            };
            match line {
                // One event, the usual case, goes out as it is.
                Ok(line) if events.len() == 1 => {
                    return Encoded { encoder: self, left: Records::default(), piece: Some(line) };
                }
                Ok(line) => piece.extend_from_slice(&line),
                Err(error) => {
                    self.ended = true;
                    let status = error.status().to_string();
                    piece.extend_from_slice(&represent::event_line("ERROR", status.as_bytes()));
                    break;
                }
            }
        }
        let piece = (!piece.is_empty()).then(|| piece.freeze());
        Encoded { encoder: self, left: Records::default(), piece }
    }

    /// What the event is to this watcher, whose selectors may make an update an arrival or a departure.
    async fn kind_of(&self, event: &Event) -> ApiResult<Option<&'static str>> {
        if self.filter.is_open() {
            return Ok(Some(natural_kind(event)));
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
        let resource = &self.view.resource;
        if self.view.is_raw() && kind == natural_kind(event) && is_served_form(resource, &event.record) {
            return Ok(shared_line(resource, event, kind));
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
