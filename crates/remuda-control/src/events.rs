//! Events: what happened to an object, for people to read.
//!
//! Recording never waits and never fails: events are written behind the caller's back, repeated
//! ones are counted instead of written, and an object that has too much to tell is cut off.
//!
//! They are written as Events of `v1` with the times and the count of both APIs: `kubectl` and most tools sort by
//! `lastTimestamp`, which the newer API does not let anybody write.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSeries, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    error::{Chain, is_code},
    metrics::Metrics,
};

/// Events on their way; more are dropped and counted.
const QUEUE: usize = 1024;
/// The API refuses longer notes.
const LONGEST_NOTE: usize = 1024;
/// How long the same event again is a repetition, and how often repetitions are written down.
const SERIES: Duration = Duration::from_secs(6 * 60);
/// Events one object may have at once, and how long until it may have one more.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(5 * 60);
/// Repetitions and objects kept in mind.
const MEMORY: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    Normal,
    Warning,
}

impl Tone {
    fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

tokio::task_local! {
    /// The controller at work, who is the reporter of what it records.
    pub(crate) static CONTROLLER: &'static str;
}

/// Something that happened. Events equal in all of this are repetitions of one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Happening {
    pub tone: Tone,
    /// A CamelCase word for machines: `PlanDelivered`.
    pub reason: &'static str,
    /// What was being done, a CamelCase word too: `Deliver`.
    pub action: &'static str,
    pub note: String,
}

struct Record {
    regarding: ObjectReference,
    happening: Happening,
    at: Timestamp,
    controller: Option<&'static str>,
}

/// Clones share the way out.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Record>,
    clock: Arc<dyn Clock>,
    dropped: Counter,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Recorder {
    pub(crate) fn start(client: Client, clock: Arc<dyn Clock>, program: &str, metrics: &Metrics) -> Self {
        let (queue, records) = mpsc::channel(QUEUE);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let writer = Writer {
            client,
            program: program.to_owned(),
            instance: format!("{program}-{:08x}", rand::random::<u32>()),
            book: Book::default(),
            dropped: metrics.events_dropped(),
        };
        tasks.spawn(writer.run(records, stop.clone()));
        Self { queue, clock, dropped: metrics.events_dropped(), tasks, stop }
    }

    pub fn normal<K>(&self, object: &K, reason: &'static str, action: &'static str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        let happening = Happening { tone: Tone::Normal, reason, action, note: note.into() };
        self.record(object, &(), happening);
    }

    pub fn warning<K>(&self, object: &K, reason: &'static str, action: &'static str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        let happening = Happening { tone: Tone::Warning, reason, action, note: note.into() };
        self.record(object, &(), happening);
    }

    pub fn record<K: Resource>(&self, object: &K, dynamic: &K::DynamicType, mut happening: Happening) {
        truncate(&mut happening.note, LONGEST_NOTE);
        let controller = CONTROLLER.try_with(|name| *name).ok();
        let record =
            Record { regarding: object.object_ref(dynamic), happening, at: self.clock.now(), controller };
        if self.queue.try_send(record).is_err() {
            self.dropped.inc();
        }
    }

    /// Writes what is still on its way, for a moment, and ends.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit - '…'.len_utf8()));
        text.push('…');
    }
}

/// What to do about an event.
#[derive(Debug, PartialEq, Eq)]
enum Writing {
    Create,
    /// Write down that it happened so many times by now, to the event of that name.
    Count {
        name: String,
        count: i32,
    },
    /// Counted, and written with a later one.
    Remember,
    Drop,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Id {
    uid: String,
    kind: String,
    key: (String, String),
    happening: Happening,
}

struct Seen {
    name: String,
    count: i32,
    last: Instant,
    written: Instant,
}

struct Bucket {
    left: u32,
    since: Instant,
}

/// What has been told lately.
#[derive(Default)]
struct Book {
    seen: HashMap<Id, Seen>,
    buckets: HashMap<(String, String, String), Bucket>,
}

impl Book {
    fn note(&mut self, id: &Id, now: Instant) -> Writing {
        if let Some(seen) = self.seen.get_mut(id)
            && now.duration_since(seen.last) < SERIES
        {
            seen.last = now;
            seen.count = seen.count.saturating_add(1);
            if seen.count > 2 && now.duration_since(seen.written) < SERIES {
                return Writing::Remember;
            }
            seen.written = now;
            return Writing::Count { name: seen.name.clone(), count: seen.count };
        }
        if self.buckets.len() >= MEMORY {
            self.buckets.retain(|_, bucket| now.duration_since(bucket.since) < REFILL);
            if self.buckets.len() >= MEMORY {
                self.buckets.clear();
            }
        }
        let object = (id.uid.clone(), id.key.0.clone(), id.key.1.clone());
        let bucket = self.buckets.entry(object).or_insert(Bucket { left: BURST, since: now });
        let gained = now.duration_since(bucket.since).as_secs() / REFILL.as_secs();
        let gained = u32::try_from(gained).unwrap_or(u32::MAX);
        if gained > 0 {
            bucket.left = bucket.left.saturating_add(gained).min(BURST);
            bucket.since = now;
        }
        if bucket.left == 0 {
            return Writing::Drop;
        }
        bucket.left -= 1;
        Writing::Create
    }

