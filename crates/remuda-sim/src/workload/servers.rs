//! Servers: made by the cloud, then a Node, then a Ready one.

use std::time::Duration;

use jiff::Timestamp;
use remuda_names::capi::taint;
use serde_json::{Value, json};

use super::{cluster::WorkloadCluster, kinds::NODES};

/// What a server is, and how it will fare.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    pub provider_id: String,
    pub control_plane: bool,
    /// Of its kubelet.
    pub version: String,
    pub address: String,
    /// How long each step takes; a step that never ends is `None`.
    pub create: Option<Duration>,
    pub boot: Option<Duration>,
    pub ready: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Making,
    Made,
    Booted,
    Ready,
}

#[derive(Debug)]
pub(super) struct Server {
    started: Timestamp,
    stage: Stage,
    control_plane: bool,
}

impl Server {
    /// Whether there is an API server on it.
    pub(super) fn serves(&self) -> bool {
        self.control_plane && self.stage >= Stage::Booted
    }
}

/// How far a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The cloud has made it.
    pub made: bool,
    /// The cloud never will.
    pub failed: bool,
    /// The cluster began to answer just now.
    pub began_to_serve: bool,
    /// When something happens next.
    pub next: Option<Duration>,
}

/// A Node that must join waits for an API server, and asks as often.
const JOIN_AGAIN: Duration = Duration::from_secs(1);

impl WorkloadCluster {
    /// Moves a server on to where it should be by now; it begins to be made if nobody has heard of it.
    pub fn advance_server(&self, name: &str, plan: &ServerPlan) -> Progress {
        let now = self.now();
        let mut state = self.lock();
        let served = state.is_serving();
        let server = state.servers.entry(name.into()).or_insert_with(|| Server {
            started: now,
            stage: Stage::Making,
            control_plane: plan.control_plane,
        });
        let passed = now.duration_since(server.started);
        let passed = Duration::try_from(passed).unwrap_or_default();
        let mut stage = server.stage;
        // The time by which each stage is reached, as long as no step takes for ever.
        let made = plan.create;
        let booted = made.zip(plan.boot).map(|(made, boot)| made + boot);
        let ready = booted.zip(plan.ready).map(|(booted, ready)| booted + ready);
        let mut next = None;
        for (reached, at) in [(Stage::Made, made), (Stage::Booted, booted), (Stage::Ready, ready)] {
            if stage >= reached {
                continue;
            }
            let Some(at) = at else { break };
            if passed < at {
                next = Some(at - passed);
                break;
            }
            if reached == Stage::Booted && !plan.control_plane && !state.is_serving() {
                next = Some(JOIN_AGAIN);
                break;
            }
            stage = reached;
            if let Some(server) = state.servers.get_mut(name) {
                server.stage = stage;
            }
            match stage {
                Stage::Booted => {
                    let soon = plan.ready == Some(Duration::ZERO);
                    let node = self.node(name, plan, soon);
                    if state.store.get(NODES, "", name).is_none() {
                        self.add(&mut state, NODES, "", name, node);
                    }
                }
                Stage::Ready => {
                    self.condition(
                        &mut state,
                        name,
                        "True",
                        "KubeletReady",
                        "kubelet is posting ready status",
                    );
                }
                Stage::Making | Stage::Made => {}
            }
        }
        Progress {
            made: stage >= Stage::Made,
            failed: plan.create.is_none() && stage < Stage::Made,
            began_to_serve: !served && state.is_serving(),
            next,
        }
    }

    /// Whether anybody has heard of the server.
    pub fn has_server(&self, name: &str) -> bool {
        self.lock().servers.contains_key(name)
    }

    /// A server that was there before this process was: all its steps are in the past.
    pub fn restore_server(&self, name: &str, plan: &ServerPlan) -> Progress {
        let at_once = ServerPlan {
            create: Some(Duration::ZERO),
            boot: plan.boot.map(|_| Duration::ZERO),
            ready: plan.ready.map(|_| Duration::ZERO),
            ..plan.clone()
        };
        self.advance_server(name, &at_once)
    }

    /// The server is gone. Its Node stays until somebody deletes it, and will not be Ready again.
    pub fn remove_server(&self, name: &str) {
        let mut state = self.lock();
        if state.servers.remove(name).is_none() {
            return;
        }
        if state.is_serving() {
            let message = "Kubelet stopped posting node status.";
            self.condition(&mut state, name, "Unknown", "NodeStatusUnknown", message);
        } else {
            state.store.end_watches();
        }
    }

    /// Tells the Ready condition of a Node, for simulations. Whether there is such a Node.
    pub fn set_node_ready(&self, node: &str, status: &str, reason: &str, message: &str) -> bool {
        self.condition(&mut self.lock(), node, status, reason, message)
    }

    fn condition(
        &self,
        state: &mut super::cluster::State,
        name: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> bool {
        let Some(stored) = state.store.get(NODES, "", name) else { return false };
        let mut node = stored.value();
        let Some(conditions) = node["status"]["conditions"].as_array_mut() else { return false };
        let Some(ready) = conditions.iter_mut().find(|condition| condition["type"] == "Ready") else {
            return false;
        };
        if ready["status"] == status && ready["reason"] == reason {
            return true;
        }
        if ready["status"] != status {
            ready["lastTransitionTime"] = json!(self.now_text());
        }
        ready["status"] = json!(status);
        ready["reason"] = json!(reason);
        ready["message"] = json!(message);
        state.store.put(NODES, "", name, node);
        true
    }

    pub(super) fn node(&self, name: &str, plan: &ServerPlan, ready: bool) -> Value {
        let now = self.now_text();
        let condition = |kind: &str, status: bool, reason: &str| {
            json!({
                "type": kind, "status": if status { "True" } else { "False" }, "reason": reason,
                "lastTransitionTime": now,
            })
        };
        let ready_reason = if ready { "KubeletReady" } else { "KubeletNotReady" };
        let mut labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        if plan.control_plane {
            labels["node-role.kubernetes.io/control-plane"] = json!("");
        }
        json!({
            "metadata": {"labels": labels},
            "spec": {
                "providerID": plan.provider_id,
                "taints": [{"key": taint::UNINITIALIZED, "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": plan.address},
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [
                    condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
                    condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
                    condition("PIDPressure", false, "KubeletHasSufficientPID"),
                    condition("Ready", ready, ready_reason),
                ],
                "nodeInfo": {
                    "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "sim://1",
                    "kernelVersion": "sim", "kubeProxyVersion": plan.version,
                    "kubeletVersion": plan.version, "machineID": "", "operatingSystem": "linux",
                    "osImage": "Simulated Linux", "systemUUID": "",
                },
            },
        })
    }
}
