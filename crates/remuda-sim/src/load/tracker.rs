//! Watches clusters come to be.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt;
use parking_lot::Mutex;
use remuda_api::core::{Machine, MachineDeployment};
use remuda_control::{
    Ctx, ObjectKey, Scope,
    informer::{Change, Subscription},
    write::conditions,
};
use remuda_names::capi::condition;
use tokio::sync::watch;

use super::report::Percentiles;
use crate::objects::Shape;

/// One cluster on its way.
#[derive(Debug)]
struct Cluster {
    shape: Shape,
    started: Option<Instant>,
    running: HashSet<ObjectKey>,
    available: bool,
    took: Option<Duration>,
}

impl Cluster {
    fn is_complete(&self) -> bool {
        let wanted = self.shape.control_planes + self.shape.workers;
        self.available && self.running.len() >= wanted as usize
    }
}

#[derive(Debug, Default)]
struct State {
    clusters: HashMap<ObjectKey, Cluster>,
    seen: HashMap<ObjectKey, Instant>,
    machines: Vec<Duration>,
}

/// Clusters that are complete, and Machines that run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) clusters: usize,
    pub(super) machines: usize,
}

#[derive(Debug)]
pub(super) struct Tracker {
    state: Mutex<State>,
    count: watch::Sender<Count>,
}

impl Tracker {
    pub(super) fn new(shapes: Vec<Shape>) -> Self {
        let clusters = shapes.into_iter().map(|shape| {
            let key = ObjectKey::namespaced(&shape.namespace, &shape.name);
            let cluster =
                Cluster { shape, started: None, running: HashSet::new(), available: false, took: None };
            (key, cluster)
        });
        let state = State { clusters: clusters.collect(), ..State::default() };
        Self { state: Mutex::new(state), count: watch::Sender::default() }
    }

    /// Hears of Machines and MachineDeployments from now on, until the subscriptions are dropped.
    pub(super) fn follow(self: &Arc<Self>, ctx: &Ctx) -> (Subscription, Subscription) {
        let (machines, deployments) = (self.clone(), self.clone());
        let machines =
            ctx.informers.of::<Machine>(Scope::all()).subscribe(move |change| machines.machine(change));
        let deployments = ctx
            .informers
            .of::<MachineDeployment>(Scope::all())
            .subscribe(move |change| deployments.deployment(change));
        (machines, deployments)
    }

    pub(super) fn shapes(&self) -> Vec<Shape> {
        let state = self.state.lock();
        let mut shapes: Vec<Shape> = state.clusters.values().map(|cluster| cluster.shape.clone()).collect();
        shapes.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        shapes
    }

    pub(super) fn begin(&self, shape: &Shape) {
        let key = ObjectKey::namespaced(&shape.namespace, &shape.name);
        if let Some(cluster) = self.state.lock().clusters.get_mut(&key) {
            cluster.started = Some(Instant::now());
        }
    }

    pub(super) fn counts(&self) -> watch::Receiver<Count> {
        self.count.subscribe()
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
        let Some(cluster) = state.clusters.values().find(|cluster| !cluster.is_complete()) else {
            return String::new();
        };
        let wanted = cluster.shape.control_planes + cluster.shape.workers;
        let running = cluster.running.len();
        format!("of {} {running} of {wanted} machines run", cluster.shape.name)
    }

    fn machine(&self, change: &Change<Machine>) {
        let Some(machine) = &change.new else { return };
        let key = ObjectKey::of(&machine.metadata);
        let mut state = self.state.lock();
        let now = Instant::now();
        let cluster = key.sibling(&machine.spec.cluster_name);
        if !state.clusters.contains_key(&cluster) {
            return;
        }
        let seen = *state.seen.entry(key.clone()).or_insert(now);
        if machine.status.as_ref().is_none_or(|status| status.phase != "Running") {
            return;
        }
        let new = state.clusters.get_mut(&cluster).is_some_and(|known| known.running.insert(key));
        if new {
            state.machines.push(now - seen);
            self.judge(&mut state, &cluster, now);
        }
    }

    fn deployment(&self, change: &Change<MachineDeployment>) {
        let Some(deployment) = &change.new else { return };
        let cluster = ObjectKey::of(&deployment.metadata).sibling(&deployment.spec.cluster_name);
        let mut state = self.state.lock();
        let Some(known) = state.clusters.get_mut(&cluster) else { return };
        if known.shape.deployment() != deployment.name_any() {
            return;
        }
        let status = deployment.status.as_ref();
        known.available = status.is_some_and(|status| {
            conditions::is_true(&status.conditions, condition::AVAILABLE)
                && i64::from(status.available_replicas.unwrap_or(0)) >= i64::from(known.shape.workers)
        });
        self.judge(&mut state, &cluster, Instant::now());
    }

    fn judge(&self, state: &mut State, key: &ObjectKey, now: Instant) {
        let Some(cluster) = state.clusters.get_mut(key) else { return };
        let complete = cluster.is_complete() && cluster.took.is_none();
        if complete {
            cluster.took = cluster.started.map(|started| now - started);
        }
        let machines = state.machines.len();
        self.count.send_modify(|count| {
            count.machines = machines;
            count.clusters += usize::from(complete);
        });
    }
}
