//! What controllers count, under the names dashboards for controller-runtime know.

use std::sync::Arc;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use remuda_coordination::queue::QueueMetrics;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
    scope: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabels {
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Counters of all controllers. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    queues: QueueMetrics,
    reconciles: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    terminal_errors: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    durations: Histograms<ControllerLabels>,
    active: Family<ControllerLabels, Gauge>,
    workers: Family<ControllerLabels, Gauge>,
    leading: Family<NameLabels, Gauge>,
    objects: Family<KindLabels, Gauge>,
    lists: Family<KindLabels, Counter>,
    watches: Family<KindLabels, Counter>,
    unreadable: Family<KindLabels, Counter>,
    events_dropped: Counter,
    provisioned: Histogram,
    phases: Histograms<PhaseLabels>,
}

fn reconcile_buckets() -> Histogram {
    Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

/// From a cluster on this host to one whose machines take their time.
fn provisioning_buckets() -> Histogram {
    Histogram::new([2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0])
}

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Families {
            queues: QueueMetrics::default(),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            durations: Family::new_with_constructor(reconcile_buckets as fn() -> Histogram),
            active: Family::default(),
            workers: Family::default(),
            leading: Family::default(),
            objects: Family::default(),
            lists: Family::default(),
            watches: Family::default(),
            unreadable: Family::default(),
            events_dropped: Counter::default(),
            provisioned: provisioning_buckets(),
            phases: Family::new_with_constructor(provisioning_buckets as fn() -> Histogram),
        }))
    }
}

impl Metrics {
    /// Makes everything counted here part of what `registry` exposes. Counters get their
    /// `_total` from the encoder.
    pub fn register(&self, registry: &mut Registry) {
        // They are told before there is a machine: a graph of nothing is no graph.
        self.phases(&["Pending", "Provisioning", "Provisioned"]);
        let all = &self.0;
        all.queues.register(registry);
        registry.register(
            "controller_runtime_reconcile",
            "Reconciles by controller and result",
            all.reconciles.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Reconciles that failed",
            all.errors.clone(),
        );
        registry.register(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that failed until somebody changes an object",
            all.terminal_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Reconciles that panicked",
            all.panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles took",
            all.durations.clone(),
        );
        registry.register("controller_runtime_active_workers", "Workers at work", all.active.clone());
        registry.register("controller_runtime_max_concurrent_reconciles", "Workers", all.workers.clone());
        registry.register("leader_election_master_status", "Whether we lead", all.leading.clone());
        registry.register("informer_objects", "Objects cached", all.objects.clone());
        registry.register("informer_lists", "Lists read", all.lists.clone());
        registry.register("informer_watches", "Watches opened", all.watches.clone());
        registry.register(
            "informer_unreadable_objects",
            "Objects left out because they do not fit their type",
            all.unreadable.clone(),
        );
        registry.register("events_dropped", "Events not written", all.events_dropped.clone());
        registry.register(
            "remuda_cluster_provisioning_seconds",
            "Time from the creation of a cluster until it was ready for the first time",
            all.provisioned.clone(),
        );
        registry.register(
            "remuda_machine_phase_seconds",
            "How long machines were in a phase of their making before they left it",
            all.phases.clone(),
        );
    }

    /// A cluster was ready for the first time, so long after it was created.
    pub fn provisioned(&self, seconds: f64) {
        self.0.provisioned.observe(seconds);
    }

    /// Phases that are told although no machine has left them yet.
    fn phases(&self, phases: &[&'static str]) {
        for phase in phases {
            drop(self.0.phases.get_or_create_owned(&PhaseLabels { phase }));
        }
    }

    /// A machine was in a phase for so long, and is in the next one.
    pub fn phase_left(&self, phase: &'static str, seconds: f64) {
        self.0.phases.get_or_create(&PhaseLabels { phase }).observe(seconds);
    }

    pub(crate) fn queues(&self) -> &QueueMetrics {
        &self.0.queues
    }

    pub(crate) fn controller(&self, name: &str) -> ControllerMetrics {
        let labels = ControllerLabels { controller: name.to_owned() };
        let result = |result| {
            let labels = ResultLabels { controller: name.to_owned(), result };
            self.0.reconciles.get_or_create_owned(&labels)
        };
        ControllerMetrics {
            success: result("success"),
            requeue_after: result("requeue_after"),
            requeue: result("requeue"),
            error: result("error"),
            errors: self.0.errors.get_or_create_owned(&labels),
            terminal_errors: self.0.terminal_errors.get_or_create_owned(&labels),
            panics: self.0.panics.get_or_create_owned(&labels),
            durations: self.0.durations.get_or_create_owned(&labels),
            active: self.0.active.get_or_create_owned(&labels),
            workers: self.0.workers.get_or_create_owned(&labels),
        }
    }

    pub(crate) fn informer(&self, kind: &str, scope: String) -> InformerMetrics {
        let labels = KindLabels { kind: kind.to_owned(), scope };
        InformerMetrics {
            objects: self.0.objects.get_or_create_owned(&labels),
            lists: self.0.lists.get_or_create_owned(&labels),
            watches: self.0.watches.get_or_create_owned(&labels),
            unreadable: self.0.unreadable.get_or_create_owned(&labels),
        }
    }

    pub(crate) fn leading(&self, name: &str, leading: bool) {
        let labels = NameLabels { name: name.to_owned() };
        self.0.leading.get_or_create(&labels).set(i64::from(leading));
    }

    pub(crate) fn events_dropped(&self) -> Counter {
        self.0.events_dropped.clone()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

pub(crate) struct ControllerMetrics {
    pub(crate) success: Counter,
    pub(crate) requeue_after: Counter,
    /// Conflicts: tried again without having failed.
    pub(crate) requeue: Counter,
    pub(crate) error: Counter,
    pub(crate) errors: Counter,
    pub(crate) terminal_errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) durations: Histogram,
    pub(crate) active: Gauge,
    pub(crate) workers: Gauge,
}

pub(crate) struct InformerMetrics {
    pub(crate) objects: Gauge,
    pub(crate) lists: Counter,
    pub(crate) watches: Counter,
    pub(crate) unreadable: Counter,
}
