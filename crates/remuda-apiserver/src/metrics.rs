//! What the server counts, under the names existing dashboards know.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    resource: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResourceLabels {
    group: String,
    resource: String,
}

pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    in_flight: Gauge<i64, AtomicI64>,
    watchers: Gauge<i64, AtomicI64>,
    evaluated: Family<ResourceLabels, Counter<u64, AtomicU64>>,
}

fn buckets() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    ])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        registry.register("apiserver_request", "Requests by verb, resource and code", requests.clone());
        let durations = Family::new_with_constructor(buckets as fn() -> Histogram);
        registry.register(
            "apiserver_request_duration_seconds",
            "Time to answer, without watches",
            durations.clone(),
        );
        let in_flight = Gauge::default();
        registry.register("apiserver_current_inflight_requests", "Requests under way", in_flight.clone());
        let watchers = Gauge::default();
        registry.register("apiserver_longrunning_requests", "Open watches", watchers.clone());
        let evaluated = Family::default();
        registry.register(
            "apiserver_storage_list_evaluated_objects",
            "Objects looked at to answer lists with selectors",
            evaluated.clone(),
        );
        Self { registry, requests, durations, in_flight, watchers, evaluated }
    }
}

impl Metrics {
    pub(crate) fn observe(&self, verb: &'static str, resource: &str, code: u16, seconds: f64) {
        let labels = RequestLabels { verb, resource: resource.to_owned(), code };
        self.requests.get_or_create(&labels).inc();
        if verb != "watch" {
            self.durations
                .get_or_create(&DurationLabels { verb, resource: resource.to_owned() })
                .observe(seconds);
        }
    }

    /// A list has looked at this many objects to find those it selects.
    pub(crate) fn evaluated(&self, group: &str, resource: &str, objects: usize) {
        let labels = ResourceLabels { group: group.to_owned(), resource: resource.to_owned() };
        self.evaluated.get_or_create(&labels).inc_by(objects as u64);
    }

    pub(crate) fn request(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    pub(crate) fn watcher(&self) -> WatcherGuard {
        GaugeGuard::new(&self.watchers)
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

pub(crate) type WatcherGuard = GaugeGuard;

/// Counts one while it lives.
pub(crate) struct GaugeGuard(Gauge<i64, AtomicI64>);

impl GaugeGuard {
    fn new(gauge: &Gauge<i64, AtomicI64>) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
