//! What work queues count, under the names of client-go.

use std::sync::{Arc, Weak, atomic::AtomicU64};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
    controller: String,
}

impl Labels {
    fn of(name: &str) -> Self {
        Self { name: name.to_owned(), controller: name.to_owned() }
    }
}

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Counters of all queues. Clones share them.
#[derive(Clone)]
pub struct QueueMetrics(Arc<Families>);

struct Families {
    depth: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    waited: Histograms,
    worked: Histograms,
    running: Mutex<Vec<(String, Weak<dyn Running>)>>,
}

/// A queue that can tell how long its keys wait and are being worked on.
pub(super) trait Running: Send + Sync {
    fn ages(&self) -> Ages;
}

/// In seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Ages {
    /// Of all work under way.
    pub(super) unfinished: f64,
    /// Of the oldest of it.
    pub(super) longest: f64,
    /// Of the key that waits longest for a worker.
    pub(super) waiting: f64,
}

/// 10 ns to 1000 s by powers of ten, as client-go's and two more.
fn buckets() -> Histogram {
    Histogram::new([1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0])
}

impl Default for QueueMetrics {
    fn default() -> Self {
        Self(Arc::new(Families {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            waited: Family::new_with_constructor(buckets as fn() -> Histogram),
            worked: Family::new_with_constructor(buckets as fn() -> Histogram),
            running: Mutex::default(),
        }))
    }
}

impl QueueMetrics {
    /// Makes everything counted here part of what `registry` exposes. Counters get their `_total` from the encoder.
    pub fn register(&self, registry: &mut Registry) {
        let all = &self.0;
        registry.register("workqueue_depth", "Keys that wait", all.depth.clone());
        registry.register("workqueue_adds", "Keys added", all.adds.clone());
        registry.register("workqueue_retries", "Keys added again after a failure", all.retries.clone());
        registry.register("workqueue_queue_duration_seconds", "How long keys waited", all.waited.clone());
        registry.register(
            "workqueue_work_duration_seconds",
            "How long keys were worked on",
            all.worked.clone(),
        );
        registry.register_collector(Box::new(self.clone()));
    }

    pub(super) fn of(&self, name: &str) -> Counters {
        let labels = Labels::of(name);
        Counters {
            depth: self.0.depth.get_or_create_owned(&labels),
            adds: self.0.adds.get_or_create_owned(&labels),
            retries: self.0.retries.get_or_create_owned(&labels),
            waited: self.0.waited.get_or_create_owned(&labels),
            worked: self.0.worked.get_or_create_owned(&labels),
        }
    }

    /// A queue of the same name, from before a restart of its controller, is forgotten.
    pub(super) fn watch(&self, name: &str, queue: Weak<dyn Running>) {
        let mut running = self.0.running.lock();
        running.retain(|(known, queue)| known != name && queue.strong_count() > 0);
        running.push((name.to_owned(), queue));
    }
}

impl std::fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QueueMetrics")
    }
}

/// The age of work under way is only known at the moment of a scrape.
impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let ages: Vec<(Labels, Ages)> = {
            let running = self.0.running.lock();
            let alive = running.iter().filter_map(|(name, queue)| Some((name, queue.upgrade()?)));
            alive.map(|(name, queue)| (Labels::of(name), queue.ages())).collect()
        };
        let mut write = |name, help, pick: fn(&Ages) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, age) in &ages {
                let gauge = ConstGauge::new(pick(age));
                gauge.encode(family.encode_family(labels)?)?;
            }
            Ok::<_, std::fmt::Error>(())
        };
        write("workqueue_unfinished_work_seconds", "Work under way, summed", |ages| ages.unfinished)?;
        write("workqueue_longest_running_processor_seconds", "Oldest work under way", |ages| ages.longest)?;
        write("workqueue_longest_waiting_seconds", "Oldest key that waits for a worker", |ages| ages.waiting)
    }
}

pub(super) struct Counters {
    pub(super) depth: Gauge,
    pub(super) adds: Counter<u64, AtomicU64>,
    pub(super) retries: Counter<u64, AtomicU64>,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}
