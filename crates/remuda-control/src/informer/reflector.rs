//! Keeps one cache equal to what the server has: list once, then watch.
//!
//! Lists and watches are made here and not by `kube::runtime::watcher`, which reopens a watch that
//! ends at once without any pause, which never lists again when the *answer* to a watch is 404 or
//! 410 (only when an event says so), and which fails a whole list for one object it cannot read.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use http::{HeaderValue, header::ACCEPT_ENCODING};
use kube::{
    Client, Error,
    api::{ListParams, VersionMatch, WatchParams},
    core::{ObjectMeta, Request, Status, WatchEvent},
};
use rand::RngExt;
use remuda_base::Backoff;
use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Shared, cache::Object, events::Events, registry::Bounding};
use crate::{
    error::{Chain, status_of},
    key::ObjectKey,
};

/// How far a cache is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) synced: bool,
    /// Since when nothing can be heard of the server.
    pub(super) lost: Option<Instant>,
    /// Every change up to this version has been told.
    pub(super) version: u64,
}

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// Objects a server may put into one page, whatever it was asked for.
const MOST_IN_PAGE: usize = 50_000;
/// A list that takes longer is on a dead connection.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// The answer to a watch comes before its first event.
const WATCH_START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long after the agreed end a silent watch is taken for dead.
const MARGIN: Duration = Duration::from_secs(5);
/// A watch that ends sooner counts as a failure.
const SHORT: Duration = Duration::from_secs(1);
/// After failures. With jitter: many caches lose the same server at the same time.
const OUTAGE: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));
/// While a kind is not served.
const ABSENCE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// What to list and watch.
pub(super) struct Source {
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) metadata_only: bool,
    pub(super) labels: Option<String>,
    pub(super) fields: Option<String>,
    /// Seconds after which the server ends a watch: random between these.
    pub(super) watch_seconds: (u32, u32),
    pub(super) quiet: bool,
    /// For servers that are not ours.
    pub(super) bound: Option<Bounding>,
}

impl Source {
    /// Checks an object against the bound, and what is kept with it.
    fn admit(&self, shared: &Shared, object: &Object, kept: &mut usize, objects: usize) -> Result<(), End> {
        let Some((bound, exceeded)) = &self.bound else { return Ok(()) };
        let size = (shared.of_type.size)(&**object);
        *kept = kept.saturating_add(size);
        let name = || (shared.of_type.meta)(&**object).name.clone().unwrap_or_default();
        let plural = self.url.rsplit('/').next().unwrap_or_default();
        let why = if size > bound.object_bytes {
            format!("{plural} {} is larger than {} KiB", name(), bound.object_bytes >> 10)
        } else if objects > bound.objects {
            format!("there are more than {} {plural}", bound.objects)
        } else if *kept > bound.bytes {
            format!("{plural} are larger than {} MiB together", bound.bytes >> 20)
        } else {
            return Ok(());
        };
        exceeded(&why);
        Err(End::Failed(Error::Service(why.into())))
    }
}

/// Where the cache stands relative to the server.
enum Position {
    /// Must list, not older than the version if there is one.
    List(Option<String>),
    /// May watch from here.
    At(String),
}

/// Why following stopped.
enum End {
    /// The watch lasted as long as agreed.
    Closed,
    /// The watch was closed before that: the server goes away, or wants to be rid of us.
    ClosedEarly,
    /// The server no longer has, or does not have yet, the history we asked for.
    Expired,
    /// The kind is not served.
    NotServed,
    Failed(Error),
    /// The watch was refused, which says nothing of the list: that is how changes are seen then, as often as the watch
    /// is tried.
    Refused(Error),
    /// No answer in time.
    TimedOut,
}

/// The kind's definition, as far as somebody follows it: changes when it changes.
pub(super) type Definition = watch::Receiver<u64>;

