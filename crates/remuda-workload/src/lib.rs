//! The way to workload clusters: one connection each, and an answer at once whether or not they do.
//!
//! Every cluster has a task of its own that connects, asks from time to time whether the other side is still
//! there, and tries again when it is not. Nothing here waits for a cluster on behalf of another one:
//! questions are answered from what is known, and calls are leased, a few at a time per cluster.
//!
//! A cluster that cannot be reached keeps its last known nodes. They are handed out only as what they are: who
//! asks for a node of such a cluster is told that it is [`Down`], never that the node is missing.

mod bounded;
pub mod budget;
pub mod drain;
mod kubeconfig;
mod lease;
mod link;
mod nodes;

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use rand::RngExt;
use remuda_api::core::Cluster;
use remuda_control::{Ctx, Informer, Metrics, ObjectKey, Scope, informer::Change};
use remuda_names::capi::condition;
use tokio::{sync::Notify, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    kubeconfig::KubeconfigSecret,
    lease::{Lease, Refused},
};
use self::{lease::Budget, link::Link, nodes::BY_PROVIDER_ID};

#[derive(Debug, Clone)]
pub struct Options {
    /// How often a connection that says nothing is asked whether it is alive. Half a minute is as rare as the
    /// 50 seconds allow after which a Cluster is called unreachable: one answer may be missed. A thousand idle
    /// clusters then cost some 40 requests a second, a few tenths of a percent of a core.
    pub probe_every: Duration,
    pub probe_timeout: Duration,
    /// How often a connection is asked that did not answer last time.
    pub retry_every: Duration,
    /// How long making a connection may take, and the first list of its nodes.
    pub connect_timeout: Duration,
    /// How long one call to a workload cluster may take.
    pub call_timeout: Duration,
    /// Somebody is told when a cluster has not answered for so long: the Cluster's condition and those of its
    /// Machines change then.
    pub graces: Vec<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            probe_every: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(5),
            retry_every: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(30),
            call_timeout: Duration::from_secs(10),
            graces: vec![Duration::from_secs(50), Duration::from_secs(300)],
        }
    }
}

/// Why a workload cluster cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection to the workload cluster is down: {why}")]
pub struct Down {
    pub why: String,
}

impl Down {
    fn because(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

/// Called with the key of a Cluster.
pub type Changed = Arc<dyn Fn(&ObjectKey) + Send + Sync>;
/// Keeps something going until it is dropped.
pub type Following = Box<dyn Any + Send + Sync>;

/// Makes clients of workload clusters: from their kubeconfig secrets, or through a tunnel.
pub trait Connect: Send + Sync + 'static {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>>;

    /// From now on `changed` is called for clusters whose connections should be made anew, or tried again at
    /// once if there is none: other credentials, or a tunnel that opened.
    fn follow(&self, _changed: Changed) -> Option<Following> {
        None
    }

    /// Waits until it is known where this way leads.
    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Clusters this way leads to now that are no Clusters of Cluster API, by their names alone. That one came or went
    /// is told like a change of any other.
    fn others(&self) -> Vec<ObjectKey> {
        Vec::new()
    }

    /// Whether a cluster is one of [`Self::others`].
    fn is_other(&self, _cluster: &ObjectKey) -> bool {
        false
    }
}

/// What is known of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    pub connected: bool,
    /// When the cluster last answered.
    pub last_success: Option<Timestamp>,
    pub last_probe: Option<Timestamp>,
    /// Failures since then.
    pub failures: u32,
    /// The last failure.
    pub why: Option<String>,
    /// It was because the cluster sends more than we take.
    pub is_excessive: bool,
    /// Why its nodes cannot be watched although it answers: they are as old as the last list of them, which is made
    /// again from time to time.
    pub unwatched: Option<String>,
}

/// Something about a connection, or behind it, changed.
#[derive(Debug, Clone)]
pub struct Event {
    pub cluster: ObjectKey,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// There is a connection, and the nodes are known. Everything seen through it may have changed.
    Connected,
    /// The connection was given up, or could not be made for a while.
    Disconnected,
    /// The cluster has not answered for one of [`Options::graces`].
    Silent(Duration),
    /// Whether nodes can be watched changed: see [`Health::unwatched`].
    Watch,
    /// A node changed in something that is kept of it.
    Node { old: Option<Arc<Node>>, new: Option<Arc<Node>> },
}

type Handler = Arc<dyn Fn(&Event) + Send + Sync>;

struct Subscriber {
    alive: Arc<AtomicBool>,
    handler: Handler,
}

/// Ends its handler when dropped.
#[derive(Debug)]
#[must_use = "a dropped subscription hears nothing"]
pub struct Subscription(Arc<AtomicBool>);

