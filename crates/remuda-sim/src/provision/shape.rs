//! One cluster as objects to be created.

use remuda_names::rancher::group;
use serde_json::{Value, json};

use super::kinds::CONFIG;

/// What a cluster is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub namespace: String,
    pub name: String,
    /// Machines with etcd and a control plane.
    pub servers: u32,
    /// Machines with neither; without them servers take workloads too.
    pub workers: u32,
    pub version: String,
}

impl Shape {
    pub fn machines(&self) -> usize {
        (self.servers + self.workers) as usize
    }

    /// The objects, in an order in which each can be created.
    pub fn objects(&self) -> Vec<Value> {
        let mut pools = vec![json!({
            "name": "servers", "quantity": self.servers, "etcdRole": true, "controlPlaneRole": true,
            "workerRole": self.workers == 0,
        })];
        if self.workers > 0 {
            pools.push(json!({"name": "workers", "quantity": self.workers, "workerRole": true}));
        }
        let mut objects = Vec::new();
        for pool in &mut pools {
            let name = format!("nc-{}-{}", self.name, pool["name"].as_str().unwrap_or_default());
            objects.push(json!({
                "apiVersion": format!("{}/v1", group::MACHINE_CONFIG),
                "kind": CONFIG,
                "metadata": {"name": name, "namespace": self.namespace},
                "size": "small",
            }));
            pool["machineConfigRef"] = json!({"kind": CONFIG, "name": name});
        }
        objects.push(json!({
            "apiVersion": format!("{}/v1", group::PROVISIONING),
            "kind": "Cluster",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"kubernetesVersion": self.version, "rkeConfig": {"machinePools": pools}},
        }));
        objects
    }
}
