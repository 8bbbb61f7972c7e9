//! Agents on nodes, and what comes up there: Nodes in the workload cluster, etcd, the agent in the cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use remuda_api::management;
use remuda_plan::{NodePlan, key, sha256_hex};
use remuda_testkit::World;
use serde_json::{Value, json};

use crate::world::{MANAGED, NAMESPACE};

/// What tests want of agents.
#[derive(Default)]
struct Wishes {
    /// Do nothing.
    down: BTreeSet<String>,
    /// Fail every plan.
    failing: BTreeSet<String>,
    /// etcd does not let members go.
    keep_members: bool,
}

/// All of them. Clones share what happened.
#[derive(Clone)]
pub(crate) struct Agents {
    management: World,
    workload: World,
    wishes: Arc<Mutex<Wishes>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Agents {
    pub(crate) fn new(management: &World, workload: &World) -> Self {
        let (management, workload) = (management.clone(), workload.clone());
        Self { management, workload, wishes: Arc::default(), told: Arc::default() }
    }

    /// What happened since the last time, such as `a applied`.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }

    pub(crate) fn down(&self, id: &str, down: bool) {
        let mut wishes = self.wishes.lock();
        if down {
            wishes.down.insert(id.to_owned())
        } else {
            wishes.down.remove(id)
        };
    }

    pub(crate) fn fail(&self, id: &str, fail: bool) {
        let mut wishes = self.wishes.lock();
        if fail {
            wishes.failing.insert(id.to_owned())
        } else {
            wishes.failing.remove(id)
        };
    }

    pub(crate) fn keep_members(&self, keep: bool) {
        self.wishes.lock().keep_members = keep;
    }

    /// Runs for as long as the test does.
    pub(crate) fn run(&self) {
        let agents = self.clone();
        tokio::spawn(async move {
            // Looking all the time costs much when days pass in a moment.
            let mut pause = 1;
            loop {
                pause = if agents.step().await { 1 } else { (pause * 2).min(16) };
                tokio::time::sleep(Duration::from_secs(pause)).await;
            }
        });
    }

    /// Whether some agent has something to do.
    pub(crate) async fn busy(&self) -> bool {
        let secrets = self.secrets().await;
        let wishes = self.wishes.lock();
        secrets.iter().any(|secret| {
            let id = id(secret);
            !wishes.down.contains(&id) && !wishes.failing.contains(&id) && pending(secret).is_some()
        })
    }

    async fn secrets(&self) -> Vec<Secret> {
        let api: Api<Secret> = Api::namespaced(self.management.client(), NAMESPACE);
        let params = ListParams::default().fields("type=rke.cattle.io/machine-plan");
        api.list(&params).await.unwrap().items
    }

    /// Tells whether anything happened.
    async fn step(&self) -> bool {
        let before = self.told.lock().len();
        for secret in self.secrets().await {
            let id = id(&secret);
            let (down, failing) = {
                let wishes = self.wishes.lock();
                (wishes.down.contains(&id), wishes.failing.contains(&id))
            };
            let Some(bytes) = pending(&secret).filter(|_| !down) else { continue };
            if failing {
                self.failed(&secret, &id, bytes).await;
            } else {
                self.applied(&secret, &id, bytes).await;
            }
        }
        self.etcd().await;
        self.told.lock().len() != before
    }

    async fn failed(&self, secret: &Secret, id: &str, plan: &[u8]) {
        let sum = sha256_hex(plan);
        if value(secret, key::FAILED_CHECKSUM) == sum.as_bytes() {
            return;
        }
        let data = json!({
            key::FAILED_CHECKSUM: BASE64_STANDARD.encode(sum), key::FAILURE_COUNT: BASE64_STANDARD.encode("1"),
        });
        self.told.lock().push(format!("{id} failed"));
        self.report(secret, data).await;
    }

    async fn applied(&self, secret: &Secret, id: &str, bytes: &[u8]) {
        let plan = NodePlan::decode(bytes).unwrap();
        let probes: BTreeMap<&String, Value> =
            plan.probes.keys().map(|name| (name, json!({"healthy": true, "successCount": 1}))).collect();
        let data = json!({
            key::APPLIED_CHECKSUM: BASE64_STANDARD.encode(sha256_hex(bytes)),
            key::PROBE_STATUSES: BASE64_STANDARD.encode(serde_json::to_vec(&probes).unwrap()),
            key::FAILED_CHECKSUM: null, key::FAILURE_COUNT: null,
        });
        self.told.lock().push(format!("{id} applied"));
        self.join(id, &plan).await;
        let control_plane = secret.labels().get("rke.cattle.io/control-plane-role").is_some();
        self.report(secret, data).await;
        if control_plane {
            self.connect().await;
        }
    }

    async fn report(&self, secret: &Secret, data: Value) {
        let api: Api<Secret> = Api::namespaced(self.management.client(), NAMESPACE);
        let patch = json!({"metadata": {"resourceVersion": secret.resource_version()}, "data": data});
        // Somebody else was quicker: the next step sees what they wrote.
        let _ = api.patch(&secret.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    /// Probes of a node fail, or pass again.
    pub(crate) async fn probe(&self, secret: &Secret, healthy: bool) {
        let statuses = json!({"kubelet": {"healthy": healthy}}).to_string();
        self.report(secret, json!({key::PROBE_STATUSES: BASE64_STANDARD.encode(statuses)})).await;
    }

    /// The kubelet registers its Node.
    async fn join(&self, id: &str, plan: &NodePlan) {
        let file = plan.files.iter().find(|file| file.path.ends_with("50-rancher.yaml")).unwrap();
        let config = BASE64_STANDARD.decode(file.content.as_bytes()).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let labels: BTreeMap<&str, &str> = config["node-label"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|label| label.as_str().unwrap().split_once('='))
            .collect();
        let image = plan.instructions.first().map(|install| install.image.clone()).unwrap_or_default();
        let version = image.rsplit_once(':').map_or("", |(_, tag)| tag).replacen("-k3s", "+k3s", 1);
        let nodes: Api<Node> = Api::all(self.workload.client());
        if nodes.get_opt(id).await.unwrap().is_none() {
            let node = json!({
                "metadata": {"name": id, "labels": labels}, "spec": {"providerID": format!("k3s://{id}")},
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        }
        let number = id.bytes().map(u32::from).sum::<u32>() % 250;
        let info = json!({
            "architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "test://1", "kernelVersion": "6",
            "kubeProxyVersion": version, "kubeletVersion": version, "machineID": "m", "operatingSystem": "linux",
            "osImage": "test", "systemUUID": "u",
        });
        let conditions = [
            ("Ready", "True"),
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
        ];
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| json!({"type": kind, "status": status, "reason": "Test"}))
            .collect();
        let status = json!({"status": {
            "conditions": conditions, "nodeInfo": info,
            "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{number}")}],
        }});
        nodes.patch_status(id, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// The agent in the cluster connects.
    async fn connect(&self) {
        let clusters: Api<management::Cluster> = Api::all(self.management.client());
        let connected = json!({"status": {"conditions": [{"type": "Connected", "status": "True"}]}});
        clusters.patch_status(MANAGED, &PatchParams::default(), &Patch::Merge(connected)).await.unwrap();
    }

    /// etcd lets go of members it is asked to.
    async fn etcd(&self) {
        if self.wishes.lock().keep_members {
            return;
        }
        let nodes: Api<Node> = Api::all(self.workload.client());
        for node in nodes.list(&ListParams::default()).await.unwrap().items {
            let annotations = node.annotations();
            let asked = annotations.get("etcd.k3s.cattle.io/remove").is_some_and(|asked| asked == "true");
            let answer = "etcd.k3s.cattle.io/removed-node-name";
            if asked && !annotations.contains_key(answer) {
                let patch = json!({"metadata": {"annotations": {answer: node.name_any()}}});
                nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                self.told.lock().push(format!("{} left etcd", node.name_any()));
            }
        }
    }
}

/// What the server calls itself.
fn id(secret: &Secret) -> String {
    secret.labels().get("rke.cattle.io/machine-id").cloned().unwrap_or_default()
}

fn value<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice()).unwrap_or_default()
}

/// The plan, if it has not been applied.
fn pending(secret: &Secret) -> Option<&[u8]> {
    let plan = value(secret, key::PLAN);
    (!plan.is_empty() && value(secret, key::APPLIED_CHECKSUM) != sha256_hex(plan).as_bytes()).then_some(plan)
}
