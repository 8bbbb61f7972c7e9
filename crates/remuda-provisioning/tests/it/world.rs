//! A management API with all our kinds, those of a driver, and nobody at work but the controllers of provisioning.

// Each test file uses some of it.
#![allow(dead_code)]

use std::{fmt::Debug, ops::Deref, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use remuda_api::{management, provisioning, rke};
use remuda_control::Ctx;
use remuda_provisioning::Options;
pub(crate) use remuda_testkit::{Component, Running, until};
use remuda_testkit::{
    definition,
    time::{self, TimerClock},
    working_config,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "fleet-default";
pub(crate) const SERVER: &str = "https://mgr.example.com";

pub(crate) fn driver(kind: &str) -> ApiResource {
    let group =
        if kind.ends_with("Config") { "rke-machine-config.cattle.io" } else { "rke-machine.cattle.io" };
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), &plural)
}

fn driver_crd(kind: &str) -> Value {
    let resource = driver(kind);
    // As a driver's: what is not said has the driver's default.
    let defaulted = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "sshUser": {"type": "string", "default": "root"},
    }});
    let mut definition = definition(&resource);
    definition["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta2": "v1"});
    let version = definition["spec"]["versions"][0].as_object_mut().unwrap();
    version.remove("subresources");
    if kind.ends_with("Config") {
        version.insert("schema".to_owned(), json!({"openAPIV3Schema": defaulted}));
    }
    definition
}

pub(crate) fn schema_spec() -> Value {
    json!({"resourceFields": {
        "image": {"type": "string", "default": {"stringValue": "ubuntu-22-04-x64"}},
        "region": {"type": "string"},
        "size": {"type": "string"},
        "privateNetworking": {"type": "boolean"},
        "backups": {"type": "boolean"},
        "tags": {"type": "string"},
        "sshUser": {"type": "string", "default": {"stringValue": "root"}},
    }})
}

#[derive(Clone)]
pub(crate) struct World {
    api: remuda_testkit::World,
    pub(crate) clock: TimerClock,
}

impl Deref for World {
    type Target = remuda_testkit::World;

    fn deref(&self) -> &Self::Target {
        &self.api
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = time::begin(Timestamp::now());
        let api = remuda_testkit::World::with(working_config).await;
        let drivers = ["DigitaloceanConfig", "DigitaloceanMachine", "DigitaloceanMachineTemplate"];
        let ours = remuda_api::crd::all().chain(remuda_api::crd::rancher());
        let definitions = ours.chain(drivers.iter().map(|kind| driver_crd(kind)));
        futures::future::join_all(definitions.map(|definition| api.define(definition))).await;
        let world = Self { api, clock };
        let schema = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "DynamicSchema",
            "metadata": {"name": "digitaloceanconfig"}, "spec": schema_spec(),
        });
        let schemas: Api<management::DynamicSchema> = Api::all(world.client());
        schemas.create(&PostParams::default(), &serde_json::from_value(schema).unwrap()).await.unwrap();
        world
    }

    /// Starts all controllers.
    pub(crate) fn run(&self) -> Running {
        let ctx = Ctx::new(self.client_of(Component::Shared), "remuda-test").with_clock(Arc::new(self.clock));
        let ctx = Arc::new(ctx.acting_as(self.client_of(Component::Provisioning), "remuda-test"));
        let options = Options {
            server_url: SERVER.to_owned(),
            ca_pem: "PEM".to_owned(),
            agent_image: "rancher/rancher-agent:v1".to_owned(),
            ..Options::default()
        };
        Running::start(ctx.clone(), |stop| remuda_provisioning::run(ctx, options, stop))
    }

    /// Controllers, and what they rely on.
    pub(crate) async fn running() -> (Self, Running) {
        let world = Self::start().await;
        let running = world.run();
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(world.client());
        for name in ["fleet-default", "cattle-global-data"] {
            until(&format!("namespace {name}"), async || namespaces.get_opt(name).await.unwrap().is_some())
                .await;
        }
        (world, running)
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(crate) fn clusters(&self) -> Api<provisioning::Cluster> {
        self.api()
    }

    pub(crate) fn managements(&self) -> Api<management::Cluster> {
        Api::all(self.client())
    }

    pub(crate) fn driver(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), NAMESPACE, &driver(kind))
    }

    /// Creates a provisioning Cluster.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> provisioning::Cluster {
        let object = json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        self.clusters()
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap()
    }

    pub(crate) async fn edit(&self, name: &str, patch: Value) {
        self.clusters().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn credential(&self, name: &str) {
        let mut secret = Secret::default();
        secret.metadata.name = Some(name.to_owned());
        let secrets: Api<Secret> = Api::namespaced(self.client(), "cattle-global-data");
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    /// Creates a configuration of the driver, with the fields at its root.
    pub(crate) async fn config(&self, name: &str, fields: Value) {
        let mut config = DynamicObject::new(name, &driver("DigitaloceanConfig"));
        config.data = fields;
        self.driver("DigitaloceanConfig").create(&PostParams::default(), &config).await.unwrap();
    }

    pub(crate) async fn templates(&self) -> Vec<DynamicObject> {
        let listed = self.driver("DigitaloceanMachineTemplate").list(&ListParams::default()).await;
        listed.unwrap().items
    }

    /// The object once it is so.
    pub(crate) async fn eventually<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        so: impl Fn(&K) -> bool,
    ) -> K
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut last = None;
        for _ in 0..4_000 {
            last = api.get_opt(name).await.unwrap();
            if let Some(object) = last.as_ref().filter(|object| so(object)) {
                return object.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never happened: {name} {what}: {last:#?}");
    }

    /// The Cluster once a condition says so.
    pub(crate) async fn told(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        message: &str,
    ) -> provisioning::Cluster {
        let what = format!("{kind} {status} {message}");
        self.eventually(&self.clusters(), name, &what, |cluster: &provisioning::Cluster| {
            let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
            let mut ours = conditions.filter(|condition| condition.kind == kind);
            ours.any(|condition| condition.status == status && condition.message.contains(message))
        })
        .await
    }

    /// Nothing writes any more.
    pub(crate) async fn settle(&self) {
        let mut before = usize::MAX;
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let writes = self.writes().len();
            if writes == before {
                return;
            }
            before = writes;
        }
        panic!("never settles: {:?}", self.writes().split_off(before.saturating_sub(20)));
    }

    /// What the control plane reports.
    pub(crate) async fn report(&self, name: &str, conditions: Value) {
        let control_planes: Api<rke::RkeControlPlane> = self.api();
        let current = control_planes.get(name).await.unwrap();
        let status = json!({"observedGeneration": current.metadata.generation, "conditions": conditions});
        let patch = Patch::Merge(json!({"status": status}));
        control_planes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// What the gateway reports of the connection.
    pub(crate) async fn connect(&self, management: &str, connected: bool) {
        let status = if connected { "True" } else { "False" };
        loop {
            let current = self.managements().get(management).await.unwrap();
            let mut conditions = current.status.clone().unwrap_or_default().conditions;
            for kind in ["Connected", "AgentDeployed"] {
                conditions.retain(|condition| condition.kind != kind);
                conditions.push(rke::Condition {
                    kind: kind.to_owned(),
                    status: status.to_owned(),
                    ..rke::Condition::default()
                });
            }
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": current.resource_version()},
                "status": {"conditions": conditions},
            }));
            let written = self.managements().patch_status(management, &PatchParams::default(), &patch).await;
            if written.is_ok() {
                return;
            }
        }
    }
}

