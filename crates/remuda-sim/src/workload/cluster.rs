//! One workload cluster: its objects, its servers, and whether it answers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use remuda_control::ObjectKey;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    World,
    kinds::{BUDGETS, NAMESPACES, NODES, PODS, SERVED},
    servers::Server,
    store::Store,
    wire::Wire,
};
use crate::names::TERMINATION_SECONDS;

/// How a cluster answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    #[default]
    Answers,
    /// Connections are closed.
    Refuses,
    /// Requests wait, and watches say nothing, until it answers again.
    Hangs,
}

/// What a cluster keeps.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) servers: BTreeMap<Box<str>, Server>,
    /// The control plane is somebody else's, and up.
    pub(super) external: bool,
    /// Numbers of uids.
    made: u64,
}

pub struct WorkloadCluster {
    key: ObjectKey,
    token: String,
    pub(super) world: World,
    state: Mutex<State>,
    reach: watch::Sender<Reach>,
}

impl WorkloadCluster {
    pub(super) fn new(key: ObjectKey, token: String, world: World) -> Self {
        let cluster =
            Self { key, token, world, state: Mutex::default(), reach: watch::Sender::new(Reach::Answers) };
        for name in ["default", "kube-system"] {
            let namespace = json!({"metadata": {"name": name}, "status": {"phase": "Active"}});
            cluster.add(&mut cluster.lock(), NAMESPACES, "", name, namespace);
        }
        cluster
    }

    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// What clients show.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// A client in this process.
    pub fn client(self: &Arc<Self>) -> Client {
        Client::new(Wire(self.clone()), "default")
    }

    /// Makes it answer, or not.
    pub fn set_reach(&self, reach: Reach) {
        self.reach.send_replace(reach);
        if reach == Reach::Refuses {
            self.lock().store.end_watches();
        }
    }

    pub fn reach(&self) -> Reach {
        *self.reach.borrow()
    }

    pub(super) fn follow_reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Whether there is an API server: one of its own has booted, or somebody else runs it.
    pub fn is_serving(&self) -> bool {
        self.lock().is_serving()
    }

