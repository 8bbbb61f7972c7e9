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
use remuda_plan::{
    NodePlan, key,
    output::{Blob, PeriodicResult, pack},
    sha256_hex,
};
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
    /// There is an API server that kubelets can register with.
    serving: bool,
}

/// All of them. Clones share what happened.
#[derive(Clone)]
pub(crate) struct Agents {
    management: World,
    workload: World,
    wishes: Arc<Mutex<Wishes>>,
    told: Arc<Mutex<Vec<String>>>,
    /// Nodes that somebody deleted.
    forgotten: Arc<Mutex<BTreeSet<String>>>,
    /// Servers that were told to remove what was installed on them, in order.
    cleaned: Arc<Mutex<Vec<String>>>,
}

impl Agents {
    pub(crate) fn new(management: &World, workload: &World) -> Self {
        let (management, workload) = (management.clone(), workload.clone());
        Self {
            management,
            workload,
            wishes: Arc::default(),
            told: Arc::default(),
            forgotten: Arc::default(),
            cleaned: Arc::default(),
        }
    }

    pub(crate) fn cleaned(&self) -> Vec<String> {
        self.cleaned.lock().clone()
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
            if down {
                continue;
            }
            let Some(bytes) = pending(&secret) else {
                self.register(&secret, &id).await;
                continue;
            };
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
        let mut data = json!({
            key::APPLIED_CHECKSUM: BASE64_STANDARD.encode(sha256_hex(bytes)),
            key::PROBE_STATUSES: BASE64_STANDARD.encode(serde_json::to_vec(&probes).unwrap()),
            key::FAILED_CHECKSUM: null, key::FAILURE_COUNT: null,
        });
        if !plan.periodic_instructions.is_empty() {
            data[key::APPLIED_PERIODIC_OUTPUT] = json!(BASE64_STANDARD.encode(member_report(id)));
        }
        self.told.lock().push(format!("{id} applied"));
        if is_last(&plan) {
            self.cleaned.lock().push(id.to_owned());
            self.report(secret, data).await;
            return;
        }
        let control_plane = secret.labels().contains_key("rke.cattle.io/control-plane-role");
        self.report(secret, data).await;
        if control_plane {
            self.wishes.lock().serving = true;
            self.connect().await;
        }
        self.join(id, &plan).await;
    }

    /// A kubelet whose API server was not there tries again.
    async fn register(&self, secret: &Secret, id: &str) {
        let nodes: Api<Node> = Api::all(self.workload.client());
        let Ok(plan) = NodePlan::decode(value(secret, key::PLAN)) else { return };
        if !is_last(&plan)
            && self.wishes.lock().serving
            && nodes.get_opt(id).await.is_ok_and(|node| node.is_none())
        {
            let gone = secret.metadata.deletion_timestamp.is_some() || self.forgotten.lock().contains(id);
            if !gone {
                self.join(id, &plan).await;
            }
        }
    }

    /// Somebody deletes a Node, which does not come again.
    pub(crate) async fn forget(&self, id: &str) {
        self.forgotten.lock().insert(id.to_owned());
        let nodes: Api<Node> = Api::all(self.workload.client());
        nodes.delete(id, &Default::default()).await.unwrap();
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
        if !self.wishes.lock().serving {
            return;
        }
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
        let version = image.rsplit_once(':').map_or("", |(_, tag)| tag).replacen('-', "+", 1);
        let nodes: Api<Node> = Api::all(self.workload.client());
        if nodes.get_opt(id).await.unwrap().is_none() {
            let node = json!({
                "metadata": {"name": id, "labels": labels}, "spec": {"providerID": format!("k3s://{id}")},
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        }
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
            "addresses": [{"type": "InternalIP", "address": address(id)}],
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
        // It may be switched off.
        let Ok(listed) = nodes.list(&ListParams::default()).await else { return };
        for node in listed.items {
            let annotations = node.annotations();
            let distro = if version_of(&node).contains("k3s") { "k3s" } else { "rke2" };
            let is = |value: &String| value == "true";
            let asked = annotations.get(&format!("etcd.{distro}.cattle.io/remove")).is_some_and(is);
            let answer = &format!("etcd.{distro}.cattle.io/removed-node-name");
            if asked && !annotations.contains_key(answer) {
                let patch = json!({"metadata": {"annotations": {answer: node.name_any()}}});
                nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
                self.told.lock().push(format!("{} left etcd", node.name_any()));
            }
        }
    }
}

/// What the server calls itself; servers a driver made are called as their machines.
fn id(secret: &Secret) -> String {
    let label = |key: &str| secret.labels().get(key).cloned();
    label("rke.cattle.io/machine-id").or_else(|| label("rke.cattle.io/machine-name")).unwrap_or_default()
}

fn address(id: &str) -> String {
    format!("10.0.0.{}", id.bytes().map(u32::from).sum::<u32>() % 250)
}

fn version_of(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.kubelet_version.clone()).unwrap_or_default()
}

/// What a server without an API server reports about its member of etcd.
fn member_report(id: &str) -> Vec<u8> {
    let member = json!({"name": format!("{id}-1"), "clientURLs": [format!("https://{}:2379", address(id))]});
    let result = |name: &str, stdout: String| {
        let result = PeriodicResult {
            name: name.to_owned(),
            stdout: Blob(stdout.into_bytes()),
            last_successful_run_time: "Mon Aug  3 09:05:07 UTC 2026".to_owned(),
            ..PeriodicResult::default()
        };
        (name.to_owned(), result)
    };
    let report = [
        result("etcd-name", format!("{id}-1\n")),
        result("capture-address", json!({"members": [member]}).to_string()),
        result("long-gone", String::new()),
    ];
    pack(report.into())
}

/// A plan that takes a server out of its cluster: it installs and configures nothing.
fn is_last(plan: &NodePlan) -> bool {
    plan.instructions.iter().any(|instruction| instruction.name == "clean")
}

fn value<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map(|value| value.0.as_slice()).unwrap_or_default()
}

/// The plan, if it has not been applied.
fn pending(secret: &Secret) -> Option<&[u8]> {
    let plan = value(secret, key::PLAN);
    (!plan.is_empty() && value(secret, key::APPLIED_CHECKSUM) != sha256_hex(plan).as_bytes()).then_some(plan)
}
