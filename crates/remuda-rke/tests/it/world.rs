//! A management API with one cluster, and that cluster's own API.

use std::{collections::BTreeMap, ops::Deref, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::{
    core::{Cluster, Machine},
    management,
    rke::{RkeCluster, RkeControlPlane},
};
use remuda_apiserver::{Config, Controllers};
use remuda_control::{Ctx, ObjectKey};
pub(crate) use remuda_testkit::Running;
use remuda_testkit::{
    Component, Line, World as Api2,
    time::{self, TimerClock},
    working_config,
};
use remuda_workload::{Connect, Down};
use serde_json::{Value, json};
use sha2_hex::short;

use crate::agent::Agents;

pub(crate) const NAMESPACE: &str = "fleet-default";
/// Name of the management Cluster.
pub(crate) const MANAGED: &str = "c-m-abcd1234";
pub(crate) const CLUSTER: &str = "demo";
pub(crate) const VERSION: &str = "v1.35.1+k3s1";

/// Names of machines follow from their ids.
mod sha2_hex {
    pub(crate) fn short(id: &str) -> String {
        remuda_plan::sha256_hex(id.as_bytes())[..12].to_owned()
    }
}

pub(crate) fn machine_name(id: &str) -> String {
    format!("custom-{}", short(id))
}

/// The management API, the workload cluster and what runs on its nodes.
#[derive(Clone)]
pub(crate) struct World {
    api: Api2,
    pub(crate) workload: Api2,
    pub(crate) agents: Agents,
    /// The way of controllers to the workload cluster.
    pub(crate) tunnel: Line,
    clock: TimerClock,
}

impl Deref for World {
    type Target = Api2;

    fn deref(&self) -> &Self::Target {
        &self.api
    }
}

/// Every cluster is the same one.
struct Tunnel(Line);

impl Connect for Tunnel {
    fn connect(&self, _: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        let client = self.0.client();
        Box::pin(async { Ok(client) })
    }
}

fn needed(name: &str) -> bool {
    (name.ends_with(".cluster.x-k8s.io") && !name.contains(".addons.") && !name.contains(".clusterctl."))
        || name.ends_with(".rke.cattle.io")
        || ["settings.management.cattle.io", "clusters.management.cattle.io"].contains(&name)
}

impl World {
    /// A world with a cluster that has no machines, and nobody at work.
    pub(crate) async fn start(spec: Value) -> Self {
        let clock = time::begin(Timestamp::now());
        let api = Api2::with(working_config).await;
        for definition in remuda_api::crd::all().chain(remuda_api::crd::rancher()) {
            if needed(definition["metadata"]["name"].as_str().unwrap()) {
                api.define(definition).await;
            }
        }
        let workload =
            Api2::with(|| Config { controllers: Controllers::Always, ..remuda_testkit::config() }).await;
        let agents = Agents::new(&api, &workload);
        let tunnel = workload.line();
        let world = Self { api, workload, agents, tunnel, clock };
        world.furnish(spec).await;
        world
    }

    async fn furnish(&self, spec: Value) {
        let namespaces: Api<Namespace> = Api::all(self.client());
        for name in [NAMESPACE, MANAGED, "c-m-other000"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        for (name, value) in
            [("server-url", "https://127.0.0.1:8443"), ("agent-image", "rancher/rancher-agent:v1")]
        {
            let setting =
                serde_json::from_value(json!({"metadata": {"name": name}, "value": value})).unwrap();
            let settings: Api<management::Setting> = Api::all(self.client());
            settings.create(&PostParams::default(), &setting).await.unwrap();
        }
        self.create_cluster(CLUSTER, MANAGED, spec).await;
    }

    /// What provisioning makes of a cluster.
    pub(crate) async fn create_cluster(&self, name: &str, managed: &str, extra: Value) {
        let cluster: management::Cluster =
            serde_json::from_value(json!({"metadata": {"name": managed}, "spec": {}})).unwrap();
        let clusters: Api<management::Cluster> = Api::all(self.client());
        clusters.create(&PostParams::default(), &cluster).await.unwrap();
        let token =
            json!({"metadata": {"name": "crt-token-default-token"}, "stringData": {"token": "registration"}});
        let tokens: Api<Secret> = Api::namespaced(self.client(), managed);
        tokens.create(&PostParams::default(), &serde_json::from_value(token).unwrap()).await.unwrap();
        self.create::<RkeCluster>(json!({"metadata": {"name": name}, "spec": {}})).await;
        let mut spec = json!({
            "kubernetesVersion": VERSION, "clusterName": name, "managementClusterName": managed,
        });
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.create::<RkeControlPlane>(json!({"metadata": {"name": name}, "spec": spec})).await;
        let reference = |kind: &str| json!({"apiGroup": "rke.cattle.io", "kind": kind, "name": name});
        self.create::<Cluster>(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"infrastructureRef": reference("RKECluster"), "controlPlaneRef": reference("RKEControlPlane")},
        }))
        .await;
    }

    /// Starts all controllers, and the connections they use.
    pub(crate) fn run(&self) -> Running {
        let ctx = Ctx::new(self.client_of(Component::Shared), "remuda-test").with_clock(Arc::new(self.clock));
        let acting = |component| Arc::new(ctx.acting_as(self.client_of(component), "remuda-test"));
        let tunnel = Arc::new(Tunnel(self.tunnel.clone()));
        let workloads =
            remuda_workload::Workloads::new(acting(Component::Workloads), Default::default(), tunnel);
        let leave = vec![
            "ClusterResourceSet",
            "MachinePool",
            "MachineSet",
            "MachineDeployment",
            "MachineHealthCheck",
        ];
        let options = remuda_capi::Options { leave, ..Default::default() };
        let (core, control_plane) = (acting(Component::ClusterApi), acting(Component::ControlPlane));
        Running::start(Arc::new(ctx), |stop| async move {
            tokio::join!(
                remuda_workload::run(workloads.clone(), stop.clone()),
                remuda_capi::run(core, options, workloads.clone(), stop.clone()),
                remuda_rke::run(control_plane, Default::default(), workloads, stop),
            );
        })
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(crate) async fn create<K>(&self, object: Value)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let object = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Asks for a server to be registered, as the gateway does.
    pub(crate) async fn request(&self, managed: &str, id: &str, roles: &str) {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        headers.insert("id".into(), vec![id.to_owned()]);
        for (letter, header) in [('e', "role-etcd"), ('c', "role-control-plane"), ('w', "role-worker")] {
            headers.insert(header.into(), vec![roles.contains(letter).to_string()]);
        }
        headers.insert("node-name".into(), vec![id.to_owned()]);
        headers.insert("labels".into(), vec!["cattle.io/os=linux".to_owned()]);
        let secret = json!({
            "metadata": {"name": machine_name(id)}, "type": "rke.cattle.io/machine-request",
            "stringData": {"data": serde_json::to_string(&headers).unwrap()},
        });
        let secrets: Api<Secret> = Api::namespaced(self.client(), managed);
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    /// Registers servers, given as `id:roles`.
    pub(crate) async fn register(&self, servers: &str) {
        for server in servers.split_whitespace() {
            let (id, roles) = server.split_once(':').unwrap();
            self.request(MANAGED, id, roles).await;
        }
    }

    pub(crate) async fn machine(&self, id: &str) -> Option<Machine> {
        self.api::<Machine>().get_opt(&machine_name(id)).await.unwrap()
    }

    pub(crate) async fn plan_secret(&self, id: &str) -> Secret {
        self.api::<Secret>().get(&format!("{}-machine-plan", machine_name(id))).await.unwrap()
    }

    /// Condition of a Machine as `status reason message`.
    pub(crate) async fn machine_condition(&self, id: &str, kind: &str) -> String {
        let machine = self.machine(id).await.unwrap();
        let status = machine.status.unwrap_or_default();
        let found = status.conditions.iter().find(|known| known.type_ == kind);
        found.map(|known| format!("{} {} {}", known.status, known.reason, known.message)).unwrap_or_default()
    }

    /// Condition of the control plane as `status reason message`.
    pub(crate) async fn condition(&self, kind: &str) -> String {
        let object = self.api::<RkeControlPlane>().get(CLUSTER).await.unwrap();
        let status = object.status.unwrap_or_default();
        let found = status.conditions.iter().find(|known| known.kind == kind);
        let told = found.map(|known| format!("{} {} {}", known.status, known.reason, known.message));
        told.unwrap_or_default().trim().to_owned()
    }

    pub(crate) async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<RkeControlPlane>().patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the control plane is Ready and has done what its spec says.
    pub(crate) async fn settle(&self) {
        let mut told = String::new();
        for _ in 0..500 {
            let object = self.api::<RkeControlPlane>().get(CLUSTER).await.unwrap();
            let status = object.status.unwrap_or_default();
            let applied = status.applied_spec.as_deref() == Some(&object.spec);
            told = self.condition("Ready").await;
            if told == "True" && applied && !self.agents.busy().await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        panic!("never settled: {told}");
    }

    /// Names of all objects of a kind in the namespace.
    pub(crate) async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let listed = self.api::<K>().list(&ListParams::default()).await.unwrap();
        listed.items.iter().map(ResourceExt::name_any).collect()
    }
}

/// Polls until it is so, for at most ten minutes of the runtime's time.
pub(crate) async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..300 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    panic!("never happened: {what}");
}