impl Drop for Subscription {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// All connections. Clones share them.
#[derive(Clone)]
pub struct Workloads(Arc<Inner>);

struct Inner {
    ctx: Arc<Ctx>,
    options: Options,
    connect: Arc<dyn Connect>,
    clusters: Informer<Cluster>,
    entries: RwLock<HashMap<ObjectKey, Arc<Entry>>>,
    subscribers: RwLock<Vec<Subscriber>>,
    budget: Arc<Budget>,
    lanes: link::Lanes,
    /// Of the caches of nodes. They are all of one kind, so their figures would overwrite each other among
    /// those of the management API.
    metrics: Metrics,
}

/// One cluster.
struct Entry {
    cluster: ObjectKey,
    state: RwLock<State>,
    /// Something happened that the task should look at: see `renew` and `doubted`.
    wake: Notify,
    /// The way to the cluster changed.
    renew: AtomicBool,
    /// A call failed, so ask whether the cluster is there.
    doubted: AtomicBool,
    /// Part of the time between probes, so that not all clusters are asked at the same time.
    spread: f64,
    stop: CancellationToken,
}

struct State {
    link: Option<Link>,
    /// Kept when the link is gone.
    nodes: Option<Informer<Node>>,
    health: Health,
    /// When the cluster last answered, and when it was last asked, by the timer.
    heard: Option<Instant>,
    probed: Instant,
    /// The longest grace since then that was told.
    told_grace: Option<Duration>,
}

impl Workloads {
    pub fn new(ctx: Arc<Ctx>, options: Options, connect: Arc<dyn Connect>) -> Self {
        Self(Arc::new(Inner {
            clusters: ctx.informers.of(Scope::all()),
            ctx,
            options,
            connect,
            entries: RwLock::default(),
            subscribers: RwLock::default(),
            budget: Arc::default(),
            lanes: link::Lanes::default(),
            metrics: Metrics::default(),
        }))
    }

    /// What is known, at once.
    pub fn health(&self, cluster: &ObjectKey) -> Health {
        self.entry(cluster).map(|entry| entry.state.read().health.clone()).unwrap_or_default()
    }

    /// A client, if there is a connection. Whoever reconciles should rather take a lease: a client waits as long
    /// as the cluster lets it.
    pub fn client(&self, cluster: &ObjectKey) -> Result<Client, Down> {
        let entry = self.entry(cluster).ok_or_else(|| Down::because("not connected yet"))?;
        let state = entry.state.read();
        let link = state.link.as_ref().ok_or_else(|| state.down())?;
        Ok(link.client.clone())
    }

    /// The nodes as last seen, once they have been. Ask [`Self::health`] how old that is.
    pub fn nodes(&self, cluster: &ObjectKey) -> Option<Informer<Node>> {
        self.entry(cluster)?.state.read().nodes.clone()
    }

    /// The nodes, while there is a connection.
    fn live_nodes(&self, cluster: &ObjectKey) -> Result<Informer<Node>, Down> {
        let entry = self.entry(cluster).ok_or_else(|| Down::because("not connected yet"))?;
        let state = entry.state.read();
        match (&state.link, &state.nodes) {
            (Some(_), Some(nodes)) => Ok(nodes.clone()),
            _ => Err(state.down()),
        }
    }

    /// A node by its name; `None` only if a cluster that can be seen does not have it.
    pub fn node(&self, cluster: &ObjectKey, name: &str) -> Result<Option<Arc<Node>>, Down> {
        Ok(self.live_nodes(cluster)?.get(&ObjectKey::cluster_wide(name)))
    }

    /// Nodes by their `spec.providerID`. More than one is somebody's mistake.
    pub fn nodes_by_provider_id(&self, cluster: &ObjectKey, id: &str) -> Result<Vec<Arc<Node>>, Down> {
        Ok(self.live_nodes(cluster)?.by_index(BY_PROVIDER_ID, id))
    }

    /// Calls `handler` for every event from now on. It must be quick and must not subscribe.
    pub fn subscribe(&self, handler: impl Fn(&Event) + Send + Sync + 'static) -> Subscription {
        let alive = Arc::new(AtomicBool::new(true));
        let mut subscribers = self.0.subscribers.write();
        subscribers.retain(|known| known.alive.load(Ordering::Acquire));
        subscribers.push(Subscriber { alive: alive.clone(), handler: Arc::new(handler) });
        Subscription(alive)
    }

    /// The way to a cluster changed: connect anew, or try at once.
    pub fn renew(&self, cluster: &ObjectKey) {
        if let Some(entry) = self.entry(cluster) {
            entry.renew.store(true, Ordering::Release);
            entry.wake.notify_one();
        }
    }

