//! Watches clusters come to be.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use remuda_api::{core::Machine, provisioning::Cluster, rke::Condition};
use remuda_control::{
    Ctx, ObjectKey, Scope,
    informer::{Change, Subscription},
};
use remuda_names::rancher::condition;
use tokio::sync::watch;

use super::Shape;
use crate::load::Percentiles;

/// Why a cluster is not ready; `None` if it is.
pub(super) fn missing(cluster: &Cluster) -> Option<String> {
    let Some(status) = &cluster.status else { return Some("it has no status".to_owned()) };
    if cluster.metadata.generation.is_some_and(|wanted| status.observed_generation < wanted) {
        return Some("its spec has not been looked at".to_owned());
    }
    for kind in [condition::READY, condition::PROVISIONED, condition::UPDATED] {
        match status.conditions.iter().find(|known| known.kind == kind) {
            Some(Condition { status, .. }) if status == "True" => {}
            Some(known) => return Some(format!("{kind} is {}: {}", known.status, known.message)),
            None => return Some(format!("{kind} is not told")),
        }
    }
    (!status.ready).then(|| "its agent has not connected".to_owned())
}

#[derive(Debug)]
struct Known {
    machines: usize,
    started: Option<Instant>,
    running: HashSet<ObjectKey>,
    missing: Option<String>,
    took: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    clusters: HashMap<ObjectKey, Known>,
    seen: HashMap<ObjectKey, Instant>,
    machines: Vec<Duration>,
}

#[derive(Debug)]
pub(super) struct Tracker {
    state: Mutex<State>,
    /// How many clusters are complete.
    complete: watch::Sender<usize>,
}

impl Tracker {
    pub(super) fn new(shapes: &[Shape]) -> Self {
        let clusters = shapes.iter().map(|shape| {
            let known = Known {
                machines: shape.machines(),
                started: None,
                running: HashSet::new(),
                missing: Some("it does not exist".to_owned()),
                took: None,
            };
            (ObjectKey::namespaced(&shape.namespace, &shape.name), known)
        });
        let state = State { clusters: clusters.collect(), ..State::default() };
        Self { state: Mutex::new(state), complete: watch::Sender::default() }
    }

    /// Hears of Clusters and Machines from now on, until the subscriptions are dropped.
    pub(super) fn follow(self: &Arc<Self>, ctx: &Ctx) -> (Subscription, Subscription) {
        let (clusters, machines) = (self.clone(), self.clone());
        let clusters =
            ctx.informers.of::<Cluster>(Scope::all()).subscribe(move |change| clusters.cluster(change));
        let machines =
            ctx.informers.of::<Machine>(Scope::all()).subscribe(move |change| machines.machine(change));
        (clusters, machines)
    }

    pub(super) fn begin(&self, shape: &Shape) {
        let key = ObjectKey::namespaced(&shape.namespace, &shape.name);
        if let Some(cluster) = self.state.lock().clusters.get_mut(&key) {
            cluster.started = Some(Instant::now());
        }
    }

    pub(super) fn complete(&self) -> watch::Receiver<usize> {
        self.complete.subscribe()
    }

    pub(super) fn cluster_times(&self) -> Percentiles {
        Percentiles::of(self.state.lock().clusters.values().filter_map(|cluster| cluster.took).collect())
    }

    pub(super) fn machine_times(&self) -> Percentiles {
        Percentiles::of(self.state.lock().machines.clone())
    }

    /// What is missing of one of those that are not complete.
    pub(super) fn example(&self) -> String {
        let state = self.state.lock();
        let open = state.clusters.iter().filter(|(_, cluster)| cluster.took.is_none());
        let Some((key, cluster)) = open.min_by_key(|(key, _)| *key) else { return String::new() };
        let missing = cluster.missing.as_deref().unwrap_or("it is ready");
        format!("of {key} {} of {} machines run, {missing}", cluster.running.len(), cluster.machines)
    }

    fn cluster(&self, change: &Change<Cluster>) {
        let Some(cluster) = &change.new else { return };
        let key = ObjectKey::of(&cluster.metadata);
        let mut state = self.state.lock();
        if let Some(known) = state.clusters.get_mut(&key) {
            known.missing = missing(cluster);
            self.judge(&mut state, &key);
        }
    }

    fn machine(&self, change: &Change<Machine>) {
        let Some(machine) = &change.new else { return };
        let key = ObjectKey::of(&machine.metadata);
        let cluster = key.sibling(&machine.spec.cluster_name);
        let (mut state, now) = (self.state.lock(), Instant::now());
        if !state.clusters.contains_key(&cluster) {
            return;
        }
        let seen = *state.seen.entry(key.clone()).or_insert(now);
        let running = machine.status.as_ref().is_some_and(|status| status.phase == "Running");
        if running && state.clusters.get_mut(&cluster).is_some_and(|known| known.running.insert(key)) {
            state.machines.push(now - seen);
            self.judge(&mut state, &cluster);
        }
    }

    fn judge(&self, state: &mut State, key: &ObjectKey) {
        let Some(cluster) = state.clusters.get_mut(key) else { return };
        let complete = cluster.missing.is_none() && cluster.running.len() >= cluster.machines;
        if complete && cluster.took.is_none() {
            cluster.took = Some(cluster.started.map_or(Duration::ZERO, |started| started.elapsed()));
            self.complete.send_modify(|count| *count += 1);
        }
    }
}
