//! Nodes whose kubelets are told what to be: those of node plans.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{cluster::WorkloadCluster, kinds::NODES, servers::ServerPlan};

/// What a kubelet says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubelet {
    pub provider_id: String,
    pub version: String,
    pub address: String,
    pub labels: BTreeMap<String, String>,
    pub control_plane: bool,
    /// Ready from the beginning; one that is Ready already stays so.
    pub ready: bool,
}

impl WorkloadCluster {
    /// The kubelet registers its Node, or says what is new.
    pub fn kubelet(&self, name: &str, kubelet: &Kubelet) {
        let mut state = self.lock();
        if let Some(stored) = state.store.get(NODES, "", name) {
            let before = stored.value();
            let mut node = before.clone();
            say(&mut node, kubelet);
            if node != before {
                state.store.put(NODES, "", name, node);
            }
            return;
        }
        let plan = ServerPlan {
            provider_id: kubelet.provider_id.clone(),
            control_plane: kubelet.control_plane,
            version: kubelet.version.clone(),
            address: kubelet.address.clone(),
            create: None,
            boot: None,
            ready: None,
        };
        let mut node = self.node(name, &plan, kubelet.ready);
        // Distributions initialise their Nodes themselves.
        node["spec"]["taints"] = json!([]);
        say(&mut node, kubelet);
        self.add(&mut state, NODES, "", name, node);
    }

    /// Whether the API has a Node of that name.
    pub fn has_node(&self, name: &str) -> bool {
        self.lock().store.get(NODES, "", name).is_some()
    }
}

fn say(node: &mut Value, kubelet: &Kubelet) {
    for (key, value) in &kubelet.labels {
        node["metadata"]["labels"][key] = json!(value);
    }
    for key in ["kubeletVersion", "kubeProxyVersion"] {
        node["status"]["nodeInfo"][key] = json!(kubelet.version);
    }
}