pub(super) async fn run(
    source: Source,
    shared: Arc<Shared>,
    mut definition: Definition,
    absent: Box<dyn Fn() + Send + Sync>,
    stop: CancellationToken,
) {
    // From memory, which some servers do all at once and not by pages.
    let any = source.bound.is_none().then(|| "0".to_owned());
    let mut position = Position::List(any);
    let mut kept = 0;
    let mut backoff = WatchBackoff::default();
    loop {
        definition.mark_unchanged();
        let mut opened = None;
        let end = tokio::select! {
            () = stop.cancelled() => return,
            end = follow(&source, &shared, &mut position, &mut kept, &mut opened) => end,
        };
        let pause = backoff.delay(&end, opened.map(|opened: Instant| opened.elapsed()));
        shared.report(&end, &backoff, source.quiet);
        position = next_position(position, &end);
        let absent_now = matches!(end, End::NotServed);
        if absent_now {
            absent();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            Ok(()) = definition.changed(), if absent_now => {}
        }
    }
}

/// What went wrong in a row.
#[derive(Debug, Default)]
struct WatchBackoff {
    /// Requests without an answer since the last watch.
    outages: u32,
    /// Watches that ended at once.
    short: u32,
    absences: u32,
}

impl WatchBackoff {
    /// How long to wait after an end; `lasted` is how long there was a watch before it.
    ///
    /// An answer ends an outage, so that a server that flickers is found soon; a watch ends a row
    /// of short ones only by lasting, so that a server that hangs up at once is left alone.
    fn delay(&mut self, end: &End, lasted: Option<Duration>) -> Duration {
        if lasted.is_some() {
            self.outages = 0;
        }
        if lasted.is_some_and(|lasted| lasted >= SHORT) {
            self.short = 0;
        }
        if !matches!(end, End::NotServed) {
            self.absences = 0;
        }
        match end {
            End::NotServed => {
                self.absences = self.absences.saturating_add(1);
                ABSENCE.jittered(self.absences, rand::random())
            }
            End::Failed(_) | End::Refused(_) | End::TimedOut => {
                self.outages = self.outages.saturating_add(1);
                OUTAGE.jittered(self.outages, rand::random())
            }
            End::Closed | End::ClosedEarly | End::Expired => {
                self.short = self.short.saturating_add(1);
                // One may be bad luck.
                if self.short < 2 {
                    return Duration::ZERO;
                }
                OUTAGE.jittered(self.short - 1, rand::random())
            }
        }
    }
}

impl Shared {
    /// Each trouble once: there may be thousands of caches, and the first says it all.
    fn report(&self, end: &End, backoff: &WatchBackoff, quiet: bool) {
        let kind = &self.kind;
        if matches!(end, End::Failed(_) | End::TimedOut) {
            let now = Instant::now();
            self.progress.send_modify(|progress| {
                progress.lost.get_or_insert(now);
            });
        }
        // What cannot be reached at all is stale, which is another matter.
        let why = match end {
            End::Failed(error) | End::Refused(error) => status_of(error).map(|_| Chain(error).to_string()),
            End::TimedOut | End::Closed | End::ClosedEarly | End::Expired | End::NotServed => None,
        };
        if let Some(why) = why {
            self.trouble.send_if_modified(|trouble| {
                let differs = trouble.as_deref() != Some(&*why);
                differs.then(|| *trouble = Some(why.into())).is_some()
            });
        }
        match end {
            End::Refused(error) if backoff.outages == 1 && !quiet => {
                tracing::warn!(%kind, error = %Chain(error), "watch refused, listing again and again instead");
            }
            End::Refused(error) => tracing::debug!(%kind, error = %Chain(error), "watch refused again"),
            End::Failed(error) if backoff.outages == 1 && !quiet => {
                tracing::warn!(%kind, error = %Chain(error), "watch failed");
            }
            End::Failed(error) => tracing::debug!(%kind, error = %Chain(error), "watch failed again"),
            End::TimedOut => tracing::debug!(%kind, "watch got no answer"),
            End::Expired => tracing::debug!(%kind, "history is gone, listing again"),
            End::NotServed if backoff.absences == 1 => tracing::info!(%kind, "kind is not served yet"),
            End::Closed | End::ClosedEarly | End::NotServed => {}
        }
    }
}