    fn created(&mut self, id: Id, name: String, now: Instant) {
        if self.seen.len() >= MEMORY {
            self.seen.retain(|_, seen| now.duration_since(seen.last) < SERIES);
            if self.seen.len() >= MEMORY {
                self.seen.clear();
            }
        }
        self.seen.insert(id, Seen { name, count: 1, last: now, written: now });
    }
}

struct Writer {
    client: Client,
    /// Who reports what no controller of ours does.
    program: String,
    instance: String,
    book: Book,
    dropped: Counter,
}

impl Writer {
    async fn run(mut self, mut records: mpsc::Receiver<Record>, stop: CancellationToken) {
        loop {
            let record = tokio::select! {
                record = records.recv() => record,
                () = stop.cancelled() => break,
            };
            let Some(record) = record else {
                return;
            };
            tokio::select! {
                () = self.write(record) => {}
                () = tokio::time::sleep(Duration::from_secs(10)) => drop(self.dropped.inc()),
            }
        }
        records.close();
        let rest = async {
            while let Some(record) = records.recv().await {
                self.write(record).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), rest).await;
    }

    async fn write(&mut self, record: Record) {
        let regarding = &record.regarding;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let id = Id {
            uid: text(&regarding.uid),
            kind: text(&regarding.kind),
            key: (text(&regarding.namespace), text(&regarding.name)),
            happening: record.happening.clone(),
        };
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let now = Instant::now();
        let result = match self.book.note(&id, now) {
            Writing::Remember => return,
            Writing::Drop => {
                self.dropped.inc();
                return;
            }
            Writing::Create => self.create(&events, record, id, now).await,
            Writing::Count { name, count } => {
                let last_observed_time = Some(MicroTime(record.at));
                let series = EventSeries { count: Some(count), last_observed_time };
                let last = Time(record.at);
                let patch = Patch::Merge(json!({"series": series, "count": count, "lastTimestamp": last}));
                match events.patch(&name, &PatchParams::default(), &patch).await {
                    // Events live for an hour; this one may be gone.
                    Err(error) if is_code(&error, 404) => self.create(&events, record, id, now).await,
                    patched => patched.map(drop),
                }
            }
        };
        if let Err(error) = result {
            self.dropped.inc();
            tracing::debug!(error = %Chain(&error), "event not written");
        }
    }

    async fn create(
        &mut self,
        events: &Api<Event>,
        record: Record,
        id: Id,
        now: Instant,
    ) -> Result<(), kube::Error> {
        let mut stem = record.regarding.name.clone().unwrap_or_default();
        // A name has at most 253 characters, and the suffix 17 of them.
        stem.truncate(stem.floor_char_boundary(236));
        let name = format!("{stem}.{:016x}", rand::random::<u64>());
        let reporter = match record.controller {
            Some(controller) => format!("{}/{controller}", self.program),
            None => self.program.clone(),
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: record.regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(record.at)),
            first_timestamp: Some(Time(record.at)),
            last_timestamp: Some(Time(record.at)),
            count: Some(1),
            source: Some(EventSource { component: Some(reporter.clone()), host: None }),
            reporting_component: Some(reporter),
            reporting_instance: Some(self.instance.clone()),
            action: Some(record.happening.action.to_owned()),
            reason: Some(record.happening.reason.to_owned()),
            message: Some(record.happening.note),
            type_: Some(record.happening.tone.text().to_owned()),
            involved_object: record.regarding,
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await?;
        self.book.created(id, name, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(uid: &str, note: &str) -> Id {
        let happening =
            Happening { tone: Tone::Normal, reason: "Made", action: "Make", note: note.to_owned() };
        Id { uid: uid.to_owned(), kind: String::new(), key: Default::default(), happening }
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_is_counted_and_seldom_written() {
        let mut book = Book::default();
        let id = id("1", "x");
        let start = Instant::now();
        assert_eq!(book.note(&id, start), Writing::Create);
        book.created(id.clone(), "e".to_owned(), start);
        let count = |count| Writing::Count { name: "e".to_owned(), count };
        assert_eq!(book.note(&id, start), count(2));
        for second in 1..300 {
            assert_eq!(book.note(&id, start + Duration::from_secs(second)), Writing::Remember);
        }
        assert_eq!(book.note(&id, start + SERIES), count(302));
        assert_eq!(book.note(&id, start + 3 * SERIES), Writing::Create);
    }

    #[tokio::test(start_paused = true)]
    async fn one_talkative_object_is_cut_off_and_others_are_not() {
        let mut book = Book::default();
        let now = Instant::now();
        let written = (0..100).filter(|i| book.note(&id("1", &i.to_string()), now) == Writing::Create);
        assert_eq!(written.count(), 25);
        assert_eq!(book.note(&id("2", "x"), now), Writing::Create);
        assert_eq!(book.note(&id("1", "late"), now + REFILL), Writing::Create);
        assert_eq!(book.note(&id("1", "later"), now + REFILL), Writing::Drop);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_has_a_bound() {
        let mut book = Book::default();
        let now = Instant::now();
        for i in 0..3 * MEMORY {
            let id = id(&i.to_string(), "x");
            book.note(&id, now);
            book.created(id, "e".to_owned(), now);
        }
        assert!(book.seen.len() <= MEMORY && book.buckets.len() <= MEMORY);
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        let mut note = "ä".repeat(1000);
        truncate(&mut note, LONGEST_NOTE);
        assert!(note.len() <= LONGEST_NOTE && note.ends_with("ä…"));
    }
}
