//! Whole clusters as objects to be created.

use remuda_names::capi::label;
use serde_json::{Value, json};

use crate::names::{GROUP, VERSION};

/// What a cluster is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub namespace: String,
    pub name: String,
    /// Machines of the control plane; 0 for one that is managed elsewhere.
    pub control_planes: u32,
    /// Machines of the one MachineDeployment; with 0 there is one all the same.
    pub workers: u32,
    pub version: String,
}

impl Shape {
    pub fn new(namespace: &str, name: &str, control_planes: u32, workers: u32) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            control_planes,
            workers,
            version: "v1.34.2".to_owned(),
        }
    }

    /// Name of the MachineDeployment.
    pub fn deployment(&self) -> String {
        format!("{}-md", self.name)
    }

    /// The objects, in an order in which each can be created.
    pub fn objects(&self) -> Vec<Value> {
        let name = &self.name;
        let (control_plane, deployment) = (format!("{name}-cp"), self.deployment());
        vec![
            self.ours("SimCluster", name, json!({})),
            machine_template(&self.namespace, &control_plane, "small"),
            self.ours(
                "SimControlPlane",
                &control_plane,
                json!({
                    "replicas": self.control_planes,
                    "version": self.version,
                    "machineTemplate": {"spec": {
                        "infrastructureRef": reference("SimMachineTemplate", &control_plane),
                    }},
                }),
            ),
            self.core(
                "Cluster",
                name,
                json!({
                    "infrastructureRef": reference("SimCluster", name),
                    "controlPlaneRef": reference("SimControlPlane", &control_plane),
                }),
            ),
            machine_template(&self.namespace, &deployment, "small"),
            self.ours("SimBootstrapTemplate", &deployment, json!({"template": {"spec": {}}})),
            self.machine_deployment(),
        ]
    }

    fn machine_deployment(&self) -> Value {
        let deployment = self.deployment();
        let labels = json!({label::CLUSTER_NAME: self.name, label::DEPLOYMENT_NAME: deployment});
        self.core(
            "MachineDeployment",
            &deployment,
            json!({
                "clusterName": self.name,
                "replicas": self.workers,
                "selector": {"matchLabels": labels},
                "rollout": {"strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
                }},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "clusterName": self.name,
                        "version": self.version,
                        "bootstrap": {"configRef": reference("SimBootstrapTemplate", &deployment)},
                        "infrastructureRef": reference("SimMachineTemplate", &deployment),
                        "deletion": {"nodeDeletionTimeoutSeconds": 10},
                    },
                },
            }),
        )
    }

    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": {label::CLUSTER_NAME: self.name}})
    }

    fn ours(&self, kind: &str, name: &str, spec: Value) -> Value {
        let api_version = format!("{GROUP}/{VERSION}");
        json!({"apiVersion": api_version, "kind": kind, "metadata": self.metadata(name), "spec": spec})
    }

    fn core(&self, kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": self.metadata(name),
            "spec": spec,
        })
    }
}

/// A template that differs from others in its name, and in a word.
pub fn machine_template(namespace: &str, name: &str, size: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SimMachineTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"size": size}}},
    })
}

pub(crate) fn reference(kind: &str, name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}