fn next_position(position: Position, end: &End) -> Position {
    match end {
        End::Closed => position,
        // Its history may be another one when it comes back.
        End::NotServed | End::Expired => Position::List(None),
        End::Failed(error) if status_of(error).is_some() => position,
        // The server was away. It may come back from a backup, where our version is in the
        // future and a watch would be silent; a list tells.
        End::Failed(_) | End::Refused(_) | End::TimedOut | End::ClosedEarly => match position {
            Position::At(version) => Position::List(Some(version)),
            list @ Position::List(_) => list,
        },
    }
}

/// `opened` gets when the watch was answered.
async fn follow(
    source: &Source,
    shared: &Shared,
    position: &mut Position,
    kept: &mut usize,
    opened: &mut Option<Instant>,
) -> End {
    if let Position::List(not_older) = &*position {
        let version = match list(source, shared, not_older.clone(), kept).await {
            Ok(version) => version,
            Err(end) => return end,
        };
        *position = Position::At(version);
    }
    let Position::At(version) = position else {
        return End::Expired;
    };
    watch_from(source, shared, version, kept, opened).await
}

#[derive(Deserialize)]
struct RawList {
    #[serde(default)]
    metadata: RawListMeta,
    #[serde(default, deserialize_with = "items")]
    items: Vec<Box<RawValue>>,
}

/// The objects of a page, or nothing. Not more than a server has any reason to send: a few bytes each would
/// become many times that in memory.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Items;
    impl<'de> Visitor<'de> for Items {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST_IN_PAGE} objects")
        }

        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(item) = items.next_element()? {
                if found.len() == MOST_IN_PAGE {
                    return Err(de::Error::invalid_length(found.len() + 1, &self));
                }
                found.push(item);
            }
            Ok(found)
        }
    }
    deserializer.deserialize_any(Items)
}

#[derive(Deserialize, Default)]
struct RawListMeta {
    #[serde(default, rename = "resourceVersion")]
    resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

async fn list(
    source: &Source,
    shared: &Shared,
    not_older: Option<String>,
    kept: &mut usize,
) -> Result<String, End> {
    shared.metrics.lists.inc();
    let mut params = ListParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        limit: Some(source.bound.as_ref().map_or(PAGE, |(bound, _)| bound.page)),
        version_match: not_older.as_ref().map(|_| VersionMatch::NotOlderThan),
        resource_version: not_older,
        ..ListParams::default()
    };
    let mut objects = Vec::new();
    let mut unreadable = BTreeSet::new();
    *kept = 0;
    let version = loop {
        let request = Request::new(&source.url);
        let request =
            if source.metadata_only { request.list_metadata(&params) } else { request.list(&params) };
        let request = request.map_err(|error| End::Failed(Error::BuildRequest(error)))?;
        let answer = tokio::time::timeout(LIST_TIMEOUT, source.client.request::<RawList>(request)).await;
        let page = answer.map_err(|_| End::TimedOut)?.map_err(judge)?;
        for item in page.items {
            match read(shared, &item) {
                Ok(object) => {
                    source.admit(shared, &object, kept, objects.len() + 1)?;
                    objects.push(object);
                }
                Err(Some(key)) => drop(unreadable.insert(key)),
                Err(None) => {}
            }
        }
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => {
                // The token carries the version.
                params.continue_token = Some(next);
                params.resource_version = None;
                params.version_match = None;
            }
            None => break page.metadata.resource_version.unwrap_or_default(),
        }
    };
    let initial = !shared.progress.borrow().synced;
    shared.update(|cache| cache.replace(objects, unreadable, initial));
    let progress = Progress { synced: true, version: version.parse().unwrap_or(0), lost: None };
    shared.progress.send_replace(progress);
    Ok(version)
}

/// A failed request, sorted.
fn judge(error: Error) -> End {
    match status_of(&error) {
        Some(status) if status.code == 410 || is_too_new(status) => End::Expired,
        Some(status) if status.code == 404 => End::NotServed,
        _ => End::Failed(error),
    }
}