/// An object without what the API adds to it.
pub(crate) fn plain<K: serde::Serialize>(object: &K) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        value["metadata"].as_object_mut().unwrap().remove(key);
    }
    let is_ours = |key: &String| key.starts_with("objectset.rio.cattle.io/") || key.starts_with("remuda.io/");
    for map in ["labels", "annotations"] {
        if let Some(map) = value["metadata"].get_mut(map).and_then(Value::as_object_mut) {
            map.retain(|key, _| !is_ours(key) || key == "objectset.rio.cattle.io/prune");
        }
    }
    value
}

pub(crate) fn edge() -> Value {
    json!({
        "kubernetesVersion": "v1.35.1+k3s1",
        "localClusterAuthEndpoint": {"enabled": false},
        "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://proxy.corp:3128"}],
        "rkeConfig": {
            "machineGlobalConfig": {"secrets-encryption": true, "disable": ["servicelb"]},
            "machineSelectorConfig": [{
                "machineLabelSelector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}},
                "config": {"protect-kernel-defaults": false},
            }],
            "upgradeStrategy": {
                "controlPlaneConcurrency": "1",
                "workerConcurrency": "10%",
                "workerDrainOptions": {"enabled": true, "deleteEmptyDirData": true, "timeout": 120},
            },
            "etcd": {"snapshotScheduleCron": "0 */5 * * *", "snapshotRetention": 5},
            "registries": {"mirrors": {"docker.io": {"endpoint": ["https://mirror.corp"]}}},
        },
    })
}

pub(crate) fn demo() -> Value {
    json!({
        "kubernetesVersion": "v1.35.1+rke2r1",
        "cloudCredentialSecretName": "cattle-global-data:cc-do1",
        "rkeConfig": {
            "machineGlobalConfig": {"cni": "calico"},
            "chartValues": {"rke2-calico": {}},
            "machinePoolDefaults": {"hostnameLengthLimit": 40},
            "machinePools": [
                {
                    "name": "pool1", "quantity": 3, "etcdRole": true, "controlPlaneRole": true,
                    "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "nc-demo-pool1"},
                    "drainBeforeDelete": true, "unhealthyNodeTimeout": "10m", "maxUnhealthy": "1",
                },
                {
                    "name": "workers", "quantity": 2, "workerRole": true,
                    "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "nc-demo-workers"},
                    "labels": {"tier": "apps"},
                    "taints": [{"key": "dedicated", "value": "apps", "effect": "PreferNoSchedule"}],
                    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1},
                },
            ],
        },
    })
}

impl World {
    /// The cluster of two pools, and everything it refers to.
    pub(crate) async fn create_demo(&self) -> provisioning::Cluster {
        self.credential("cc-do1").await;
        let fields = json!({
            "image": "ubuntu-24-04-x64", "region": "nyc3", "size": "s-2vcpu-4gb",
            "privateNetworking": true, "tags": "demo",
        });
        self.config("nc-demo-pool1", fields).await;
        self.config("nc-demo-workers", json!({"region": "nyc3", "size": "s-1vcpu-2gb"})).await;
        self.create("demo", demo()).await;
        self.told("demo", "RKECluster", "True", "").await
    }
}