    fn entry(&self, cluster: &ObjectKey) -> Option<Arc<Entry>> {
        self.0.entries.read().get(cluster).cloned()
    }
}

impl Inner {
    fn tell(&self, cluster: &ObjectKey, what: What) {
        let event = Event { cluster: cluster.clone(), what };
        for subscriber in self.subscribers.read().iter() {
            if subscriber.alive.load(Ordering::Acquire) {
                (subscriber.handler)(&event);
            }
        }
    }
}

impl State {
    fn down(&self) -> Down {
        Down::because(self.health.why.clone().unwrap_or_else(|| "not connected yet".to_owned()))
    }
}

/// Keeps connections until told to stop, and only while we lead: nobody else asks for them.
pub async fn run(workloads: Workloads, stop: CancellationToken) {
    let leadership = workloads.0.ctx.leadership.clone();
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => return,
            () = leadership.gained() => {}
        }
        let term = stop.child_token();
        let keeping = keep_all(&workloads, &term);
        tokio::pin!(keeping);
        tokio::select! {
            () = &mut keeping => return,
            () = leadership.lost() => {}
        }
        term.cancel();
        keeping.await;
    }
}

/// Clusters that changed and have not been looked at.
#[derive(Default)]
struct Dirty {
    keys: Mutex<HashSet<ObjectKey>>,
    added: Notify,
}

async fn keep_all(workloads: &Workloads, stop: &CancellationToken) {
    let inner = &workloads.0;
    if stop.run_until_cancelled(inner.connect.ready()).await.is_none() {
        return;
    }
    let dirty = Arc::new(Dirty::default());
    let told = dirty.clone();
    let clusters = inner.clusters.subscribe(move |change: &Change<Cluster>| {
        let Some(cluster) = change.object() else {
            return;
        };
        if change.is_delete() || change.initial || change.old.as_deref().map(stage) != Some(stage(cluster)) {
            told.keys.lock().insert(ObjectKey::of(&cluster.metadata));
            told.added.notify_one();
        }
    });
    let following = {
        let (workloads, told) = (workloads.clone(), dirty.clone());
        inner.connect.follow(Arc::new(move |cluster| {
            workloads.renew(cluster);
            if cluster.namespace.is_none() {
                told.keys.lock().insert(cluster.clone());
                told.added.notify_one();
            }
        }))
    };
    dirty.keys.lock().extend(inner.connect.others());
    dirty.added.notify_one();
    let tasks = TaskTracker::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = dirty.added.notified() => {}
        }
        for key in std::mem::take(&mut *dirty.keys.lock()) {
            // Those of Cluster API are in namespaces.
            if key.namespace.is_none() {
                match inner.connect.is_other(&key) {
                    true => inner.start(key, &tasks, stop),
                    false => inner.forget(&key),
                }
                continue;
            }
            match inner.clusters.get(&key).filter(|cluster| stage(cluster) != Stage::Early) {
                Some(_) => inner.start(key, &tasks, stop),
                None => inner.forget(&key),
            }
        }
    }
    drop((clusters, following));
    for (_, entry) in inner.entries.write().drain() {
        entry.stop.cancel();
    }
    tasks.close();
    tasks.wait().await;
}

/// What of a Cluster is of interest here. Each step is a reason to try again at once.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// There is nothing yet to connect to.
    Early,
    Provisioned,
    Initialized,
}

fn stage(cluster: &Cluster) -> Stage {
    let status = cluster.status.as_ref();
    let provisioned = status.and_then(|status| status.initialization.infrastructure_provisioned);
    if provisioned != Some(true) {
        return Stage::Early;
    }
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let initialized =
        conditions.any(|known| known.type_ == condition::CONTROL_PLANE_INITIALIZED && known.status == "True");
    if initialized { Stage::Initialized } else { Stage::Provisioned }
}

impl Inner {
    fn start(self: &Arc<Self>, cluster: ObjectKey, tasks: &TaskTracker, stop: &CancellationToken) {
        let mut entries = self.entries.write();
        if let Some(entry) = entries.get(&cluster) {
            entry.wake.notify_one();
            return;
        }
        let state = State {
            link: None,
            nodes: None,
            health: Health::default(),
            heard: None,
            probed: Instant::now(),
            told_grace: None,
        };
        let entry = Arc::new(Entry {
            cluster: cluster.clone(),
            state: RwLock::new(state),
            wake: Notify::new(),
            renew: AtomicBool::new(false),
            doubted: AtomicBool::new(false),
            spread: rand::rng().random_range(0.8..1.0),
            stop: stop.child_token(),
        });
        entries.insert(cluster, entry.clone());
        let inner = self.clone();
        tasks.spawn(async move {
            let keeping = link::keep(&inner, &entry);
            entry.stop.run_until_cancelled(Box::pin(keeping)).await;
            let mut state = entry.state.write();
            state.link = None;
            state.health.connected = false;
        });
    }

    fn forget(&self, cluster: &ObjectKey) {
        if let Some(entry) = self.entries.write().remove(cluster) {
            entry.stop.cancel();
            tracing::debug!(cluster = %entry.cluster, "connection is no longer needed");
            self.tell(cluster, What::Disconnected);
        }
    }
}

/// Who a node belongs to, as far as it says so itself.
pub fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref().filter(|id| !id.is_empty())
}