/// The answer to the request for a watch, sorted. One that is too busy has not refused.
fn judge_opening(error: Error) -> End {
    let is_refusal = |code| (400..500).contains(&code) && code != 429;
    match judge(error) {
        End::Failed(error) if status_of(&error).is_some_and(|status| is_refusal(status.code)) => {
            End::Refused(error)
        }
        end => end,
    }
}

/// The server has not reached the version we asked for. It may never: it may have been restored.
fn is_too_new(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 504 && causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
}

async fn watch_from(
    source: &Source,
    shared: &Shared,
    version: &mut String,
    kept: &mut usize,
    opened: &mut Option<Instant>,
) -> End {
    shared.metrics.watches.inc();
    let (least, most) = source.watch_seconds;
    let seconds = rand::rng().random_range(least..=most.max(least));
    let params = WatchParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        timeout: Some(seconds),
        bookmarks: true,
        send_initial_events: false,
    };
    let request = Request::new(&source.url);
    let request = if source.metadata_only {
        request.watch_metadata(&params, version)
    } else {
        request.watch(&params, version)
    };
    let mut request = match request {
        Ok(request) => request,
        Err(error) => return End::Failed(Error::BuildRequest(error)),
    };
    // Some servers compress each event by itself, which those who decompress do not expect.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let opening = source.client.request_stream(request);
    let stream = match tokio::time::timeout(WATCH_START_TIMEOUT, opening).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return judge_opening(error),
        Err(_) => return End::TimedOut,
    };
    let stream = std::pin::pin!(stream);
    let mut events = Events::new(stream);
    let (since, agreed) = (Instant::now(), Duration::from_secs(u64::from(seconds)));
    *opened = Some(since);
    shared.progress.send_if_modified(|progress| progress.lost.take().is_some());
    shared.trouble.send_if_modified(|trouble| trouble.take().is_some());
    loop {
        let event = match tokio::time::timeout(agreed + MARGIN, events.next()).await {
            Ok(Some(Ok(event))) => event,
            Ok(None) if since.elapsed() + MARGIN < agreed => return End::ClosedEarly,
            Ok(None) => return End::Closed,
            Ok(Some(Err(error))) => return judge(error),
            Err(_) => return End::TimedOut,
        };
        match event {
            WatchEvent::Added(raw) | WatchEvent::Modified(raw) => match read(shared, &raw) {
                Ok(object) => {
                    // An object that is replaced is counted twice; the next list counts anew.
                    let objects = shared.cache.read().objects.len();
                    if let Some((bound, _)) = &source.bound
                        && *kept + bound.object_bytes > bound.bytes
                    {
                        return End::Expired;
                    }
                    if let Err(end) = source.admit(shared, &object, kept, objects) {
                        return end;
                    }
                    let at = (shared.of_type.meta)(&*object).resource_version.clone();
                    shared.update(|cache| cache.apply(object));
                    advance(shared, version, at);
                }
                Err(key) => {
                    let at = metadata(&raw).and_then(|metadata| metadata.resource_version);
                    if let Some(key) = key {
                        shared.update(|cache| {
                            cache.unreadable.insert(key);
                            Vec::new()
                        });
                    }
                    advance(shared, version, at);
                }
            },
            WatchEvent::Deleted(raw) => {
                let Some(metadata) = metadata(&raw) else {
                    return End::Expired;
                };
                let last = read(shared, &raw).ok();
                let key = ObjectKey::of(&metadata);
                shared.update(|cache| cache.delete(&key, last));
                advance(shared, version, metadata.resource_version);
            }
            WatchEvent::Bookmark(bookmark) => {
                advance(shared, version, Some(bookmark.metadata.resource_version));
            }
            WatchEvent::Error(status) => return judge(Error::Api(status)),
        }
    }
}

fn advance(shared: &Shared, version: &mut String, at: Option<String>) {
    let Some(at) = at.filter(|at| !at.is_empty()) else {
        return;
    };
    if let Ok(number) = at.parse() {
        shared.progress.send_modify(|progress| progress.version = number);
    }
    *version = at;
}