    pub fn set_external(&self, external: bool) {
        self.lock().external = external;
    }

    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.external = false;
        state.servers.clear();
        state.store.end_watches();
    }

    /// Adds an object with everything the API gives it.
    pub(super) fn add(&self, state: &mut State, kind: usize, namespace: &str, name: &str, mut object: Value) {
        let served = &SERVED[kind];
        object["apiVersion"] = json!(served.api_version());
        object["kind"] = json!(served.kind);
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(name);
        if served.namespaced {
            metadata["namespace"] = json!(namespace);
        }
        state.made += 1;
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", state.made));
        metadata["creationTimestamp"] = json!(self.now_text());
        state.store.put(kind, namespace, name, object);
    }

    pub(super) fn now_text(&self) -> String {
        // Kubernetes writes whole seconds.
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
    }

    /// Takes an object away as the API does: not before its finalizers are gone, Pods when they have ended,
    /// and with a Node its Pods.
    pub(super) fn delete(self: &Arc<Self>, state: &mut State, kind: usize, namespace: &str, name: &str) {
        let Some(stored) = state.store.get(kind, namespace, name) else { return };
        let mut object = stored.value();
        let metadata = &object["metadata"];
        let finalized = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        let ending = (kind == PODS).then(|| self.termination(state, &object));
        let lingers = finalized || ending.is_some_and(|ending| ending != Some(Duration::ZERO));
        if !lingers {
            state.store.remove(kind, namespace, name);
            if kind == NODES {
                collect_pods(state, name);
            }
            return;
        }
        if metadata["deletionTimestamp"].is_string() {
            return;
        }
        let uid = metadata["uid"].clone();
        object["metadata"]["deletionTimestamp"] = json!(self.now_text());
        state.store.put(kind, namespace, name, object);
        if let Some(Some(after)) = ending {
            let (cluster, key) = (Arc::downgrade(self), (namespace.to_owned(), name.to_owned()));
            let end = async move {
                tokio::time::sleep(after).await;
                if let Some(cluster) = cluster.upgrade() {
                    cluster.pod_ended(&key.0, &key.1, &uid);
                }
            };
            let stop = self.world.stop.clone();
            self.world.tasks.spawn(async move { stop.run_until_cancelled(end).await });
        }
    }

    /// How long a Pod takes to end; `None` if its Node will never say so.
    fn termination(&self, state: &State, pod: &Value) -> Option<Duration> {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if let Some(node) = state.store.get(NODES, "", node)
            && !node_is_ready(&node.value())
        {
            return None;
        }
        let told = pod["metadata"]["annotations"][TERMINATION_SECONDS].as_str();
        Some(Duration::from_secs(told.and_then(|told| told.parse::<u32>().ok()).unwrap_or(0).into()))
    }

    fn pod_ended(&self, namespace: &str, name: &str, uid: &Value) {
        let mut state = self.lock();
        let same = |stored: &&Arc<super::store::Stored>| stored.value()["metadata"]["uid"] == *uid;
        if state.store.get(PODS, namespace, name).filter(same).is_some() {
            state.store.remove(PODS, namespace, name);
        }
    }

    /// Puts a running Pod on a Node, for simulations; the namespace comes to be if it must.
    pub fn place_pod(&self, namespace: &str, name: &str, node: &str, mut pod: Value) {
        let mut state = self.lock();
        if state.store.get(NAMESPACES, "", namespace).is_none() {
            self.add(&mut state, NAMESPACES, "", namespace, json!({"metadata": {}}));
        }
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        self.add(&mut state, PODS, namespace, name, pod);
    }

    /// Adds a PodDisruptionBudget, for simulations.
    pub fn place_budget(&self, namespace: &str, name: &str, spec: Value) {
        let budget = json!({"metadata": {}, "spec": spec});
        self.add(&mut self.lock(), BUDGETS, namespace, name, budget);
    }

    /// A Pod is gone, whatever held it.
    pub fn remove_pod(&self, namespace: &str, name: &str) {
        self.lock().store.remove(PODS, namespace, name);
    }

    /// Takes a Node away, for simulations. Whether there was one.
    pub fn remove_node(&self, name: &str) -> bool {
        let mut state = self.lock();
        collect_pods(&mut state, name);
        state.store.remove(NODES, "", name).is_some()
    }

    /// The Nodes as they are.
    pub fn nodes(&self) -> Vec<Value> {
        self.lock().store.list(NODES, None).map(|node| node.value()).collect()
    }

    /// The Pods as they are.
    pub fn pods(&self) -> Vec<Value> {
        self.lock().store.list(PODS, None).map(|pod| pod.value()).collect()
    }

    /// Whether there is an object: of a plural, called `NAMESPACE/NAME` or `NAME`.
    pub fn has(&self, plural: &str, name: &str) -> bool {
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let kind = SERVED.iter().position(|known| known.plural == plural);
        kind.is_some_and(|kind| self.lock().store.get(kind, namespace, name).is_some())
    }

    /// Bytes of all objects kept.
    pub fn bytes(&self) -> usize {
        self.lock().store.bytes()
    }
}

impl State {
    pub(super) fn is_serving(&self) -> bool {
        self.external || self.servers.values().any(Server::serves)
    }
}

/// Pods of a Node that is gone go too.
fn collect_pods(state: &mut State, node: &str) {
    let orphans: Vec<_> = state
        .store
        .list(PODS, None)
        .filter(|pod| pod.value()["spec"]["nodeName"].as_str() == Some(node))
        .map(|pod| (pod.namespace.clone(), pod.name.clone()))
        .collect();
    for (namespace, name) in orphans {
        state.store.remove(PODS, &namespace, &name);
    }
}

pub(super) fn node_is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    let mut ready = conditions.into_iter().flatten().filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

impl std::fmt::Debug for WorkloadCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WorkloadCluster({})", self.key)
    }
}