#[derive(Deserialize)]
struct OnlyMetadata {
    metadata: ObjectMeta,
}

fn metadata(raw: &RawValue) -> Option<ObjectMeta> {
    serde_json::from_str::<OnlyMetadata>(raw.get()).ok().map(|only| only.metadata)
}

/// `Err` has the key of the object where even that can be read.
fn read(shared: &Shared, raw: &RawValue) -> Result<Object, Option<ObjectKey>> {
    (shared.read)(raw.get()).map_err(|error| {
        let key = metadata(raw).map(|metadata| ObjectKey::of(&metadata));
        let name = key.as_ref().map(ToString::to_string).unwrap_or_default();
        tracing::warn!(kind = %shared.kind, %name, %error, "object does not fit its type");
        shared.metrics.unreadable.inc();
        key
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(code: u16, cause: &str) -> Error {
        let mut status = Status::failure("", "").with_code(code);
        let details = json!({"name": "", "group": "", "kind": "", "uid": "", "retryAfterSeconds": 0,
            "causes": [{"reason": cause, "message": "", "field": ""}]});
        status.details = serde_json::from_value(details).unwrap();
        Error::Api(status.boxed())
    }

    fn after(position: Position, end: End) -> String {
        match next_position(position, &end) {
            Position::List(not_older) => format!("list {}", not_older.unwrap_or_default()),
            Position::At(version) => format!("at {version}"),
        }
    }

    #[test]
    fn a_lost_server_is_listed_again_and_a_busy_one_is_not() {
        let at = || Position::At("7".to_owned());
        let lost = Error::ReadEvents(std::io::Error::other("reset"));
        assert_eq!(after(at(), judge(lost)), "list 7");
        assert_eq!(after(at(), judge(status(429, ""))), "at 7");
        assert_eq!(after(at(), End::Closed), "at 7");
        assert_eq!(after(at(), End::TimedOut), "list 7");
        assert_eq!(after(at(), End::ClosedEarly), "list 7");
    }

    #[test]
    fn a_watch_that_is_refused_is_tried_again_from_a_list() {
        for code in [401, 403, 405] {
            let end = judge_opening(status(code, ""));
            assert!(matches!(end, End::Refused(_)), "{code}");
            assert_eq!(after(Position::At("7".to_owned()), end), "list 7");
        }
        let busy = judge_opening(status(429, ""));
        assert_eq!(after(Position::At("7".to_owned()), busy), "at 7");
        assert!(matches!(judge_opening(status(410, "")), End::Expired));
    }

    #[test]
    fn history_that_is_gone_or_not_there_yet_means_the_newest_list() {
        let at = || Position::At("7".to_owned());
        assert_eq!(after(at(), judge(status(410, ""))), "list ");
        assert_eq!(
            after(Position::List(Some("7".into())), judge(status(504, "ResourceVersionTooLarge"))),
            "list "
        );
        assert_eq!(after(Position::List(Some("7".into())), judge(status(504, ""))), "list 7");
        assert_eq!(after(at(), judge(status(404, ""))), "list ");
    }

    #[test]
    fn a_server_that_answers_is_back_but_one_that_hangs_up_at_once_is_left_alone() {
        let mut backoff = WatchBackoff::default();
        let lost = || End::Failed(Error::ReadEvents(std::io::Error::other("reset")));
        for _ in 0..20 {
            backoff.delay(&lost(), None);
        }
        assert!(backoff.delay(&lost(), None) >= OUTAGE.longest / 2);
        assert_eq!(backoff.delay(&End::ClosedEarly, Some(Duration::ZERO)), Duration::ZERO);
        assert!(backoff.delay(&lost(), None) < Duration::from_millis(100));
        for _ in 0..20 {
            backoff.delay(&End::ClosedEarly, Some(Duration::ZERO));
        }
        assert!(backoff.delay(&End::ClosedEarly, Some(Duration::ZERO)) >= OUTAGE.longest / 2);
        assert_eq!(backoff.delay(&End::Closed, Some(Duration::from_secs(300))), Duration::ZERO);
    }
}
